"""The timeline says how many bytes each holder has, and when it lets go of them."""

import gc
import time

import pytest
import torch
from quincunx.activation import Policy, Rule, checkpoint, counters, record_timeline, swap_arena

N = 5000
BYTES = 4 * N


def policy(default="RECOMPUTE", **actions):
    rules = [Rule(op=f"aten.{op}", action=action) for op, action in actions.items()]
    return Policy(rules, default=default, arena=swap_arena(budget_bytes=1 << 24))


def live_at_end(timeline):
    gc.collect()
    return {holder: timeline.total(holder)[-1][1] for holder in {event.holder for event in timeline.events}}


def test_each_holder_has_the_bytes_that_the_policy_gives_it():
    x = torch.randn(N, requires_grad=True)
    with record_timeline() as timeline:
        # Autograd saves the results of exp, for exp and cos, and of tanh.
        y = checkpoint(lambda t: t.sin().exp().cos().tanh(), x, policy=policy(sin="SAVE", exp="SWAP"))
        forward = {holder: timeline.peak_bytes(holder) for holder in ("saved", "swapped", "recomputed", "autograd")}
        assert forward == {"saved": BYTES, "swapped": BYTES, "recomputed": 0, "autograd": 2 * BYTES}
        y.sum().backward()
    assert timeline.peak_bytes("recomputed") == BYTES
    assert timeline.peak_bytes("swap_buffer") == BYTES
    del y
    assert set(live_at_end(timeline).values()) == {0}


def test_memory_peaks_below_what_autograd_would_hold():
    x = torch.randn(N, requires_grad=True)

    def chain(t):
        for _ in range(4):
            t = t.sin().exp()
        return t

    with record_timeline() as timeline:
        y = x
        for _ in range(4):
            y = checkpoint(chain, y)
        y.sum().backward()
    assert timeline.peak_bytes("autograd") == 4 * 4 * BYTES
    assert timeline.peak_bytes("saved", "recomputed", "swap_buffer") <= 2 * 4 * BYTES


def test_two_tensors_on_one_storage_count_once():
    x = torch.randn(N, requires_grad=True)
    with record_timeline() as timeline:
        y = checkpoint(lambda t: (lambda e: e.view(2, -1).sin().sum() + e.cos().sum())(t * 2), x)
        y.backward()
    assert timeline.peak_bytes("autograd") == BYTES
    assert timeline.peak_bytes("recomputed") == BYTES


def test_events_are_in_the_order_of_time_and_on_the_clock_of_python():
    before = time.monotonic()
    with record_timeline() as timeline:
        checkpoint(lambda t: t.sin().exp(), torch.ones(3, requires_grad=True), policy=policy("SAVE")).sum().backward()
    seconds = [event.seconds for event in timeline.events]
    assert before <= seconds[0] <= seconds[-1] <= time.monotonic()
    assert seconds == sorted(seconds)


def test_nothing_is_recorded_before_and_after():
    x = torch.ones(3, requires_grad=True)
    checkpoint(torch.exp, x, policy=policy("SAVE")).sum().backward()
    with record_timeline() as timeline:
        pass
    checkpoint(torch.exp, x, policy=policy("SAVE")).sum().backward()
    assert timeline.events == []
    assert timeline.peak_bytes("saved") == 0


def test_counters_tell_the_bytes_that_went_to_the_file_and_back():
    x = torch.randn(N, requires_grad=True)
    before = counters()
    y = checkpoint(lambda t: t.sin().exp().cos(), x, policy=policy(sin="SWAP", exp="SWAP"))
    written = counters()
    y.sum().backward()
    after = counters()
    assert written["bytes_written"] - before["bytes_written"] == 2 * BYTES
    assert written["bytes_read"] == before["bytes_read"]
    assert after["bytes_read"] - before["bytes_read"] == 2 * BYTES


def test_a_second_recording_and_unknown_holders_are_refused():
    with record_timeline() as timeline:
        with pytest.raises(RuntimeError, match="another timeline records"), record_timeline():
            pass
        with pytest.raises(ValueError, match="holders contains 'disk'; expected some of saved, "):
            timeline.total("disk")
    with record_timeline():
        pass
