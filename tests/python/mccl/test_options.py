"""mccl.Options: each does what it says, and they are those of C++ and C."""

import dataclasses
import datetime
import os
import pathlib
import re
import time

import pytest
import torch.distributed as dist
from mccl.ranks import SECONDS, free_port, sum_of_ranks
from quincunx import mccl

_ROOT = pathlib.Path(__file__).resolve().parents[3]
# What torch gives to each group itself.
_OF_TORCH = {"rank", "world_size", "group_name", "timeout"}
_CREDENTIALS = {"secret", "secret_file", "tls_certificate_file", "tls_key_file", "tls_authority_file"}


def transports():
    statistics = mccl.statistics()
    return statistics["shared_memory_peers"], statistics["tcp_peers"]


def start_with(path, options_of, timeout=SECONDS):
    def start(rank, world):
        method = f"file://{path}"
        options = options_of(rank)
        dist.init_process_group("mccl", method, rank=rank, world_size=world, timeout=timeout, pg_options=options)

    return start


@pytest.mark.parametrize(
    ("options_of", "expected"),
    [
        (lambda rank: mccl.Options(), (1, 0)),
        (lambda rank: mccl.Options(allow_shared_memory=False), (0, 1)),
        (lambda rank: mccl.Options(host_id="one"), (1, 0)),
        (lambda rank: mccl.Options(host_id=f"host {rank}"), (0, 1)),
    ],
    ids=["default", "no shared memory", "the same host", "two hosts"],
)
def test_who_shares_memory(run_ranks, tmp_path, options_of, expected):
    def body(rank, world):
        assert sum_of_ranks() == 3.0
        return transports()

    assert run_ranks(2, body, start=start_with(tmp_path / "store", options_of)) == [expected] * 2


def test_ranks_of_another_generation_do_not_meet(run_ranks, tmp_path):
    def body(rank, world):
        with pytest.raises(mccl.CollectiveTimeoutError, match="rank"):
            mccl.wait_ready(timeout=1.0)

    run_ranks(2, body, start=start_with(tmp_path / "store", lambda rank: mccl.Options(generation=str(rank))))


def test_the_generation_of_the_options_stands_over_that_of_torchrun(run_ranks, tmp_path):
    def start(rank, world):
        os.environ.update(GROUP_WORLD_SIZE="1", TORCHELASTIC_RESTART_COUNT=str(rank))
        start_with(tmp_path / "store", lambda rank: mccl.Options(generation="same"))(rank, world)

    assert run_ranks(2, lambda rank, world: sum_of_ranks(), start=start) == [3.0] * 2


def test_the_secret_of_the_options_stands_over_that_of_the_environment(run_ranks, tmp_path):
    def start(rank, world):
        os.environ["QX_MCCL_SECRET"] = f"the secret of rank {rank} alone"
        path = tmp_path / "secret"
        options = [mccl.Options(secret="0123456789abcdef"), mccl.Options(secret_file=str(path))][rank]
        start_with(tmp_path / "store", lambda rank: options)(rank, world)

    (tmp_path / "secret").write_text("0123456789abcdef\n")
    (tmp_path / "secret").chmod(0o600)
    assert run_ranks(2, lambda rank, world: (sum_of_ranks(), transports()), start=start) == [(3.0, (1, 0))] * 2


def test_a_store_may_have_a_secret_of_its_own(run_ranks, tmp_path):
    def body(rank, world):
        options = mccl.Options(secret="0123456789abcdef" if rank < 2 else "fedcba9876543210", generation="one")
        url = f"mccl://127.0.0.1:{port}?rank={rank}&world_size={world}"
        store = mccl.open_store(url, datetime.timedelta(seconds=[20, 20, 1][rank]), options=options)
        if rank == 2:
            with pytest.raises(dist.DistStoreError, match="secret"):
                store.get("a")
            (tmp_path / "refused").touch()
        elif rank == 1:
            store.set("a", "1")
        else:
            store.wait(["a", "end"])
        if rank == 1:
            while not (tmp_path / "refused").exists():
                time.sleep(0.01)
            store.set("end", "1")

    port = free_port()
    run_ranks(3, body, start=lambda rank, world: None)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (mccl.Options(interface_address="eth0"), "interface_address"),
        (mccl.Options(secret=""), "secret: expected a secret of 16 to 4096 bytes, got 0"),
        (mccl.Options(secret_file="/nowhere"), 'secret_file: cannot open "/nowhere"'),
        (mccl.Options(secret="0123456789abcdef", secret_file="/nowhere"), "secret: expected none where secret_file is"),
        (mccl.Options(tls_key_file="/nowhere"), "tls_.*_file: expected certificate, key and authority, or none"),
        (
            mccl.Options(tls_certificate_file="/a", tls_key_file="/b", tls_authority_file="/c"),
            'tls_key_file: cannot use "/b"',
        ),
    ],
)
def test_what_is_wrong_is_named(options, complaint):
    with pytest.raises(ValueError, match=f"^mccl: {complaint}"):
        dist.init_process_group("mccl", store=dist.HashStore(), rank=0, world_size=2, pg_options=options)
    assert not dist.is_initialized()


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"host_id": 5}, "host_id: expected str, got int"),
        ({"allow_shared_memory": "no"}, "allow_shared_memory: expected bool, got str"),
        ({"secret": b"0123456789abcdef"}, "secret: expected str, got bytes"),
        ({"host_id": None}, "host_id: expected str, got NoneType"),
    ],
)
def test_options_have_types(given, complaint):
    with pytest.raises(TypeError, match=complaint):
        mccl.Options(**given)


def test_a_secret_is_not_shown():
    assert "0123456789abcdef" not in repr(mccl.Options(secret="0123456789abcdef"))


def fields_of(path, struct):
    body = re.search(struct + r" \{\n(.*?)\n\}", (_ROOT / path).read_text(), re.DOTALL)[1]
    return set(re.findall(r"^  (?:[\w:<>*]+ )+(\w+)(?: = [^;]*|\{[^;]*\})?;", body, re.MULTILINE))


def test_the_options_are_those_of_cpp_and_of_c():
    python = {field.name for field in dataclasses.fields(mccl.Options)}
    cpp = fields_of("quincunx/collectives/communicator.h", "struct Options")
    c = fields_of("quincunx/collectives/quincunx_mccl.h", "typedef struct qx_communicator_options")
    assert python == (cpp - _OF_TORCH - {"credentials"}) | _CREDENTIALS
    renamed = {"forbid_shared_memory": "allow_shared_memory", "timeout_ms": "timeout"}
    assert {renamed.get(name, name) for name in c - {"struct_size", "address"}} == python | _OF_TORCH
    documented = (_ROOT / "docs/mccl.md").read_text()
    assert [name for name in sorted(python | _OF_TORCH) if f"`{name}`" not in documented] == []
