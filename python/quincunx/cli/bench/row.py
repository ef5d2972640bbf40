"""What was measured, and the row that it becomes once it is held against its demand."""

import dataclasses
import enum
import statistics
from collections.abc import Callable
from typing import Any

from .demand import Demand

# A median ratio counts as met from this part of the demand on; between it and the demand the row is a tie.
TOLERANCE = 0.97
# Parts of the cores that a row keeps busy. Others that cannot have found this much on the cores left over took it from
# the row. Others that ran at all share caches and memory with it: then the row tells whether its ratios lie apart.
MOST_DISPLACED = 0.1
_HARMLESS_OTHERS = 0.02
_STEADY_SPREAD = 0.1
# An absolute demand is held against a machine that runs at its best: against one that gave this part of its peak.
_LEAST_PEAK = 0.9


class Verdict(enum.StrEnum):
    """`DISTURBED`: taken while others ran. `SHOWN`: nothing is demanded of the row."""

    PASS = "pass"
    TIE = "tie"
    MISS = "miss"
    DISTURBED = "disturbed"
    MISSING = "missing"
    SHOWN = "shown"


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """The machine while a row was taken.

    `others`: the processor time that others took, as a part of that of the cores which the row keeps busy; `displaced`:
    what of it the other cores do not have. `peak`: the lower one of the multiply-add rates before and after the row, as
    a part of the best of the run; None where none was read.
    """

    others: float = 0.0
    displaced: float = 0.0
    peak: float | None = None


@dataclasses.dataclass(frozen=True)
class Work:
    """What a call of a kernel has to do at least: floating-point operations, and bytes of its operands and results."""

    operations: float
    moved_bytes: float


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Costs of ours and of each peer, one number a round (seconds, unless `value_of` reads them otherwise).

    `value_of` turns a cost into what is shown in `unit`. `variant` tells rows of one id apart ("over gloo").
    `work` puts the row into the roofline plot; costs are seconds a call then.
    """

    id: str
    name: str
    unit: str
    ours: list[float]
    peers: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    threads: int = 1
    variant: str = ""
    value_of: Callable[[float], float] = float
    work: Work | None = None


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table. `ratio`: the median over the rounds; `spread`: its quartiles; `surroundings`: null where
    the row does not time."""

    capability: str
    id: str
    name: str
    verdict: Verdict
    ours: float | None = None
    peer: float | None = None
    peer_name: str | None = None
    unit: str | None = None
    ratio: float | None = None
    spread: tuple[float, float] | None = None
    demand: float | str | None = None
    threads: int = 1
    note: str = ""
    work: Work | None = None
    seconds: float | None = None  # a call, where there is work
    surroundings: Surroundings | None = None

    def as_json(self) -> dict[str, Any]:
        """`pass` is null where the row is neither passed nor missed."""
        passed = {Verdict.PASS: True, Verdict.TIE: True, Verdict.MISS: False, Verdict.MISSING: False}
        keys = ("capability", "name", "ours", "peer", "peer_name", "unit", "ratio", "demand")
        shown = {key: getattr(self, key) for key in keys}
        shown |= {"pass": passed.get(self.verdict), "threads": self.threads}
        shown |= {"id": self.id, "verdict": str(self.verdict), "spread": self.spread, "note": self.note}
        around = self.surroundings
        return shown | {"others": around.others if around else None, "peak": around.peak if around else None}


def best_peer(measurement: Measurement) -> str | None:
    """The peer of the lowest median cost."""
    medians = {name: statistics.median(costs) for name, costs in measurement.peers.items()}
    return min(medians, key=medians.__getitem__) if medians else None


def _quartiles(values: list[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def _ratios(measurement: Measurement, peer: str | None, demand: Demand | None) -> list[float]:
    """Round by round: peer / ours, or limit / ours for an absolute demand."""
    if demand is not None and demand.kind == "limit":
        return [demand.value / measurement.value_of(cost) for cost in measurement.ours]
    if peer is None:
        return []
    return [theirs / ours for ours, theirs in zip(measurement.ours, measurement.peers[peer], strict=True)]


def _is_disturbed(ratios: list[float], demand: Demand | None, around: Surroundings) -> bool:
    """Others took the row's cores, or ran beside it while its ratios lay apart; or an absolute demand met a machine
    slower than it can be. A peak that wanders by itself spoils no ratio of two that took turns."""
    if around.displaced > MOST_DISPLACED:
        return True
    if around.others > _HARMLESS_OTHERS and ratios:
        low, high = _quartiles(ratios)
        if high - low > _STEADY_SPREAD * statistics.median(ratios):
            return True
    return demand is not None and demand.kind == "limit" and around.peak is not None and around.peak < _LEAST_PEAK


def _verdict(ratios: list[float], demand: Demand | None) -> Verdict:
    if demand is None:
        return Verdict.SHOWN
    if demand.kind == "equal":
        return Verdict.PASS if all(ratio == 1 for ratio in ratios) else Verdict.MISS
    part = statistics.median(ratios) / demand.least_ratio
    if part >= 1:
        return Verdict.PASS
    return Verdict.TIE if part >= TOLERANCE else Verdict.MISS


def judge(
    capability: str, measurement: Measurement, demand: Demand | None, *, surroundings: Surroundings | None = None
) -> Row:
    """The row of a measurement. Nothing is demanded (None) of other thread counts than the demand's."""
    if demand is not None and demand.kind == "limit" and demand.unit != measurement.unit:
        raise ValueError(f"{demand.id}: the demand is in {demand.unit}, the measurement in {measurement.unit}")
    peer = best_peer(measurement)
    if demand is not None and demand.kind != "limit" and peer is None:
        raise ValueError(f"{demand.id}: the demand needs a peer, and none was measured")
    ratios = _ratios(measurement, peer, demand)
    is_disturbed = surroundings is not None and _is_disturbed(ratios, demand, surroundings)
    return Row(
        capability=capability,
        id=measurement.id,
        name=f"{measurement.name}, {measurement.variant}" if measurement.variant else measurement.name,
        verdict=Verdict.DISTURBED if is_disturbed else _verdict(ratios, demand),
        ours=measurement.value_of(statistics.median(measurement.ours)),
        peer=measurement.value_of(statistics.median(measurement.peers[peer])) if peer else None,
        peer_name=peer,
        unit=measurement.unit,
        ratio=statistics.median(ratios) if ratios else None,
        spread=_quartiles(ratios) if ratios else None,
        demand=demand.shown if demand else None,
        threads=measurement.threads,
        work=measurement.work,
        seconds=statistics.median(measurement.ours) if measurement.work else None,
        surroundings=surroundings,
    )


def missing_row(demand: Demand, reason: str) -> Row:
    """A demand that no measurement answers counts as missed."""
    return Row(
        capability=demand.capability,
        id=demand.id,
        name=demand.row,
        verdict=Verdict.MISSING,
        demand=demand.shown,
        threads=demand.threads,
        note=reason,
    )
