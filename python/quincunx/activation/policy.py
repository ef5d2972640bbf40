"""A checkpointing policy as data: ordered rules, checked when they are made and compiled into a table."""

import dataclasses
import enum
import fnmatch
import functools
import os
import pathlib
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from quincunx.activation import _extension

_DEFAULT_BUDGET_BYTES = 16 << 30


class Action(enum.Enum):
    """What becomes of an operator's result between the forward and the backward of a region."""

    SAVE = "SAVE"
    RECOMPUTE = "RECOMPUTE"
    SWAP = "SWAP"


def _is_integer(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 1 << 63


def swap_arena(*, budget_bytes: int, directory: str | os.PathLike[str] | None = None) -> Any:
    """A file in `directory` (the system's temporary folder if None) that holds at most `budget_bytes` of results."""
    if not _is_integer(budget_bytes, 1):
        raise ValueError(f"budget_bytes is {budget_bytes!r}; expected more than 0, an integer below 2^63")
    if directory is not None and not isinstance(directory, (str, os.PathLike)):
        raise ValueError(f"directory is {directory!r}; expected the path of a folder")
    return _extension.load().SwapArena(os.fspath(directory or tempfile.gettempdir()), budget_bytes)


@functools.cache
def _default_arena() -> Any:
    return swap_arena(budget_bytes=_DEFAULT_BUDGET_BYTES)


@functools.cache
def _has_kernel_of(name: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)


def _resolve(pattern: object) -> list[str]:
    """The operators, as "aten::mm" or "aten::mm.out", that a name, a pattern or an object of torch.ops means."""
    if isinstance(pattern, torch._ops.OpOverload):
        return [pattern.name()]
    if isinstance(pattern, torch._ops.OpOverloadPacket):
        pattern = pattern._qualified_op_name.replace("::", ".", 1)
    if not isinstance(pattern, str):
        raise ValueError(f"op is {pattern!r}; expected a name such as 'aten.mm', a pattern or an object of torch.ops")
    found = []
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        operator, _, overload = rest.partition(".")
        base = f"{namespace}.{operator}"
        if fnmatch.fnmatchcase(base, pattern) or fnmatch.fnmatchcase(f"{base}.{overload or 'default'}", pattern):
            found.append(name)
    if not found:
        raise ValueError(f"op is {pattern!r}, which no registered operator matches")
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """Applies `action` to an operator that meets all conditions; a condition left out is met by every operator.

    op: "aten.mm" (all overloads), "aten.mm.default", a pattern such as "aten.*mm*", or an object of torch.ops.
    module: a pattern for the path of a module in the checkpointed one; operators in it and below it match.
    dtype: of the first result. min_bytes: of all results. every_nth: the n-th, 2n-th, ... that meets the others.
    """

    action: Action | str
    op: Any = None
    module: str | None = None
    dtype: torch.dtype | str | None = None
    min_bytes: int = 0
    every_nth: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "action", _action(self.action))
        object.__setattr__(self, "operators", None if self.op is None else _resolve(self.op))
        dtype = getattr(torch, self.dtype, None) if isinstance(self.dtype, str) else self.dtype
        if self.dtype is not None and not isinstance(dtype, torch.dtype):
            raise ValueError(f"dtype is {self.dtype!r}; expected a torch.dtype or its name, such as 'float32'")
        object.__setattr__(self, "dtype", dtype)
        if self.module is not None and not isinstance(self.module, str):
            raise ValueError(f"module is {self.module!r}; expected a pattern such as 'layers.*.mlp'")
        for name, least in (("min_bytes", 0), ("every_nth", 1)):
            value = getattr(self, name)
            if not _is_integer(value, least):
                raise ValueError(f"{name} is {value!r}; expected an integer of at least {least}, below 2^63")


def _action(value: object) -> Action:
    if isinstance(value, Action):
        return value
    if isinstance(value, str) and value in Action.__members__:
        return Action[value]
    raise ValueError(f"action is {value!r}; expected one of {', '.join(Action.__members__)}")


def _check_keys(data: Mapping, known: Iterable[str], what: str) -> None:
    known = tuple(known)
    for key in data:
        if key not in known:
            raise ValueError(f"{what} has the unknown key {key!r}; expected {', '.join(known)}")


class Policy:
    """Ordered rules, of which the first that applies decides; `default` decides where none does.

    One policy may serve many regions. `arena` holds what is swapped; without one, all policies share an arena of 16 GiB
    in the system's temporary folder.
    """

    def __init__(self, rules: Iterable[Rule | Mapping] = (), *, default: Action | str = "RECOMPUTE", arena: Any = None):
        if isinstance(rules, (str, Mapping)) or not isinstance(rules, Iterable):
            raise ValueError(f"rules is {rules!r}; expected a list of rules")
        if arena is not None and not isinstance(arena, _extension.load().SwapArena):
            raise ValueError(f"arena is {arena!r}; expected what swap_arena() gives")
        self.rules = [rule if isinstance(rule, Rule) else _rule_from(rule) for rule in rules]
        self.default = _action(default)
        swaps = Action.SWAP in (self.default, *(rule.action for rule in self.rules))
        self.arena = _default_arena() if swaps and arena is None else arena
        self._decide: Callable[[Any], Any] | None = None
        self._tables: dict[tuple[str, ...] | None, Any] = {}
        self._warned = False

    def __deepcopy__(self, memo: dict[int, Any]) -> "Policy":
        """The same policy: copies of a module share it, and its arena, as different modules may."""
        return self

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Policy":
        """{"rules": [{"op": ..., "action": ...}, ...], "default": ..., "swap": {"directory", "budget_bytes"}}"""
        if not isinstance(data, Mapping):
            raise ValueError(f"policy is {data!r}; expected a dict with the key 'rules'")
        _check_keys(data, ("rules", "default", "swap"), "policy")
        swap = data.get("swap")
        if swap is not None:
            if not isinstance(swap, Mapping):
                raise ValueError(f"swap is {swap!r}; expected a dict with the keys 'directory' and 'budget_bytes'")
            _check_keys(swap, ("directory", "budget_bytes"), "swap")
        arena = None if swap is None else swap_arena(**{"budget_bytes": _DEFAULT_BUDGET_BYTES, **swap})
        return cls(data.get("rules", ()), default=data.get("default", "RECOMPUTE"), arena=arena)

    @classmethod
    def from_yaml(cls, path: str | os.PathLike[str]) -> "Policy":
        """A file that holds the dict of from_dict()."""
        try:
            import yaml
        except ImportError as error:
            raise RuntimeError("Policy.from_yaml needs the Python package PyYAML: pip install pyyaml") from error
        try:
            data = yaml.safe_load(pathlib.Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ValueError(f"path is {os.fspath(path)!r}, which cannot be read as YAML: {error}") from error
        return cls.from_dict(data)

    @classmethod
    def from_callable(cls, decide: Callable[[Any], Action | str], *, arena: Any = None) -> "Policy":
        """`decide(call)` gives the action for each operator of a forward that could be kept.

        `call` has op ("aten.mm.default"), modules (paths of those that it is called in, from the outermost), dtype and
        shape of the first result, and num_bytes of all results. A table of rules costs a tenth of such a call.
        """
        if not callable(decide):
            raise ValueError(f"decide is {decide!r}; expected a callable")
        policy = cls(arena=_default_arena() if arena is None else arena)
        policy._decide = decide
        return policy

    @property
    def uses_modules(self) -> bool:
        return self._decide is not None or any(rule.module is not None for rule in self.rules)

    def table(self, module_paths: tuple[str, ...] | None) -> Any:
        """The compiled form for a region with these modules."""
        if module_paths not in self._tables:
            self._tables[module_paths] = self._compile(module_paths)
        return self._tables[module_paths]

    def _compile(self, module_paths: tuple[str, ...] | None) -> Any:
        core = _extension.load()
        rules = []
        for rule in self.rules:
            if rule.module is not None and module_paths is None:
                raise ValueError(f"module is {rule.module!r}, but what is checkpointed is no torch.nn.Module")
            modules = None
            if rule.module is not None:
                modules = [path for path in module_paths if fnmatch.fnmatchcase(path, rule.module)]
            action = getattr(core.Action, rule.action.name)
            rules.append(core.Rule(rule.operators, modules, rule.dtype, rule.min_bytes, rule.every_nth, action))
        decide = self._decide

        def decided(call: Any) -> Any:
            return getattr(core.Action, _action(decide(call)).name)

        return core.Policy(rules, getattr(core.Action, self.default.name), self.arena, decided if decide else None)

    def unmatched(self) -> list[Rule]:
        """The rules that decided about no operator so far."""
        counts = [table.num_matched for table in self._tables.values()]
        return [rule for i, rule in enumerate(self.rules) if not any(count[i] for count in counts)]

    def warn_of_unmatched(self) -> None:
        """Reports, once, each rule that decided about nothing in a whole forward."""
        if self._warned:
            return
        self._warned = True
        for rule in self.unmatched():
            composed = rule.operators and any(_has_kernel_of(n, "CompositeImplicitAutograd") for n in rule.operators)
            reason = f"; {rule.op} is composed of other operators, name those" if composed else ""
            warnings.warn(f"quincunx.activation: no operator matched {rule}{reason}", stacklevel=3)


def _rule_from(data: object) -> Rule:
    if not isinstance(data, Mapping):
        raise ValueError(f"rule is {data!r}; expected a Rule or a dict")
    _check_keys(data, (field.name for field in dataclasses.fields(Rule)), "rule")
    if "action" not in data:
        raise ValueError(f"rule {dict(data)!r} has no action; expected one of {', '.join(Action.__members__)}")
    return Rule(**data)
