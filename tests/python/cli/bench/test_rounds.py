import pytest
from quincunx.cli.bench.rounds import Rounds, interleave, slowest


class FakeMachine:
    """A clock that only calls and sleeps move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def call(self, name: str, seconds: float):
        def run() -> None:
            self.now += seconds
            self.log.append(name)

        return run

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.log.append("sleep")


def test_each_sample_is_the_time_of_one_call():
    machine = FakeMachine()
    calls = {"ours": machine.call("o", 0.25), "peer": machine.call("p", 0.5)}
    seconds = interleave(calls, Rounds(3), clock=lambda: machine.now)
    assert seconds == {"ours": [0.25] * 3, "peer": [0.5] * 3}


def test_sides_alternate_and_take_turns_at_going_first():
    machine = FakeMachine()
    calls = {"ours": machine.call("o", 0.25), "peer": machine.call("p", 0.25)}
    interleave(calls, Rounds(2), clock=lambda: machine.now)
    # Twice each to find the number of calls, then an untimed and a timed call a sample.
    assert "".join(machine.log) == "oopp" + "oopp" + "ppoo"


def test_long_calls_need_no_untimed_call_before_a_sample():
    machine = FakeMachine()
    calls = {"ours": machine.call("o", 0.25), "peer": machine.call("p", 1.0)}
    seconds = interleave(calls, Rounds(2), clock=lambda: machine.now)
    assert "".join(machine.log) == "oopp" + "oop" + "poo"
    assert seconds == {"ours": [0.25] * 2, "peer": [1.0] * 2}


def test_short_calls_are_repeated_within_a_sample():
    machine = FakeMachine()
    seconds = interleave({"ours": machine.call("o", 0.125)}, Rounds(1, sample_s=1.0), clock=lambda: machine.now)
    assert machine.log.count("o") == 2 + 1 + 8
    assert seconds["ours"] == [0.125]


def test_calls_shorter_than_the_clock_can_tell_end_too():
    assert interleave({"ours": lambda: None}, Rounds(1), clock=lambda: 0.0) == {"ours": [0.0]}


def test_pause_is_not_timed():
    machine = FakeMachine()
    rounds = Rounds(2, pause_s=8.0)
    seconds = interleave({"ours": machine.call("o", 1.0)}, rounds, clock=lambda: machine.now, sleep=machine.sleep)
    assert machine.log.count("sleep") == 2
    assert seconds["ours"] == [1.0, 1.0]


def test_slowest_rank_counts_in_each_round():
    assert slowest([[1.0, 5.0], [2.0, 4.0]]) == [2.0, 5.0]


def test_ranks_of_unequal_rounds_are_refused():
    with pytest.raises(ValueError):
        slowest([[1.0], [1.0, 2.0]])
