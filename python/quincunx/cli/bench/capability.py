"""What a folder of `benchmarks/` offers, and how its rows are taken."""

import contextlib
import dataclasses
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence

from .demand import Demand
from .load import LoadMeter
from .peak import PeakMeter
from .rounds import Rounds
from .row import MOST_DISPLACED, Measurement, Row, Surroundings, Verdict, judge, missing_row
from .workers import Workers

MAX_ATTEMPTS = 3
# A quick run waits for a quiet machine and repeats disturbed rows only in its first minutes.
_QUICK_PATIENCE_SECONDS = 180.0


@dataclasses.dataclass
class Context:
    """What a measurement is given. `workers(n)`: n processes of one thread, the same ones until a row fails."""

    checkout: pathlib.Path
    quick: bool = False
    start: float = dataclasses.field(default_factory=time.monotonic)
    _workers: Workers | None = None

    def rounds(self, *, pause_s: float = 0.0, sample_s: float = Rounds.sample_s) -> Rounds:
        return Rounds(5 if self.quick else 9, sample_s / 2 if self.quick else sample_s, pause_s)

    @property
    def num_steps(self) -> int:
        """Rounds of what is slow: a step of training."""
        return 3 if self.quick else 7

    @property
    def is_patient(self) -> bool:
        return not self.quick or time.monotonic() - self.start < _QUICK_PATIENCE_SECONDS

    def workers(self, num_ranks: int) -> Workers:
        if self._workers is None or self._workers.num_ranks != num_ranks:
            self.close()
            self._workers = Workers(num_ranks, self.checkout)
        return self._workers

    def close(self) -> None:
        if self._workers is not None:
            self._workers.close()
            self._workers = None


@dataclasses.dataclass(frozen=True)
class Task:
    """One measurement, which answers the rows `ids` at once. `threads`: those of ours, in each process. `cores`: those
    that it keeps busy; 0 for one that counts and does not time, which no other load can disturb."""

    ids: tuple[str, ...]
    measure: Callable[[Context], Sequence[Measurement]]
    threads: int = 1
    cores: int = 1


@dataclasses.dataclass(frozen=True)
class Capability:
    """`unmeasured`: why a demanded row has no measurement. `check_ready` raises what is missing."""

    name: str
    tasks: tuple[Task, ...]
    unmeasured: dict[str, str]
    check_ready: Callable[[pathlib.Path], None]


def check_complete(capability: Capability, demands: dict[str, Demand]) -> None:
    """ValueError unless each demanded id is either measured or listed as unmeasured."""
    measured = {row_id for task in capability.tasks for row_id in task.ids}
    both = sorted(measured & set(capability.unmeasured))
    forgotten = sorted(set(demands) - measured - set(capability.unmeasured))
    undemanded = sorted(set(capability.unmeasured) - set(demands))
    for what, ids in (
        ("are measured and listed as unmeasured", both),
        ("are neither measured nor listed as unmeasured", forgotten),
        ("are listed as unmeasured, but nothing demands them", undemanded),
    ):
        if ids:
            raise ValueError(f"{capability.name}: {', '.join(ids)} {what}")


@dataclasses.dataclass(frozen=True)
class Meters:
    """What is read around each row."""

    peak: PeakMeter
    load: LoadMeter
    num_cores: int = dataclasses.field(default_factory=lambda: len(os.sched_getaffinity(0)))

    def spare_cores(self, task: Task) -> int:
        return max(0, self.num_cores - task.cores)


def _take(task: Task, context: Context, meters: Meters) -> tuple[Sequence[Measurement], Surroundings | None]:
    if task.cores == 0:
        return task.measure(context), None
    before, start = meters.peak.part_of_best(task.cores), meters.load.start()
    measurements = task.measure(context)
    others = meters.load.since(start)
    displaced = max(0.0, others - meters.spare_cores(task)) / task.cores
    peak = min(before, meters.peak.part_of_best(task.cores))
    return measurements, Surroundings(others / task.cores, displaced, peak)


def _attempt(
    capability: Capability, task: Task, demands: dict[str, Demand], context: Context, meters: Meters
) -> list[Row]:
    measurements, surroundings = _take(task, context, meters)
    rows = []
    for measurement in measurements:
        demand = demands.get(measurement.id)
        applies = demand is not None and demand.threads == measurement.threads
        rows.append(judge(capability.name, measurement, demand if applies else None, surroundings=surroundings))
    return rows


def _rows_of_task(
    capability: Capability, task: Task, demands: dict[str, Demand], context: Context, meters: Meters
) -> list[Row]:
    """Repeats a measurement that was disturbed."""
    try:
        rows = _attempt(capability, task, demands, context, meters)
        for _ in range(MAX_ATTEMPTS - 1):
            if not context.is_patient or all(row.verdict != Verdict.DISTURBED for row in rows):
                break
            meters.load.wait_until_quiet(meters.spare_cores(task) + MOST_DISPLACED * task.cores)
            rows = _attempt(capability, task, demands, context, meters)
        return rows
    except Exception as error:  # One row that fails must not cost the others: it counts as missed, with the reason.
        context.close()
        reason = f"{type(error).__name__}: {error}"
        owed = [demands[row_id] for row_id in task.ids if row_id in demands]
        return [missing_row(demand, reason) for demand in owed if demand.threads == task.threads]


def _applicable(demands: dict[str, Demand], cpu_flags: Sequence[str]) -> dict[str, Demand]:
    return {key: demand for key, demand in demands.items() if demand.not_with_cpu_flag not in cpu_flags}


def measure_all(
    capability: Capability,
    demands: dict[str, Demand],
    context: Context,
    meters: Meters,
    *,
    cpu_flags: Sequence[str] = (),
) -> Iterator[Row]:
    """The rows of a capability as they are taken, and at last those that are demanded and missing."""
    check_complete(capability, demands)
    demands = _applicable(demands, cpu_flags)
    answered: set[str] = set()
    with contextlib.closing(context):
        for task in capability.tasks:
            for row in _rows_of_task(capability, task, demands, context, meters):
                answered.add(row.id)
                yield row
    for row_id, demand in demands.items():
        if row_id not in answered:
            yield missing_row(demand, capability.unmeasured.get(row_id, "its measurement gave no such row"))
