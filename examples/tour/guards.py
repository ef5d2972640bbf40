"""What makes the tour fail instead of falling back in silence."""

import contextlib
from collections import defaultdict
from collections.abc import Iterator

import torch.distributed.distributed_c10d as c10d
from quincunx.report import Report
from records import Record, of_event


class GuardError(RuntimeError):
    """A part of the tour did not do its work."""


@contextlib.contextmanager
def gloo_refused() -> Iterator[None]:
    """While it lasts, torch.distributed in this process cannot make a gloo process group: the attempt raises."""

    class RefusedGloo:
        Options = c10d.ProcessGroupGloo.Options

        def __init__(self, *arguments: object, **options: object):
            raise GuardError("guard: a process group of gloo was asked for; every collective must be served by mccl")

        create_device = create_default_device = __init__

    original = c10d.ProcessGroupGloo
    c10d.ProcessGroupGloo = RefusedGloo
    try:
        yield
    finally:
        c10d.ProcessGroupGloo = original


def check_collectives(records: list[Record]) -> None:
    """mccl itself must have counted all-gathers and reduce-scatters on every rank that finished."""
    done = of_event(records, "done")
    if not done:
        raise GuardError("guard: no worker reported the end of training")
    for record in done:
        calls = record["collective_calls"]
        for operation in ("all_gather", "reduce_scatter"):
            if calls.get(operation, 0) <= 0:
                raise GuardError(
                    f"guard: mccl served no {operation} on rank {record['rank']} (it counted {calls}), "
                    "so FSDP2's collectives went elsewhere"
                )


def check_matrices(records: list[Record], world_size: int) -> None:
    """In every step the ranks together orthogonalised each matrix exactly once."""
    by_step: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    for record in of_event(records, "step"):
        by_step[record["attempt"], record["step"]][record["rank"]] = record["matrices_orthogonalized"]
    expected = {record["num_matrices"] for record in of_event(records, "start")}
    if len(expected) != 1 or not by_step:
        raise GuardError(f"guard: no steps, or starts that disagree about the number of matrices: {sorted(expected)}")
    num_matrices = expected.pop()
    for (attempt, step), counts in sorted(by_step.items()):
        # The step in which the workers were killed may lack a rank.
        if len(counts) == world_size and sum(counts.values()) != num_matrices:
            raise GuardError(
                f"guard: step {step} (attempt {attempt}) orthogonalized {sum(counts.values())} matrices of "
                f"{num_matrices}: by rank {dict(sorted(counts.items()))}"
            )


def check_resume(records: list[Record]) -> int:
    """Steps that were taken before the kill and again after the resume have the same losses, bit for bit.

    Returns the number of such steps.
    """
    losses: dict[int, dict[int, float]] = defaultdict(dict)
    for record in of_event(records, "step", rank=0):
        losses[record["step"]][record["attempt"]] = record["loss"]
    overlap = {step: by_attempt for step, by_attempt in losses.items() if len(by_attempt) > 1}
    if not overlap:
        raise GuardError("guard: no step was taken both before the kill and after the resume")
    for step, by_attempt in sorted(overlap.items()):
        if len(set(by_attempt.values())) != 1:
            raise GuardError(f"guard: step {step} gave other losses after the resume: {by_attempt}")
    return len(overlap)


def check_activation(records: list[Record]) -> int:
    """Every rank that finished saved, swapped and computed again. Returns the number of swapped bytes."""
    total = 0
    for record in of_event(records, "done"):
        counts = record["activation"]
        for name, what in (
            ("bytes_written", "swapped no bytes"),
            ("bytes_read", "read no swapped bytes back"),
            ("saved", "saved no result"),
            ("replays", "computed nothing again"),
        ):
            if counts[name] <= 0:
                raise GuardError(f"guard: the activation policy {what} on rank {record['rank']}; it counted {counts}")
        total += counts["bytes_written"]
    return total


def check_loss(held_out_loss: float, unigram_entropy: float, bound: float | None) -> None:
    if not held_out_loss > 0.0:
        raise GuardError(f"guard: the held-out loss {held_out_loss} is not a loss")
    if bound is not None and held_out_loss > bound * unigram_entropy:
        raise GuardError(
            f"guard: the held-out loss ended at {held_out_loss:.3f} nats a token, above {bound} x the unigram entropy "
            f"{unigram_entropy:.3f} = {bound * unigram_entropy:.3f}"
        )


def check_report(report: Report, charts: tuple[str, ...], pictures: tuple[str, ...]) -> None:
    for what, present, expected in (
        ("charts", report.chart_names, charts),
        ("pictures", report.picture_names, pictures),
    ):
        missing = [name for name in expected if name not in present]
        if missing:
            raise GuardError(f"guard: the report lacks the {what} {missing}; it has {present}")
