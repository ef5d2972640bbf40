"""Groups: how they are made, and what they can be asked."""

import dataclasses
import datetime
import json
import os
from typing import Any

import torch
import torch.distributed as dist

from quincunx.mccl._environment import restart_generation
from quincunx.mccl._extension import load


@dataclasses.dataclass(frozen=True)
class Options:
    """Pass as `pg_options` of `init_process_group` or `new_group`. Rank, world size, name and timeout are torch's.

    generation: the same on all ranks, and another for each start of the job. Empty: torchrun's count of restarts where
        the job has one node, else counted in the store.
    interface_address: numeric address to listen on. Empty: loopback where all ranks are on this host, else the
        variable QX_MCCL_INTERFACE.
    allow_shared_memory: False sends everything through sockets.
    host_id: only ranks with the same text count as of one host and share memory. Empty: that of QX_MCCL_HOST_ID.
    secret, secret_file, tls_certificate_file, tls_key_file, tls_authority_file: what the ranks of the job know. One
        secret at most, the three files of TLS all or none. All None: QX_MCCL_SECRET_FILE, QX_MCCL_SECRET and
        QX_MCCL_TLS_* tell. A store of mccl:// has its own: see `open_store`.
    """

    generation: str = ""
    interface_address: str = ""
    allow_shared_memory: bool = True
    host_id: str = ""
    secret: str | None = dataclasses.field(default=None, repr=False)
    secret_file: str | None = None
    tls_certificate_file: str | None = None
    tls_key_file: str | None = None
    tls_authority_file: str | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            expected = type(field.default) if field.default is not None else str
            if not isinstance(value, expected) and not (value is None and field.default is None):
                raise TypeError(f"{field.name}: expected {expected.__name__}, got {type(value).__name__}")

    def credentials(self) -> Any | None:
        """None where the environment is to tell. ValueError names the field that is wrong."""
        return load().load_credentials(
            secret=self.secret,
            secret_file=self.secret_file,
            tls_certificate_file=self.tls_certificate_file,
            tls_key_file=self.tls_key_file,
            tls_authority_file=self.tls_authority_file,
        )


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a group has connected. Ranks are those of the group; `error` says why the phase is "failed"."""

    phase: str  # "connecting", "ready", "failed" or "aborted"
    ranks_seen: list[int]
    ranks_missing: list[int]
    error: str


def find_backend(group: dist.ProcessGroup | None) -> Any | None:
    """The mccl backend that serves CPU tensors of the group, or None."""
    group = group if group is not None else dist.group.WORLD
    if group is not None and not isinstance(group, dist.ProcessGroup):
        raise TypeError(f"group: expected a ProcessGroup of which this rank is a member, got {type(group).__name__}")
    if group is None or torch.device("cpu") not in group._device_types:
        return None
    backend = group._get_backend(torch.device("cpu"))
    # TORCH_DISTRIBUTED_DEBUG=DETAIL wraps every backend.
    backend = getattr(backend, "wrapped_pg", backend)
    return backend if isinstance(backend, load().McclBackend) else None


def _backend_of(group: dist.ProcessGroup | None) -> Any:
    if group is None and not dist.is_initialized():
        raise ValueError("group: there is no default group; call torch.distributed.init_process_group first")
    backend = find_backend(group)
    if backend is None:
        name = dist.get_backend(group)
        raise ValueError(f'group: expected one that uses "mccl" for CPU tensors, got backend "{name}"')
    return backend


def check_options(name: str, options: Options | None) -> Options:
    """The options, or those of the environment for None."""
    if options is not None and not isinstance(options, Options):
        raise TypeError(f"{name}: expected quincunx.mccl.Options, got {type(options).__name__}")
    return options if options is not None else Options()


def create(options: Any, pg_options: Options | None) -> Any:
    """Called by torch for each new group. A group of members of an mccl default group uses that one's connections."""
    own = check_options("pg_options", pg_options)
    parent = find_backend(None) if dist.is_initialized() and options.global_ranks_in_group else None
    if parent is not None and pg_options is None and parent.progress()[0] in ("connecting", "ready"):
        return parent.split_members(list(options.global_ranks_in_group), options.group_id, options.timeout)
    native = load().Options()
    native.rank, native.world_size = options.group_rank, options.group_size
    native.group_name = options.group_id
    native.generation = own.generation or restart_generation(os.environ)
    native.timeout = options.timeout
    native.interface_address = own.interface_address
    native.allow_shared_memory = own.allow_shared_memory
    native.host_id = own.host_id
    native.credentials = own.credentials()
    return load().McclBackend.create(options.store, native)


def ready(group: dist.ProcessGroup | None = None) -> bool:
    """Whether the group has connected. Never waits."""
    return _backend_of(group).ready()


def wait_ready(group: dist.ProcessGroup | None = None, timeout: datetime.timedelta | float | None = None) -> None:
    """Waits until the group has connected, at most `timeout` (seconds, where it is a number) or the group's own.

    CollectiveTimeoutError names the ranks that are missing.
    """
    if timeout is None:
        timeout = _backend_of(group).options._timeout
    elif isinstance(timeout, int | float) and not isinstance(timeout, bool):
        timeout = datetime.timedelta(seconds=timeout)
    if not isinstance(timeout, datetime.timedelta):
        raise TypeError(f"timeout: expected a datetime.timedelta or seconds, got {type(timeout).__name__}")
    if timeout <= datetime.timedelta(0):
        raise ValueError(f"timeout: must be positive, got {timeout}")
    _backend_of(group).wait_ready(timeout)


def progress(group: dist.ProcessGroup | None = None) -> Progress:
    """The phase of the group and the ranks that it has met and misses. Never waits."""
    return Progress(*_backend_of(group).progress())


def statistics(group: dist.ProcessGroup | None = None) -> dict[str, Any]:
    """Calls and bytes by operation since the group was made."""
    return json.loads(_backend_of(group).statistics_json())


def flight_recorder(*, format: str = "json") -> dict[str, Any]:
    """The last 2,000 operations of this process, in all its groups: "json" as records, "chrome_trace" as a time line.

    json.dump of a "chrome_trace" is a file for chrome://tracing and Perfetto.
    """
    if format not in ("json", "chrome_trace"):
        raise ValueError(f'format: expected "json" or "chrome_trace", got {format!r}')
    return json.loads(load().flight_recorder(format == "chrome_trace"))
