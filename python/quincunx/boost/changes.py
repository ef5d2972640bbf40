"""Changes to a pipeline that are planned first, made together, and undone by identity."""

import contextlib
import dataclasses
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .counters import Counters

_ABSENT = object()
# owner -> names of its attributes that some handle has replaced. Owners live as long as their pipelines do.
_replaced: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def _own_attribute(owner: Any, name: str) -> Any:
    """The attribute of the instance itself: modules keep parameters and children apart from __dict__."""
    for table in ("_modules", "_parameters", "_buffers"):
        if name in vars(owner).get(table, ()):
            return vars(owner)[table][name]
    return vars(owner).get(name, _ABSENT)


def check_not_boosted(pipe: Any) -> None:
    """ValueError if a handle has replaced something of the pipeline or of a module in it."""
    parts = [pipe] if isinstance(pipe, torch.nn.Module) else [pipe, *vars(pipe).values()]
    for part in parts:
        for owner in part.modules() if isinstance(part, torch.nn.Module) else [pipe]:
            if owner in _replaced:
                names = ", ".join(sorted(_replaced[owner]))
                raise ValueError(f"pipe: is boosted already ({names} of a {type(owner).__name__}); undo that first")


@dataclasses.dataclass
class Replacement:
    """`owner.name` becomes `value`; absent before means that it is deleted again."""

    owner: Any
    name: str
    value: Any
    label: str
    before: Any = _ABSENT

    def make(self) -> None:
        self.before = _own_attribute(self.owner, self.name)
        setattr(self.owner, self.name, self.value)
        _replaced.setdefault(self.owner, set()).add(self.name)

    def is_intact(self) -> bool:
        return _own_attribute(self.owner, self.name) is self.value

    def undo(self) -> None:
        if self.is_intact():
            if self.before is _ABSENT:
                delattr(self.owner, self.name)
            else:
                setattr(self.owner, self.name, self.before)
        _replaced[self.owner].discard(self.name)
        if not _replaced[self.owner]:
            del _replaced[self.owner]


class Changes:
    """What a boost_fn(pipe, config) returns: nothing is changed until make().

    parts: names and modules whose time boost.quality takes. counters: what the new parts count.
    """

    def __init__(self, counters: Counters | None = None) -> None:
        self.counters = counters or Counters()
        self.parts: dict[str, list[torch.nn.Module]] = {}
        self.replacements: list[Replacement] = []
        self._hooks: list[tuple[torch.nn.Module, Callable]] = []
        self._hook_handles: list[Any] = []

    def replace(self, owner: Any, name: str, value: Any, label: str) -> None:
        """Plans `owner.name = value`. label: what this is, with its place, for explain() and errors."""
        self.replacements.append(Replacement(owner, name, value, label))

    def before_forward(self, module: torch.nn.Module, hook: Callable) -> None:
        """Plans hook(module, args, kwargs) before each forward of the module."""
        self._hooks.append((module, hook))

    def add_part(self, name: str, *modules: torch.nn.Module) -> None:
        self.parts.setdefault(name, []).extend(modules)

    def check(self) -> None:
        """ValueError where another handle has replaced any of it."""
        taken = [r.label for r in self.replacements if r.name in _replaced.get(r.owner, ())]
        if taken:
            raise ValueError(f"pipe: is boosted already ({taken[0]}); undo that first")

    def make(self) -> None:
        self.check()
        with contextlib.ExitStack() as undo_if_one_fails:
            undo_if_one_fails.callback(self._undo_all)
            for replacement in self.replacements:
                replacement.make()
            self._hook_handles = [
                module.register_forward_pre_hook(hook, with_kwargs=True) for module, hook in self._hooks
            ]
            undo_if_one_fails.pop_all()

    def _undo_all(self) -> None:
        for handle in self._hook_handles:
            handle.remove()
        self._hook_handles = []
        for replacement in reversed(self.replacements):
            if replacement.name in _replaced.get(replacement.owner, ()):
                replacement.undo()

    def undo(self) -> None:
        """Puts everything back. RuntimeError, afterwards, names what others had replaced meanwhile: that stays."""
        foreign = [r.label for r in self.replacements if not r.is_intact()]
        self._undo_all()
        if foreign:
            raise RuntimeError(
                f"undo: {', '.join(foreign)} had been replaced since the boost and stays; all else is as before"
            )

    def labels(self) -> Iterator[str]:
        return (replacement.label for replacement in self.replacements)
