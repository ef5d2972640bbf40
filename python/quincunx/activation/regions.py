"""Checkpointed regions: run forward under a policy, replayed where backward wants what was not kept."""

import contextlib
import contextvars
import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from quincunx.activation import _extension
from quincunx.activation.policy import Policy
from quincunx.activation.random_state import RandomState

_EVERYTHING_AGAIN = Policy()
_default: contextvars.ContextVar[Policy | None] = contextvars.ContextVar("quincunx_default_policy", default=None)


def _autocast_contexts() -> list[Callable[[], contextlib.AbstractContextManager]]:
    """What sets autocast up again as it is now."""
    devices = ("cpu", "cuda") if torch.cuda.is_initialized() else ("cpu",)
    return [
        functools.partial(
            torch.autocast,
            device_type=device,
            dtype=torch.get_autocast_dtype(device),
            enabled=torch.is_autocast_enabled(device),
            cache_enabled=torch.is_autocast_cache_enabled(),
        )
        for device in devices
    ]


@contextlib.contextmanager
def _tracked_modules(frame: Any, scope: int, module: torch.nn.Module | None) -> Iterator[None]:
    """Tells the frame which module an operator is called from."""
    handles = []
    for path, child in module.named_modules() if module is not None else ():
        # What is checkpointed may be called by its forward, past its hooks.
        if child is module:
            frame.push_module(scope, path)
            continue
        enter = functools.partial(_enter_module, frame, scope, path)
        handles.append(child.register_forward_pre_hook(enter, prepend=True))
        handles.append(child.register_forward_hook(lambda *_: frame.pop_module(scope), always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _enter_module(frame: Any, scope: int, path: str, *_: Any) -> None:
    frame.push_module(scope, path)


def _owner(fn: Callable) -> torch.nn.Module | None:
    owner = getattr(fn, "__self__", fn)
    return owner if isinstance(owner, torch.nn.Module) else None


def _name_of(tensor: torch.Tensor | None, fn: Callable, args: tuple, kwargs: Mapping) -> str:
    owner = _owner(fn)
    named = [] if owner is None else [*owner.named_parameters(), *owner.named_buffers()]
    named += [(f"argument {i}", value) for i, value in enumerate(args)]
    named += [(f"argument {name}", value) for name, value in kwargs.items()]
    for name, value in named:
        if isinstance(value, torch.Tensor) and tensor is not None and value.data_ptr() == tensor.data_ptr():
            return name
    return "a tensor from outside of the region"


def check_unchanged(frame: Any, name_of: Callable[[torch.Tensor | None], str]) -> None:
    """RuntimeError if a tensor that the region used was changed in place after its forward."""
    for tensor, operator in frame.changed_tensors():
        raise RuntimeError(
            f"checkpoint: {name_of(tensor)}, used by {operator}, was changed in place between the forward and its "
            "replay; run backward before changing it, or clone it"
        )


class _Replay:
    """Runs the function again as it ran first, and leaves no trace but the values that are wanted."""

    def __init__(self, fn: Callable, args: tuple, kwargs: dict, policy: Policy, context: Any) -> None:
        self.fn, self.args, self.kwargs, self.policy, self.context = fn, args, kwargs, policy, context
        self.random_state = RandomState()
        self.autocast = _autocast_contexts()
        self.lock = threading.RLock()

    def __call__(self, frame: Any) -> None:
        self.policy.warn_of_unmatched()
        check_unchanged(frame, lambda tensor: _name_of(tensor, self.fn, self.args, self.kwargs))
        with self.lock, contextlib.ExitStack() as stack:
            stack.callback(RandomState().restore)
            self.random_state.restore()
            stack.enter_context(torch.enable_grad())
            for autocast in self.autocast:
                stack.enter_context(autocast())
            stack.callback(frame.end_replay)
            frame.begin_replay()
            frame.enter()
            stack.callback(frame.leave)
            stack.enter_context(saved_tensors_hooks(frame.pack, frame.unpack))
            with contextlib.suppress(_extension.StopReplay), self.context:
                self.fn(*self.args, **self.kwargs)


def as_policy(policy: Policy | Mapping | Callable) -> Policy:
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, Mapping):
        return Policy.from_dict(policy)
    if callable(policy):
        return Policy.from_callable(policy)
    raise ValueError(f"policy is {policy!r}; expected a Policy, a dict, a callable or None")


@contextlib.contextmanager
def default_policy(policy: Policy | Mapping | Callable) -> Iterator[Policy]:
    """While it lasts, in this thread, regions that are given no policy of their own use this one."""
    checked = as_policy(policy)
    token = _default.set(checked)
    try:
        yield checked
    finally:
        _default.reset(token)


def checkpoint(
    fn: Callable,
    *args: Any,
    policy: Policy | Mapping | Callable | None = None,
    context_fn: Callable[[], tuple[Any, Any]] | None = None,
    **kwargs: Any,
) -> Any:
    """fn(*args, **kwargs), keeping only what `policy` says until backward; the rest is computed again.

    Gradients are bitwise those of fn(*args, **kwargs). Without a policy that of default_policy() decides; outside of
    one everything is computed again. A region in a region is part of the outer one's replay, and its policy decides
    about its operators. `context_fn`, as torch.utils.checkpoint has it, gives two contexts: one around the forward and
    one around the replay.
    """
    policy = _default.get() or _EVERYTHING_AGAIN if policy is None else as_policy(policy)
    if not callable(fn):
        raise ValueError(f"fn is {fn!r}; expected a callable")
    module = _owner(fn) if policy.uses_modules else None
    table = policy.table(tuple(path for path, _ in module.named_modules()) if module is not None else None)
    if not torch.is_grad_enabled():
        return fn(*args, **kwargs)
    frame = _extension.load().Frame.current()
    if frame is not None:
        if context_fn is not None:
            raise NotImplementedError("checkpoint: context_fn is given in a region; give it to the outermost region")
        return _run_nested(frame, table, module, fn, args, kwargs)
    frame = _extension.load().Frame(table)
    # The modules' hooks stay out of the replay: there the table is not asked.
    around_forward, around_replay = (contextlib.nullcontext(),) * 2 if context_fn is None else context_fn()
    frame.replay = _Replay(fn, args, kwargs, policy, around_replay)
    frame.enter()
    try:
        with around_forward, _tracked_modules(frame, 0, module), saved_tensors_hooks(frame.pack, frame.unpack):
            result = fn(*args, **kwargs)
        frame.finish_forward()
    finally:
        frame.leave()
    return result


def _run_nested(frame: Any, table: Any, module: Any, fn: Callable, args: tuple, kwargs: dict) -> Any:
    scope = frame.push_policy(table)
    try:
        with _tracked_modules(frame, scope, module):
            return fn(*args, **kwargs)
    finally:
        frame.pop_policy()


def checkpointed(fn: Callable | None = None, *, policy: Policy | Mapping | Callable | None = None) -> Callable:
    """A decorator, with or without arguments: every call of the function is a region."""
    if fn is None:
        return functools.partial(checkpointed, policy=policy)
    if not callable(fn):
        raise ValueError(f"fn is {fn!r}; expected a callable")
    checked = None if policy is None else as_policy(policy)

    @functools.wraps(fn)
    def region(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(fn, *args, policy=checked, **kwargs)

    return region


def checkpoint_wrapper(module: torch.nn.Module, policy: Policy | Mapping | Callable | None = None) -> torch.nn.Module:
    """Makes every forward of `module` a region. Returns the same module: names in its state_dict are unchanged."""
    if not isinstance(module, torch.nn.Module):
        raise ValueError(f"module is {module!r}; expected a torch.nn.Module")
    if hasattr(module, "_quincunx_policy"):
        raise ValueError(f"module {type(module).__name__} is already checkpointed")
    # An attribute of the instance, not a module around it. Hooks, as of FSDP, stay outside of the region.
    module._quincunx_policy = None if policy is None else as_policy(policy)
    module.forward = functools.partial(checkpoint, module.forward, policy=module._quincunx_policy)
    return module


def counters() -> dict[str, int]:
    """Since the process began: regions, replays, operators inspected, results saved, swapped, answered from those."""
    return _extension.load().counters()
