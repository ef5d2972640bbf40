"""The work plan of one grid of ranks, made in C++ (quincunx/planning/muon_plan.h), and its comparison across ranks."""

import dataclasses
from collections.abc import Sequence

import torch
import torch.distributed as dist

from .._errors import core_errors
from .._library import load_operators
from .placement import Placement


@dataclasses.dataclass(frozen=True)
class PlannedTensor:
    """One parameter as the plan sees it. Tensors of unequal `settings` are never orthogonalised in one batch."""

    name: str
    placement: Placement
    ns_steps: int
    settings: int


@dataclasses.dataclass(frozen=True)
class Matrix:
    """Fields as MuonMatrix in quincunx/planning/muon_plan.h."""

    tensor: int
    index: int
    owner: int
    bucket: int
    flops: int
    is_gram: int


@dataclasses.dataclass(frozen=True)
class Batch:
    """Consecutive slots of one shape and one setting."""

    settings: int
    first_slot: int
    num_matrices: int
    rows: int
    columns: int
    whole_offset: int


@dataclasses.dataclass(frozen=True)
class Bucket:
    """This rank's part of one bucket. Tables have the columns of the structs in quincunx/planning/muon_schedule.h."""

    held: torch.Tensor
    remote: torch.Tensor
    num_slots: int
    batches: tuple[Batch, ...]
    send_counts: list[int]
    receive_counts: list[int]
    reply_send_counts: list[int]
    reply_receive_counts: list[int]
    whole_elements: int
    has_transport: bool


@dataclasses.dataclass(frozen=True)
class Plan:
    """Who orthogonalises what on a grid, and what this rank does for it."""

    hash: int
    tensor_hashes: list[int]
    matrices: list[Matrix]
    rank_flops: list[int]
    peak_bytes: int
    buckets: list[Bucket]

    @property
    def imbalance(self) -> float:
        """FLOPs of the most loaded rank over the mean."""
        total = sum(self.rank_flops)
        return max(self.rank_flops) * len(self.rank_flops) / total if total else 1.0


_TABLES_A_BUCKET = 6


def make_plan(tensors: Sequence[PlannedTensor], num_ranks: int, rank: int, memory_cap_bytes: int | None) -> Plan:
    """Plans the grid. Raises ValueError naming the parameter that is at fault."""
    load_operators()
    placements = [t.placement for t in tensors]
    shapes = [
        (p.num_matrices, p.rows, p.columns, t.ns_steps, t.settings) for p, t in zip(placements, tensors, strict=True)
    ]
    boxes = [box for p in placements for box in p.boxes]
    with core_errors():
        summary, matrices, rank_flops, peaks, *tables = torch.ops.quincunx.muon_plan(
            [t.name for t in tensors],
            torch.tensor(shapes, dtype=torch.int64).view(-1, 5),
            torch.tensor(boxes, dtype=torch.int64).view(-1, 7),
            num_ranks,
            rank,
            memory_cap_bytes or 0,
            torch.get_num_threads() if memory_cap_bytes else 1,
        )
    plan_hash, _, *tensor_hashes = summary.flatten().tolist()
    return Plan(
        hash=plan_hash,
        tensor_hashes=tensor_hashes,
        matrices=[Matrix(*row) for row in matrices.tolist()],
        rank_flops=rank_flops.flatten().tolist(),
        peak_bytes=max(peaks.flatten().tolist(), default=0),
        buckets=[_bucket(*tables[i : i + _TABLES_A_BUCKET]) for i in range(0, len(tables), _TABLES_A_BUCKET)],
    )


def _bucket(
    held: torch.Tensor,
    remote: torch.Tensor,
    owned: torch.Tensor,
    batches: torch.Tensor,
    counts: torch.Tensor,
    sizes: torch.Tensor,
) -> Bucket:
    whole_elements, has_transport = sizes.flatten().tolist()
    return Bucket(
        held,
        remote,
        owned.shape[0],
        tuple(Batch(*row) for row in batches.tolist()),
        *counts.tolist(),
        whole_elements,
        bool(has_transport),
    )


def check_agreement(plan: Plan, names: Sequence[str], group: dist.ProcessGroup, device: torch.device) -> None:
    """Compares the plan with those of the other ranks. Raises ValueError naming the first parameter that differs."""
    mine = torch.tensor([plan.hash, len(names)], dtype=torch.int64, device=device)
    rows = _gather(mine, group)
    if all(row == rows[0] for row in rows):
        return
    longest = max(count for _, count in rows)
    padded = plan.tensor_hashes + [0] * (longest - len(names))
    hashes = _gather(torch.tensor(padded, dtype=torch.int64, device=device), group)
    ranks = dist.get_process_group_ranks(group)
    for index in range(longest):
        differing = [rank for rank, row in zip(ranks, hashes, strict=True) if row[index] != hashes[0][index]]
        if differing:
            here = names[index] if index < len(names) else "missing"
            raise ValueError(
                f"Muon: ranks {ranks[0]} and {differing} describe parameter number {index} differently (here: {here}): "
                "the order of the parameters, their shapes, their sharding and the Newton-Schulz options must agree"
            )
    raise ValueError(f"Muon: ranks {ranks} do not agree on memory_cap_bytes or on the number of threads")


def _gather(values: torch.Tensor, group: dist.ProcessGroup) -> list[list[int]]:
    gathered = values.new_empty(dist.get_world_size(group) * values.numel())
    dist.all_gather_single(gathered, values, group=group)
    return gathered.view(-1, values.numel()).tolist()
