"""The `qx` program of the build, run as a user would."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
QX = pathlib.Path(os.environ.get("QUINCUNX_BUILD_DIR", ROOT / "build" / "release")) / "bin" / "qx"
pytestmark = pytest.mark.skipif(not QX.exists(), reason=f"no {QX}")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    clean = {name: value for name, value in os.environ.items() if name != "QX_PYTHON"}
    return subprocess.run([QX, *arguments], env=clean | environment, capture_output=True, text=True, timeout=60)


def test_version_is_that_of_the_project():
    assert f"project(quincunx VERSION {run('--version').stdout.split()[1]} " in (ROOT / "CMakeLists.txt").read_text()


def test_doctor_shows_the_machine():
    done = run("doctor")
    assert done.returncode == 0
    for fact in (
        "cpu",
        "cpu features",
        "caches",
        "dispatch targets",
        "threads",
        "shared memory",
        "locked memory",
        "open files",
        "python",
    ):
        assert any(line.startswith(fact) for line in done.stdout.splitlines()), fact


def test_doctor_follows_the_thread_setting():
    line = next(line for line in run("doctor", QX_NUM_THREADS="1").stdout.splitlines() if line.startswith("threads"))
    assert line.split()[1] == "1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fly"], "unknown verb 'fly', expected one of: "),
        ([], "Usage: qx"),
        (["doctor", "--colour"], "--colour"),
        (["--colour"], "--colour"),
    ],
)
def test_wrong_usage_is_named_and_exits_with_2(arguments, message):
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_python_verb_says_where_python_is_missing():
    done = run("bench")
    assert done.returncode == 1
    assert f"{QX.parent}/python3" in done.stderr
    assert "QX_PYTHON" in done.stderr


def test_python_verb_names_a_wrong_interpreter():
    done = run("bench", QX_PYTHON="/nowhere/python3")
    assert done.returncode == 1
    assert "'/nowhere/python3'" in done.stderr


def test_python_verb_hands_over_every_argument(tmp_path):
    interpreter = tmp_path / "python3"
    interpreter.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.argv[1:])\n")
    interpreter.chmod(0o755)
    done = run("bench", "kernels", "--quick", "--json", "a b.json", "--help", QX_PYTHON=str(interpreter))
    assert done.stdout.strip() == str(
        ["-m", "quincunx.cli", "bench", "kernels", "--quick", "--json", "a b.json", "--help"]
    )
