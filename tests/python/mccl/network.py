"""Hosts for tests: network namespaces behind one switch, which ranks enter after they were forked."""

import contextlib
import ctypes
import fcntl
import functools
import heapq
import os
import pathlib
import random
import select
import shutil
import signal
import struct
import subprocess
import threading
import time

_CLONE_NEWNS, _CLONE_NEWNET = 0x20000, 0x40000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
_LIBC = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def _ip(*arguments: str, inside: str | None = None) -> None:
    where = ["-n", inside] if inside else []
    done = subprocess.run(["ip", *where, *arguments], capture_output=True, text=True, timeout=10)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join([*where, *arguments])}: {done.stderr}")


@functools.cache
def why_not() -> str:
    """Empty where this process may make hosts; otherwise the reason for skipping a test."""
    if shutil.which("ip") is None:
        return "iproute2 is not installed"
    name = f"qx{os.getpid()}probe"
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if done.returncode != 0:
        return f"no right to make network namespaces (root has it): {done.stderr.strip()}"
    done = subprocess.run(["ip", "-n", name, "link", "add", "veth0", "type", "veth", "peer", "name", "veth1"])
    subprocess.run(["ip", "netns", "delete", name])
    return "" if done.returncode == 0 else "the kernel makes no veth pairs"


def enter_mounts() -> None:
    """A mount namespace of its own for this process: what it mounts, nobody else sees."""
    _checked(_LIBC.unshare(_CLONE_NEWNS), "unshare")
    _checked(_LIBC.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None), "mount --make-rprivate")


def bind_file(source: pathlib.Path, target: str) -> None:
    """Puts a file in place of another, for this process; after enter_mounts."""
    _checked(_LIBC.mount(bytes(source), target.encode(), None, _MS_BIND, None), f"mount --bind {source} {target}")


def mount_memory(target: str, size: str) -> None:
    """A file system in memory of that size, for this process; after enter_mounts."""
    _checked(_LIBC.mount(b"tmpfs", target.encode(), b"tmpfs", 0, f"size={size}".encode()), f"mount {target}")


class Network:
    """`num_hosts` hosts with the addresses 10.77.0.1 and on, and fd77::1 and on (only these with ipv6_only)."""

    def __init__(self, num_hosts: int, *, ipv6_only: bool = False) -> None:
        self._prefix = f"qx{os.getpid()}n{time.monotonic_ns() % 1000000}"
        self.hosts = [f"{self._prefix}h{index}" for index in range(num_hosts)]
        self._switch = f"{self._prefix}s"
        self._proxies: list[SlowLink] = []
        self._made: list[str] = []
        try:
            self._make(ipv6_only)
        except BaseException:
            self.close()
            raise

    def _make(self, ipv6_only: bool) -> None:
        for name in (self._switch, *self.hosts):
            _ip("netns", "add", name)
            self._made.append(name)
        _ip("link", "add", "bridge", "type", "bridge", inside=self._switch)
        _ip("link", "set", "bridge", "up", inside=self._switch)
        for index, host in enumerate(self.hosts):
            port = f"port{index}"
            _ip("link", "add", "net", "type", "veth", "peer", "name", port, "netns", self._switch, inside=host)
            _ip("link", "set", port, "master", "bridge", "up", inside=self._switch)
            self._address(host, index, ipv6_only)

    @staticmethod
    def _address(host: str, index: int, ipv6_only: bool) -> None:
        _ip("link", "set", "lo", "up", inside=host)
        if not ipv6_only:
            _ip("address", "add", f"10.77.0.{index + 1}/24", "dev", "net", inside=host)
        _ip("address", "add", f"fd77::{index + 1}/64", "dev", "net", "nodad", inside=host)
        _ip("link", "set", "net", "up", inside=host)

    def address(self, index: int) -> str:
        return f"10.77.0.{index + 1}"

    def enter(self, index: int) -> None:
        """The calling process, which must have one thread, is on that host from now on."""
        descriptor = os.open(f"/run/netns/{self.hosts[index]}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _checked(_LIBC.setns(descriptor, _CLONE_NEWNET), "setns")
        finally:
            os.close(descriptor)

    def unplug(self, index: int) -> None:
        """Nothing reaches or leaves the host any more; nobody is told."""
        _ip("link", "set", f"port{index}", "nomaster", inside=self._switch)

    def limit(self, index: int, rate: str) -> None:
        """What the host sends leaves no faster than that ("20mbit")."""
        arguments = ["qdisc", "add", "dev", "net", "root", "tbf", "rate", rate, "burst", "32k", "latency", "50ms"]
        subprocess.run(["tc", "-n", self.hosts[index], *arguments], check=True, timeout=10)

    def slow_down(self, index: int, *, delay_s: float, loss: float) -> None:
        """All of the host's packets pass a process that holds them up and drops some, the same ones in every run."""
        _ip("link", "delete", f"port{index}", inside=self._switch)
        self._proxies.append(SlowLink(self.hosts[index], self._switch, f"port{index}", delay_s, loss))
        self._address(self.hosts[index], index, False)
        _ip("link", "set", f"port{index}", "master", "bridge", "up", inside=self._switch)

    def close(self) -> None:
        for proxy in self._proxies:
            proxy.close()
        for name in reversed(self._made):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


class SlowLink:
    """A process between two taps, "net" of a host and a port of the switch."""

    def __init__(self, host: str, switch: str, port: str, delay_s: float, loss: float) -> None:
        ready, says_ready = os.pipe()
        self._process = os.fork()
        if self._process == 0:
            with contextlib.suppress(BaseException):
                os.close(ready)
                taps = [self._tap(host, "net"), self._tap(switch, port)]
                os.write(says_ready, b"+")
                os.close(says_ready)
                self._forward(taps, delay_s, loss)
            os._exit(1)
        os.close(says_ready)
        started = os.read(ready, 1)
        os.close(ready)
        if started != b"+":
            raise RuntimeError("no tap devices can be made")

    @staticmethod
    def _tap(namespace: str, name: str) -> int:
        descriptor = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
        _checked(_LIBC.setns(descriptor, _CLONE_NEWNET), "setns")
        os.close(descriptor)
        tap = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH14x", name.encode(), _IFF_TAP | _IFF_NO_PI))
        return tap

    @staticmethod
    def _forward(taps: list[int], delay_s: float, loss: float) -> None:
        chance = random.Random(1)
        waiting: list[tuple[float, int, int, bytes]] = []
        for number in range(1 << 62):
            patience = max(waiting[0][0] - time.monotonic(), 0) if waiting else None
            for tap in select.select(taps, [], [], patience)[0]:
                frame = os.read(tap, 1 << 16)
                if chance.random() >= loss:
                    other = taps[1 - taps.index(tap)]
                    heapq.heappush(waiting, (time.monotonic() + delay_s, number, other, frame))
            while waiting and waiting[0][0] <= time.monotonic():
                with contextlib.suppress(OSError):  # a device that is down takes nothing
                    os.write(waiting[0][2], waiting[0][3])
                heapq.heappop(waiting)

    def close(self) -> None:
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)


def unplug_later(network: Network, index: int, flag: pathlib.Path) -> threading.Thread:
    """Unplugs the host as soon as the file is there."""

    def wait() -> None:
        deadline = time.monotonic() + 30
        while not flag.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        network.unplug(index)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread
