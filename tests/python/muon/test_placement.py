"""quincunx.muon.placement: the boxes of plain tensors and of DTensors."""

import pytest
import torch
from quincunx.muon.placement import WHOLE_GRID, MatrixForm, local_part, place
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor


@pytest.mark.parametrize(
    ("shape", "is_flattened", "sizes"),
    [((4, 6), False, (1, 4, 6)), ((2, 3, 4, 6), False, (6, 4, 6)), ((4, 6, 3, 3), True, (1, 4, 54))],
)
def test_plain_tensors_are_whole(shape, is_flattened, sizes):
    placement = place("w", torch.zeros(shape), is_flattened)
    assert (placement.ranks, placement.mesh) == (WHOLE_GRID, None)
    assert (placement.num_matrices, placement.rows, placement.columns) == sizes
    assert placement.boxes == ((0, sizes[0], 0, sizes[1], 0, sizes[2], 0),)


def test_boxes_of_uneven_and_empty_shards(run_ranks):
    def body(rank, world):
        mesh = init_device_mesh("cpu", (world,))
        rows = place("w", distribute_tensor(torch.zeros(4, 6), mesh, [Shard(0)]), False).boxes
        columns = place("w", distribute_tensor(torch.zeros(2, 4, 6), mesh, [Shard(-1)]), False).boxes
        experts = place("w", distribute_tensor(torch.zeros(4, 2, 5, 6), mesh, [Shard(0)]), False).boxes
        filters = place("w", distribute_tensor(torch.zeros(8, 4, 3), mesh, [Shard(1)]), True).boxes
        return rows, columns, experts, filters

    rows, columns, experts, filters = run_ranks(3, body)[1]
    assert rows == ((0, 1, 0, 2, 0, 6, 0), (0, 1, 2, 2, 0, 6, 0), (0, 1, 4, 0, 0, 6, 0))
    assert columns == ((0, 2, 0, 4, 0, 2, 0), (0, 2, 0, 4, 2, 2, 0), (0, 2, 0, 4, 4, 2, 0))
    assert experts == ((0, 4, 0, 5, 0, 6, 0), (4, 4, 0, 5, 0, 6, 0), (8, 0, 0, 5, 0, 6, 0))
    assert filters == ((0, 1, 0, 8, 0, 6, 0), (0, 1, 0, 8, 6, 6, 0), (0, 1, 0, 8, 12, 0, 0))


def test_replicas_and_order_of_ranks(run_ranks):
    def body(rank, world):
        mesh = DeviceMesh("cpu", [[3, 1], [2, 0]])
        placement = place("w", distribute_tensor(torch.zeros(4, 6), mesh, [Replicate(), Shard(0)]), False)
        return placement.ranks, placement.boxes

    ranks, boxes = run_ranks(4, body)[0]
    assert ranks == (0, 1, 2, 3)
    assert [(box[2], box[6]) for box in boxes] == [(2, 1), (2, 0), (0, 1), (0, 0)]


def test_placements_that_cannot_be_read_are_refused(run_ranks):
    def body(rank, world):
        mesh = init_device_mesh("cpu", (1, 2))
        two_leading = distribute_tensor(torch.zeros(2, 2, 4, 6), mesh, [Shard(0), Shard(1)])
        kernel = distribute_tensor(torch.zeros(8, 4, 3), mesh, [Replicate(), Shard(2)])
        with pytest.raises(ValueError, match="parameter w: .* at most one sharded leading dim"):
            place("w", two_leading, False)
        with pytest.raises(ValueError, match="parameter w: .* of a convolution"):
            place("w", kernel, True)

    run_ranks(2, body)


def test_ranks_outside_of_a_mesh_are_told(run_ranks):
    def body(rank, world):
        mesh = DeviceMesh("cpu", [0, 1])
        tensor = distribute_tensor(torch.zeros(4, 6), mesh, [Shard(0)])
        if rank == 2:
            with pytest.raises(ValueError, match="this rank is not part of its device mesh"):
                place("w", tensor, False)

    run_ranks(3, body)


def test_forms_are_views():
    tensor = torch.zeros(2, 3, 4, 6)
    assert MatrixForm(first_dim=1).view(tensor).shape == (3, 2, 4, 6)
    assert MatrixForm(is_flattened=True).view(tensor).shape == (2, 72)
    assert MatrixForm().view(tensor) is tensor
    assert local_part(tensor) is tensor
