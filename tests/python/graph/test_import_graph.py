"""torch.export and AOTAutograd graphs against what torch says of them."""

import pytest
import torch
from quincunx._graph import import_graph
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.linear = nn.Linear(8, 8)
        self.register_buffer("scale", torch.full((8,), 2.0), persistent=False)

    def forward(self, x):
        first, second = torch.split(self.linear(self.norm(x)), [3, 5], dim=-1)
        values, indices = torch.max(torch.cat([second, first], -1) * self.scale, dim=-1)
        return values, indices


def exported(module, *inputs, **options):
    return torch.export.export(module.eval(), inputs, **options)


def shape_of(graph, size):
    """A size of quincunx as text, and one of torch."""
    if isinstance(size, int):
        return size
    symbol = graph.symbols[size.symbol].name
    return (size.multiplier, symbol, size.value)


def aten_calls(program):
    return [n for n in program.graph.nodes if n.op == "call_function" and "getitem" not in str(n.target)]


def test_nodes_follow_the_program(core):
    program = exported(Block(), torch.randn(4, 8))
    imported = import_graph(program)
    graph = imported.graph
    assert [node.op for node in graph.nodes] == [str(n.target) for n in aten_calls(program)]
    assert [node.name for node in graph.nodes] == [n.name for n in aten_calls(program)]
    assert imported.node_sources == aten_calls(program)
    for node, source in zip(graph.nodes, imported.node_sources, strict=True):
        fake = source.meta["val"] if isinstance(source.meta["val"], tuple | list) else [source.meta["val"]]
        for result, expected in zip(node.results, fake, strict=True):
            assert graph.values[result].shape == list(expected.shape)
            assert f"torch.{graph.values[result].dtype.name}" == str(expected.dtype)
    graph.verify()


def test_results_are_named_after_their_getitem(core):
    imported = import_graph(exported(Block(), torch.randn(4, 8)))
    graph = imported.graph
    split = next(node for node in graph.nodes if node.op.startswith("aten.split"))
    assert [graph.values[result].name for result in split.results] == ["getitem", "getitem_1"]
    assert [imported.value_sources[result].name for result in split.results] == ["getitem", "getitem_1"]


def test_only_user_tensors_are_inputs(core):
    program = exported(Block(), torch.randn(4, 8))
    imported = import_graph(program)
    graph = imported.graph
    assert [graph.values[i].name for i in graph.inputs] == ["x"]
    placeholders = [n.name for n in program.graph.nodes if n.op == "placeholder"]
    assert [placeholders[p] for p in imported.input_positions] == ["x"]
    assert [graph.values[o].dtype.name for o in graph.outputs] == ["float32", "int64"]
    assert imported.output_positions == [0, 1]


def test_constants_share_the_memory_of_torch(core):
    module = Block()
    graph = import_graph(exported(module, torch.randn(4, 8))).graph
    constants = {value.name: value for value in graph.values if value.constant >= 0}
    assert set(constants) == {"p_norm_weight", "p_norm_bias", "p_linear_weight", "p_linear_bias", "b_scale"}
    bytes_ = graph.constant_bytes(constants["p_linear_weight"].constant)
    assert bytes_.ctypes.data == module.linear.weight.data_ptr()
    assert bytes_.tobytes() == module.linear.weight.detach().numpy().tobytes()


def test_constants_outlive_the_module(core):
    module = nn.Linear(3, 5)
    expected = module.weight.detach().numpy().tobytes()
    graph = import_graph(exported(module, torch.randn(1, 3))).graph
    del module
    index = next(value.constant for value in graph.values if value.name == "p_weight")
    assert graph.constant_bytes(index).tobytes() == expected


def test_tied_weights_are_one_constant(core):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(10, 4)
            self.head = nn.Linear(4, 10, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, ids):
            return self.head(self.embedding(ids))

    assert import_graph(exported(Tied(), torch.tensor([1, 2]))).graph.num_constants == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.bool, torch.float8_e4m3fn])
def test_constants_of_every_dtype(core, dtype):
    class Held(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("held", torch.tensor([[1, 0], [1, 1]]).to(dtype).t())

        def forward(self, x):
            return x + self.held.to(torch.float32)

    module = Held()
    graph = import_graph(exported(module, torch.randn(2, 2))).graph
    value = next(value for value in graph.values if value.name == "b_held")
    assert f"torch.{value.dtype.name}" == str(dtype)
    contiguous = module.held.contiguous().view(torch.uint8).numpy().tobytes()
    assert graph.constant_bytes(value.constant).tobytes() == contiguous


def test_symbols_have_ranges_and_sizes_are_affine(core):
    class Sizes(nn.Module):
        def forward(self, x, y):
            flat = torch.cat([x, x[:1]]).view(-1)
            return flat * flat.shape[0], y.reshape(-1), x.new_zeros(x.shape[0] // 2)

    batch, length = torch.export.Dim("batch", min=4, max=64), torch.export.Dim("length", min=3)
    program = exported(
        Sizes(), torch.randn(4, 8), torch.randn(5, 4), dynamic_shapes={"x": {0: batch}, "y": {0: length, 1: batch}}
    )
    imported = import_graph(program)
    graph = imported.graph
    s_batch, s_length = (str(size.node.expr) for size in (_input(program, "x").shape[0], _input(program, "y").shape[0]))
    x, y = (graph.values[i] for i in graph.inputs)
    assert [shape_of(graph, size) for size in x.shape] == [(1, s_batch, 0), 8]
    assert [shape_of(graph, size) for size in y.shape] == [(1, s_length, 0), (1, s_batch, 0)]
    flat, product, half = (graph.values[o] for o in graph.outputs)
    assert [shape_of(graph, size) for size in flat.shape] == [(8, s_batch, 8)]
    assert "*" in graph.symbols[product.shape[0].symbol].name
    assert "//" in graph.symbols[half.shape[0].symbol].name
    ranges = {symbol.name: (symbol.min, symbol.max) for symbol in graph.symbols}
    assert ranges[s_batch] == (4, 64)
    assert ranges[s_length] == (3, 2**63 - 1)
    assert [str(expression) for expression in imported.symbol_expressions] == [s.name for s in graph.symbols]


def _input(program, name):
    return next(n for n in program.graph.nodes if n.name == name).meta["val"]


def test_size_arguments_become_dims(core):
    class Grow(nn.Module):
        def forward(self, x):
            return x.reshape(x.shape[0] * 2, 4).narrow(0, 1, x.shape[0])

    program = exported(Grow(), torch.randn(4, 8), dynamic_shapes={"x": {0: torch.export.Dim("n", min=2)}})
    graph = import_graph(program).graph
    reshape = next(node for node in graph.nodes if "reshape" in node.op or "view" in node.op)
    size = reshape.arguments[1]
    assert shape_of(graph, size[0])[0] == 2 and size[1] == 4
    assert all("sym_size" not in node.op for node in graph.nodes)


def test_defaults_are_filled_in(core):
    class Calls(nn.Module):
        def forward(self, x):
            y = torch.nn.functional.gelu(x) + 1
            z = torch.empty_like(x).contiguous().to(torch.bfloat16)
            return y.sum(), torch.nn.functional.max_pool2d(x[None], 2), z, x[:, None, torch.tensor([0, 1])]

    graph = import_graph(exported(Calls(), torch.randn(3, 4, 4))).graph
    calls = {node.op: node.arguments for node in graph.nodes}
    assert calls["aten.gelu.default"][1:] == ["none"]
    assert calls["aten.add.Tensor"][1:] == [1, 1]
    assert calls["aten.sum.default"][1:] == [None]
    pool = next(arguments for op, arguments in calls.items() if "max_pool2d" in op)
    assert pool[1:] in ([[2, 2], [], [0, 0], [1, 1], False], [[2, 2], [2, 2], [0, 0], [1, 1], False])
    assert calls["aten.empty_like.default"][-1] is None
    index = next(arguments for op, arguments in calls.items() if op == "aten.index.Tensor")
    assert index[1][0] is None


def test_changed_buffers_are_states(core):
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(4))

        def forward(self, x):
            self.seen.add_(x)
            return self.seen * 2

    graph = import_graph(exported(Counter(), torch.randn(4))).graph
    (state,) = graph.states
    assert state.name == "seen"
    assert graph.values[state.input].name == "b_seen"
    assert graph.values[state.input].constant >= 0
    producer = next(node for node in graph.nodes if state.output in node.results)
    assert producer.op == "aten.add.Tensor"
    assert len(graph.outputs) == 1


def test_a_changed_input_is_an_error(core):
    class Writes(nn.Module):
        def forward(self, x):
            x.add_(1)
            return x * 2

    with pytest.raises(NotImplementedError, match="USER_INPUT_MUTATION"):
        import_graph(exported(Writes(), torch.randn(4)))


def test_nested_outputs_are_flattened(core):
    class Nested(nn.Module):
        def forward(self, x):
            return {"a": x + 1, "b": [x * 2, 3], "c": None}

    imported = import_graph(exported(Nested(), torch.randn(4)))
    assert len(imported.graph.outputs) == 2
    assert imported.output_positions == [0, 1]


def test_a_call_that_elements_decide_is_an_error_or_opaque(core):
    class Reads(nn.Module):
        def forward(self, x):
            n = x.sum().to(torch.int64).item()
            torch._check(n >= 0)
            return x * n

    program = exported(Reads(), torch.ones(3))
    with pytest.raises(NotImplementedError, match=r'node "item.*tensors\' elements decide'):
        import_graph(program)
    graph = import_graph(program, unsupported="opaque").graph
    opaque = next(node for node in graph.nodes if node.op == "fx.opaque")
    assert opaque.results == [] and len(opaque.arguments[1]) == 1


def test_a_graph_of_make_fx_with_attributes(core):
    held = torch.randn(4)
    module = make_fx(lambda x: x + held, tracing_mode="fake", _allow_non_fake_inputs=True)(torch.randn(4))
    graph = import_graph(module).graph
    assert [value.constant >= 0 for value in graph.values].count(True) == 1
    assert graph.constant_bytes(0).ctypes.data == held.data_ptr()


def test_dropped_gradients_keep_their_place(core):
    def backward(grad, x, weight):
        mask = [False, True, False]
        return torch.ops.aten.convolution_backward(grad, x, weight, None, [1], [0], [1], False, [0], 1, mask)[1]

    tensors = torch.randn(1, 2, 5), torch.randn(1, 3, 7), torch.randn(2, 3, 3)
    graph = import_graph(make_fx(backward, tracing_mode="fake")(*tensors)).graph
    (node,) = graph.nodes
    assert [graph.values[result].shape for result in node.results] == [[0], [2, 3, 3], [0]]


@pytest.mark.parametrize("value", [None, 3, nn.Linear(2, 2)])
def test_a_wrong_source_is_named(core, value):
    with pytest.raises(TypeError, match="source: expected"):
        import_graph(value)


def test_a_wrong_option_is_named(core):
    with pytest.raises(ValueError, match="unsupported: expected"):
        import_graph(torch.fx.Graph(), unsupported="skip")


def test_a_traced_module_without_values_is_an_error(core):
    with pytest.raises(ValueError, match=r'node "x".*meta\["val"\]'):
        import_graph(_unvalued())


def _unvalued():
    graph = torch.fx.Graph()
    graph.output(graph.call_function(torch.ops.aten.relu.default, (graph.placeholder("x"),)))
    return graph


def test_calls_of_modules_are_an_error(core):
    traced = torch.fx.symbolic_trace(nn.Sequential(nn.ReLU()))
    for node in traced.graph.nodes:
        node.meta["val"] = torch.empty(2)
    with pytest.raises(NotImplementedError, match="call_module"):
        import_graph(traced)


def test_a_tensor_of_another_device_is_an_error(core):
    graph = _unvalued()
    for node in graph.nodes:
        node.meta["val"] = torch.empty(2, device="meta")
    with pytest.raises(TypeError, match='node "x".*"meta"'):
        import_graph(graph)


def test_complex_scalars_are_an_error_that_names_the_argument(core):
    graph = make_fx(lambda x: torch.add(x, 1j), tracing_mode="fake")(torch.randn(2, dtype=torch.complex64))
    with pytest.raises(TypeError, match='argument "other": expected'):
        import_graph(graph)
