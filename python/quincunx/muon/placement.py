"""Where the elements of a parameter are: the box of matrices x rows x columns that each rank of its grid holds."""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, Shard

Interval = tuple[int, int]  # begin, count
Box = tuple[int, int, int, int, int, int, int]  # as MuonBox in quincunx/planning/muon_plan.h

WHOLE_GRID = (0,)


@dataclasses.dataclass(frozen=True)
class MatrixForm:
    """How a tensor is read as a batch of matrices: the sharded leading dim first, or everything behind dim 0 as one."""

    first_dim: int = 0
    is_flattened: bool = False

    def view(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor as [..., rows, columns]; a view wherever strides allow one."""
        if self.is_flattened:
            return tensor.flatten(1)
        return tensor.movedim(self.first_dim, 0) if self.first_dim else tensor


@dataclasses.dataclass(frozen=True)
class Placement:
    """One parameter over its grid: the ranks of the grid in group order, and a box for each."""

    ranks: tuple[int, ...]  # global ranks; WHOLE_GRID with `mesh` None for a plain tensor
    mesh: dist.device_mesh.DeviceMesh | None
    num_matrices: int
    rows: int
    columns: int
    boxes: tuple[Box, ...]
    form: MatrixForm


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """The elements that this rank holds."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def place(name: str, param: torch.Tensor, is_flattened: bool) -> Placement:
    """Describes `param`. Raises ValueError naming it when its placement is not known here."""
    shape = tuple(param.shape)
    if not isinstance(param, DTensor):
        form = MatrixForm(is_flattened=is_flattened)
        sizes = _matrix_sizes(shape, form)
        whole = _box([(0, size) for size in shape], shape, form=form)
        return Placement(WHOLE_GRID, None, *sizes, (whole,), form)
    mesh = param.device_mesh
    if mesh.get_coordinate() is None:
        raise ValueError(f"parameter {name}: this rank is not part of its device mesh {mesh}")
    form = MatrixForm(_sharded_leading_dim(name, param, is_flattened), is_flattened)
    coordinates = itertools.product(*(range(size) for size in mesh.shape))
    boxes = {
        rank: _box(*_held(name, param, coordinate), form=form)
        for rank, coordinate in zip(mesh.mesh.flatten().tolist(), coordinates, strict=True)
    }
    _check_local_shape(name, param)
    ranks = tuple(sorted(boxes))  # the order in which a process group numbers its ranks
    return Placement(ranks, mesh, *_matrix_sizes(shape, form), tuple(boxes[rank] for rank in ranks), form)


def _sharded_leading_dim(name: str, param: DTensor, is_flattened: bool) -> int:
    dims = set()
    for placement in param.placements:
        # Exact types: torch's strided shards are subclasses that place elements differently.
        if type(placement) not in (Shard, Replicate):
            raise ValueError(f"parameter {name}: placement {placement}: expected Shard or Replicate")
        if type(placement) is Shard:
            dims.add(placement.dim % param.ndim)
    if is_flattened:
        if any(dim > 1 for dim in dims):
            raise ValueError(f"parameter {name}: {param.placements} of a convolution: expected Shard(0) or Shard(1)")
        return 0
    leading = sorted(dim for dim in dims if dim < param.ndim - 2)
    if len(leading) > 1:
        raise ValueError(f"parameter {name}: {param.placements}: expected at most one sharded leading dim")
    return leading[0] if leading else 0


def _held(name: str, param: DTensor, coordinate: Sequence[int]) -> tuple[list[Interval], tuple[int, ...], int]:
    """Interval of each dim at a coordinate of the mesh, the global shape, and the number of the replica."""
    intervals = [(0, size) for size in param.shape]
    replica = 0
    for placement, index, parts in zip(param.placements, coordinate, param.device_mesh.shape, strict=True):
        if isinstance(placement, Replicate):
            replica = replica * parts + index
            continue
        begin, count = intervals[placement.dim]
        chunk = math.ceil(count / parts)
        skipped = min(count, chunk * index)
        intervals[placement.dim] = (begin + skipped, min(chunk, count - skipped))
    return intervals, tuple(param.shape), replica


def _check_local_shape(name: str, param: DTensor) -> None:
    intervals, _, _ = _held(name, param, param.device_mesh.get_coordinate())
    expected = tuple(count for _, count in intervals)
    local = tuple(local_part(param.detach()).shape)
    if local != expected and (math.prod(local) or math.prod(expected)):
        raise ValueError(f"parameter {name}: its local shard is {local}, {param.placements} says {expected}")


def _matrix_sizes(shape: tuple[int, ...], form: MatrixForm) -> tuple[int, int, int]:
    if form.is_flattened:
        return 1, shape[0], math.prod(shape[1:])
    return math.prod(shape[:-2]), shape[-2], shape[-1]


def _box(intervals: list[Interval], shape: tuple[int, ...], replica: int = 0, form: MatrixForm = MatrixForm()) -> Box:
    if form.is_flattened:
        inner = math.prod(shape[2:])
        rows, columns = intervals[0], (intervals[1][0] * inner, intervals[1][1] * inner)
        return (0, 1, *rows, *columns, replica)
    rows, columns = intervals[-2:]
    if len(shape) == 2:
        return (0, 1, *rows, *columns, replica)
    begin, count = intervals[form.first_dim]
    inner = math.prod(shape[:-2]) // max(1, shape[form.first_dim])
    return (begin * inner, count * inner, *rows, *columns, replica)
