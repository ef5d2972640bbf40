"""What a user may choose about fusion, checked when it is chosen."""

import dataclasses
import os
from collections.abc import Iterable, Mapping
from typing import Any

from quincunx.fusion import _extension


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """disable: names of patterns that are not looked for, of `pattern_names()`. check: compares the first call of every
    region with torch's own operators. cache_directory: where kernels are kept between processes; "" is the default
    place, "none" keeps nothing. dump_directory: where the compiler writes its IR after each pass; "" is nowhere.
    """

    disable: Iterable[str] = ()
    check: bool = False
    cache_directory: str = ""
    dump_directory: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "disable", _pattern_set(self.disable))
        if not isinstance(self.check, bool):
            raise ValueError(f"check is {self.check!r}; expected True or False")
        for name in ("cache_directory", "dump_directory"):
            value = getattr(self, name)
            if not isinstance(value, (str, os.PathLike)):
                raise ValueError(f"{name} is {value!r}; expected a path")
            object.__setattr__(self, name, os.fspath(value))

    @classmethod
    def from_options(cls, options: Mapping[str, Any] | None) -> "Settings":
        known = [field.name for field in dataclasses.fields(cls)]
        for name in options or {}:
            if name not in known:
                raise ValueError(f"options has the unknown key {name!r}; expected {', '.join(known)}")
        return cls(**(options or {}))

    @property
    def patterns(self) -> dict[str, bool]:
        """The compiler's switches."""
        return dict.fromkeys(sorted(self.disable), False)


def pattern_names() -> list[str]:
    """The patterns that can be switched off by name."""
    return list(_extension.load().pattern_names())


def _pattern_set(names: Any) -> frozenset[str]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ValueError(f"disable is {names!r}; expected a list of pattern names")
    chosen = frozenset(names)
    unknown = sorted(str(name) for name in chosen - frozenset(pattern_names())) if chosen else []
    if unknown:
        raise ValueError(f"disable names {', '.join(unknown)}; expected some of {', '.join(pattern_names())}")
    return chosen
