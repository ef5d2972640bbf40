"""Boosted Wan models against the same models without, in every form that their blocks take."""

import copy
import pickle

import pytest
import torch
from boost.tiny_wan import GRID, TEXT_DIM, everything_in, generate, inputs_of, tiny_pipeline, tiny_transformer
from diffusers import WanPipeline
from quincunx import boost

TOKENS = GRID[0] * GRID[1] * GRID[2]
EXACT = {"sparsity": 0.0}


def output_of(transformer, **call):
    with torch.no_grad():
        return transformer(**inputs_of(transformer, **call))[0]


def check_equal(transformer, **call):
    """At sparsity 0 a boosted model is as near to its double-precision self as an unboosted one, within a factor 3."""
    before = output_of(transformer, **call)
    with boost.boosted(transformer, EXACT) as handle:
        after = output_of(transformer, **call)
    double = transformer.double()
    extra = {k: v.double() if torch.is_tensor(v) and v.is_floating_point() else v for k, v in call.items()}
    reference = output_of(double, **extra, dtype=torch.float64)
    transformer.float()
    error = (before - reference).abs().max()
    assert before.shape == after.shape and before.dtype == after.dtype
    assert (after - reference).abs().max() <= 3 * error + 2**-22 * reference.abs().max()
    assert not torch.equal(before, after)  # Something else did run.
    return handle


@pytest.mark.parametrize("batch", [1, 2])
def test_sparsity_0_is_the_unboosted_model(batch):
    handle = check_equal(tiny_transformer(), batch=batch)
    calls = {"RMSNorm": 8, "block norms": 2, "cross-attention": 2, "sparse self-attention": 2}
    assert handle.counters.calls == calls
    assert handle.density == 1.0


def test_image_to_video_attends_to_the_image_too():
    # Such a model takes 512 tokens of text for granted.
    transformer = tiny_transformer(added_kv_proj_dim=48, image_dim=20)
    image, text = torch.randn(1, 5, 20), torch.randn(1, 512, TEXT_DIM)
    with_image = {"encoder_hidden_states": text, "encoder_hidden_states_image": image}
    call = inputs_of(transformer) | with_image
    with torch.no_grad():
        before = transformer(**call)[0]
        with boost.boosted(transformer, EXACT):
            after = transformer(**call)[0]
            other = transformer(**(call | {"encoder_hidden_states_image": image.flip(-1)}))[0]
    torch.testing.assert_close(after, before, rtol=0, atol=2**-18 * before.abs().max().item())
    assert (other - after).abs().max() > 1e-3


def test_a_timestep_for_each_token():
    """Wan 2.2 TI2V."""
    check_equal(tiny_transformer(), timestep=torch.linspace(0, 900, TOKENS)[None])


def test_blocks_without_cross_attention_norm():
    check_equal(tiny_transformer(cross_attn_norm=False))


def test_fused_projections():
    transformer = tiny_transformer()
    for module in transformer.modules():
        if hasattr(module, "fuse_projections") and module is not transformer:
            module.fuse_projections()
    before = output_of(transformer)
    with boost.boosted(transformer, EXACT):
        after = output_of(transformer)
    torch.testing.assert_close(after, before, rtol=0, atol=2**-18 * before.abs().max().item())


def test_bfloat16_stays_bfloat16_and_near():
    transformer = tiny_transformer()
    exact = output_of(transformer)
    transformer.bfloat16()
    before = output_of(transformer, dtype=torch.bfloat16)
    with boost.boosted(transformer, EXACT):
        after = output_of(transformer, dtype=torch.bfloat16)
    assert after.dtype == torch.bfloat16
    assert (after - exact).abs().max() <= 2 * (before - exact).abs().max()


class LowRank(torch.nn.Module):
    """A linear with an adapter around it, as LoRA makes."""

    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base
        self.down = torch.nn.Linear(base.in_features, rank, bias=False)
        self.up = torch.nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def test_adapters_around_projections_take_part():
    transformer = tiny_transformer()
    plain = output_of(transformer)
    for block in transformer.blocks:
        for name in ("to_q", "to_k", "to_v"):
            setattr(block.attn1, name, LowRank(getattr(block.attn1, name)))
        block.attn2.to_out[0] = LowRank(block.attn2.to_out[0])
    assert (output_of(transformer) - plain).abs().max() > 1e-3
    check_equal(transformer)


def test_gradients_flow_as_without():
    transformer = tiny_transformer(num_layers=1)
    call = inputs_of(transformer)
    wanted = [
        transformer.blocks[0].attn1.norm_q.weight,
        transformer.blocks[0].norm2.weight,
        transformer.scale_shift_table,
    ]
    wanted += [transformer.blocks[0].scale_shift_table, transformer.blocks[0].attn2.to_k.weight]
    before = torch.autograd.grad(transformer(**call)[0].square().sum(), wanted)
    with boost.boosted(transformer, EXACT):
        after = torch.autograd.grad(transformer(**call)[0].square().sum(), wanted)
    for ours, theirs in zip(after, before, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=2**-18 * theirs.abs().max().item())


def test_gradient_checkpointing_runs_boosted_blocks():
    transformer = tiny_transformer(num_layers=1).train()
    transformer.enable_gradient_checkpointing()
    call = inputs_of(transformer)
    weight = transformer.blocks[0].ffn.net[0].proj.weight
    (before,) = torch.autograd.grad(transformer(**call)[0].sum(), weight)
    with boost.boosted(transformer, EXACT) as handle:
        (after,) = torch.autograd.grad(transformer(**call)[0].sum(), weight)
    torch.testing.assert_close(after, before, rtol=1e-4, atol=2**-18 * before.abs().max().item())
    assert handle.counters.calls["block norms"] == 2  # forward, and again in backward


def test_a_pipeline_with_guidance():
    pipe = tiny_pipeline()
    before = generate(pipe)
    with boost.boosted(pipe, EXACT) as handle:
        after = generate(pipe)
    # Guidance of 5 amplifies a rounding of each of 3 steps at most tenfold; 2^-18 as above.
    assert (after - before).abs().max() <= 3 * 10 * 2**-18
    assert handle.counters.calls["sparse self-attention"] == 2 * 3 * 2
    assert torch.equal(generate(pipe), before)


def test_sparsity_is_what_the_density_says():
    pipe = tiny_pipeline()
    before = generate(pipe)
    with boost.boosted(pipe, {"sparsity": 0.5, "tile": (1, 2, 2)}) as handle:
        after = generate(pipe)
    assert handle.density == 0.5
    assert [b.calls for b in handle.counters.blocks.values()] == [6, 6]
    assert 1e-6 < (after - before).abs().max() < 0.2


def test_dense_steps_and_blocks():
    pipe = tiny_pipeline(num_layers=3)
    with boost.boosted(pipe, {"sparsity": 0.5, "tile": (1, 2, 2), "dense_steps": 2, "dense_blocks": 1}) as handle:
        for _ in range(2):  # a second run starts with dense steps again
            generate(pipe, steps=4)
    calls = handle.counters.calls
    assert calls["dense self-attention (dense_blocks)"] == 2 * 4 * 2
    assert calls["dense self-attention (dense_steps)"] == 2 * 2 * 2 * 2
    assert calls["sparse self-attention"] == 2 * 2 * 2 * 2
    densities = [block.density for block in handle.counters.blocks.values()]
    assert densities == [1.0, 0.75, 0.75]
    assert handle.density == pytest.approx(2.5 / 3)


def test_two_transformers_share_the_steps():
    """Wan 2.2: one for high noise, one for low."""
    pipe = tiny_pipeline(num_layers=1)
    two = WanPipeline(
        tokenizer=None,
        text_encoder=None,
        vae=None,
        transformer=pipe.transformer,
        transformer_2=tiny_transformer(num_layers=1, seed=1),
        scheduler=pipe.scheduler,
        boundary_ratio=0.7,
    )
    two.set_progress_bar_config(disable=True)
    before = [everything_in(t) for t in (two.transformer, two.transformer_2)]
    with boost.boosted(two, {"sparsity": 0.5, "tile": (1, 2, 2), "dense_steps": 1}) as handle:
        generate(two, steps=4, guidance_scale=1.0)
    blocks = {name: (block.calls, block.density) for name, block in handle.counters.blocks.items()}
    high, low = blocks["transformer.blocks[0]"], blocks["transformer_2.blocks[0]"]
    assert high[0] >= 1 and low[0] >= 1 and high[0] + low[0] == 4
    assert high[1] == (1 + 0.5 * (high[0] - 1)) / high[0] and low[1] == 0.5  # only the first step of all is dense
    for transformer, untouched in zip((two.transformer, two.transformer_2), before, strict=True):
        replaced = {entry[1:3] for entry in set(everything_in(transformer)) ^ set(untouched)}
        assert not {name for name, _ in replaced} & {"processor", "forward"}


@pytest.mark.parametrize(
    "options",
    [
        {"rule": "window", "window": (0, 1, 1)},
        {"rule": "cdf", "cdf_threshold": 0.7},
        {"keep_first_frame": True},
        {"keep_sink": 5},
        {"keep_recent": 6},
        {"tile": (3, 2, 1)},
        {"sparsity": 0.8},
        {"cross_attention": False},
        {"norms": False},
    ],
    ids=str,
)
def test_every_option_has_effect(options):
    transformer = tiny_transformer()
    base = {"sparsity": 0.6} if options.get("rule", "topk") == "topk" else {}
    with boost.boosted(transformer, {"sparsity": 0.6, "tile": (1, 2, 2)}) as plain:
        expected = output_of(transformer)
    with boost.boosted(transformer, {"tile": (1, 2, 2)} | base | options) as handle:
        actual = output_of(transformer)
    assert not torch.equal(actual, expected)
    if "cross_attention" in options or "norms" in options:
        missing = set(plain.counters.calls) - set(handle.counters.calls)
        assert missing == ({"cross-attention"} if "cross_attention" in options else {"RMSNorm", "block norms"})
    elif not {"keep_sink", "keep_recent", "tile"} & set(options):  # Those keep as many blocks, but others.
        assert handle.density != plain.density


def test_one_pipeline_changes_and_no_other():
    first, second = tiny_pipeline(), tiny_pipeline()
    untouched = everything_in(second.transformer)
    handle = boost.boost(first)
    assert everything_in(second.transformer) == untouched
    handle.undo()


def test_undo_puts_back_every_attribute():
    pipe = tiny_pipeline()
    before = everything_in(pipe.transformer)
    names = list(pipe.transformer.state_dict())
    handle = boost.boost(pipe, {"dense_steps": 1})
    assert everything_in(pipe.transformer) != before
    assert list(pipe.transformer.state_dict()) == names
    handle.undo()
    assert everything_in(pipe.transformer) == before


def test_compiles():
    transformer = tiny_transformer(num_layers=1)
    call = inputs_of(transformer)
    with torch.no_grad(), boost.boosted(transformer, {"sparsity": 0.5, "tile": (1, 2, 2)}):
        eager = transformer(**call)[0]
        compiled = torch.compile(transformer, backend="aot_eager", fullgraph=True)(**call)[0]
    torch.testing.assert_close(compiled, eager, rtol=0, atol=2**-18 * eager.abs().max().item())


def test_compiled_with_dense_steps_it_takes_two_forms():
    transformer = tiny_transformer(num_layers=1)
    compiled = torch.compile(transformer, backend="aot_eager")
    with torch.no_grad(), boost.boosted(transformer, {"sparsity": 0.5, "tile": (1, 2, 2), "dense_steps": 1}):
        for timestep in (900.0, 600.0, 300.0, 900.0):
            call = inputs_of(transformer) | {"timestep": torch.tensor([timestep])}
            actual, expected = compiled(**call)[0], transformer(**call)[0]
            torch.testing.assert_close(actual, expected, rtol=0, atol=2**-18 * expected.abs().max().item())


def test_what_does_not_fit_is_named():
    transformer = tiny_transformer()
    with pytest.raises(ValueError, match="dense_blocks: expected fewer than the 2 blocks of transformer, got 2"):
        boost.boost(transformer, {"dense_blocks": 2})
    transformer.rope.freqs_cos[1, 2] += 0.1
    with pytest.raises(ValueError, match="transformer.rope: expected the rotary tables of theta 10000"):
        boost.boost(transformer)
    transformer = tiny_transformer()
    transformer.blocks[1].attn2.processor = object()
    with pytest.raises(
        ValueError, match=r"transformer.blocks\[1\].attn2.processor: expected a WanAttnProcessor, got obj"
    ):
        boost.boost(transformer)
    transformer = tiny_transformer()
    transformer.blocks[0].forward = transformer.blocks[0].forward
    with pytest.raises(ValueError, match=r"transformer.blocks\[0\].forward: has been replaced"):
        boost.boost(transformer)
    with pytest.raises(ValueError, match="transformer: expected its parameters on the CPU, got meta"):
        boost.boost(tiny_transformer().to("meta"))


def test_a_copy_of_a_boosted_model_runs_boosted_by_itself():
    transformer = tiny_transformer()
    call = inputs_of(transformer)
    config = {"sparsity": 0.5, "tile": (1, 2, 2), "dense_steps": 1}
    with torch.no_grad(), boost.boosted(transformer, config):
        copies = [copy.deepcopy(transformer), pickle.loads(pickle.dumps(transformer))]
        steps = [call | {"timestep": torch.tensor([timestep])} for timestep in (900.0, 600.0)]
        expected = [transformer(**step)[0] for step in steps]
        for copied in copies:  # The first of its own steps is dense, whichever step the original is at.
            assert all(torch.equal(copied(**step)[0], wanted) for step, wanted in zip(steps, expected, strict=True))
        for parameter in copies[0].parameters():
            parameter.zero_()
        assert torch.count_nonzero(copies[0](**call)[0]) == 0
        assert torch.equal(transformer(**steps[1])[0], expected[1])
    with pytest.raises(ValueError, match="transformer: is a copy of a boosted model, which stays boosted"):
        boost.boost(copies[1])
