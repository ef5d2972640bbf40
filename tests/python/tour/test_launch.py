import contextlib
import json
import os
import signal
import time

import launch
import pytest
from launch import process_is_alive

WORKER = """
import os, pathlib, sys, time
sys.path.insert(0, {tour!r})
from records import Recorder
rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
recorder = Recorder(pathlib.Path(sys.argv[1]), attempt=attempt, rank=rank)
recorder.write("start", pid=os.getpid())
{body}
recorder.write("done", pid=os.getpid())
"""


@pytest.fixture()
def run(tmp_path):
    def start(body, *, max_restarts=0, deadline_s=60.0):
        program = tmp_path / "worker.py"
        program.write_text(WORKER.format(tour=os.path.dirname(launch.__file__), body=body))
        return launch.follow(
            program,
            [str(tmp_path / "records")],
            records=tmp_path / "records",
            log=tmp_path / "worker.log",
            world_size=2,
            max_restarts=max_restarts,
            deadline_s=deadline_s,
        )

    return start


def wait_until_dead(pids):
    deadline = time.monotonic() + 20
    while any(process_is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(process_is_alive(pid) for pid in pids)


def test_records_of_all_ranks_arrive(run):
    records = list(run("recorder.write('step', value=rank)"))
    assert sorted(r["value"] for r in records if r["event"] == "step") == [0, 1]
    assert sum(r["event"] == "done" for r in records) == 2


def test_killed_workers_are_started_again(run):
    stream = run("if attempt == 0: time.sleep(60)", max_restarts=1)
    starts, killed = [], []
    with contextlib.closing(stream):
        for record in stream:
            if record["event"] == "start" and record["attempt"] == 0:
                starts.append(record)
                if len(starts) == 2:
                    killed = launch.kill_workers(starts)
            last = record
    assert len(killed) == 2
    assert last["event"] == "done"
    assert last["attempt"] == 1
    assert wait_until_dead(killed)


def test_failure_quotes_the_worker_and_ends_the_others(run):
    stream = run("if rank == 1: raise ValueError('rank one is unwell')\ntime.sleep(60)")
    records = []
    with pytest.raises(launch.RunError, match="(?s)worker.py ended with code 1.*rank one is unwell"):
        for record in stream:
            records.append(record)  # noqa: PERF402 (kept although the stream raises)
    assert wait_until_dead([record["pid"] for record in records])


def test_run_past_its_deadline_is_ended(run):
    start = time.monotonic()
    records = []
    with pytest.raises(launch.RunError, match="did not end within 12 s"):
        for record in run("time.sleep(100)", deadline_s=12.0):
            records.append(record)  # noqa: PERF402
    assert time.monotonic() - start < 60
    assert len(records) == 2
    assert wait_until_dead([record["pid"] for record in records])


def test_worker_that_ignores_sigterm_is_ended_when_the_reader_stops(run, monkeypatch):
    monkeypatch.setattr(launch, "STOP_S", 2.0)
    stream = run(
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nrecorder.write('deaf')\ntime.sleep(100)"
    )
    pids = []
    for record in stream:
        if record["event"] == "start":
            pids.append(record["pid"])
        if record["event"] == "deaf" and len(pids) == 2:
            break
    stream.close()
    assert wait_until_dead(pids)


def test_workers_end_when_the_follower_is_killed(run, tmp_path):
    stream = run("recorder.write('ready')\ntime.sleep(100)")
    follower = os.fork()
    if follower == 0:
        list(stream)
        os._exit(0)
    records = tmp_path / "records"
    deadline = time.monotonic() + 60
    while sum('"ready"' in path.read_text() for path in records.glob("*.jsonl")) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    pids = [json.loads(path.read_text().splitlines()[0])["pid"] for path in records.glob("*.jsonl")]
    os.kill(follower, signal.SIGKILL)
    os.waitpid(follower, 0)
    assert len(pids) == 2
    assert wait_until_dead(pids)


def test_kill_reaches_only_processes_that_live(tmp_path):
    child = os.fork()
    if child == 0:
        signal.pause()
    assert process_is_alive(child)
    assert launch.kill_workers([{"pid": child}]) == [child]
    os.waitpid(child, 0)
    assert not process_is_alive(child)
    assert launch.kill_workers([{"pid": child}]) == []
