"""Forward and backward graphs of AOTAutograd, with sizes as placeholders: what a torch.compile backend sees."""

import torch
from functorch.compile import make_boxed_func
from quincunx._graph import import_graph
from torch._dynamo.backends.common import aot_autograd


def captured(function, *inputs):
    """The forward and the backward graph of `function`, compiled with dynamic sizes."""
    graphs = []

    def keep(module, _):
        graphs.append(module)
        return make_boxed_func(module.forward)

    torch._dynamo.reset()
    torch.compile(function, backend=aot_autograd(fw_compiler=keep, bw_compiler=keep), dynamic=True)(*inputs).backward()
    torch._dynamo.reset()
    return graphs


def norm(x, weight):
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight
    return (y * x.shape[0]).sum()


def test_forward_and_backward(core):
    x, weight = torch.randn(6, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    forward, backward = captured(norm, x, weight)
    for module in (forward, backward):
        imported = import_graph(module, unsupported="opaque")
        graph = imported.graph
        placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        tensors = [i for i, n in enumerate(placeholders) if isinstance(n.meta["val"], torch.Tensor)]
        assert imported.input_positions == tensors
        assert len(tensors) < len(placeholders)  # the sizes are no inputs
        calls = [
            n for n in module.graph.nodes if isinstance(n.meta.get("val"), torch.Tensor) and n.op == "call_function"
        ]
        assert [node.op for node in graph.nodes] == [str(n.target) for n in calls]
        (output,) = (n for n in module.graph.nodes if n.op == "output")
        leaves = torch.utils._pytree.tree_leaves(output.args[0], is_leaf=lambda leaf: leaf is None)
        for position, value in zip(imported.output_positions, graph.outputs, strict=True):
            assert graph.values[value].name == leaves[position].name
        graph.verify()


def test_sizes_of_the_backward_pass_are_symbols(core):
    x, weight = torch.randn(6, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    _, backward = captured(norm, x, weight)
    graph = import_graph(backward).graph
    assert graph.symbols
    sizes = [
        d for node in graph.nodes for a in node.arguments if isinstance(a, list) for d in a if hasattr(d, "symbol")
    ]
    assert all(0 <= size.symbol < len(graph.symbols) for size in sizes)
    assert sizes
