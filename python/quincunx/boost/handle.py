"""One call that boosts a pipeline, and what undoes it."""

import contextlib
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from .changes import Changes, check_not_boosted
from .config import BoostConfig, load_config
from .models import boost_function

Config = BoostConfig | Mapping[str, Any] | str | pathlib.Path | None


class Handle:
    """A boosted pipeline: what was changed, what has run since, and the way back."""

    def __init__(self, config: BoostConfig, changes: Changes) -> None:
        self.config = config
        self.counters = changes.counters
        self.parts = changes.parts
        self._changes = changes
        self._is_active = True
        changes.make()

    @property
    def is_active(self) -> bool:
        return self._is_active

    @property
    def density(self) -> float:
        """Attained in self-attention, over all calls since the boost: the part of all pairs of tokens."""
        return self.counters.density

    def undo(self) -> None:
        """Puts every changed attribute back. RuntimeError if that has been done, or if others changed one since."""
        if not self._is_active:
            raise RuntimeError("undo: this boost has been undone already")
        self._is_active = False
        self._changes.undo()

    def explain(self) -> str:
        """What was replaced, the options, the calls of each part, and the attained density of each block."""
        state = "active" if self._is_active else "undone"
        lines = [f"boost ({state}): {len(self._changes.replacements)} parts replaced"]
        lines += [f"  {label}" for label in self._changes.labels()]
        options = [f"{name} {value}" for name, value in vars(self.config).items() if value is not None]
        lines += ["options: " + ", ".join(options), "calls:"]
        lines += [f"  {calls:6} {what}" for what, calls in sorted(self.counters.calls.items())] or ["  none"]
        for name, block in self.counters.blocks.items():
            lines.append(f"density of {name}: {block.density:.3f} in {block.calls} calls")
        lines.append(f"density of all self-attention: {self.density:.3f}")
        return "\n".join(lines)


def boost(pipe: Any, config: Config = None) -> Handle:
    """Makes a pipeline faster in place: sparse self-attention, our dense cross-attention, rotary embedding and norms.

    pipe: an instance of a class in SUPPORTED_MODELS. config: a BoostConfig, a dict of its fields, the path of a YAML
    file, or YAML text. Only this pipeline changes; the handle's undo() puts it back. Raises ValueError for a class that
    is not known, an option that is not, and a pipeline that is boosted already.
    """
    checked = load_config(config)
    plan = boost_function(pipe)
    check_not_boosted(pipe)
    return Handle(checked, plan(pipe, checked))


@contextlib.contextmanager
def boosted(pipe: Any, config: Config = None) -> Iterator[Handle]:
    """The pipeline boosted inside the `with`, and as before after it, whatever happens in between."""
    handle = boost(pipe, config)
    try:
        yield handle
    finally:
        if handle.is_active:
            handle.undo()
