"""The tour's activation policy, and the record of what it did with the bytes.

Of each layer, what is dear to compute is saved or swapped to a file, and what is cheap (norms, rotary positions, SiLU
and products by element) is computed again in the backward pass.
"""

import contextlib
import pathlib
import time
from collections.abc import Callable, Iterator

import torch
from quincunx.activation import Policy, Rule, Timeline, checkpoint_wrapper, counters, record_timeline, swap_arena
from records import Recorder
from settings import Settings

_ARENA_BYTES = 1 << 30


def rules(settings: Settings) -> list[Rule]:
    """By operator and size, which a compiled layer has too; it has no modules."""
    num_tokens = settings.sequences_per_rank * settings.sequence_length
    return [
        Rule(op="aten._scaled_dot_product_flash_attention_for_cpu", action="SAVE"),
        # The products with the feed-forward's width; those with the model's own are smaller.
        Rule(op="aten.mm", min_bytes=num_tokens * settings.model.hidden_dim * 4, action="SWAP"),
        Rule(op="aten.mm", action="SAVE"),
    ]


def policy_for(settings: Settings, directory: pathlib.Path) -> Policy | None:
    """Swaps to a file in `directory`. None where the settings switch the policy off."""
    if settings.activation == "none":
        return None
    if settings.activation != "policy":
        raise ValueError(f"Settings: activation {settings.activation!r}; expected 'policy' or 'none'")
    arena = swap_arena(budget_bytes=_ARENA_BYTES, directory=str(directory))
    return Policy(rules(settings), default="RECOMPUTE", arena=arena)


def wrap(layers: torch.nn.ModuleList, policy: Policy | None) -> None:
    """Makes each layer's forward a region. FSDP2's hooks, which come later, stay outside of it."""
    if policy is not None:
        for layer in layers:
            checkpoint_wrapper(layer, policy)


def counts() -> dict[str, int]:
    return counters()


@contextlib.contextmanager
def recorded(recorder: Recorder, step: int, *, wanted: bool) -> Iterator[Callable[[str], None]]:
    """Where wanted, records who held which bytes in the body, which calls what it is given as each phase begins."""
    begins: dict[str, float] = {}

    def phase(name: str) -> None:
        begins[name] = time.monotonic()

    if not wanted:
        yield phase
        return
    with record_timeline() as timeline:
        yield phase
    _write(recorder, step, timeline, begins)


def _write(recorder: Recorder, step: int, timeline: Timeline, begins: dict[str, float]) -> None:
    events = [[event.seconds, event.holder, event.live_bytes] for event in timeline.events]
    recorder.write("memory", step=step, begins=begins, end_s=time.monotonic(), events=events)
