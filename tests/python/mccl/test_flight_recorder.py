"""The flight recorder: what this process did last, as records and as a time line, and on its own after a failure."""

import datetime
import json
import os
import time

import pytest
import torch
import torch.distributed as dist
from quincunx import mccl


def test_it_keeps_what_was_done(run_ranks):
    def body(rank, world):
        dist.all_reduce(torch.ones(4))
        group = dist.new_group([0, 1])
        dist.broadcast(torch.ones(3, dtype=torch.float64), 1, group=group)
        if rank == 0:
            dist.send(torch.ones(2), 1, tag=7)
        else:
            dist.recv(torch.ones(2), 0, tag=7)
        return mccl.flight_recorder()

    for rank, recorder in enumerate(run_ranks(2, body)):
        assert recorder["version"] == 1
        assert recorder["num_recorded"] == 3
        first, second, third = recorder["operations"]
        assert [first["operation"], first["bytes"], first["dtype"]] == ["all_reduce", 16, "float32"]
        assert [first["sequence"], first["rank"], first["world_size"]] == [0, rank, 2]
        assert [second["operation"], second["bytes"], second["root"]] == ["broadcast", 24, 1]
        assert second["group"] != first["group"]
        assert [third["operation"], third["peer"], third["tag"]] == [["send", "recv"][rank], 1 - rank, 7]
        for operation in recorder["operations"]:
            assert operation["state"] == "completed"
            assert operation["started_us"] <= operation["ended_us"]
            assert abs(operation["ended_us"] / 1e6 - time.time()) < 3600


def test_it_keeps_the_last_two_thousand(run_ranks):
    def body(rank, world):
        x = torch.ones(1)
        for _ in range(2005):
            dist.broadcast(x, 0)
        recorder = mccl.flight_recorder()
        return recorder["num_recorded"], [operation["id"] for operation in recorder["operations"]]

    assert run_ranks(1, body) == [(2005, list(range(6, 2006)))]


def test_a_pending_operation_is_seen(run_ranks):
    def body(rank, world):
        dist.barrier()
        time.sleep(0.5 * rank)  # Rank 1 enters when rank 0 has looked.
        works = [dist.all_reduce(torch.ones(1), async_op=True)] if rank == 0 else []
        states = [operation["state"] for operation in mccl.flight_recorder()["operations"]]
        dist.barrier() if rank == 0 else dist.all_reduce(torch.ones(1))
        if rank == 1:
            dist.barrier()
        for work in works:
            work.wait()
        return states

    assert run_ranks(2, body)[0] == ["completed", "pending"]


def test_a_trace_shows_groups_as_threads(run_ranks):
    def body(rank, world):
        dist.all_reduce(torch.ones(4))
        dist.barrier(dist.new_group([0, 1]))
        return mccl.flight_recorder(format="chrome_trace")

    events = run_ranks(2, body)[0]["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    assert [span["name"] for span in spans] == ["all_reduce #0", "barrier #0"]
    assert len({names[span["tid"]] for span in spans}) == 2
    assert all(span["dur"] >= 0 and span["args"]["state"] == "completed" for span in spans)


@pytest.mark.parametrize("suffix", [".json", ".trace.json"])
def test_a_failure_leaves_a_file(run_ranks, tmp_path, suffix):
    def body(rank, world):
        os.environ["QX_MCCL_FLIGHT_RECORDER"] = f"{tmp_path}/%p{suffix}"
        dist.barrier()
        if rank == 1:
            dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=0.3))
            with pytest.raises(mccl.CollectiveTimeoutError):
                dist.all_reduce(torch.ones(5))
        else:
            time.sleep(1)  # It must not be seen to leave.
        return os.getpid()

    pid = run_ranks(2, body)[1]
    content = json.loads((tmp_path / f"{pid}{suffix}").read_text())
    if suffix == ".json":
        last = content["operations"][-1]
        assert [last["operation"], last["state"], last["error_code"]] == ["all_reduce", "failed", "DEADLINE_EXCEEDED"]
        assert "rank 0" in last["error"]
    else:
        assert "all_reduce #1 (failed)" in [event["name"] for event in content["traceEvents"]]


def test_a_forked_child_starts_with_an_empty_one(run_ranks):
    def body(rank, world):
        dist.barrier()
        child = os.fork()
        if child == 0:
            os._exit(len(mccl.flight_recorder()["operations"]))
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(mccl.flight_recorder()["operations"])

    assert run_ranks(1, body) == [(0, 1)]


def test_the_format_is_checked():
    with pytest.raises(ValueError, match='format: expected "json" or "chrome_trace", got \'xml\''):
        mccl.flight_recorder(format="xml")
