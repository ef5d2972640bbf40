"""`qx plan comm`: what it prints, and that each option has an effect."""

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
QX = pathlib.Path(os.environ.get("QUINCUNX_BUILD_DIR", ROOT / "build" / "release")) / "bin" / "qx"
pytestmark = pytest.mark.skipif(not QX.exists(), reason=f"no {QX}")


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([QX, "plan", "comm", *arguments], capture_output=True, text=True, timeout=60)


def plan(*arguments: str) -> dict:
    done = run("--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_says_how_a_job_comes_up():
    found = plan("--ranks", "300", "--ranks-per-host", "6")
    assert found["ready_ranks"] == 300
    assert found["hosts"] == 50
    assert found["roots"] == 1
    assert 0 < found["bootstrap_s"] < 1
    assert found["failures"] == []
    text = run("--ranks", "300", "--ranks-per-host", "6")
    assert text.returncode == 0
    assert "300 on 50 hosts, 1 root\n" in text.stdout
    assert f"fan-in {found['fan_in']}" in text.stdout


def test_names_the_ranks_that_are_missing():
    found = plan("--ranks", "64", "--timeout", "3", "--fault", "9@never", "--fault", "40@never")
    assert found["ready_ranks"] == 0
    (failure,) = found["failures"]
    assert failure["ranks"] == 62
    assert failure["missing"] == "9, 40"
    assert failure["error"] == "DEADLINE_EXCEEDED: after 3.0 s ranks 9, 40 of 64 are missing"


def test_says_when_a_death_is_known():
    found = plan("--ranks", "64", "--fault", "9@ready")
    (fault,) = found["faults"]
    assert fault["told_ranks"] == 63
    assert 0 < fault["told_s"] - fault["died_s"] < 2


@pytest.mark.parametrize(
    "options",
    [
        ("--ranks-per-host", "1"),
        ("--roots", "3"),
        ("--seed", "2"),
        ("--skew", "0.5"),
        ("--round-trip-us", "5000"),
        ("--loss", "0.05"),
        ("--one-machine",),
    ],
)
def test_each_option_changes_the_plan(options: tuple[str, ...]):
    assert plan("--ranks", "200", *options)["bootstrap_s"] != plan("--ranks", "200")["bootstrap_s"]


def test_more_cores_make_one_machine_faster():
    one, four = (plan("--ranks", "500", "--one-machine", "--skew", "0", "--cores", n)["bootstrap_s"] for n in "14")
    assert four < one


def test_processes_cost_more_than_virtual_ranks():
    arguments = ("--ranks", "64", "--one-machine", "--skew", "0")
    assert plan(*arguments, "--processes")["bootstrap_s"] > plan(*arguments)["bootstrap_s"]


def test_measures_virtual_ranks_beside_the_simulation():
    found = plan("--ranks", "100", "--ranks-per-host", "1", "--one-machine", "--skew", "0", "--measure")
    measured = found["measured"]
    assert measured["fan_in"] == found["fan_in"] == 99
    assert measured["bootstrap_s"] > 0
    assert measured["processor_s"] > 0


def test_compares_with_gloo():
    star, batched, tree = (
        plan("--ranks", "4096", "--algorithm", name)["bootstrap_s"] for name in ("gloo", "gloo-batched", "tree")
    )
    assert star > batched > 10 * tree


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--ranks", "0"), "num_ranks is 0"),
        (("--ranks", "4", "--roots", "5"), "num_roots is 5"),
        (("--ranks", "4", "--fault", "4@never"), "the rank of a fault is 4"),
        (("--ranks", "4", "--fault", "1@sometimes"), "fault is '1@sometimes'"),
        (("--ranks", "4", "--algorithm", "mpi"), "--algorithm is mpi"),
        (("--ranks", "4", "--algorithm", "gloo", "--fault", "1@never"), "--fault is for the tree"),
        (("--ranks", "4", "--measure", "--fault", "1@never"), "--fault is for the simulation"),
        (("--ranks", "4", "--timeout", "0"), "timeout_s"),
        (("--ranks", "4", "--one-machine", "--cores", "0"), "--cores is 0"),
        (("--ranks", "4", "--skew", "-1"), "--skew"),
    ],
)
def test_wrong_options_are_named(options: tuple[str, ...], message: str):
    done = run(*options)
    assert done.returncode == 1
    assert message in done.stderr
