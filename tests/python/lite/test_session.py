"""quincunx.lite.session.Session: calls from Python on tensors of torch and NumPy."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from quincunx._graph import import_graph, load_core
from quincunx.lite.session import Session

# Sums of up to a hundred f32 products.
TOLERANCE = 2e-5


def graph_of(module, args, dynamic_shapes=None, name="main"):
    program = torch.export.export(module.eval(), args, dynamic_shapes=dynamic_shapes, strict=False)
    return import_graph(program, name=name).graph


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up = torch.nn.Linear(8, 32)
        self.down = torch.nn.Linear(32, 8)

    def forward(self, x, bias):
        return x + self.down(F.silu(self.up(x))) + bias, x.sum(-1)


ROWS = torch.export.Dim("rows", min=2, max=64)


@pytest.fixture(scope="module")
def mlp():
    module = Mlp().eval()
    graph = graph_of(module, (torch.randn(3, 8), torch.randn(8)), ({0: ROWS}, None))
    return module, Session(graph)


def test_run_takes_torch_tensors_in_order_or_by_name(mlp):
    module, session = mlp
    for rows in (2, 5, 64):
        x, bias = torch.randn(rows, 8, requires_grad=True), torch.randn(8)
        want = module(x, bias)
        for got in (session.run(x, bias), session.run(bias=bias, x=x)):
            assert all(isinstance(value, torch.Tensor) for value in got)
            torch.testing.assert_close(got[0], want[0].detach(), rtol=TOLERANCE, atol=TOLERANCE)
            torch.testing.assert_close(got[1], want[1].detach(), rtol=TOLERANCE, atol=TOLERANCE)


def test_run_takes_numpy_arrays_and_gives_them(mlp):
    module, session = mlp
    x, bias = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32), np.zeros(8, np.float32)
    y, total = session.run(x, bias)
    assert isinstance(y, np.ndarray)
    want = module(torch.from_numpy(x), torch.from_numpy(bias))[0].detach().numpy()
    np.testing.assert_allclose(y, want, rtol=TOLERANCE, atol=TOLERANCE)
    np.testing.assert_allclose(total, x.sum(-1), rtol=TOLERANCE, atol=TOLERANCE)


def test_outputs_outlive_the_session():
    session = Session(graph_of(torch.nn.Linear(3, 2, bias=False), (torch.randn(2, 3),)))
    (y,) = session.run(torch.ones(2, 3))
    kept = y.clone()
    del session
    torch.randn(1000)
    assert torch.equal(y, kept)


def test_run_writes_to_given_tensors(mlp):
    module, session = mlp
    x, bias = torch.randn(4, 8), torch.randn(8)
    out = [torch.empty(4, 8), torch.empty(4)]
    assert session.run(x, bias, out=out)[0] is out[0]
    torch.testing.assert_close(out[0], module(x, bias)[0].detach(), rtol=TOLERANCE, atol=TOLERANCE)
    with pytest.raises(ValueError, match=r"output '\w+': expected contiguous float32\[4, 8\], got float32\[8, 4\]"):
        session.run(x, bias, out=[torch.empty(8, 4), out[1]])


def test_memory_and_output_shapes_are_known_before_a_run(mlp):
    _, session = mlp
    small, large = session.memory((2, 8), (8,)), session.memory((64, 8), (8,))
    assert small["arena_bytes"] < large["arena_bytes"] <= large["unshared_bytes"]
    assert large["peak_bytes"] >= large["arena_bytes"] + large["output_bytes"]
    assert session.output_shapes((7, 8), (8,)) == [(7, 8), (7,)]


def test_a_profile_adds_up_the_operators(mlp):
    _, session = mlp
    profile = load_core().Profile()
    for _ in range(3):
        session.run(torch.randn(4, 8), torch.randn(8), profile=profile)
    rows = {op: calls for op, _, calls, _ in profile.operators}
    assert rows["qx.linear"] == 6
    assert "qx.linear" in str(profile)


def test_bad_calls_name_what_is_wrong(mlp):
    _, session = mlp
    x, bias = torch.randn(4, 8), torch.randn(8)
    with pytest.raises(ValueError, match=r"inputs: \['bias'\] are missing"):
        session.run(x)
    with pytest.raises(ValueError, match="inputs: expected each of"):
        session.run(x, bias, x=x)
    with pytest.raises(ValueError, match=r"input 'x': expected float32\[\w+, 8\], got \[4, 9\]"):
        session.run(torch.randn(4, 9), bias)
    with pytest.raises(ValueError, match=r"must be 2 to 64"):
        session.run(torch.randn(65, 8), bias)
    with pytest.raises(TypeError, match="input 'x': expected float32"):
        session.run(x.double(), bias)
    with pytest.raises(TypeError, match="x: expected a tensor, an array or numbers, got str"):
        session.run("x", bias)
    with pytest.raises(ValueError, match="method: expected one of"):
        session.run(x, bias, method="decode")
    with pytest.raises(TimeoutError, match="the deadline passed"):
        session.run(x, bias, timeout_s=0.0)
    with pytest.raises(ValueError, match="num_threads: expected 0 to 1024, got -1"):
        Session(graph_of(torch.nn.Linear(3, 2), (torch.randn(2, 3),)), num_threads=-1)


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        self.count.add_(x)
        return self.count * 2


def test_states_outlive_a_call_and_can_be_reset():
    session = Session(graph_of(Counter(), (torch.randn(3),)))
    x = torch.tensor([1.0, 2.0, 3.0])
    for step in (1, 2, 3):
        (y,) = session.run(x)
        assert torch.equal(y, 2 * step * x)
    assert session.state("count").tolist() == [3, 6, 9]
    session.state("count")[:] = 0.5
    assert session.run(x)[0].tolist() == [3, 5, 7]
    session.reset_states()
    assert session.state("count").tolist() == [0, 0, 0]
    with pytest.raises(RuntimeError, match="state 'sum': expected one of 'count'"):
        session.state("sum")


class Image(torch.nn.Module):
    """Sizes that follow from the inputs through division."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)

    def forward(self, x):
        y = F.relu(self.norm(self.conv(x)))
        tokens = y.flatten(2).transpose(1, 2)
        return tokens, torch.cat([y, y], 1).mean((2, 3))


def test_derived_sizes_follow_from_the_inputs():
    module = Image().eval()
    height, width = torch.export.Dim("height", min=4, max=64), torch.export.Dim("width", min=4, max=64)
    session = Session(graph_of(module, (torch.randn(2, 3, 12, 18),), ({2: height, 3: width},)))
    for shape in ((2, 3, 12, 18), (2, 3, 9, 31), (2, 3, 64, 4)):
        x = torch.randn(shape)
        for got, want in zip(session.run(x), module(x), strict=True):
            torch.testing.assert_close(got, want.detach(), rtol=TOLERANCE, atol=TOLERANCE)


def test_an_encoder_block_equals_eager():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu").eval()
    length = torch.export.Dim("length", min=2, max=40)
    x = torch.randn(2, 9, 32)
    program = torch.export.export(layer, (x,), dynamic_shapes=({1: length},), strict=False)
    session = Session(import_graph(program).graph)
    for size in (9, 2, 40):
        x = torch.randn(2, size, 32)
        torch.testing.assert_close(session.run(x)[0], layer(x).detach(), rtol=TOLERANCE, atol=TOLERANCE)


def test_the_number_of_threads_changes_no_bit(mlp):
    graph = graph_of(Image(), (torch.randn(2, 3, 33, 47),))
    x = torch.randn(2, 3, 33, 47)
    one = Session(graph, num_threads=1).run(x)
    two = Session(graph, num_threads=3).run(x)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_a_size_may_be_what_the_program_allows_down_to_zero():
    linear = torch.nn.Linear(8, 2).eval()
    rows = torch.export.Dim("rows", min=0, max=8)
    session = Session(graph_of(linear, (torch.randn(3, 8),), ({0: rows},)))
    for count in (0, 1, 8):
        x = torch.randn(count, 8)
        torch.testing.assert_close(session.run(x)[0], linear(x).detach(), rtol=TOLERANCE, atol=TOLERANCE)
    with pytest.raises(ValueError, match="must be 0 to 8"):
        session.run(torch.randn(9, 8))


def test_a_second_call_at_the_same_time_is_refused():
    graph, x = graph_of(torch.nn.Linear(8, 3), (torch.randn(4, 8),)), torch.randn(4, 8)
    session = Session(graph)
    expected = session.run(x)[0]
    with session.exclusive(), pytest.raises(RuntimeError, match="another call is using it"):
        session.run(x)
    assert torch.equal(session.run(x)[0], expected)


def test_what_is_no_graph_and_no_dense_tensor_is_refused():
    for source in (None, [None], 3):
        with pytest.raises(TypeError, match="expected the path of a .qxm or graphs"):
            Session(source)
    session = Session(graph_of(torch.nn.Linear(8, 3), (torch.randn(4, 8),)))
    for x in (torch.randn(4, 8).to_sparse(), torch.empty(4, 8, device="meta")):
        with pytest.raises(TypeError, match="expected a dense tensor on the CPU"):
            session.run(x)


def test_timeouts_of_any_size():
    session, x = Session(graph_of(torch.nn.Linear(8, 3), (torch.randn(4, 8),))), torch.randn(4, 8)
    session.run(x, timeout_s=1e300)
    with pytest.raises(TimeoutError):
        session.run(x, timeout_s=-1.0)
    with pytest.raises(ValueError, match="timeout_s is nan"):
        session.run(x, timeout_s=float("nan"))
