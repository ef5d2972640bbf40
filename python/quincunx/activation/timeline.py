"""Who holds which bytes of activations when, recorded while regions run."""

import contextlib
import dataclasses
from collections.abc import Iterator

from quincunx.activation import _extension

# In memory, the first three together; in a file; and what autograd would hold in memory in place of all of them.
HOLDERS = ("saved", "recomputed", "swap_buffer", "swapped", "autograd")


@dataclasses.dataclass(frozen=True)
class TimelineEvent:
    """From `seconds` on, as time.monotonic() counts them, `holder` holds `live_bytes`."""

    seconds: float
    holder: str
    live_bytes: int


def _check_holders(holders: tuple[str, ...]) -> None:
    for holder in holders:
        if holder not in HOLDERS:
            raise ValueError(f"holders contains {holder!r}; expected some of {', '.join(HOLDERS)}")


class Timeline:
    """What record_timeline() gives: readable during the recording, and afterwards as long as it is wanted.

    Holders: "saved" (results that a policy keeps in memory), "recomputed" (brought back by a replay), "swap_buffer"
    (in memory on their way to a file or from it), "swapped" (in a file); and, for comparison, "autograd": what the
    regions' tensors that autograd saved would hold without regions.
    """

    def __init__(self) -> None:
        self._core = _extension.load().Timeline()

    @property
    def events(self) -> list[TimelineEvent]:
        """Every change, in the order of time."""
        events = self._core.events()
        return [TimelineEvent(time_ns / 1e9, holder.name.lower(), live) for time_ns, holder, live in events]

    def total(self, *holders: str) -> list[tuple[float, int]]:
        """(seconds, bytes of these holders together) after each change of one of them."""
        _check_holders(holders)
        live = dict.fromkeys(holders, 0)
        totals = []
        for event in self.events:
            if event.holder in live:
                live[event.holder] = event.live_bytes
                totals.append((event.seconds, sum(live.values())))
        return totals

    def peak_bytes(self, *holders: str) -> int:
        return max((num_bytes for _, num_bytes in self.total(*holders)), default=0)


@contextlib.contextmanager
def record_timeline() -> Iterator[Timeline]:
    """Records what the regions that run inside hold, in all threads. One recording at a time."""
    timeline = Timeline()
    if not timeline._core.start():
        raise RuntimeError("record_timeline: another timeline records in this process; end that one first")
    try:
        yield timeline
    finally:
        timeline._core.stop()
