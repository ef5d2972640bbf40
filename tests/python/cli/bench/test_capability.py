import pathlib
from collections.abc import Sequence

import pytest
from quincunx.cli.bench.capability import MAX_ATTEMPTS, Capability, Context, Meters, Task, check_complete, measure_all
from quincunx.cli.bench.demand import Demand
from quincunx.cli.bench.load import LoadMeter, ProcessorTimes
from quincunx.cli.bench.peak import PeakMeter
from quincunx.cli.bench.row import Measurement, Verdict


class CountedTask:
    """A measurement whose calls are counted."""

    def __init__(self, *ids: str, ratio: float = 2.0, threads: int = 1, error: Exception | None = None) -> None:
        self.num_calls = 0
        self._ids, self._ratio, self._threads, self._error = ids, ratio, threads, error

    def measure(self, context: Context) -> Sequence[Measurement]:
        self.num_calls += 1
        if self._error is not None:
            raise self._error
        return [Measurement(i, i, "s", [1.0], {"peer": [self._ratio]}, self._threads) for i in self._ids]

    def task(self, cores: int = 1) -> Task:
        return Task(self._ids, self.measure, self._threads, cores)


def capability(*tasks: Task, unmeasured: dict[str, str] | None = None) -> Capability:
    return Capability("some", tasks, unmeasured or {}, check_ready=lambda checkout: None)


def demands(*ids: str, threads: int = 1, flag: str = "") -> dict[str, Demand]:
    return {i: Demand("some", i, i, "at_least", 2.0, "", threads, flag) for i in ids}


QUIET = (0.0,)
BUSY = (1.0,)


def meters(others=QUIET, num_cores: int = 1) -> Meters:
    """`others`: the cores that others take from one reading to the next, the last one again and again."""
    pending, now = list(others), [ProcessorTimes(0.0, 0.0, 0.0, 0.0)]

    def read() -> ProcessorTimes:
        cores = pending.pop(0) if len(pending) > 1 else pending[0]
        now[0] = ProcessorTimes(now[0].wall + 1.0, now[0].busy + 1.0 + cores, 0.0, now[0].own + 1.0)
        return now[0]

    return Meters(PeakMeter(lambda threads: 100.0), LoadMeter(read, sleep=lambda seconds: None), num_cores)


def rows_of(tasks, asked, others=QUIET, num_cores=1, **options):
    context = Context(pathlib.Path("."))
    return list(measure_all(capability(*tasks, **options), asked, context, meters(others, num_cores)))


def test_measured_row_is_judged():
    assert [row.verdict for row in rows_of([CountedTask("a").task()], demands("a"))] == [Verdict.PASS]


def test_disturbed_row_is_repeated_and_then_marked():
    counted = CountedTask("a")
    (row,) = rows_of([counted.task()], demands("a"), BUSY)
    assert row.verdict == Verdict.DISTURBED
    assert counted.num_calls == MAX_ATTEMPTS


def test_repeated_row_counts_where_the_machine_was_quiet_then():
    counted = CountedTask("a")
    start, busy, waited_from, waited_to = 0.0, 1.0, 0.0, 0.0
    (row,) = rows_of([counted.task()], demands("a"), (start, busy, waited_from, waited_to, 0.0))
    assert row.verdict == Verdict.PASS
    assert counted.num_calls == 2


def test_others_that_a_spare_core_serves_take_none_of_the_rows():
    (row,) = rows_of([CountedTask("a").task()], demands("a"), BUSY, num_cores=2)
    assert (row.verdict, row.surroundings.others, row.surroundings.displaced) == (Verdict.PASS, pytest.approx(0.98), 0)


def test_row_of_several_cores_is_held_against_all_of_them():
    little_of_ten = (0.0, 0.4)
    assert rows_of([CountedTask("a").task(cores=10)], demands("a"), little_of_ten)[0].verdict == Verdict.PASS
    assert rows_of([CountedTask("a").task(cores=1)], demands("a"), little_of_ten)[0].verdict == Verdict.DISTURBED


def test_counting_row_is_not_disturbed():
    counted = CountedTask("a")
    (row,) = rows_of([counted.task(cores=0)], demands("a"), BUSY)
    assert (row.verdict, counted.num_calls) == (Verdict.PASS, 1)


def test_row_that_fails_counts_as_missed_and_costs_no_other():
    failed, passed = rows_of(
        [CountedTask("a", error=OSError("lost")).task(), CountedTask("b").task()], demands("a", "b")
    )
    assert (failed.verdict, failed.note) == (Verdict.MISSING, "OSError: lost")
    assert passed.verdict == Verdict.PASS


def test_demand_is_for_its_number_of_threads():
    tasks = [CountedTask("a").task(), CountedTask("a", ratio=1.0, threads=2).task()]
    assert [row.verdict for row in rows_of(tasks, demands("a"))] == [Verdict.PASS, Verdict.SHOWN]
    assert [row.verdict for row in rows_of(tasks, demands("a", threads=2))] == [Verdict.SHOWN, Verdict.MISS]


def test_failed_row_of_other_threads_owes_nothing():
    tasks = [CountedTask("a").task(), CountedTask("a", threads=2, error=OSError("lost")).task()]
    assert [row.verdict for row in rows_of(tasks, demands("a"))] == [Verdict.PASS]


def test_unmeasured_row_is_listed_with_its_reason():
    (row,) = rows_of([], demands("a"), unmeasured={"a": "no peer"})
    assert (row.verdict, row.note) == (Verdict.MISSING, "no peer")


def test_measurement_that_forgets_a_row_leaves_it_missing():
    forgetful = Task(("a",), lambda context: [])
    (row,) = rows_of([forgetful], demands("a"))
    assert row.verdict == Verdict.MISSING


def test_demand_of_other_processors_is_not_held_against_this_one():
    tasks = [CountedTask("a", ratio=0.1).task()]
    some = capability(*tasks)
    for flags, verdict in ((["wide"], Verdict.SHOWN), (["narrow"], Verdict.MISS)):
        context = Context(pathlib.Path("."))
        (row,) = measure_all(some, demands("a", flag="wide"), context, meters(), cpu_flags=flags)
        assert row.verdict == verdict


@pytest.mark.parametrize(
    ("measured", "unmeasured", "message"),
    [
        ([], {}, "some: a are neither measured nor listed as unmeasured"),
        (["a"], {"a": "why"}, "some: a are measured and listed as unmeasured"),
        (["a"], {"b": "why"}, "some: b are listed as unmeasured, but nothing demands them"),
    ],
)
def test_incomplete_capability_is_refused(measured, unmeasured, message):
    tasks = [CountedTask(i).task() for i in measured]
    with pytest.raises(ValueError, match=message):
        check_complete(capability(*tasks, unmeasured=unmeasured), demands("a"))


def test_quick_context_takes_fewer_rounds():
    quick, full = Context(pathlib.Path("."), True), Context(pathlib.Path("."))
    assert quick.rounds().count < full.rounds().count
    assert quick.num_steps < full.num_steps
    assert full.rounds().count >= 7
    assert full.num_steps >= 7
