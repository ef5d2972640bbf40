"""mccl://host:port: a store that rank 0 serves and to which the other ranks connect when they need it."""

import datetime
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout

from quincunx.mccl._environment import (
    Place,
    find_place,
    has_agent_store,
    rank_and_world_size,
    restart_generation,
)
from quincunx.mccl._extension import load
from quincunx.mccl._groups import Options, check_options

_QUERY = ("rank", "world_size", "generation")


def _number(name: str, values: dict[str, str]) -> int:
    try:
        return int(values[name])
    except ValueError:
        raise ValueError(f"mccl://: {name}: expected a number, got {values[name]!r}") from None


def _port(parts: SplitResult) -> int | None:
    try:
        return parts.port
    except ValueError:
        return None


def _parse(url: str, options: Options) -> tuple[Place, str]:
    """The place and the generation of "mccl://host:port?rank=0&world_size=2"; what is missing the environment tells."""
    parts = urlsplit(url)
    values = {name: value[-1] for name, value in parse_qs(parts.query, strict_parsing=bool(parts.query)).items()}
    unknown = sorted(set(values) - set(_QUERY))
    if unknown:
        raise ValueError(f"mccl://: expected only {', '.join(_QUERY)} behind the question mark, got {unknown[0]}")
    generation = values.get("generation", options.generation or restart_generation(os.environ))
    if parts.hostname is None:
        place = find_place(os.environ)
        host, port = place.host, place.port
    elif _port(parts) is None or parts.path.strip("/"):
        raise ValueError(f"mccl://: expected mccl://host:port, got {url!r}")
    else:
        host, port = parts.hostname, parts.port
    given = {name: _number(name, values) for name in ("rank", "world_size") if name in values}
    if len(given) < 2:
        rank, world_size = rank_and_world_size(os.environ)
        given = {"rank": rank, "world_size": world_size} | given
    return Place(given["rank"], given["world_size"], host, port), generation


def open_store(
    url: str, timeout: datetime.timedelta = default_pg_timeout, *, options: Options | None = None
) -> dist.Store:
    """The store of mccl://host:port?rank=...&world_size=...; waits for nobody.

    It is proven to with the secret and TLS files of `options`, else with those of the environment. The generation of
    `options` counts where the URL has none.
    """
    options = check_options("options", options)
    if not isinstance(url, str):
        raise TypeError(f"url: expected a str, got {type(url).__name__}")
    place, generation = _parse(url, options)
    return load().open_store(
        place.host,
        place.port,
        place.rank,
        place.world_size,
        generation,
        credentials=options.credentials(),
        ends_former=False,
        timeout=timeout,
    )


def rendezvous_handler(
    url: str, timeout: datetime.timedelta = default_pg_timeout, **_: Any
) -> Iterator[tuple[dist.Store, int, int]]:
    """What torch calls for mccl:// URLs."""
    place, generation = _parse(url, Options())
    # The store of the last default group at this place may be held by an exception's traceback, and its port with it.
    store = load().open_store(
        place.host,
        place.port,
        place.rank,
        place.world_size,
        generation,
        credentials=None,
        ends_former=True,
        timeout=timeout,
    )
    yield store, place.rank, place.world_size
    raise RuntimeError("mccl:// cannot meet a second time; initialise the process group again")


def init_from_environment(
    backend: str = "mccl", *, timeout: datetime.timedelta | None = None, pg_options: Any | None = None
) -> None:
    """init_process_group for a process of torchrun, mpirun or Slurm.

    Under torchrun the ranks meet at the store of its agent, which survives restarts. Else rank 0 serves at MASTER_ADDR
    and MASTER_PORT, or where the launcher's variables say.
    """
    method = "env://" if has_agent_store(os.environ) else "mccl://"
    dist.init_process_group(backend, init_method=method, timeout=timeout, pg_options=pg_options)
