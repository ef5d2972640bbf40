"""Starts a worker program under torchrun, follows its records, and never leaves a process behind."""

import contextlib
import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from records import Follower, Record

POLL_S = 0.05
STOP_S = 15.0
LOG_TAIL_LINES = 30


class RunError(RuntimeError):
    """A run of workers failed or took too long; the message ends with what they printed last."""


def _tail(log: pathlib.Path) -> str:
    """The workers' last lines: torchrun's own, which follow and say only that a worker failed, are left out."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    ends = [index for index, line in enumerate(lines) if "failed (exitcode: " in line]
    lines = lines[: ends[-1]] if ends else lines
    lines = [line for line in lines if "Sending process" not in line and not line.startswith("USDT:")]
    return "\n".join(lines[-LOG_TAIL_LINES:])


def process_is_alive(pid: int) -> bool:
    """False for a process that has ended, whether or not its parent has collected it."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def _end_with_parent() -> None:
    """Run in the child: should this process be killed, torchrun gets SIGTERM and ends its workers."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, int(signal.SIGTERM))


def _start(program: pathlib.Path, arguments: list[str], world_size: int, max_restarts: int, log: pathlib.Path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    command += ["--nproc-per-node", str(world_size), "--max-restarts", str(max_restarts), "--monitor-interval", "0.1"]
    environment = dict(os.environ, OMP_NUM_THREADS="1", TORCHELASTIC_ERROR_FILE="", PYTHONUNBUFFERED="1")
    with open(log, "wb") as log_file:
        return subprocess.Popen(
            [*command, str(program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )


def _stop(torchrun: subprocess.Popen, worker_pids: set[int]) -> None:
    """torchrun passes SIGTERM on to its workers; whoever is left after STOP_S is killed."""
    if torchrun.poll() is None:
        torchrun.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            torchrun.wait(STOP_S)
    if torchrun.poll() is None:
        torchrun.kill()
        torchrun.wait(STOP_S)
    for pid in worker_pids:
        if process_is_alive(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def follow(
    program: pathlib.Path,
    arguments: list[str],
    *,
    records: pathlib.Path,
    log: pathlib.Path,
    world_size: int,
    max_restarts: int = 0,
    deadline_s: float,
    on_idle: Callable[[], None] = lambda: None,
) -> Iterator[Record]:
    """Runs the program on `world_size` ranks and yields its records as they are written, until it has ended well."""
    follower = Follower(records)
    deadline = time.monotonic() + deadline_s
    live_pids: set[int] = set()
    torchrun = _start(program, arguments, world_size, max_restarts, log)
    try:
        while True:
            ended = torchrun.poll() is not None
            for record in follower.new_records():
                if record["event"] == "start":
                    live_pids.add(record["pid"])
                elif record["event"] == "done":
                    live_pids.discard(record.get("pid", -1))
                yield record
            if ended:
                break
            if time.monotonic() > deadline:
                raise RunError(f"{program.name} did not end within {deadline_s:.0f} s; {log} ends with:\n{_tail(log)}")
            on_idle()
            time.sleep(POLL_S)
        if torchrun.returncode != 0:
            raise RunError(f"{program.name} ended with code {torchrun.returncode}; {log} ends with:\n{_tail(log)}")
    finally:
        _stop(torchrun, live_pids)


def kill_workers(starts: list[Record]) -> list[int]:
    """SIGKILL, which no program can catch, to the workers that wrote these start records."""
    killed = []
    for record in starts:
        with contextlib.suppress(ProcessLookupError):
            os.kill(record["pid"], signal.SIGKILL)
            killed.append(record["pid"])
    return killed
