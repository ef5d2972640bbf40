"""Muon on DTensors over several processes: bitwise equal to one process, for every way to shard."""

import os
import time

import pytest
import torch
import torch.distributed as dist
from muon.reference import NEWTON_SCHULZ_ERROR, Reference, random_matrix, relative_error
from quincunx.muon import Muon
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

NUM_STEPS = 3
UNEVEN_SIZES = (1, 2, 3, 5, 7, 18)


def parameters() -> dict[str, tuple[torch.Tensor, int]]:
    """Name -> (whole tensor, sharded dim)."""
    tensors = {}
    for i, size in enumerate(UNEVEN_SIZES):
        tensors[f"rows{size}"] = (random_matrix(size, 6, seed=i), 0)
        tensors[f"columns{size}"] = (random_matrix(6, size, seed=10 + i), 1)
    tensors["experts"] = (random_matrix(5, 4, 6, seed=20), 0)
    tensors["experts_by_row"] = (random_matrix(2, 5, 6, seed=21), 1)
    tensors["experts_by_column"] = (random_matrix(2, 6, 5, seed=22), 2)
    tensors["second_leading_dim"] = (random_matrix(2, 3, 4, 6, seed=23), 1)
    return tensors


def grad_of(name: str, shape: torch.Size, step: int) -> torch.Tensor:
    return random_matrix(*shape, seed=sum(name.encode()) * 100 + step)


def single_process(tensors: dict, **options) -> dict[str, torch.Tensor]:
    params = {name: nn.Parameter(value.clone()) for name, (value, _) in tensors.items()}
    optimizer = Muon(list(params.values()), **options)
    for step in range(NUM_STEPS):
        for name, param in params.items():
            param.grad = grad_of(name, param.shape, step)
        optimizer.step()
    return {name: param.detach() for name, param in params.items()}


def sharded(tensors: dict, mesh, **options) -> tuple[dict[str, torch.Tensor], Muon]:
    def distribute(value: torch.Tensor, dim: int) -> DTensor:
        return distribute_tensor(value, mesh, [Shard(dim)])

    params = {name: nn.Parameter(distribute(value.clone(), dim)) for name, (value, dim) in tensors.items()}
    optimizer = Muon(list(params.items()), **options)
    for step in range(NUM_STEPS):
        for name, param in params.items():
            param.grad = distribute(grad_of(name, param.shape, step), tensors[name][1])
        optimizer.step()
    return {name: param.detach().full_tensor() for name, param in params.items()}, optimizer


def assert_all_equal(values: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    for name, value in values.items():
        assert torch.equal(value, expected[name]), name


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_equals_one_process_bitwise(run_ranks, backend, world):
    def body(rank, world):
        tensors = parameters()
        mesh = init_device_mesh("cpu", (world,))
        expected = single_process(tensors)
        counters = []
        for memory_cap_bytes in (None, 65_536):
            values, optimizer = sharded(tensors, mesh, memory_cap_bytes=memory_cap_bytes)
            assert_all_equal(values, expected)
            counters.append(optimizer.counters)
        return counters

    for counters in zip(*run_ranks(world, body, backend=backend), strict=True):
        total = counters[0]["matrices_total"]
        assert sum(c["matrices_orthogonalized"] for c in counters) == total == 12 + 5 + 2 + 2 + 6


def test_equals_the_definition(run_ranks):
    def body(rank, world):
        tensors = parameters()
        values, _ = sharded(tensors, init_device_mesh("cpu", (world,)))
        for name, (value, _) in tensors.items():
            reference = Reference(value)
            for step in range(NUM_STEPS):
                reference.step(grad_of(name, value.shape, step))
            assert relative_error(values[name], reference.value) < NEWTON_SCHULZ_ERROR, name

    run_ranks(3, body)


PLACEMENTS = [
    (Replicate(), Shard(0)),
    (Shard(1), Replicate()),
    (Replicate(), Replicate()),
    (Shard(0), Shard(1)),
    (Shard(0), Shard(0)),
]


def step_on_mesh(mesh: DeviceMesh, placements: tuple, shapes: list[tuple[int, int]]) -> float:
    """Asserts that the sharded steps equal the plain ones; returns how many matrices this rank orthogonalised."""
    plain = [nn.Parameter(random_matrix(*shape, seed=i)) for i, shape in enumerate(shapes)]
    split = [nn.Parameter(distribute_tensor(p.detach().clone(), mesh, placements)) for p in plain]
    single, several = Muon(plain), Muon(split)
    for step in range(NUM_STEPS):
        for i, (p, q) in enumerate(zip(plain, split, strict=True)):
            p.grad = random_matrix(*p.shape, seed=100 * step + i)
            q.grad = distribute_tensor(p.grad.clone(), mesh, placements)
        single.step()
        several.step()
    for p, q in zip(plain, split, strict=True):
        # Not full_tensor: on nested uneven shards it loses rows.
        expected = distribute_tensor(p.detach().clone(), mesh, placements).to_local()
        assert torch.equal(q.detach().to_local(), expected), placements
    return several.counters["matrices_orthogonalized"]


def test_two_by_two_meshes_orthogonalise_once(run_ranks, backend):
    shapes = [(5, 6), (7, 3), (1, 4), (2, 2), (6, 6), (6, 6)]

    def body(rank, world):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
        return [step_on_mesh(mesh, placements, shapes) for placements in PLACEMENTS]

    for done in zip(*run_ranks(4, body, backend=backend), strict=True):
        assert sum(done) == len(shapes)
        assert min(done) > 0


def test_replicated_experts_are_shared_among_replicas(run_ranks):
    def body(rank, world):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
        value = random_matrix(8, 4, 6)
        param = nn.Parameter(distribute_tensor(value.clone(), mesh, (Replicate(), Shard(0))))
        param.grad = distribute_tensor(random_matrix(8, 4, 6, seed=1), mesh, (Replicate(), Shard(0)))
        plain = nn.Parameter(value)
        plain.grad = random_matrix(8, 4, 6, seed=1)
        optimizer = Muon([param])
        optimizer.step()
        Muon([plain]).step()
        assert torch.equal(param.detach().full_tensor(), plain)
        return optimizer.counters["matrices_orthogonalized"]

    assert run_ranks(4, body) == [2, 2, 2, 2]


def test_experts_send_nothing(run_ranks):
    def body(rank, world):
        values, optimizer = sharded({"experts": (random_matrix(5, 4, 6), 0)}, init_device_mesh("cpu", (world,)))
        return optimizer.counters["bytes_sent"]

    assert run_ranks(2, body) == [0, 0]


def test_counters_tell_bytes_and_imbalance(run_ranks):
    def body(rank, world):
        tensors = {"a": (random_matrix(8, 8), 0), "b": (random_matrix(8, 8, seed=1), 0)}
        return sharded(tensors, init_device_mesh("cpu", (world,)))[1].counters

    # Each rank sends half of the other's matrix and half of its own back, each with a flag.
    expected_bytes = 2 * 4 * (8 * 8 // 2 + 1)
    for counters in run_ranks(2, body):
        assert counters == {
            "matrices_orthogonalized": 1,
            "matrices_total": 2,
            "bytes_sent": expected_bytes,
            "imbalance": 1.0,
        }


@pytest.mark.parametrize("world", [2, 3])
def test_fsdp_with_accumulation_equals_one_big_batch(run_ranks, backend, world):
    def body(rank, world):
        torch.manual_seed(0)
        build = lambda: nn.Sequential(nn.Linear(6, 7, bias=False), nn.GELU(), nn.Linear(7, 3, bias=False))  # noqa: E731
        model, whole = build(), build()
        whole.load_state_dict(model.state_dict())
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=init_device_mesh("cpu", (world,)))
        optimizer, expected = Muon(model, lr=0.05), Muon(whole, lr=0.05)
        for step in range(NUM_STEPS):
            x = random_matrix(world * 4, 6, seed=step)
            for part in x.chunk(world)[rank].chunk(2):
                (model(part).square().mean() / 2).backward()
            whole(x).square().mean().backward()
            for o in (optimizer, expected):
                o.step()
                o.zero_grad()
        for p, q in zip(model.parameters(), whole.parameters(), strict=True):
            assert relative_error(p.full_tensor(), q.double()) < NEWTON_SCHULZ_ERROR

    run_ranks(world, body, backend=backend)


def test_clip_grad_norm_and_scheduler_work_on_dtensors(run_ranks):
    def body(rank, world):
        mesh = init_device_mesh("cpu", (world,))
        plain = nn.Parameter(random_matrix(5, 4))
        split = nn.Parameter(distribute_tensor(plain.detach().clone(), mesh, [Shard(0)]))
        for param in (plain, split):
            optimizer = Muon([param])
            scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
            for step in range(NUM_STEPS):
                grad = random_matrix(5, 4, seed=step)
                param.grad = grad if param is plain else distribute_tensor(grad, mesh, [Shard(0)])
                torch.nn.utils.clip_grad_norm_([param], 0.1)
                optimizer.step()
                scheduler.step()
        assert relative_error(split.full_tensor(), plain.double()) < NEWTON_SCHULZ_ERROR

    run_ranks(2, body)


@pytest.mark.parametrize("missing_ranks", [(), (1,), (0, 1, 2)])
def test_missing_gradients_are_zero_where_they_miss(run_ranks, missing_ranks):
    """Missing on all ranks: skipped. Missing on some: zero there, and the whole parameter decays as if unsharded."""

    def body(rank, world):
        mesh = init_device_mesh("cpu", (world,))
        plain = nn.Parameter(random_matrix(6, 4))
        split = nn.Parameter(distribute_tensor(plain.detach().clone(), mesh, [Shard(0)]))
        single, several = Muon([plain], weight_decay=3.0), Muon([split], weight_decay=3.0)
        for step in range(NUM_STEPS):
            grad = random_matrix(6, 4, seed=step)
            is_missing = step == 1
            split.grad = distribute_tensor(grad.clone(), mesh, [Shard(0)])
            if is_missing:
                for missing in missing_ranks:
                    grad[2 * missing : 2 * missing + 2] = 0
                split.grad = None if rank in missing_ranks else split.grad
            plain.grad = None if is_missing and len(missing_ranks) == world else grad
            single.step()
            several.step()
        assert torch.equal(split.detach().full_tensor(), plain)
        momentum = several.state[split]["momentum_buffer"].full_tensor()
        assert torch.equal(momentum, single.state[plain]["momentum_buffer"])

    run_ranks(3, body)


def test_replicas_that_disagree_about_a_gradient_raise(start_ranks):
    def body(rank, world):
        mesh = init_device_mesh("cpu", (world,))
        param = nn.Parameter(distribute_tensor(random_matrix(4, 4), mesh, [Replicate()]))
        param.grad = (
            None if rank == 0 else distribute_tensor(random_matrix(4, 4), mesh, [Replicate()], src_data_rank=None)
        )
        optimizer = Muon([("w", param)])
        try:
            optimizer.step()
        finally:
            assert rank == 0 or not optimizer.state[param]["momentum_buffer"].to_local().any()

    outcomes = start_ranks(2, body)
    assert outcomes[1][0] == "raised"
    assert "parameter w: has a gradient here but on no rank" in outcomes[1][1]


@pytest.mark.parametrize("failing_call", [1, 2])
def test_a_collective_that_fails_leaves_momenta_and_parameters_alone(run_ranks, failing_call):
    def body(rank, world):
        mesh = init_device_mesh("cpu", (world,))
        original, calls = dist.all_to_all_single, []

        def failing(*arguments, **options):
            calls.append(None)
            if len(calls) == failing_call:
                raise RuntimeError("the network is gone")
            return original(*arguments, **options)

        tensors = parameters()
        params = {n: nn.Parameter(distribute_tensor(v, mesh, [Shard(dim)])) for n, (v, dim) in tensors.items()}
        optimizer = Muon(list(params.items()))
        for name, param in params.items():
            param.grad = distribute_tensor(grad_of(name, param.shape, 0), mesh, param.placements)
        before = {n: p.detach().full_tensor() for n, p in params.items()}
        dist.all_to_all_single = failing
        with pytest.raises(RuntimeError, match="the network is gone"):
            optimizer.step()
        assert_all_equal({n: p.detach().full_tensor() for n, p in params.items()}, before)
        assert not any(s["momentum_buffer"].to_local().count_nonzero() for s in optimizer.state.values())
        for step in range(NUM_STEPS):
            for name, param in params.items():
                param.grad = distribute_tensor(grad_of(name, param.shape, step), mesh, param.placements)
            optimizer.step()
        assert_all_equal({n: p.detach().full_tensor() for n, p in params.items()}, single_process(tensors))

    run_ranks(2, body)


def test_partial_gradients_are_reduced(run_ranks):
    def body(rank, world):
        mesh = init_device_mesh("cpu", (world,))
        plain = nn.Parameter(random_matrix(4, 4))
        split = nn.Parameter(distribute_tensor(plain.detach().clone(), mesh, [Replicate()]))
        grad = random_matrix(4, 4, seed=1)
        plain.grad = grad * world
        split.grad = DTensor.from_local(grad, mesh, [Partial()])
        Muon([plain]).step()
        Muon([split]).step()
        assert torch.equal(split.to_local(), plain)

    run_ranks(2, body)


def test_plain_and_sharded_parameters_step_together(run_ranks):
    def body(rank, world):
        mesh = init_device_mesh("cpu", (world,))
        plain, twin = nn.Parameter(random_matrix(4, 6)), nn.Parameter(random_matrix(4, 6))
        split = nn.Parameter(distribute_tensor(random_matrix(4, 6), mesh, [Shard(0)]))
        for param in (plain, twin):
            param.grad = random_matrix(4, 6, seed=1)
        split.grad = distribute_tensor(random_matrix(4, 6, seed=1), mesh, [Shard(0)])
        Muon([plain, split]).step()
        Muon([twin]).step()
        assert torch.equal(plain, twin)
        assert torch.equal(split.full_tensor(), twin)

    run_ranks(2, body)


def test_meshes_of_some_ranks_work(run_ranks):
    def body(rank, world):
        mesh = DeviceMesh("cpu", [[0, 2]], mesh_dim_names=("outer", "inner"))
        if rank == 1:
            return
        plain = nn.Parameter(random_matrix(4, 6))
        split = nn.Parameter(distribute_tensor(plain.detach().clone(), mesh, [Replicate(), Shard(0)]))
        plain.grad = random_matrix(4, 6, seed=1)
        split.grad = distribute_tensor(plain.grad.clone(), mesh, [Replicate(), Shard(0)])
        Muon([plain]).step()
        Muon([split]).step()
        assert torch.equal(split.detach().full_tensor(), plain)

    run_ranks(3, body)


def test_planning_again_makes_no_further_process_groups(run_ranks):
    def body(rank, world):
        mesh = DeviceMesh("cpu", torch.arange(2).view(1, 2))
        if rank >= 2:
            return 0
        param = nn.Parameter(distribute_tensor(random_matrix(4, 6), mesh, [Replicate(), Shard(0)]))
        optimizer = Muon([param])
        made = []
        original = dist.new_group
        dist.new_group = lambda *arguments, **options: made.append(None) or original(*arguments, **options)
        for _ in range(3):
            optimizer.load_state_dict(optimizer.state_dict())
            param.grad = distribute_tensor(random_matrix(4, 6), mesh, param.placements)
            optimizer.step()
        return len(made)

    assert run_ranks(3, body) == [0, 0, 0]


def test_hybrid_fsdp_with_mixed_precision_orthogonalises_once(run_ranks):
    def body(rank, world):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        model = nn.Sequential(nn.Linear(6, 7, bias=False), nn.Linear(7, 5, bias=False))
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for layer in (*model, model):
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        optimizer = Muon(model)
        model(random_matrix(4, 6, seed=rank)).float().square().mean().backward()
        before = model[0].weight.full_tensor()
        optimizer.step()
        assert model[0].weight.dtype == torch.float32
        return optimizer.counters["matrices_orthogonalized"], torch.equal(model[0].weight.full_tensor(), before)

    outcomes = run_ranks(4, body)
    assert sum(done for done, _ in outcomes) == 2
    assert not any(is_unchanged for _, is_unchanged in outcomes)


@pytest.mark.parametrize("is_permuted", [False, True])
def test_ranks_with_other_parameters_are_told_which(start_ranks, is_permuted):
    def body(rank, world):
        mesh = init_device_mesh("cpu", (world,))
        params = [
            (n, nn.Parameter(distribute_tensor(random_matrix(4, 6), mesh, [Shard(0)]))) for n in ("first", "second")
        ]
        if rank == 1:
            params = params[::-1] if is_permuted else params[:1]
        Muon(params).step()

    for kind, text in start_ranks(2, body):
        assert kind == "raised"
        assert "ValueError: Muon: ranks 0 and [1] describe parameter number" in text


def test_ranks_with_other_caps_are_told(start_ranks):
    def body(rank, world):
        mesh = init_device_mesh("cpu", (world,))
        param = nn.Parameter(distribute_tensor(random_matrix(4, 6), mesh, [Shard(0)]))
        Muon([param], memory_cap_bytes=(1 + rank) << 20).step()

    for kind, text in start_ranks(2, body):
        assert kind == "raised"
        assert "memory_cap_bytes" in text


@pytest.mark.parametrize("placement", ["partial", "strided"])
def test_unknown_placements_are_named(start_ranks, placement):
    from torch.distributed.tensor.placement_types import _StridedShard

    chosen = Partial() if placement == "partial" else _StridedShard(0, split_factor=2)

    def body(rank, world):
        mesh = init_device_mesh("cpu", (world,))
        Muon([("layer.weight", nn.Parameter(DTensor.from_local(random_matrix(4, 6), mesh, [chosen])))])

    for kind, text in start_ranks(2, body):
        assert kind == "raised"
        assert "ValueError: parameter layer.weight: placement" in text


def test_shards_that_contradict_their_placement_are_named(start_ranks):
    def body(rank, world):
        mesh = init_device_mesh("cpu", (world,))
        local = random_matrix(1 + 2 * rank, 6)
        param = DTensor.from_local(local, mesh, [Shard(0)], shape=torch.Size((4, 6)), stride=(6, 1), run_check=False)
        Muon([("w", nn.Parameter(param))])

    for kind, text in start_ranks(2, body):
        assert kind == "raised"
        assert "parameter w: its local shard is" in text


def test_a_dead_rank_raises_within_the_timeout(start_ranks, backend):
    timeout_s = 4

    def body(rank, world):
        mesh = init_device_mesh("cpu", (world,))
        param = nn.Parameter(distribute_tensor(random_matrix(4, 6), mesh, [Shard(0)]))
        param.grad = distribute_tensor(random_matrix(4, 6), mesh, [Shard(0)])
        optimizer = Muon([param])
        optimizer.step()
        dist.barrier()
        if rank == 1:
            os._exit(9)
        begin = time.monotonic()
        try:
            for _ in range(100):
                optimizer.step()
        except Exception:
            return time.monotonic() - begin

    outcomes = start_ranks(2, body, backend=backend, timeout_s=timeout_s, wall_s=30)
    assert outcomes[1] == ("crashed", None)
    assert outcomes[0][0] == "returned"
    assert outcomes[0][1] < 2 * timeout_s
