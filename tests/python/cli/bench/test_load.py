import os

import pytest
from quincunx.cli.bench.load import LoadMeter, ProcessorTimes, machine_times, others_between, own_seconds, read_times

TICKS = os.sysconf("SC_CLK_TCK")


def times(wall: float, busy: float = 0.0, stolen: float = 0.0, own: float = 0.0) -> ProcessorTimes:
    return ProcessorTimes(wall, busy, stolen, own)


def fake_process(proc, pid: int, parent: int, ticks: tuple[int, int, int, int], name: str = "(a name)") -> None:
    folder = proc / str(pid)
    folder.mkdir()
    before = " ".join(["0"] * 9)
    (folder / "stat").write_text(f"{pid} {name} S {parent} {before} {' '.join(map(str, ticks))} 20 0 1\n")


def test_machine_counts_processes_and_steal_but_not_interrupts():
    line = f"cpu  {TICKS} {2 * TICKS} {3 * TICKS} 1000 1000 1000 1000 {4 * TICKS} 77 77"
    assert machine_times(line) == (6.0, 4.0)


def test_own_time_is_that_of_all_descendants(tmp_path):
    fake_process(tmp_path, 10, 1, (TICKS, 0, 0, TICKS))
    fake_process(tmp_path, 11, 10, (0, TICKS, 0, 0), name="(a) b (c)")
    fake_process(tmp_path, 12, 11, (0, 0, TICKS, 0))
    fake_process(tmp_path, 20, 1, (50 * TICKS, 0, 0, 0))
    (tmp_path / "13").mkdir()  # ended between the listing and the reading
    (tmp_path / "self").mkdir()
    assert own_seconds(10, tmp_path) == 4.0


def test_others_are_what_is_busy_and_not_ours():
    assert others_between(times(0.0), times(10.0, busy=15.02, own=10.0)) == pytest.approx(0.5)


def test_stolen_time_counts_as_that_of_others():
    assert others_between(times(0.0), times(10.0, busy=10.0, stolen=2.02, own=10.0)) == pytest.approx(0.2)


def test_ticks_that_cannot_be_told_apart_are_nobodys():
    assert others_between(times(0.0), times(0.1, busy=0.12, own=0.1)) == 0.0
    assert others_between(times(0.0), times(0.1, busy=0.0, own=0.1)) == 0.0


def readings(*cores: float):
    """Pairs of readings a second apart between which others took so many cores."""
    pending = [value for count in cores for value in (times(0.0), times(1.0, busy=count + 0.02))]
    return lambda: pending.pop(0)


def test_waiting_ends_when_the_machine_is_quiet():
    waits: list[float] = []
    assert LoadMeter(readings(1.0, 0.5, 0.1), sleep=waits.append).wait_until_quiet(0.1)
    assert len(waits) == 3


def test_waiting_ends_where_the_machine_stays_busy():
    waits: list[float] = []
    assert not LoadMeter(readings(*[1.0] * 50), sleep=waits.append).wait_until_quiet(0.1)
    assert 0 < len(waits) < 50


def test_system_without_the_counters_is_refused(tmp_path):
    with pytest.raises(RuntimeError, match="cannot tell whether other processes disturb"):
        read_times(tmp_path)


def test_this_machine_has_the_counters():
    first, second = read_times(), read_times()
    assert second.wall > first.wall
    assert second.own >= first.own > 0
    assert second.busy >= first.busy > 0
