"""The tour's activation policy: gradients bitwise those without it, every rule in use, less memory."""

import memory
import memory_chart
import pytest
import settings as tour_settings
import torch
import train
from model import Llama, ModelConfig
from quincunx.activation import record_timeline
from records import Follower, Recorder

CONFIG = ModelConfig(vocab_size=64, dim=32, num_layers=2, num_heads=2, hidden_dim=48)
SETTINGS = tour_settings.from_dict(
    {"sequences_per_rank": 2, "sequence_length": 32, "vocab_size": 64, "model": vars(CONFIG)}
)


def losses_and_gradients(policy, num_steps=3):
    model = Llama(CONFIG)
    model.initialize(3)
    memory.wrap(model.layers, policy)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    generator = torch.Generator().manual_seed(1)
    trace = []
    for _ in range(num_steps):
        tokens = torch.randint(0, 64, (2, 33), generator=generator)
        loss = train.next_token_loss(model, tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        trace += [loss.detach(), *(parameter.grad.clone() for parameter in model.parameters())]
        optimizer.step()
        optimizer.zero_grad()
    return trace


def test_training_under_the_policy_is_bitwise_that_without(tmp_path):
    policy = memory.policy_for(SETTINGS, tmp_path)
    before = memory.counts()
    got, plain = losses_and_gradients(policy), losses_and_gradients(None)
    assert all(torch.equal(a, b) for a, b in zip(got, plain, strict=True))
    assert policy.unmatched() == []
    changes = {name: count - before[name] for name, count in memory.counts().items()}
    # Per layer and step: attention, its four products and down are saved; gate and up are swapped.
    assert changes["regions"] == changes["replays"] == 2 * 3
    assert changes["saved"] == 6 * 2 * 3
    assert changes["swapped"] == 2 * 2 * 3
    assert changes["bytes_written"] == 2 * 48 * 64 * 4 * 2 * 3


def test_the_record_becomes_a_chart_with_less_memory_than_without_a_policy(tmp_path):
    policy = memory.policy_for(SETTINGS, tmp_path)
    recorder = Recorder(tmp_path / "records", attempt=0, rank=0)
    with memory.recorded(recorder, 1, wanted=False) as begins:
        begins("forward")
    with memory.recorded(recorder, 2, wanted=True) as begins:
        begins("forward")
        losses_and_gradients(policy, num_steps=1)
    (record,) = Follower(tmp_path / "records").new_records()
    assert record["step"] == 2
    assert list(record["begins"]) == ["forward"]
    peak, without = memory_chart.peaks_mib(record)
    assert 0 < peak < without
    figure = memory_chart.draw([record])
    assert [trace.name for trace in figure.data][:2] == ["saved", "computed again"]
    assert all(max(trace.y) > 0 for trace in figure.data)
    assert all(list(trace.x) == sorted(trace.x) for trace in figure.data)


def test_stacked_values_are_those_of_the_last_change():
    events = [[1.0, "saved", 1 << 20], [1.002, "recomputed", 3 << 20], [1.003, "saved", 0]]
    record = {"begins": {"forward": 1.0}, "end_s": 1.004, "events": events}
    assert memory_chart._sampled(record, "saved", [0.0, 1.0, 2.5, 3.5, 9.0]) == [1, 1, 1, 0, 0]
    assert memory_chart.peaks_mib(record) == (4.0, 0.0)


def test_the_policy_can_be_switched_off_and_nothing_else(tmp_path):
    assert memory.policy_for(tour_settings.from_dict({"activation": "none"}), tmp_path) is None
    with pytest.raises(ValueError, match="activation 'some'; expected 'policy' or 'none'"):
        memory.policy_for(tour_settings.from_dict({"activation": "some"}), tmp_path)
    with record_timeline() as timeline:
        losses_and_gradients(None, num_steps=1)
    assert timeline.events == []
