"""Times several callables in turn, so that all of them see the same states of the machine."""

import dataclasses
import time
from collections.abc import Callable, Mapping

Clock = Callable[[], float]
Call = Callable[[], object]

# A sample repeats its call until it lasts this long, so that the clock and one interruption weigh little.
SAMPLE_SECONDS = 0.02
_MAX_CALLS = 10_000
# To fill the largest caches anew takes a few milliseconds: below one percent of such a call.
_LONG_CALL_SECONDS = 0.5


@dataclasses.dataclass(frozen=True)
class Rounds:
    """How a row is timed. `pause_s`: sleep before each sample, in which the threads of the one before come to rest."""

    count: int = 9
    sample_s: float = SAMPLE_SECONDS
    pause_s: float = 0.0


def _seconds_a_call(call: Call, clock: Clock) -> float:
    """The first call, which fills caches and starts threads, is not counted."""
    call()
    return _sample(call, 1, clock)


def _calls_a_sample(elapsed: float, sample_s: float) -> int:
    return max(1, min(_MAX_CALLS, int(sample_s / elapsed) if elapsed > 0 else _MAX_CALLS))


def _sample(call: Call, num_calls: int, clock: Clock) -> float:
    start = clock()
    for _ in range(num_calls):
        call()
    return (clock() - start) / num_calls


def interleave(
    calls: Mapping[str, Call],
    rounds: Rounds,
    *,
    clock: Clock = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, list[float]]:
    """Seconds a call: one sample of each in every round, in turns forwards and backwards.

    Each sample of calls below half a second starts with an untimed one, because the sample before may have emptied
    the caches.
    """
    elapsed = {name: _seconds_a_call(call, clock) for name, call in calls.items()}
    num_calls = {name: _calls_a_sample(elapsed[name], rounds.sample_s) for name in calls}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    for _ in range(rounds.count):
        for name in order:
            if rounds.pause_s > 0:
                sleep(rounds.pause_s)
            if elapsed[name] < _LONG_CALL_SECONDS:
                calls[name]()
            seconds[name].append(_sample(calls[name], num_calls[name], clock))
        order.reverse()
    return seconds


def slowest(of_ranks: list[list[float]]) -> list[float]:
    """Round by round the longest time of all ranks: a collective has ended when the last one has."""
    return [max(values) for values in zip(*of_ranks, strict=True)]
