"""What is demanded of each row, read from `benchmarks/demands.toml`. No other place holds a demand."""

import dataclasses
import pathlib
import tomllib
from typing import Any

# Each demand has exactly one of these:
#   at_least           times better than the peer
#   at_most_of_peer    times the cost of the peer
#   limit              an absolute upper bound, in `unit`
#   share_below_peer   the part that ours is below the peer
#   equal              ours is the peer
KINDS = ("at_least", "at_most_of_peer", "limit", "share_below_peer", "equal")
_OPTIONAL = ("unit", "threads", "not_with_cpu_flag")


@dataclasses.dataclass(frozen=True)
class Demand:
    """One row of a figures table. `row`: its words."""

    capability: str
    id: str
    row: str
    kind: str
    value: float
    unit: str = ""
    threads: int = 1
    not_with_cpu_flag: str = ""

    @property
    def shown(self) -> float | str:
        """The least ratio to the peer, or words that name an absolute."""
        if self.kind == "limit":
            return f"<= {self.value:g} {self.unit}"
        return "equal" if self.kind == "equal" else round(self.least_ratio, 4)

    @property
    def least_ratio(self) -> float:
        """The ratio that meets the demand. For absolutes the ratio is limit / ours, so that 1 meets them."""
        if self.kind == "at_least":
            return self.value
        if self.kind == "at_most_of_peer":
            return 1 / self.value
        return 1 / (1 - self.value) if self.kind == "share_below_peer" else 1.0


def _demand(capability: str, row_id: str, entry: dict[str, Any]) -> Demand:
    where = f"demands: {capability}.{row_id}"
    kinds = [kind for kind in KINDS if kind in entry]
    if len(kinds) != 1:
        raise ValueError(f"{where}: expected exactly one of {', '.join(KINDS)}, got {kinds or 'none'}")
    kind = kinds[0]
    unknown = sorted(set(entry) - {"row", kind, *_OPTIONAL})
    if unknown:
        raise ValueError(f"{where}: unknown key '{unknown[0]}', expected row, {kind}, {', '.join(_OPTIONAL)}")
    if not isinstance(entry.get("row"), str) or not entry["row"]:
        raise ValueError(f"{where}: expected the words of the row under 'row'")
    value = entry[kind]
    if kind == "equal":
        if value is not True:
            raise ValueError(f"{where}: equal: expected true, got {value!r}")
        value = 1.0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ValueError(f"{where}: {kind}: expected a positive number, got {value!r}")
    if kind == "share_below_peer" and value >= 1:
        raise ValueError(f"{where}: {kind}: expected a share below 1, got {value!r}")
    if (kind == "limit") != ("unit" in entry):
        raise ValueError(f"{where}: 'unit' belongs to 'limit', and to it alone")
    options = {name: entry[name] for name in _OPTIONAL if name in entry}
    return Demand(capability, row_id, entry["row"], kind, float(value), **options)


def load_demands(path: pathlib.Path) -> dict[str, dict[str, Demand]]:
    """capability -> id -> Demand, in the order of the file. ValueError names the entry that is wrong."""
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise ValueError(f"demands: cannot read {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"demands: {path}: {error}") from error
    return {
        capability: {row_id: _demand(capability, row_id, entry) for row_id, entry in entries.items()}
        for capability, entries in document.items()
    }
