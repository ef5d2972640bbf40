"""A region's program: written from a graph, read back, run by torch's operators."""

import json

import pytest
import torch
from quincunx.fusion.program import NotExpressible, Program, memory_order, result_types, run_reference
from torch.fx.experimental.proxy_tensor import make_fx


def traced(function, *inputs, tracing_mode="fake"):
    graph = make_fx(function, tracing_mode=tracing_mode)(*inputs).graph
    calls = [node for node in graph.nodes if node.op == "call_function"]
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    return calls, placeholders


def program_of(function, *inputs, **options):
    calls, placeholders = traced(function, *inputs, **options)
    tensors = [node for node in calls if isinstance(node.meta["val"], torch.Tensor)]
    return Program.of_nodes(tensors, placeholders, [tensors[-1]])


def chain(x, y):
    return torch.where(x > 0.5, x.to(torch.bfloat16).float() * float("-inf"), y.clamp(-1.5, 2)).sum(-1)


def test_it_computes_what_the_nodes_compute():
    x, y = torch.rand(3, 5), torch.rand(3, 5)
    program = program_of(chain, x, y)
    (result,) = run_reference(program.text, [x, y])
    assert result.equal(chain(x, y))


def test_the_key_depends_on_the_text_alone():
    x, y = torch.rand(3, 5), torch.rand(3, 5)
    first, second = program_of(chain, x, y), program_of(chain, x, y)
    assert first == second
    assert first.key == second.key
    assert 0 <= first.key < 2**63
    assert program_of(chain, torch.rand(3, 6), torch.rand(3, 6)).key != first.key
    assert program_of(lambda a, b: chain(b, a), x, y).key != first.key


def test_numbers_survive_exactly():
    value = 0.1 + 2**-50
    program = program_of(lambda x: x * value, torch.rand(2, dtype=torch.float64))
    (result,) = run_reference(program.text, [torch.ones(2, dtype=torch.float64)])
    assert result.tolist() == [value, value]


def test_symbols_take_the_sizes_of_the_inputs():
    program = program_of(lambda x: x.sum(0) / x.shape[0], torch.rand(6, 4), tracing_mode="symbolic")
    assert json.loads(program.text)["inputs"] == [["float32", [[1, 0, 0], [1, 1, 0]]]]
    for rows in (2, 9):
        (result,) = run_reference(program.text, [torch.ones(rows, 3)])
        torch.testing.assert_close(result, torch.ones(3))


def test_result_types_keep_the_memory_order():
    x = torch.rand(4, 6).t()
    program = program_of(lambda t: t * 2, x)
    (kind,) = result_types(program.text, [x])
    assert kind.stride() == (x * 2).stride() == (1, 6)
    (result,) = run_reference(program.text, [x])
    assert result.stride() == (1, 6)


@pytest.mark.parametrize("dims", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_memory_order_of_permuted_and_other_tensors(dims):
    permuted = torch.rand(2, 3, 4).permute(dims)
    order = memory_order(permuted)
    assert permuted.permute(order).is_contiguous()
    assert memory_order(torch.rand(3, 1).expand(3, 4)) == [0, 1]
    assert memory_order(torch.rand(8, 8)[::2, ::2]) == [0, 1]


def test_what_a_program_cannot_hold_is_named():
    calls, placeholders = traced(chain, torch.rand(3, 5), torch.rand(3, 5))
    with pytest.raises(NotExpressible, match="comes from outside of the region and is no input"):
        Program.of_nodes(calls, placeholders[:1], calls[-1:])
    with pytest.raises(ValueError, match=r"torch\.float32 is not a layout"):
        run_reference(
            '{"symbols":[],"inputs":[["float32",[2]]],"nodes":[["aten.zeros_like.default",[{"value":0}],'
            '{"layout":{"layout":"float32"}}]],"outputs":[[1,[0]]]}',
            [torch.ones(2)],
        )
