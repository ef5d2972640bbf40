"""Products with weights: one region with their epilogue, packed once, and never stale."""

import copy
import gc

import pytest
import torch
from fusion.reference import assert_close, double_module, doubled
from quincunx.fusion import Settings, counters, inductor_options
from quincunx.fusion.backend import compile_with
from quincunx.fusion.weights import find_weights
from torch import fx, nn
from torch.nn import functional


class Layer(nn.Module):
    """What `finish` makes of one linear layer and two inputs."""

    def __init__(self, finish, *, bias=True, inner=20, columns=33):
        super().__init__()
        self.linear, self.finish = nn.Linear(inner, columns, bias=bias), finish

    def forward(self, x, other):
        return self.finish(self.linear, x, other)


class Gated(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.gate, self.up = nn.Linear(20, 33), nn.Linear(20, 33, bias=False)
        self.activation = activation

    def forward(self, x, other):
        return self.activation(self.gate(x)) * self.up(x) + other


def inputs(rows=(2, 7), columns=33):
    return torch.randn(*rows, 20), torch.randn(*rows, columns)


def run(module, arguments, **settings):
    """The result in inference, and the regions by kind."""
    reports = []
    backend = compile_with(Settings(**settings), lambda report, _before, _after: reports.append(report))
    with torch.no_grad():
        result = torch.compile(module, backend=backend, fullgraph=True)(*arguments)
    return result, [region for report in reports for region in report.regions], reports


def products(regions):
    return [region for region in regions if region.kind == "product"]


EPILOGUES = {
    "plain": (lambda f, x, y: f(x), {}),
    "no_bias": (lambda f, x, y: f(x), {"bias": False}),
    "relu": (lambda f, x, y: torch.relu(f(x)), {}),
    "gelu": (lambda f, x, y: functional.gelu(f(x)), {}),
    "gelu_tanh": (lambda f, x, y: functional.gelu(f(x), approximate="tanh"), {}),
    "silu": (lambda f, x, y: functional.silu(f(x)), {}),
    "residual": (lambda f, x, y: y + f(x), {}),
    "activation_and_residual": (lambda f, x, y: functional.gelu(f(x)) + y, {}),
    "product": (lambda f, x, y: f(x) * y, {}),
    "gate": (lambda f, x, y: functional.silu(f(x)) * y, {}),
    "gate_and_residual": (lambda f, x, y: functional.gelu(f(x)) * y + y, {}),
    "scale": (lambda f, x, y: f(x) * 0.125 + y, {"bias": False}),
    "matmul": (lambda f, x, y: x @ f.weight.t() + y, {}),
}


@pytest.mark.parametrize("rows", [(2, 7), (1, 1), (3,)])
@pytest.mark.parametrize("name", EPILOGUES)
def test_a_product_and_its_epilogue_are_one_region(name, rows):
    finish, options = EPILOGUES[name]
    module, arguments = Layer(finish, **options).eval(), inputs(rows)
    result, regions, reports = run(module, arguments)
    assert_close(result, double_module(module)(*doubled(arguments)))
    assert [region.kind for region in regions] == ["product"]
    left = reports[0].left
    assert not {name for name in left if "addmm" in name or ".mm" in name or "gelu" in name or "mul" in name}


# Each keeps the product, but not what follows it, the operator of that name.
NEAR_MISSES = {
    "second_user": ("gelu", lambda f, x, y: (lambda product: (product, functional.gelu(product)))(f(x))),
    "other_activation": ("exp", lambda f, x, y: torch.exp(f(x))),
    "residual_of_a_row": ("add", lambda f, x, y: f(x) + y[..., :1]),
    "factor_of_a_row": ("mul", lambda f, x, y: f(x) * y[..., :1]),
    "activation_after_residual": ("relu", lambda f, x, y: torch.relu(f(x) + y)),
    "scale_after_bias": ("mul", lambda f, x, y: f(x) * 0.5),
    "in_place_between": ("gelu", lambda f, x, y: functional.gelu(f(x).add_(1))),
    "other_dtype": ("add", lambda f, x, y: f(x).double() + y.double()),
    "clamp": ("clamp", lambda f, x, y: f(x).clamp(-1, 1)),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_what_is_no_epilogue_stays_outside(name):
    follows, finish = NEAR_MISSES[name]
    module, arguments = Layer(finish).eval(), inputs()
    result, regions, _ = run(module, arguments)
    expected = double_module(module)(*doubled(arguments))
    for actual, right in zip(
        result if isinstance(result, tuple) else [result],
        expected if isinstance(expected, tuple) else [expected],
        strict=True,
    ):
        assert_close(actual, right.to(actual.dtype).double())
    for product in products(regions):
        assert not any(node.startswith(follows) and not node.startswith("addmm") for node in product.nodes)
    assert products(regions)


def test_gate_and_up_are_two_products_and_nothing_else():
    for activation in (functional.silu, functional.gelu):
        module, arguments = Gated(activation).eval(), inputs()
        torch._dynamo.reset()
        result, regions, _ = run(module, arguments)
        assert_close(result, double_module(module)(*doubled(arguments)))
        assert [region.kind for region in regions] == ["product", "product"]


def test_strides_of_the_inputs_and_no_rows():
    module = Layer(lambda f, x, y: functional.gelu(f(x)) + y).eval()
    exact = double_module(module)
    for x, other in (
        (torch.randn(20, 6).t(), torch.randn(33, 6).t()),
        (torch.randn(3, 2, 20).transpose(0, 1), torch.randn(3, 2, 33).transpose(0, 1)),
        (torch.randn(4, 40)[:, ::2], torch.randn(4, 1).expand(4, 33)),
        (torch.randn(0, 20), torch.randn(0, 33)),
    ):
        torch._dynamo.reset()
        result, regions, _ = run(module, (x, other))
        assert len(products(regions)) == 1
        assert_close(result, exact(*doubled((x, other))))


def test_one_kernel_serves_every_number_of_rows(new_counts):
    module = Layer(lambda f, x, y: functional.gelu(f(x)) + y).eval()
    exact = double_module(module)
    compiled = torch.compile(module, backend="quincunx", fullgraph=True)
    with torch.no_grad():
        for rows in (5, 2, 64, 9):
            arguments = inputs((rows,))
            for tensor in arguments:
                torch._dynamo.mark_dynamic(tensor, 0)
            assert_close(compiled(*arguments), exact(*doubled(arguments)))
    assert new_counts()["graphs"] == 1
    assert new_counts()["weights_packed"] == 1
    assert new_counts()["packed_weights_used"] == 3


def changed_in_place(module):
    with torch.no_grad():
        module.linear.weight.mul_(2)


def changed_through_data(module):
    module.linear.weight.data.mul_(2)


def loaded(module):
    module.load_state_dict({name: value * 3 for name, value in copy.deepcopy(module.state_dict()).items()})


def exchanged(module):
    module.linear.weight.data = torch.randn_like(module.linear.weight)


def replaced(module):
    module.linear.weight = nn.Parameter(torch.randn_like(module.linear.weight))


@pytest.mark.parametrize("change", [changed_in_place, changed_through_data, loaded, exchanged, replaced])
def test_a_change_of_the_weight_is_seen(change, new_counts):
    module = Layer(lambda f, x, y: f(x) + y).eval()
    compiled, arguments = torch.compile(module, backend="quincunx"), inputs()
    with torch.no_grad():
        for _ in range(2):
            assert_close(compiled(*arguments), double_module(module)(*doubled(arguments)))
        assert new_counts()["weights_packed"] == 1
        change(module)
        for _ in range(2):
            assert_close(compiled(*arguments), double_module(module)(*doubled(arguments)))
    assert new_counts()["weights_packed"] == 2


def test_packed_weights_go_with_their_module():
    before = counters()["packed_weights_kept"]
    module, arguments = Layer(lambda f, x, y: f(x)).eval(), inputs()
    compiled = torch.compile(module, backend="quincunx")
    with torch.no_grad():
        compiled(*arguments)
    assert counters()["packed_weights_kept"] == before + 1
    assert counters()["packed_weight_bytes"] > 0
    del module, compiled
    torch._dynamo.reset()
    gc.collect()
    assert counters()["packed_weights_kept"] == before


def test_layers_of_one_shape_share_the_kernel_and_not_the_weight(new_counts):
    layers, arguments = [Layer(lambda f, x, y: f(x) + y).eval() for _ in range(3)], inputs()
    functions = [torch.compile(layer.forward, backend="quincunx") for layer in layers]
    with torch.no_grad():
        for _ in range(2):
            for layer, function in zip(layers, functions, strict=True):
                assert_close(function(*arguments), double_module(layer)(*doubled(arguments)))
    assert new_counts()["weights_packed"] == 3


def test_weights_of_inference_mode_are_packed_anew(new_counts):
    with torch.inference_mode():
        module, arguments = Layer(lambda f, x, y: f(x) + y).eval(), inputs()
        compiled = torch.compile(module, backend="quincunx")
        first = compiled(*arguments)
        module.linear.weight.mul_(2)
        second = compiled(*arguments)
        assert_close(second, double_module(module)(*doubled(arguments)))
    assert not torch.equal(first, second)
    assert new_counts()["weights_packed"] == 0


def test_training_and_a_switched_off_pattern_take_no_products():
    module, arguments = Layer(lambda f, x, y: functional.gelu(f(x)) + y), inputs()
    _, regions, reports = run(module.eval(), arguments, disable=["matmul_epilogue"])
    assert regions and not products(regions)
    assert any("addmm" in name for name in reports[0].left)
    torch._dynamo.reset()
    reports = []
    backend = compile_with(Settings(), lambda report, _before, _after: reports.append(report))
    torch.compile(module, backend=backend)(*arguments).sum().backward()
    assert not products([region for report in reports for region in report.regions])


def test_half_precision_and_products_of_activations_are_left():
    module = Layer(lambda f, x, y: f(x) + y).to(torch.bfloat16).eval()
    _, regions, _ = run(module, [tensor.bfloat16() for tensor in inputs()])
    assert not products(regions)
    torch._dynamo.reset()
    _, regions, _ = run(lambda x, y: torch.relu(x @ y), (torch.randn(3, 4), torch.randn(4, 5)))
    assert not products(regions)


def test_inside_inductor(new_counts):
    module, arguments = Gated(functional.silu).eval(), inputs()
    compiled = torch.compile(module, options=inductor_options())
    with torch.no_grad():
        for _ in range(2):
            assert_close(compiled(*arguments), double_module(module)(*doubled(arguments)))
    assert new_counts()["weights_packed"] == 2
    assert new_counts()["packed_weights_used"] == 2


def test_every_region_is_checked_against_torch(new_counts):
    module, arguments = Gated(functional.gelu).eval(), inputs()
    result, _, _ = run(module, arguments, check=True)
    assert_close(result, double_module(module)(*doubled(arguments)))
    assert new_counts()["regions_checked"] == 2


def test_only_the_parameters_of_an_inference_graph_are_weights():
    graph = fx.Graph()
    graph.placeholder("primals_1")
    assert find_weights(graph) == []
    other = fx.Graph()
    other.placeholder("arg0_1")
    assert find_weights(other) == []  # nothing is being compiled


def test_a_weight_that_two_products_share_is_packed_once(new_counts):
    module, arguments = Layer(lambda f, x, y: (f(x), functional.gelu(f(x + 1)))).eval(), inputs()
    (first, second), regions, _ = run(module, arguments)
    expected = double_module(module)(*doubled(arguments))
    assert_close(first, expected[0])
    assert_close(second, expected[1])
    assert len(products(regions)) == 2
    assert new_counts()["weights_packed"] == 1


def test_products_one_after_the_other_are_each_a_region():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.gate, self.down = nn.Linear(20, 33), nn.Linear(20, 33, bias=False), nn.Linear(33, 20)

        def forward(self, x):
            x = x + self.down(functional.gelu(self.up(x)))
            inner = functional.silu(self.gate(x)) * self.up(x)
            return self.down(inner) + x, inner

    module, x = Block().eval(), inputs()[0]
    results, regions, reports = run(module, (x,))
    for result, exact in zip(results, double_module(module)(x.double()), strict=True):
        assert_close(result, exact)
    assert [region.kind for region in regions] == ["product"] * 5
    assert set(reports[0].left) <= {"aten.view.default", "aten._unsafe_view.default", "aten.transpose.int"}


@pytest.mark.parametrize("finish", [lambda h: h * h, lambda h: h + h, lambda h: functional.silu(h) * h])
def test_a_product_is_not_its_own_epilogue(finish):
    module, arguments = Layer(lambda f, x, y: finish(f(x))).eval(), inputs()
    result, regions, _ = run(module, arguments)
    assert_close(result, double_module(module)(*doubled(arguments)))
    assert len(products(regions)) == 1


def test_a_change_of_any_row_or_column_through_data_is_seen():
    module = Layer(lambda f, x, y: f(x)).eval()
    compiled, arguments, weight = torch.compile(module, backend="quincunx"), inputs((3,)), module.linear.weight
    changes = [lambda row=row: weight.data[row].add_(1) for row in range(0, weight.shape[0], 3)]
    changes += [lambda column=column: weight.data[:, column].add_(1) for column in range(0, weight.shape[1], 3)]
    changes += [lambda: weight.data.triu_(), lambda: weight.data.tril_()]
    with torch.no_grad():
        for change in changes:
            compiled(*arguments)
            change()
            assert_close(compiled(*arguments), double_module(module)(*doubled(arguments)))


def test_a_weight_read_as_it_is_and_transposed_is_packed_twice_and_kept(new_counts):
    module, arguments = Layer(lambda f, x, y: f(x) @ f.weight, bias=False).eval(), inputs()
    before = counters()["packed_weights_kept"]
    compiled = torch.compile(module, backend="quincunx")
    with torch.no_grad():
        for _ in range(3):
            assert_close(compiled(*arguments), double_module(module)(*doubled(arguments)))
        assert new_counts()["weights_packed"] == 2
        module.linear.weight.data = torch.randn_like(module.linear.weight)
        compiled(*arguments)
        assert counters()["packed_weights_kept"] == before + 2
    del module, compiled
    torch._dynamo.reset()
    gc.collect()
    assert counters()["packed_weights_kept"] == before


def test_a_weight_of_inference_mode_on_memory_that_is_packed_already():
    module, arguments = Layer(lambda f, x, y: f(x)).eval(), inputs()
    with torch.no_grad():
        torch.compile(module, backend="quincunx")(*arguments)
    torch._dynamo.reset()
    with torch.inference_mode():
        kept, other = module.linear.weight, Layer(lambda f, x, y: f(x)).eval()
        shared = torch.empty(0).set_(kept.data.untyped_storage(), 0, kept.shape, kept.stride())
        assert shared.is_inference()
        other.linear.weight = nn.Parameter(shared, requires_grad=False)
        actual = torch.compile(other, backend="quincunx")(*arguments)
        assert_close(actual, double_module(other)(*doubled(arguments)))
