import pytest
import settings as tour_settings
from records import Follower, Recorder, of_event


def test_follower_hands_out_each_record_once(tmp_path):
    follower = Follower(tmp_path)
    assert list(follower.new_records()) == []
    first, second = Recorder(tmp_path, attempt=0, rank=0), Recorder(tmp_path, attempt=0, rank=1)
    first.write("step", step=1)
    assert [record["step"] for record in follower.new_records()] == [1]
    second.write("step", step=2)
    first.write("step", step=3)
    assert sorted(record["step"] for record in follower.new_records()) == [2, 3]
    assert list(follower.new_records()) == []


def test_unfinished_line_waits_for_its_end(tmp_path):
    follower = Follower(tmp_path)
    path = tmp_path / "attempt0_rank0.jsonl"
    path.write_text('{"event": "st')
    assert list(follower.new_records()) == []
    path.write_text('{"event": "step"}\n')
    assert [record["event"] for record in follower.new_records()] == ["step"]


def test_of_event_selects_and_orders(tmp_path):
    for attempt, rank in ((1, 0), (0, 1), (0, 0)):
        Recorder(tmp_path, attempt=attempt, rank=rank).write("step", step=attempt)
    records = list(Follower(tmp_path).new_records())
    assert [(r["attempt"], r["rank"]) for r in of_event(records, "step")] == [(0, 0), (0, 1), (1, 0)]
    assert [r["rank"] for r in of_event(records, "step", attempt=0)] == [0, 1]
    assert of_event(records, "done") == []


def test_settings_survive_their_file(tmp_path):
    for settings in (tour_settings.Settings(), tour_settings.quick()):
        settings.write(tmp_path / "settings.json")
        assert tour_settings.read(tmp_path / "settings.json") == settings


def test_unknown_setting_is_named():
    with pytest.raises(ValueError, match=r"unknown names \['stepz'\]"):
        tour_settings.from_dict({"stepz": 3})


def test_kill_before_the_checkpoint_is_refused():
    with pytest.raises(ValueError, match="checkpoint_every < kill_after_step"):
        tour_settings.from_dict({"checkpoint_every": 120, "kill_after_step": 100})


@pytest.mark.parametrize(
    "name", ["sequences_per_rank", "sequence_length", "evaluate_every", "warmup_steps", "world_size"]
)
def test_counts_that_nothing_can_be_done_with_are_named(name):
    with pytest.raises(ValueError, match=f"Settings: {name} must be at least 1, got 0"):
        tour_settings.from_dict({name: 0})


def test_every_worker_evaluates_a_window():
    with pytest.raises(ValueError, match="evaluation_windows 1 must be at least one for each of the 2 workers"):
        tour_settings.from_dict({"evaluation_windows": 1})


def test_vocabularies_must_agree():
    with pytest.raises(ValueError, match="vocab_size 4096 differs from the model's 2048"):
        tour_settings.from_dict({"vocab_size": 4096})
