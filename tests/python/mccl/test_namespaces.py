"""Jobs on several hosts, which are network namespaces: links that break, ranks that die, names that nobody answers for,
secrets that differ. They need root, as CI has it, and are skipped elsewhere."""

import datetime
import os
import re
import resource
import signal
import socket
import time

import pytest
import torch
import torch.distributed as dist
from mccl import network
from quincunx import mccl

pytestmark = pytest.mark.skipif(network.why_not() != "", reason=network.why_not())
NUM_HOSTS, WORLD = 2, 4
SECONDS = datetime.timedelta(seconds=15)

# "rank 3 (not entered ...)", "ranks 1, 4-5 of 8 are missing"; but not "rank 0 reported" and "on rank 0,".
BLAMED = re.compile(r"ranks? (\d[\d, -]*?)(?: \(| of \d+ | is miss| are miss| has died| have died| left)")


@pytest.fixture
def make_network():
    made = []

    def make(num_hosts: int = NUM_HOSTS, **options) -> network.Network:
        made.append(network.Network(num_hosts, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def host_of(rank: int, world: int) -> int:
    return rank * NUM_HOSTS // world


def starter(net, store, *, timeout_s: float = 15, prepare=None, rank_of=None, world_of=None):
    """start(rank, world) on the rank's host. `store`: a path, or an address of host 0."""

    def start(rank, world):
        net.enter(host_of(rank, world))
        if prepare is not None:
            prepare(rank)
        dist.init_process_group(
            "mccl",
            init_method=store if isinstance(store, str) else f"file://{store}",
            rank=rank if rank_of is None else rank_of(rank),
            world_size=world if world_of is None else world_of(rank),
            timeout=datetime.timedelta(seconds=timeout_s),
        )

    return start


def total(rank: int, world: int) -> float:
    x = torch.full((3,), float(rank + 1))
    dist.all_reduce(x)
    return x[2].item()


def message_of(call) -> str:
    """What the error says. The rank stays for a while: others are to hear of what went wrong, not of its leaving."""
    with pytest.raises(RuntimeError) as raised:
        call()
    time.sleep(0.6)
    return str(raised.value)


def assert_blames(outcomes, right: set[int], ranks) -> None:
    """Each of `ranks` returned a message that blames exactly the right ranks."""
    for rank in ranks:
        assert outcomes[rank].kind == "returned", outcomes[rank]
        named = set()
        for part in ", ".join(BLAMED.findall(outcomes[rank].value)).split(", "):
            first, _, last = part.partition("-")
            named |= set(range(int(first), int(last or first) + 1))
        assert named == right, outcomes[rank].value


def test_two_hosts_work_together(make_network, start_ranks, tmp_path):
    outcomes = start_ranks(WORLD, total, start=starter(make_network(), tmp_path / "store"))
    assert [outcome.value for outcome in outcomes] == [10.0] * WORLD, outcomes


def test_hosts_with_ipv6_only_work_together(make_network, start_ranks, tmp_path):
    outcomes = start_ranks(WORLD, total, start=starter(make_network(ipv6_only=True), tmp_path / "store"))
    assert [outcome.value for outcome in outcomes] == [10.0] * WORLD, outcomes


def test_a_slow_link_that_loses_packets_is_survived(make_network, start_ranks, tmp_path):
    net = make_network()
    net.slow_down(1, delay_s=0.01, loss=0.02)

    def body(rank, world):
        x = torch.full((20000,), float(rank))
        dist.all_reduce(x)
        return x.unique().tolist()

    outcomes = start_ranks(WORLD, body, start=starter(net, tmp_path / "store", timeout_s=40))
    assert [outcome.value for outcome in outcomes] == [[6.0]] * WORLD, outcomes


def test_a_narrow_link_delays_and_breaks_nothing(make_network, start_ranks, tmp_path):
    net = make_network()
    for host in range(NUM_HOSTS):
        net.limit(host, "50mbit")

    def body(rank, world):
        x = torch.full((200_000,), float(rank))
        dist.all_reduce(x)
        return x.unique().tolist()

    outcomes = start_ranks(WORLD, body, start=starter(net, tmp_path / "store", timeout_s=40))
    assert [outcome.value for outcome in outcomes] == [[6.0]] * WORLD, outcomes


@pytest.mark.parametrize("seconds", [1, pytest.param(5, marks=pytest.mark.nightly)])
def test_a_late_root_is_waited_for(make_network, start_ranks, seconds):
    net = make_network()

    def prepare(rank):
        if rank == 0:
            time.sleep(seconds)

    def body(rank, world):
        return total(rank, world)

    outcomes = start_ranks(WORLD, body, start=starter(net, f"mccl://{net.address(0)}:29400", prepare=prepare))
    assert [outcome.value for outcome in outcomes] == [10.0] * WORLD, outcomes


def test_a_root_that_never_comes_is_named(make_network, start_ranks):
    net = make_network()
    connect = starter(net, f"mccl://{net.address(0)}:29400", timeout_s=1)

    def start(rank, world):
        if rank != 0:
            connect(rank, world)

    def body(rank, world):
        return "" if rank == 0 else message_of(dist.barrier)

    outcomes = start_ranks(WORLD, body, start=start)
    for rank in (1, 2, 3):
        assert outcomes[rank].kind == "returned", outcomes[rank]
        assert "rank 0" in outcomes[rank].value, outcomes[rank]


PHASES = ("unconnected", "connecting", "connected", "within an operation")
OFTEN = (("unconnected", 0), ("connected", 3), ("within an operation", 0))


@pytest.mark.parametrize(
    ("phase", "victim"),
    [
        pytest.param(phase, victim, marks=() if (phase, victim) in OFTEN else pytest.mark.nightly)
        for phase in PHASES
        for victim in (0, 3)
    ],
)
def test_a_rank_that_dies_is_named_on_all_hosts(make_network, start_ranks, phase, victim):
    connects = phase in ("unconnected", "connecting")
    net = make_network()
    connect = starter(net, f"mccl://{net.address(0)}:29400", timeout_s=1.5 if connects else 15)

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    def start(rank, world):
        if rank == victim and phase == "unconnected":
            die()
        connect(rank, world)
        if rank == victim and phase == "connecting":
            die()

    def body(rank, world):
        if not connects:
            dist.barrier()
        if rank == victim:
            if phase == "within an operation":
                dist.all_reduce(torch.ones(200_000), async_op=True)
            die()
        return message_of(lambda: [dist.all_reduce(torch.ones(200_000)) for _ in range(2)])

    outcomes = start_ranks(WORLD, body, start=start)
    assert_blames(outcomes, {victim}, set(range(WORLD)) - {victim})


def test_a_link_that_breaks_without_a_word_is_noticed_on_both_sides(make_network, start_ranks, tmp_path):
    net, flag = make_network(), tmp_path / "unplug"

    def body(rank, world):
        dist.barrier()
        if rank == 0:
            flag.touch()
        time.sleep(0.5)
        work = dist.all_reduce(torch.ones(10), async_op=True)
        return message_of(lambda: work.wait(datetime.timedelta(seconds=1)))

    thread = network.unplug_later(net, 1, flag)
    outcomes = start_ranks(WORLD, body, start=starter(net, tmp_path / "store"))
    thread.join()
    assert_blames(outcomes, {2, 3}, (0, 1))
    assert_blames(outcomes, {0, 1}, (2, 3))


def test_a_rank_that_is_claimed_twice_leaves_another_missing(make_network, start_ranks, tmp_path):
    """The store counts the starts of a rank: who comes second is taken for its restart, and finds nobody."""
    start = starter(make_network(), tmp_path / "store", timeout_s=2, rank_of=lambda rank: min(rank, 2))
    outcomes = start_ranks(WORLD, lambda rank, world: message_of(dist.barrier), start=start)
    assert all(outcome.kind == "returned" for outcome in outcomes), outcomes
    assert_blames(outcomes, {3}, (0, 1))


def test_another_world_size_is_an_error_that_names_both(make_network, start_ranks, tmp_path):
    start = starter(make_network(), tmp_path / "store", timeout_s=2, world_of=lambda rank: 5 if rank == 3 else 4)
    outcomes = start_ranks(WORLD, lambda rank, world: message_of(dist.barrier), start=start)
    texts = " ".join(str(outcome.value) for outcome in outcomes)
    assert "world size" in texts and "5" in texts and "4" in texts, texts


def test_another_secret_keeps_a_rank_out(make_network, start_ranks, tmp_path):
    """Rank 2 is alone on its host."""

    def prepare(rank):
        os.environ["QX_MCCL_SECRET"] = "the secret of the job" if rank != 2 else "not the secret at all"

    start = starter(make_network(), tmp_path / "store", timeout_s=2, prepare=prepare)
    outcomes = start_ranks(3, lambda rank, world: message_of(dist.barrier), start=start)
    assert_blames(outcomes, {2}, (0, 1))
    assert "secret" in outcomes[2].value, outcomes[2]


def test_a_secret_that_all_know_lets_all_in(make_network, start_ranks, tmp_path):
    path = tmp_path / "secret"
    path.write_text("the secret of the job\n")
    path.chmod(0o600)

    def prepare(rank):
        os.environ["QX_MCCL_SECRET_FILE"] = str(path)

    net = make_network()
    for store in (tmp_path / "store", f"mccl://{net.address(0)}:29400"):
        outcomes = start_ranks(WORLD, total, start=starter(net, store, prepare=prepare))
        assert [outcome.value for outcome in outcomes] == [10.0] * WORLD, outcomes


def test_a_port_that_is_taken_is_named(make_network, start_ranks):
    net = make_network()

    def prepare(rank):
        if rank == 0:
            global taken
            taken = socket.create_server((net.address(0), 29400))

    start = starter(net, f"mccl://{net.address(0)}:29400", timeout_s=2, prepare=prepare)
    outcomes = start_ranks(2, lambda rank, world: message_of(dist.barrier), start=start)
    assert "29400" in str(outcomes[0].value), outcomes[0]


def test_names_are_never_asked_for(make_network, start_ranks, tmp_path):
    """The host's own name is a loopback address, and the name server swallows questions for 5 seconds."""
    hosts, resolver = tmp_path / "hosts", tmp_path / "resolv.conf"
    hosts.write_text(f"127.0.1.1 {socket.gethostname()}\n")
    resolver.write_text("nameserver 10.77.0.99\noptions timeout:5 attempts:2\n")

    def prepare(rank):
        network.enter_mounts()
        network.bind_file(hosts, "/etc/hosts")
        network.bind_file(resolver, "/etc/resolv.conf")
        assert socket.gethostbyname(socket.gethostname()) == "127.0.1.1"

    start = starter(make_network(), tmp_path / "store", timeout_s=4, prepare=prepare)
    outcomes = start_ranks(WORLD, total, start=start)
    assert [outcome.value for outcome in outcomes] == [10.0] * WORLD, outcomes


def test_two_jobs_on_one_host_do_not_meet(make_network, start_ranks, tmp_path):
    """Ranks 0 and 1 are one job, 2 and 3 another."""
    net = make_network(1)

    def start(rank, world):
        net.enter(0)
        store = f"file://{tmp_path}/store{rank // 2}"
        dist.init_process_group("mccl", init_method=store, rank=rank % 2, world_size=2, timeout=SECONDS)

    def body(rank, world):
        x = torch.tensor([float(rank)])
        dist.all_reduce(x)
        return x.item()

    outcomes = start_ranks(WORLD, body, start=start)
    assert [outcome.value for outcome in outcomes] == [1.0, 1.0, 5.0, 5.0], outcomes


def test_the_next_generation_does_not_read_what_the_last_one_left(make_network, start_ranks, tmp_path):
    net = make_network()

    def prepare_for(generation):
        def prepare(rank):
            os.environ["TORCHELASTIC_RESTART_COUNT"] = str(generation)

        return prepare

    def die(rank, world):
        dist.barrier()
        os.kill(os.getpid(), signal.SIGKILL)

    first = start_ranks(WORLD, die, start=starter(net, tmp_path / "store", prepare=prepare_for(0)))
    assert all(outcome.kind == "crashed" for outcome in first), first
    again = start_ranks(WORLD, total, start=starter(net, tmp_path / "store", prepare=prepare_for(1)))
    assert [outcome.value for outcome in again] == [10.0] * WORLD, again


def test_few_descriptors_are_enough(make_network, start_ranks, tmp_path):
    def prepare(rank):
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    outcomes = start_ranks(8, total, start=starter(make_network(), tmp_path / "store", prepare=prepare))
    assert [outcome.value for outcome in outcomes] == [36.0] * 8, outcomes


@pytest.mark.parametrize("size", ["4k", "16m"])
def test_dev_shm_may_be_full_or_apart(make_network, start_ranks, tmp_path, size):
    """Each rank has a /dev/shm of its own, with room for one page or for more: shared memory works all the same."""

    def prepare():
        network.enter_mounts()
        network.mount_memory("/dev/shm", size)

    def body(rank, world):
        value = total(rank, world)
        return value, mccl.statistics()

    net = make_network(1)

    def start(rank, world):
        net.enter(0)
        prepare()
        store = f"file://{tmp_path}/store"
        dist.init_process_group("mccl", init_method=store, rank=rank, world_size=world, timeout=SECONDS)

    outcomes = start_ranks(2, body, start=start)
    for outcome in outcomes:
        assert outcome.kind == "returned", outcome
        value, statistics = outcome.value
        assert value == 3.0
        assert statistics["shared_memory_peers"] == 1, statistics
