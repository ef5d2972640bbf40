"""The functions of torch.distributed that know its own backends by name, extended to mccl groups."""

import datetime
import functools
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from quincunx.mccl._groups import find_backend

_original: dict[str, Any] = {}


def _set_pg_timeout(timeout: datetime.timedelta, group: dist.ProcessGroup | None = None) -> None:
    backend = find_backend(group)
    if backend is not None:
        distributed_c10d._check_valid_timeout(timeout)
        backend.set_timeout(timeout)
    serving = group if group is not None else dist.group.WORLD
    if backend is None or len(serving._device_types) > 1:
        _original["_set_pg_timeout"](timeout, group)


def _monitored_barrier(
    group: dist.ProcessGroup | None = None,
    timeout: datetime.timedelta | float | None = None,
    wait_all_ranks: bool = False,
) -> None:
    if group == dist.GroupMember.NON_GROUP_MEMBER or find_backend(group) is None:
        return _original["monitored_barrier"](group, timeout, wait_all_ranks)
    if isinstance(timeout, float):
        timeout = datetime.timedelta(seconds=timeout)
    serving = group if group is not None else dist.group.WORLD
    if timeout is None:
        return serving.monitored_barrier(wait_all_ranks=wait_all_ranks)
    distributed_c10d._check_valid_timeout(timeout)
    return serving.monitored_barrier(timeout, wait_all_ranks=wait_all_ranks)


def _split_group(
    parent_pg: dist.ProcessGroup | None = None,
    split_ranks: list[list[int]] | None = None,
    timeout: datetime.timedelta | None = None,
    pg_options: Any | None = None,
    group_desc: str | None = None,
    backend: str | None = None,
) -> dist.ProcessGroup | None:
    parent = parent_pg if parent_pg is not None else dist.group.WORLD
    if find_backend(parent) is None or len(parent._device_types) > 1:
        return _original["split_group"](parent_pg, split_ranks, timeout, pg_options, group_desc, backend)
    if not split_ranks or not all(split_ranks):
        raise ValueError(f"split_ranks: expected a list of lists with at least one rank each, got {split_ranks}")
    for ranks in split_ranks:
        if parent.rank() in ranks:
            return dist.new_group(
                [dist.get_global_rank(parent, rank) for rank in ranks],
                timeout=timeout,
                backend=backend,
                pg_options=pg_options,
                use_local_synchronization=True,
                group_desc=group_desc,
            )
    return None


_EXTENSIONS = {
    "_set_pg_timeout": _set_pg_timeout,
    "monitored_barrier": _monitored_barrier,
    "split_group": _split_group,
}


def extend_torch_functions() -> None:
    """`monitored_barrier`, `split_group` and `_set_pg_timeout` accept mccl groups; other groups see no difference.

    torch refuses or ignores other backends than its own in these, by name. Undone by restore_torch_functions.
    """
    for name, extended in _EXTENSIONS.items():
        if name in _original:
            continue
        _original[name] = getattr(distributed_c10d, name)
        wrapper = functools.wraps(_original[name])(extended)
        for module in (distributed_c10d, dist):
            if hasattr(module, name):
                setattr(module, name, wrapper)


def restore_torch_functions() -> None:
    """Undoes extend_torch_functions."""
    while _original:
        name, function = _original.popitem()
        for module in (distributed_c10d, dist):
            if hasattr(module, name):
                setattr(module, name, function)
