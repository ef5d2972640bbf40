"""torch.compile and torch.export see the operators of models as they are: shapes, dtypes, strides, no hidden writes."""

import pytest
import quincunx
import torch
from torch.library import opcheck


@pytest.fixture(autouse=True)
def operators():
    quincunx.load_operators()
    torch.manual_seed(0)


def calls():
    """Operator name and arguments, contiguous and not."""
    x, half = torch.randn(2, 3, 8), torch.randn(4, 6).bfloat16()
    q, k, v = torch.randn(2, 5, 4, 16).transpose(1, 2), torch.randn(2, 2, 7, 16), torch.randn(2, 2, 7, 3)
    packed = torch.ops.quincunx.pack_linear_weight(torch.randn(17, 8))
    cos, sin = torch.rand(5, 8), torch.rand(5, 8)
    starts = torch.tensor([0, 1, 5]), torch.tensor([0, 3, 7], dtype=torch.int32)
    return [
        ("pack_linear_weight", (torch.randn(17, 8),)),
        ("pack_linear_weight", (torch.randn(8, 32).t(),)),
        ("packed_linear", (x, packed, 17)),
        ("packed_linear", (x[0, 0], packed, 17, torch.randn(17), "silu")),
        ("packed_linear", (x[:, 1], packed, 17, None, "none", torch.randn(2, 17))),
        ("newton_schulz", (torch.randn(8, 5).t(), [3.4445, -4.7750, 2.0315], 1e-7, "auto")),
        ("rms_norm", (x, torch.randn(8))),
        ("rms_norm", (half.t(),)),
        ("layer_norm", (x.transpose(0, 2), torch.randn(2), torch.randn(2), 1e-3)),
        ("softmax", (half,)),
        ("softmax", (x.transpose(0, 1), 0)),
        ("rope", (q, cos, sin, True, 2)),
        ("attention", (q, torch.randn(2, 2, 7, 16), torch.randn(2, 2, 7, 16))),
        ("attention", (q, k, v, 0.5, True, [7, 3])),
        ("attention", (q.bfloat16(), k.bfloat16(), v.bfloat16())),
        ("variable_length_attention", (q[0].transpose(0, 1), k[0].transpose(0, 1), v[0].transpose(0, 1), *starts)),
    ]


def row_calls():
    """The same for norms, losses, activations and what turns tokens to vectors and back."""
    x, half, rows = torch.randn(2, 3, 8), torch.randn(4, 6).bfloat16(), torch.randn(4, 6)
    image = torch.randn(2, 4, 3, 5).to(memory_format=torch.channels_last)
    scale, target = torch.randn(2, 1, 8), torch.tensor([0, 5, -100, 2])
    table, tokens = torch.randn(9, 5), torch.tensor([[1, 2], [8, 0]])
    return [
        ("add_rms_norm", (x, x.clone(), torch.randn(8))),
        ("add_layer_norm", (half, half.clone())),
        ("modulated_rms_norm", (x, torch.randn(8), scale, scale.clone())),
        ("modulated_layer_norm", (x, scale, scale.clone())),
        ("group_norm", (image, 2, torch.randn(4), torch.randn(4), 1e-5, True)),
        ("unary", (half.t(), "exp")),
        ("gated", (x[..., :4], x[..., 4:], "silu")),
        ("log_softmax", (x.transpose(0, 1), 0)),
        ("cross_entropy", (rows, target)),
        ("cross_entropy", (half, target, -100, 0.1, "none")),
        ("cross_entropy_backward", (torch.tensor(1.0), half, target, half.float().logsumexp(1))),
        ("embedding", (table, tokens)),
        ("embedding_bag", (table, tokens.flatten(), torch.tensor([0, 3]), "mean")),
        ("top_k", (x, 3)),
        ("top_k", (half, 2, 0, False)),
        ("sort", (x.transpose(0, 1), 1)),
        ("sample", (rows, 0.8, 3)),
    ]


@pytest.mark.parametrize("index", range(17))
def test_opcheck_of_row_operators(index):
    name, arguments = row_calls()[index]
    opcheck(getattr(torch.ops.quincunx, name).default, arguments)


@pytest.mark.parametrize("index", range(16))
def test_opcheck(index):
    name, arguments = calls()[index]
    opcheck(getattr(torch.ops.quincunx, name).default, arguments)


def test_every_operator_of_models_has_one():
    names = {name for name, _ in calls() + row_calls()}
    registered = {
        schema.name.removeprefix("quincunx::")
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("quincunx::")
    }
    # Muon runs in the optimizer, outside compiled graphs; the last two take no tensor.
    others = {name for name in registered if name.startswith("muon_")} | {"num_threads", "newton_schulz_coefficients"}
    # quincunx.boost registers those of its own operators; its tests check them.
    others |= {"block_sparse_attention", "block_sparse_attention_backward", "select_blocks", "tile_order"}
    others |= {"top_k_blocks"}
    # test_low_precision_gemm.py checks those.
    others |= {"pack_low_precision_weight", "unpack_low_precision_weight", "low_precision_linear"}
    # test_gemm.py and test_batched_gemm.py check those.
    others |= {"packed_linear_out", "pack_gated_weight", "gated_linear", "gram", "symmetric_polynomial"}
    others |= {"batched_gemm", "pack_grouped_weight", "grouped_linear"}
    # test_convolution.py checks those; the size takes no tensor.
    others |= {"convolution", "causal_convolution", "packed_convolution"}
    others |= {"pack_convolution_weight", "packed_convolution_weight_size"}
    # test_decode_attention.py and the gradients in test_attention.py check those.
    others |= {"decode_attention", "paged_decode_attention"}
    others |= {"attention_backward", "variable_length_attention_backward"}
    # quincunx.fusion's, which another test of this process may have registered; its own tests check them.
    others |= {"fused_region", "checked_region", "reference_region", "watch_weight"}
    assert registered - others == names


class Block(torch.nn.Module):
    """One layer of a model on the operators; legend: B batch, S sequence, H heads, D head size."""

    def __init__(self):
        super().__init__()
        self.packed = torch.ops.quincunx.pack_linear_weight(torch.randn(3 * 32, 32) / 6)
        self.weight = torch.randn(32)
        self.cos, self.sin = torch.rand(5, 8), torch.rand(5, 8)

    def forward(self, x_BSM):
        ops = torch.ops.quincunx
        projected = ops.packed_linear(ops.rms_norm(x_BSM, self.weight), self.packed, 96)
        q_BHSD, k_BHSD, v_BHSD = projected.unflatten(-1, (3, 2, 16)).permute(2, 0, 3, 1, 4).unbind()
        q_BHSD = ops.rope(q_BHSD, self.cos, self.sin, sequence_dim=2)
        output_BHSD, lse_BHS = ops.attention(q_BHSD, k_BHSD, v_BHSD, causal=True)
        return ops.softmax(output_BHSD.transpose(1, 2).flatten(2) + x_BSM, -1), lse_BHS


def test_a_compiled_model_has_one_graph_and_the_bits_of_the_eager_one():
    block, x = Block(), torch.randn(2, 5, 32)
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    for eager, other in zip(block(x), compiled(x), strict=True):
        assert torch.equal(eager, other)
        assert eager.stride() == other.stride()


def test_an_exported_model_keeps_the_operators():
    exported = torch.export.export(Block(), (torch.randn(2, 5, 32),))
    targets = {str(node.target) for node in exported.graph.nodes if node.op == "call_function"}
    assert "quincunx.attention.default" in targets
    assert "quincunx.packed_linear.default" in targets


def test_shapes_may_be_dynamic():
    weight = torch.randn(8)
    compiled = torch.compile(
        lambda x: torch.ops.quincunx.rms_norm(x, weight), fullgraph=True, backend="aot_eager", dynamic=True
    )
    for length in (3, 4, 9):
        x = torch.randn(length, 8)
        assert torch.equal(compiled(x), torch.ops.quincunx.rms_norm(x, weight))
