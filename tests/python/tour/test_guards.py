"""Each guard notices the part that it watches; test_tour.py switches the parts off in real runs."""

import types

import guards
import pytest
import torch.distributed.distributed_c10d as c10d


def record(event, rank=0, attempt=0, **values):
    return {"event": event, "rank": rank, "attempt": attempt, "time_s": 0.0, **values}


def steps(counts_by_rank, *, step=1, attempt=0, loss=1.0):
    return [
        record("step", rank, attempt, step=step, loss=loss, matrices_orthogonalized=count)
        for rank, count in enumerate(counts_by_rank)
    ]


STARTS = [record("start", rank, num_matrices=7) for rank in (0, 1)]


def test_each_matrix_once_passes():
    guards.check_matrices(STARTS + steps([3, 4]) + steps([7, 0], step=2), world_size=2)


@pytest.mark.parametrize("counts", [[0, 0], [3, 3], [7, 7], [4, 4]])
def test_matrices_left_out_or_done_twice_are_noticed(counts):
    with pytest.raises(guards.GuardError, match=f"step 2 .* orthogonalized {sum(counts)} matrices of 7"):
        guards.check_matrices(STARTS + steps([3, 4]) + steps(counts, step=2), world_size=2)


def test_step_cut_short_by_the_kill_is_not_counted():
    guards.check_matrices(STARTS + steps([3, 4]) + steps([3], step=2), world_size=2)


def test_run_without_steps_is_noticed():
    with pytest.raises(guards.GuardError, match="no steps"):
        guards.check_matrices(STARTS, world_size=2)


def test_collectives_of_mccl_pass():
    guards.check_collectives([record("done", collective_calls={"all_gather": 5, "reduce_scatter": 2})])


@pytest.mark.parametrize("missing", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize("value", [None, 0])
def test_collectives_that_went_elsewhere_are_noticed(missing, value):
    calls = {"all_gather": 5, "reduce_scatter": 2, missing: value}
    calls = {name: count for name, count in calls.items() if count is not None}
    with pytest.raises(guards.GuardError, match=f"mccl served no {missing} on rank 1"):
        guards.check_collectives(
            [
                record("done", 0, collective_calls={"all_gather": 5, "reduce_scatter": 2}),
                record("done", 1, collective_calls=calls),
            ]
        )


def test_run_that_never_ended_is_noticed():
    with pytest.raises(guards.GuardError, match="no worker reported the end"):
        guards.check_collectives(STARTS)


def test_gloo_cannot_be_made_while_refused_and_can_afterwards():
    original = c10d.ProcessGroupGloo
    with guards.gloo_refused():
        with pytest.raises(guards.GuardError, match="a process group of gloo was asked for"):
            c10d.ProcessGroupGloo(None, 0, 1)
    assert c10d.ProcessGroupGloo is original


def test_same_losses_after_the_resume_pass():
    before = steps([3, 4], step=5, loss=2.5) + steps([3, 4], step=6, loss=2.25)
    after = steps([3, 4], step=6, attempt=1, loss=2.25) + steps([3, 4], step=7, attempt=1, loss=2.0)
    assert guards.check_resume(before + after) == 1


def test_loss_that_differs_in_its_last_bit_is_noticed():
    after = steps([3, 4], step=6, attempt=1, loss=2.25 + 2.0**-22)
    with pytest.raises(guards.GuardError, match="step 6 gave other losses after the resume"):
        guards.check_resume(steps([3, 4], step=6, loss=2.25) + after)


def test_run_without_a_resume_is_noticed():
    with pytest.raises(guards.GuardError, match="no step was taken both before the kill and after"):
        guards.check_resume(steps([3, 4], step=5) + steps([3, 4], step=6, attempt=1))


def done(rank, **changed):
    counts = {"bytes_written": 10, "bytes_read": 10, "saved": 3, "replays": 2} | changed
    return record("done", rank, activation=counts)


def test_a_policy_that_did_all_three_passes():
    assert guards.check_activation([done(0), done(1)]) == 20


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bytes_written", "swapped no bytes on rank 1"),
        ("bytes_read", "read no swapped bytes back on rank 1"),
        ("saved", "saved no result on rank 1"),
        ("replays", "computed nothing again on rank 1"),
    ],
)
def test_an_action_that_was_never_taken_is_noticed(name, message):
    with pytest.raises(guards.GuardError, match=message):
        guards.check_activation([done(0), done(1, **{name: 0})])


def test_loss_is_held_against_its_bound():
    guards.check_loss(3.0, 4.0, 0.75)
    guards.check_loss(3.9, 4.0, None)
    with pytest.raises(guards.GuardError, match=r"held-out loss ended at 3\.010 .* above 0\.75 x .* 4\.000 = 3\.000"):
        guards.check_loss(3.01, 4.0, 0.75)


@pytest.mark.parametrize("loss", [float("nan"), 0.0, -1.0])
def test_loss_that_is_no_number_is_noticed_without_a_bound(loss):
    with pytest.raises(guards.GuardError, match="is not a loss"):
        guards.check_loss(loss, 4.0, None)


def test_missing_charts_and_pictures_are_noticed():
    report = types.SimpleNamespace(chart_names=["loss", "step", "more"], picture_names=["frame"])
    guards.check_report(report, ("loss", "step"), ("frame",))
    with pytest.raises(guards.GuardError, match=r"lacks the charts \['memory'\]; it has \['loss', 'step', 'more'\]"):
        guards.check_report(report, ("loss", "memory"), ("frame",))
    with pytest.raises(guards.GuardError, match=r"lacks the pictures \['other'\]; it has \['frame'\]"):
        guards.check_report(report, ("loss",), ("frame", "other"))
