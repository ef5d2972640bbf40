"""One tiny run of what each folder of benchmarks/ measures; no time is judged."""

import pathlib

import pytest
import torch
from quincunx._library import library_directory
from quincunx.cli.bench.capability import Context
from quincunx.cli.bench.command import load_capability
from quincunx.cli.bench.workers import Workers

CHECKOUT = pathlib.Path(__file__).resolve().parents[4]
# Importing them needs the checkout on the path.
load_capability("kernels", CHECKOUT)
from benchmarks.activation import region_rows  # noqa: E402
from benchmarks.kernels import gemm_peers, gemm_rows, newton_schulz_rows  # noqa: E402
from benchmarks.kernels.gemm_shapes import SHAPES, Shape  # noqa: E402

TINY = Shape("none", 5, 18, 7)


class FakePeer:
    """A peer that computes by torch, `factor` times what it should."""

    name = "a peer"

    def __init__(self, factor: float) -> None:
        self._factor = factor

    def set_num_threads(self, count: int) -> None:
        pass

    def product(self, a: torch.Tensor, b: torch.Tensor, weight: torch.Tensor):
        return lambda: (a @ weight.t()).mul_(self._factor)


def peers_are_installed() -> bool:
    try:
        gemm_peers.check_installed(CHECKOUT)
    except RuntimeError:
        return False
    return True


def test_all_sides_of_a_product_agree():
    assert set(gemm_peers.calls_for(TINY, [FakePeer(1.0)], CHECKOUT)) == {"ours", "a peer"}


def test_peer_that_computes_something_else_is_refused():
    with pytest.raises(RuntimeError, match="a peer computes another product"):
        gemm_peers.calls_for(TINY, [FakePeer(1.01)], CHECKOUT)


def test_the_table_has_forty_shapes_from_one_row_to_4096():
    assert len(SHAPES) == len(set(SHAPES)) == 40
    assert min(shape.rows for shape in SHAPES) == 1
    assert max(shape.rows for shape in SHAPES) == 4096


@pytest.mark.skipif(not peers_are_installed(), reason="a peer is missing; `make bench-peers` installs them")
def test_tiny_product_is_measured_against_every_peer():
    (row,) = gemm_rows.measure(TINY, 1, Context(CHECKOUT, quick=True))
    kinds = {name.split()[0].rstrip(",") for name in row.peers}
    assert kinds == {"MKL", "OpenBLAS", "oneDNN", "libxsmm"}
    assert all(len(costs) == len(row.ours) for costs in row.peers.values())
    assert row.value_of(row.ours[0]) > 0


def test_the_mean_of_the_table_fails_where_a_shape_is_missing():
    with pytest.raises(RuntimeError, match="no time was taken of"):
        gemm_rows.measure_geomean(2, Context(CHECKOUT))


def test_tiny_batch_is_measured_against_the_loop():
    batch = torch.randn(3, 4, 9, generator=torch.Generator().manual_seed(0))
    seconds = newton_schulz_rows.seconds_of(batch, 1, Context(CHECKOUT, quick=True))
    assert len(seconds["ours"]) == len(seconds["torch f32 loop"]) > 0


@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (6, 6)])
def test_loop_maps_the_singular_values_by_the_polynomials(shape):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    u, values, vh = torch.linalg.svd(matrix / (matrix.norm() + newton_schulz_rows.EPS), full_matrices=False)
    flat = newton_schulz_rows.coefficients()
    for a, b, c in zip(flat[0::3], flat[1::3], flat[2::3], strict=True):
        values = a * values + b * values**3 + c * values**5
    torch.testing.assert_close(newton_schulz_rows.by_torch(matrix), u @ values.diag() @ vh)


@pytest.mark.skipif(
    not (library_directory() / "_quincunx_distributed.so").exists(), reason="the mccl backend was not built"
)
def test_two_ranks_measure_a_collective_and_a_step():
    pair = Workers(2, CHECKOUT)
    try:
        of_ranks = pair.run(
            "benchmarks.mccl.collective_rows",
            "time_operation",
            operation="all_reduce",
            num_bytes=8,
            num_calls=2,
            rounds=1,
            bound=True,
        )
        assert [set(seconds) for seconds in of_ranks] == [{"mccl", "gloo", "staged memcpy bound"}] * 2
        options = {"set_id": "step_74x24x1024", "backend": "mccl", "peer": "naive", "rounds": 1}
        of_ranks = pair.run("benchmarks.muon.step_rows", "time_steps", **options)
        assert [set(seconds) for seconds in of_ranks] == [{"ours", "naive"}] * 2
    finally:
        pair.close()


@pytest.mark.skipif(
    not (library_directory() / "_quincunx_activation.so").exists(), reason="the activation extension was not built"
)
def test_a_region_is_measured_against_the_checkpoint_of_torch():
    threads = torch.get_num_threads()
    (region,) = region_rows.measure_region(Context(CHECKOUT, quick=True))
    assert region.id == "region"
    assert set(region.peers) == {"torch checkpoint"}
    assert len(region.ours) == len(region.peers["torch checkpoint"]) == 5
    assert all(cost > 0 for cost in region.ours)
    assert torch.get_num_threads() == threads
