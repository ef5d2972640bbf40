"""Regions are put into graphs only where the graph stays what it was; each refusal says why."""

import pytest
import torch
from quincunx.fusion import _extension, rewriting
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx


@pytest.fixture(autouse=True)
def operators():
    _extension.load()


def traced(function, *inputs):
    return make_fx(function, tracing_mode="fake")(*inputs)


def region(module, *names):
    """Its nodes, what they read and what others need, by the names of torch's operators."""
    nodes = [node for node in module.graph.nodes if node.op == "call_function" and node.target._opname in names]
    inputs = dict.fromkeys(argument for node in nodes for argument in node.all_input_nodes if argument not in nodes)
    return nodes, list(inputs), [node for node in nodes if any(user not in nodes for user in node.users)]


def replaced(module, *names):
    replacement = rewriting.plan(module.graph, *region(module, *names))
    rewriting.replace(module.graph, replacement, torch.ops.quincunx.fused_region.default)
    module.graph.lint()
    module.recompile()
    return module


def calls(module):
    return [node for node in module.graph.nodes if node.op == "call_function" and "quincunx" in str(node.target)]


def test_users_before_the_last_node_move_behind_the_call():
    def function(x, y):
        a = x.sin()
        b = a.reshape(-1).cumsum(0)
        return b, (a * y).exp()

    x, y = torch.rand(3, 4), torch.rand(3, 4)
    module = replaced(traced(function, x, y), "sin", "mul", "exp")
    assert len(calls(module)) == 1
    # The key is of no kernel, and no compiler takes cumsum: what runs is the region's own program.
    for actual, expected in zip(module(x, y), function(x, y), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)


def test_values_keep_their_types_and_strides():
    x = torch.rand(4, 6).t()
    module = replaced(traced(lambda t: (t.sin() * 2).cumsum(0), x), "sin", "mul")
    (call,) = calls(module)
    (value,) = call.meta["val"]
    assert (value.shape, value.stride(), value.dtype) == ((6, 4), (1, 6), torch.float32)


def refusal(module, names, *, change=None):
    before = module.code
    nodes, inputs, outputs = region(module, *names)
    if change is not None:
        nodes, inputs, outputs = change(nodes, inputs, outputs)
    with pytest.raises(rewriting.Refused) as caught:
        rewriting.plan(module.graph, nodes, inputs, outputs)
    module.recompile()
    assert module.code == before
    return str(caught.value)


def test_a_region_that_needs_itself_is_refused():
    module = traced(lambda x: x.sin().cumsum(0) * x.sin(), torch.rand(3))
    assert "needs a result of the region through a node outside" in refusal(module, ("sin", "mul"))


def test_a_memory_change_between_is_refused():
    def function(x, y):
        a = x.sin()
        y.add_(1)
        return a * y

    assert "changes memory" in refusal(traced(function, torch.rand(3), torch.rand(3)), ("sin", "mul"))


def test_a_random_operator_is_not_moved():
    def function(x):
        a = x.sin()
        b = torch.rand_like(a)
        return a.exp() + 1, b

    assert "cannot move behind it" in refusal(traced(function, torch.rand(3)), ("sin", "exp"))


def test_forgotten_inputs_and_outputs_are_refused():
    module = traced(lambda x, y: (x.sin() * y).cumsum(0), torch.rand(3), torch.rand(3))
    names = ("sin", "mul")
    assert "is no input of it" in refusal(module, names, change=lambda n, i, o: (n, i[:1], o))
    assert "is no result of it" in refusal(module, names, change=lambda n, i, o: (n, i, []))
    assert "reads no tensor" in refusal(module, names, change=lambda n, i, o: (n, [], o))


def through_a_clone(x, y):
    copy = x.clone()
    return copy.cumsum(0), (copy * y).exp()


def test_what_lies_between_inputs_and_region_is_repeated_in_its_program():
    x, y = torch.rand(3, 4), torch.rand(3, 4)
    module = traced(through_a_clone, x, y)
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    nodes, _, outputs = region(module, "mul", "exp")
    replacement = rewriting.plan(module.graph, nodes, placeholders, outputs)
    assert [node.name for node in replacement.repeated] == ["clone"]
    rewriting.replace(module.graph, replacement, torch.ops.quincunx.fused_region.default)
    module.graph.lint()
    module.recompile()
    assert "aten.clone" in module.code  # the sum still needs it
    for actual, expected in zip(module(x, y), through_a_clone(x, y), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)


def test_a_memory_change_behind_a_repeated_node_is_refused():
    def function(x, y):
        copy = x.clone()
        x.add_(1)
        return (copy * y).exp()

    module = traced(function, torch.rand(3), torch.rand(3))
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    assert "changes memory" in refusal(module, ("mul", "exp"), change=lambda n, i, o: (n, inputs, o))


def test_more_dimensions_than_a_view_has_are_refused():
    module = traced(lambda x: (x.sin() * 2).sum(), torch.rand([1] * 9))
    assert "has 9 dimensions, more than 8" in refusal(module, ("sin", "mul"))


def test_memory_that_is_read_past_its_shape_is_refused():
    module = traced(lambda x: (x.sin() * 2).as_strided((3,), (1,)), torch.rand(4, 6).t())
    assert "reads the memory" in refusal(module, ("sin", "mul"))


def test_a_graph_without_known_values_is_refused():
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.ops.aten.sin.default, (x,))
    graph.output(y)
    with pytest.raises(rewriting.Refused, match="x is not known to be a tensor"):
        rewriting.plan(graph, [y], [x], [y])
