"""`qx doctor comm`: what it tries out, and that it says where something is missing."""

import functools
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
QX = pathlib.Path(os.environ.get("QUINCUNX_BUILD_DIR", ROOT / "build" / "release")) / "bin" / "qx"
pytestmark = pytest.mark.skipif(not QX.exists(), reason=f"no {QX}")


def doctor(*arguments: str, prefix: tuple[str, ...] = (), **environment: str) -> subprocess.CompletedProcess:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("QX_MCCL")}
    command = [*prefix, QX, "doctor", "comm", *arguments]
    return subprocess.run(command, env=clean | environment, capture_output=True, text=True, timeout=30)


def probes(*arguments: str, **options) -> dict[str, dict]:
    done = doctor("--json", *arguments, **options)
    report = json.loads(done.stdout)
    assert report["ok"] == (done.returncode == 0)
    return {probe["name"]: probe for probe in report["probes"]}


@functools.cache
def _can_make_namespaces() -> bool:
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "-n", "ip", "link", "set", "lo", "up"], capture_output=True).returncode == 0


@pytest.fixture
def in_namespace():
    """The prefix of a command that runs in a network of its own, after a shell line that prepares it."""
    if not _can_make_namespaces():
        pytest.skip("needs the right to make network namespaces (root), and iproute2")
    return lambda line: ("unshare", "-n", "sh", "-c", line + '\nexec "$@"', "sh")


def test_every_probe_is_fine_here():
    found = probes()
    assert {name: probe for name, probe in found.items() if probe["verdict"] == "failed"} == {}
    assert set(found) == {
        "host identity",
        "loopback",
        "address for other hosts",
        "shared memory",
        "abstract sockets",
        "open files",
        "locked memory",
        "ports",
        "secret",
    }


def test_text_has_one_line_for_each_interface_and_probe():
    done = doctor()
    assert done.returncode == 0
    for name in ("interface lo", "loopback", "shared memory", "ports"):
        assert re.search(rf"^{name}  +\S", done.stdout, re.MULTILINE), name


@pytest.mark.parametrize(
    ("settings", "offered"),
    [
        ({}, ["10.9.1.1", "10.9.2.1"]),
        ({"QX_MCCL_INTERFACE": "10.9.2.1"}, ["10.9.2.1"]),
        ({"QX_MCCL_INTERFACE_DENY": "two"}, ["10.9.1.1"]),
    ],
)
def test_interfaces_are_listed_and_those_for_other_hosts_are_marked(in_namespace, settings, offered):
    prefix = in_namespace(
        "ip link set lo up; ip link add two type veth peer name one\n"
        "ip addr add 10.9.1.1/24 dev one; ip addr add 10.9.2.1/24 dev two; ip link set one up; ip link set two up"
    )
    done = doctor("--json", prefix=prefix, **settings)
    assert done.returncode == 0, done.stderr
    entries = json.loads(done.stdout)["interfaces"]
    assert [entry["address"] for entry in entries if entry["offered"]] == offered
    assert {"interface": "lo", "address": "127.0.0.1", "up": True, "loopback": True, "offered": False} in entries


def test_a_host_without_network_is_told_so(in_namespace):
    found = probes(prefix=in_namespace("true"))
    assert found["loopback"]["verdict"] == "failed"
    assert "ip link set lo up" in found["loopback"]["advice"]
    assert found["address for other hosts"]["verdict"] == "warning"
    assert found["shared memory"]["verdict"] == "fine"


def test_an_address_of_another_host_cannot_be_chosen():
    found = probes(QX_MCCL_INTERFACE="203.0.113.7")
    assert found["address for other hosts"]["verdict"] == "failed"
    assert "203.0.113.7" in found["address for other hosts"]["detail"]


def test_a_low_limit_of_open_files_is_a_warning():
    found = probes(prefix=("sh", "-c", 'ulimit -n 64; exec "$@"', "sh"))
    assert found["open files"]["verdict"] == "warning"
    assert found["open files"]["detail"].startswith("64,")


def test_a_secret_that_others_can_read_is_refused(tmp_path):
    path = tmp_path / "secret"
    path.write_text("0123456789abcdef")
    path.chmod(0o644)
    found = probes(QX_MCCL_SECRET_FILE=str(path))["secret"]
    assert (found["verdict"], "chmod 600" in found["detail"]) == ("failed", True)
    path.chmod(0o600)
    assert probes(QX_MCCL_SECRET_FILE=str(path))["secret"]["verdict"] == "fine"


def test_a_peer_is_reached_or_not():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = probes("--peer", f"127.0.0.1:{port}")
        assert found[f"peer 127.0.0.1:{port}"]["verdict"] == "fine"
    found = probes("--peer", f"127.0.0.1:{port}", "--peer", "localhost:1")
    assert "refused" in found[f"peer 127.0.0.1:{port}"]["detail"]
    assert "nothing listens" in found[f"peer 127.0.0.1:{port}"]["advice"]
    assert "numeric" in found["peer localhost:1"]["advice"]


def test_a_silent_peer_ends_with_the_timeout(in_namespace):
    # The other end of the pair swallows what is sent to the address that it is said to have.
    prefix = in_namespace(
        "ip link set lo up; ip link add one type veth peer name two; ip addr add 10.9.1.1/24 dev one\n"
        "ip link set one up; ip link set two up; ip neigh add 10.9.1.2 lladdr 02:00:00:00:00:09 dev one"
    )
    found = probes("--peer", "10.9.1.2:4711", "--timeout", "0.2", prefix=prefix)["peer 10.9.1.2:4711"]
    assert found["verdict"] == "failed"
    assert "no answer within 200 ms" in found["detail"]
    assert "firewall" in found["advice"]


@pytest.mark.parametrize("seconds", ["0", "-1", "4000"])
def test_a_wrong_timeout_is_named(seconds):
    done = doctor("--timeout", seconds)
    assert done.returncode == 1
    assert "--timeout" in done.stderr
