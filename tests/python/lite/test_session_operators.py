"""Every operator of lite against torch eager: the model is exported, imported and run by the C++ session."""

import math
import re

import pytest
import torch
from lite import layout_cases, network_cases, operator_cases
from quincunx._graph import import_graph, load_core
from quincunx.lite.session import Session
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

FAMILIES = operator_cases.FAMILIES | layout_cases.FAMILIES | network_cases.FAMILIES
# Relative errors: some tens of roundings of the dtype for what sums and approximates, one for the 16-bit results.
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
# What the tests below cannot reach through torch.export, and where it is tested instead.
TESTED_ELSEWHERE = {
    "qx.tile": "tests/lite/ops/tile_test.cpp",
    "aten.detach_.default": "the row of aten.detach.default",
    "qx.linear": "tests/lite/session_test.cpp",
    "qx.kv_append": "tests/lite/ops/cached_attention_test.cpp",
    "qx.attention_cached": "tests/lite/ops/cached_attention_test.cpp",
    "aten.empty.memory_format": "undefined contents",
    "aten.empty_like.default": "undefined contents",
    "aten.remainder.Scalar_Tensor": "the row of aten.remainder.Tensor",
    "aten.floor_divide.Scalar": "the row of aten.floor_divide.default",
}


class Calls(torch.nn.Module):
    """All calls of a family in one graph: one export instead of hundreds."""

    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def forward(self, arguments):
        results = []
        for (_, function, _), values in zip(self.calls, arguments, strict=True):
            result = function(*values)
            results.append(list(result) if isinstance(result, list | tuple) else [result])
        return results


def flat(results):
    return [tensor for result in results for tensor in result]


def run_alone(function, values):
    """For operators that torch.export takes apart: a graph of this one call."""
    arity = {1: lambda a: function(a), 2: lambda a, b: function(a, b), 3: lambda a, b, c: function(a, b, c)}
    module = torch.fx.symbolic_trace(arity[len(values)])
    FakeTensorProp(module).propagate(*values)
    return Session(import_graph(module).graph).run(*values)


def explain(got, want):
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    if not want.is_floating_point():
        return "" if torch.equal(got, want) else f"{got.flatten()[:8]}, expected {want.flatten()[:8]}"
    tolerance = TOLERANCE[want.dtype]
    scale = want.double()[want.isfinite()].abs().max().item() if want.isfinite().any() else 0.0
    # Sums cancel: the error is relative to the largest result, unless that would hide everything.
    atol = tolerance * min(scale, 100.0)
    if torch.allclose(got.double(), want.double(), rtol=tolerance, atol=atol, equal_nan=True):
        return ""
    difference = (got.double() - want.double()).abs().nan_to_num(nan=math.inf).flatten()
    worst = int(difference.argmax())
    return f"{got.flatten()[worst]}, expected {want.flatten()[worst]} (element {worst})"


# Without rewrites where they change what runs: products, and what is computed at load.
@pytest.mark.parametrize(
    ("family", "rewrites"), [(family, True) for family in FAMILIES] + [("product", False), ("creation", False)]
)
def test_every_operator_equals_eager(family, rewrites):
    cases = FAMILIES[family]()
    calls = [(name, function, values) for name, list_ in cases.items() for function, values in list_]
    # The same tensor twice would be one input: every call gets its own.
    arguments = [tuple(v.clone() if isinstance(v, torch.Tensor) else v for v in values) for _, _, values in calls]
    module = Calls(calls).eval()
    with torch.no_grad():
        expected = module(arguments)
        program = torch.export.export(module, (arguments,), strict=False)
    graph = import_graph(program).graph
    used = {node.op for node in graph.nodes}
    session = Session(graph, rewrites=rewrites)
    results = iter(session.run(*[value for values in arguments for value in values]))
    faults = []
    for (name, function, values), wanted in zip(calls, expected, strict=True):
        exported = [next(results) for _ in wanted]
        for got, want in zip(exported if name in used else run_alone(function, values), wanted, strict=True):
            fault = explain(got, want)
            if fault:
                faults.append(f"{name}: {fault}")
    assert not faults, "\n".join(faults)


def test_every_operator_has_a_case():
    tested = {name for family in FAMILIES.values() for name in family()} | set(TESTED_ELSEWHERE)
    assert sorted(set(load_core().lite_operators()) - tested) == []


def test_documentation_lists_every_operator(request):
    text = (request.config.rootpath / "docs" / "lite-operators.md").read_text()
    listed = set(re.findall(r"`((?:aten|prims|qx)\.[\w.]+)`", text))
    assert listed == set(load_core().lite_operators())
