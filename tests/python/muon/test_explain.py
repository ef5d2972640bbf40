"""quincunx.muon.explain: the table of Muon.explain()."""

from muon.reference import random_matrix
from quincunx.muon import Muon
from quincunx.muon.explain import ExplainedParameter, explanation
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def rows_of(text: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split() for line in text.splitlines()}


def test_columns_stand_under_their_headings():
    text = explanation([ExplainedParameter("a.long.name", "adamw", "embedding", "7x4")])
    heading, row = text.splitlines()
    assert heading.index("family") == row.index("adamw")
    assert heading.index("shape") == row.index("7x4")


def test_plain_parameters_are_local():
    params = [("square", nn.Parameter(random_matrix(8, 8))), ("wide", nn.Parameter(random_matrix(3, 4, 40)))]
    rows = rows_of(Muon(params).explain())
    # Direct form of one step at 8 x 8: X X^T upper half, its square upper half, and the product with X.
    flops = 5 * (8**3 + 8**3 + 2 * 8**3)
    assert rows["square"][-6:] == ["8x8", "local", "direct", "0", "256", f"{flops / 1e6:.3f}"]
    assert rows["wide"][-6:-1] == ["3x4x40", "local", "gram", "0", "1920"]


def test_owners_are_global_ranks(run_ranks):
    def body(rank, world):
        mesh = init_device_mesh("cpu", (world,))
        params = [
            (name, nn.Parameter(distribute_tensor(random_matrix(6, 6), mesh, [Shard(0)]))) for name in ("a", "b", "c")
        ]
        return Muon(params).explain()

    first, second = run_ranks(2, body)
    assert first == second
    rows = rows_of(first)
    assert [rows[name][-5] for name in ("a", "b", "c")] == ["0", "1", "0"]
