"""Processor time that others took while a row ran: other processes, and other guests of a virtual machine's host."""

import dataclasses
import os
import pathlib
import time
from collections.abc import Callable, Iterable

_PROC = pathlib.Path("/proc")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Both sides are counted in ticks of ten milliseconds, and the kernel gives a whole tick to whoever runs at its end.
_UNSEEN_SECONDS = 0.02
_WAIT_SECONDS = 0.5
_MAX_WAITS = 6


@dataclasses.dataclass(frozen=True)
class ProcessorTimes:
    """Seconds up to now. `busy`: of all processes; `stolen`: what the host gave to others; `own`: of ours."""

    wall: float
    busy: float
    stolen: float
    own: float


def machine_times(stat: str) -> tuple[float, float]:
    """(busy, stolen) of the text of /proc/stat, in seconds. Interrupts count for nobody."""
    user, nice, system, _idle, _iowait, _irq, _softirq, steal = (int(field) for field in stat.split()[1:9])
    return (user + nice + system) / _TICKS_PER_SECOND, steal / _TICKS_PER_SECOND


def _parent_and_ticks(stat: str) -> tuple[int, int]:
    """Of a process, with the children that it has waited for. Its name may hold spaces and brackets."""
    fields = stat.rpartition(")")[2].split()
    return int(fields[1]), sum(int(field) for field in fields[11:15])


def _stats(proc: pathlib.Path) -> Iterable[tuple[int, str]]:
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            yield int(folder.name), (folder / "stat").read_text()
        except OSError:  # It has ended since.
            continue


def own_seconds(process: int, proc: pathlib.Path = _PROC) -> float:
    """Of a process and of all that descend from it."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for pid, stat in _stats(proc):
        parents[pid], ticks[pid] = _parent_and_ticks(stat)

    def descends(pid: int) -> bool:
        while pid != process and pid in parents:
            pid = parents[pid]
        return pid == process

    return sum(count for pid, count in ticks.items() if descends(pid)) / _TICKS_PER_SECOND


def read_times(proc: pathlib.Path = _PROC) -> ProcessorTimes:
    """Of this machine and this process. RuntimeError where the system has no /proc/stat."""
    try:
        busy, stolen = machine_times((proc / "stat").read_text().splitlines()[0])
    except OSError as error:
        raise RuntimeError(f"cannot tell whether other processes disturb the rows: {error}") from error
    return ProcessorTimes(time.perf_counter(), busy, stolen, own_seconds(os.getpid(), proc))


def others_between(start: ProcessorTimes, end: ProcessorTimes) -> float:
    """Processor seconds of others a second: 1 where they kept one core busy all the time."""
    taken = (end.busy - start.busy) + (end.stolen - start.stolen) - (end.own - start.own)
    elapsed = end.wall - start.wall
    return max(0.0, taken - _UNSEEN_SECONDS) / elapsed if elapsed > 0 else 0.0


class LoadMeter:
    """`since(start)` of a `start()` before the row; `wait_until_quiet` between attempts."""

    def __init__(
        self, read: Callable[[], ProcessorTimes] = read_times, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._read = read
        self._sleep = sleep

    def start(self) -> ProcessorTimes:
        return self._read()

    def since(self, start: ProcessorTimes) -> float:
        return others_between(start, self._read())

    def wait_until_quiet(self, most: float) -> bool:
        """Waits a few seconds until others take at most `most` cores; False where they go on."""
        for _ in range(_MAX_WAITS):
            start = self.start()
            self._sleep(_WAIT_SECONDS)
            if self.since(start) <= most:
                return True
        return False
