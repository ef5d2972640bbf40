"""cmake/setup.sh on machines that this test makes up: `id`, `dpkg-query` and `apt-get` are stand-ins on the PATH."""

import os
import pathlib
import stat
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SETUP = ROOT / "cmake" / "setup.sh"
PACKAGES = [line for line in (ROOT / "cmake" / "apt-packages.txt").read_text().splitlines() if not line.startswith("#")]


class Machine:
    """A machine with some packages installed and a user, root or not."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.apt_log = folder / "apt.log"

    def program(self, name: str, body: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run(
        self, *steps: str, user_id: int, installed: list[str], removed: list[str] = ()
    ) -> subprocess.CompletedProcess:
        self.program("id", f"echo {user_id}")
        listed = "".join(f"{name} installed\\n" for name in installed)
        listed += "".join(f"{name} config-files\\n" for name in removed or [])
        self.program("dpkg-query", f"printf '{listed}'")
        self.program("apt-get", f'echo "$*" >> {self.apt_log}')
        environment = os.environ | {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        return subprocess.run([SETUP, *steps], env=environment, capture_output=True, text=True, timeout=60)

    def apt_calls(self) -> str:
        return self.apt_log.read_text() if self.apt_log.exists() else ""


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_user_without_root_is_told_exactly_what_is_missing(machine):
    done = machine.run("system", user_id=1000, installed=[name for name in PACKAGES if name not in ("make", "ccache")])
    assert done.returncode == 1
    assert "sudo apt-get install ccache make\n" in done.stderr
    assert machine.apt_calls() == ""


def test_missing_optional_packages_do_not_stop_a_user_without_root(machine):
    done = machine.run("system", user_id=1000, installed=PACKAGES)
    assert done.returncode == 0
    assert "chromium" in done.stdout
    assert machine.apt_calls() == ""


def test_root_installs_only_what_is_missing(machine):
    optional = ["chromium", "fonts-dejavu-core"]
    done = machine.run("system", user_id=0, installed=[name for name in PACKAGES if name != "lld-22"] + optional)
    assert done.returncode == 0, done.stderr
    installs = [line for line in machine.apt_calls().splitlines() if " install " in line]
    assert len(installs) == 1
    assert installs[0].endswith("--no-install-recommends lld-22")


def test_complete_machine_needs_no_package_tool(machine):
    done = machine.run("system", user_id=0, installed=[*PACKAGES, "chromium", "fonts-dejavu-core"])
    assert done.returncode == 0
    assert machine.apt_calls() == ""


def test_removed_package_with_configuration_left_counts_as_missing(machine):
    done = machine.run("system", user_id=1000, installed=PACKAGES[1:], removed=PACKAGES[:1])
    assert done.returncode == 1
    assert PACKAGES[0] in done.stderr


@pytest.mark.parametrize("arguments", [["fly"], []])
def test_unknown_step_is_refused_with_the_known_ones(machine, arguments):
    done = machine.run(*arguments, user_id=1000, installed=PACKAGES)
    assert done.returncode == 1
    assert "expected system, nightly, python, build" in done.stderr


def test_package_lists_are_sorted_and_disjoint():
    lists = [path.read_text().splitlines() for path in sorted((ROOT / "cmake").glob("apt-packages*.txt"))]
    names = [[line for line in lines if not line.startswith("#")] for lines in lists]
    assert all(part == sorted(part) for part in names)
    assert sum(map(len, names)) == len(set().union(*names))


@pytest.mark.parametrize(
    "target", ["tour", "test", "lint", "bench", "bench-peers", "asan", "tsan", "wheel", "docs", "nightly"]
)
def test_make_help_names_every_command(target):
    listed = subprocess.run(["make", "-C", ROOT, "help"], capture_output=True, text=True, timeout=60).stdout
    assert f"make {target} " in listed


def test_unknown_nightly_part_is_refused_before_anything_is_done():
    done = subprocess.run([ROOT / "tests" / "nightly.sh", "fly"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "unknown part 'fly', expected one of g++ asan tsan" in done.stderr
    assert done.stdout == ""


def test_stale_package_lists_are_renewed_and_the_install_tried_again(machine):
    machine.program("id", "echo 0")
    machine.program("dpkg-query", "true")
    # Fails until the lists are new, as apt does where a list names a version that the mirror no longer has.
    machine.program(
        "apt-get",
        f'echo "$*" >> {machine.apt_log}\n[ "$1" = update ] && touch {machine.folder}/new\n[ -e {machine.folder}/new ]',
    )
    environment = os.environ | {"PATH": f"{machine.folder}:{os.environ['PATH']}"}
    done = subprocess.run([SETUP, "system"], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    calls = machine.apt_calls().splitlines()
    assert calls[-2] == "update"
    assert " install " in calls[-1]
