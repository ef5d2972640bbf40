"""Spans of one training step for its Gantt chart, taken with PyTorch's profiler.

Lanes: "phase" (forward, backward, optimizer), "collective" (from the start of an operation of the backend to its
end, in whatever thread it ran) and "Newton-Schulz" (the orthogonalisation inside the optimizer's phase).
"""

import contextlib
from collections.abc import Iterator

import torch
from records import Record, Recorder

PHASE_PREFIX = "tour: "


def phase(name: str) -> torch.profiler.record_function:
    return torch.profiler.record_function(PHASE_PREFIX + name)


def _lane_and_kind(name: str) -> tuple[str, str] | None:
    if name.startswith(PHASE_PREFIX):
        return "phase", name.removeprefix(PHASE_PREFIX)
    backend, separator, operation = name.partition(":")
    # c10d titles an operation "<backend>:<operation>"; operators of the dispatcher have two colons.
    if separator and backend in ("mccl", "gloo") and not operation.startswith(":"):
        return "collective", operation.removeprefix("_").removesuffix("_base")
    if name.startswith("quincunx::") and ("newton_schulz" in name or "orthogonal" in name):
        return "Newton-Schulz", "Newton-Schulz"
    return None


@contextlib.contextmanager
def recorded(recorder: Recorder, step: int, *, wanted: bool) -> Iterator[None]:
    """Where wanted, profiles the body and records its spans; times are the machine's clock, so ranks line up."""
    if not wanted:
        yield
        return
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        yield
    spans: list[Record] = []
    for event in profile.profiler.kineto_results.events():
        lane_and_kind = _lane_and_kind(event.name())
        if lane_and_kind is not None:
            lane, kind = lane_and_kind
            spans.append(
                {"lane": lane, "kind": kind, "start_s": event.start_ns() / 1e9, "seconds": event.duration_ns() / 1e9}
            )
    recorder.write("trace", step=step, spans=spans)
