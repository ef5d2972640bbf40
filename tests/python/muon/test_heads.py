"""quincunx.muon.heads: which linear layers are output heads."""

import pytest
from quincunx.muon.heads import output_heads
from torch import nn


def named_heads(model: nn.Module) -> set[str]:
    heads = output_heads(model)
    return {name for name, module in model.named_modules() if module in heads}


def linear(inputs: int = 4, outputs: int = 4) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


def block(width: int, **more: nn.Module) -> nn.ModuleDict:
    layers = {"output": linear(width, width), "up": linear(width, 4 * width), "down": linear(4 * width, width)}
    return nn.ModuleDict({"attention": nn.ModuleDict({"output": linear(width, width)}), **layers, **more})


@pytest.mark.parametrize("name", ["head", "heads", "output", "output_layer", "classifier", "score", "fc", "lm_head"])
def test_names_count_at_the_top(name):
    model = nn.ModuleDict({"body": linear(), "more": linear(), name: linear(4, 3)})
    assert named_heads(model) == {name}
    assert name in output_heads(model)[model[name]]


@pytest.mark.parametrize("name", ["lm_head", "unembed", "unembedding", "embed_out"])
def test_names_that_mean_nothing_else_count_anywhere(name):
    model = nn.ModuleDict({"body": linear(), "decoder": nn.ModuleDict({"mix": linear(), name: linear(4, 3)})})
    assert named_heads(model) == {f"decoder.{name}"}


def test_outputs_of_inner_layers_are_hidden():
    model = nn.ModuleDict({"layers": nn.ModuleList(block(4) for _ in range(2)), "norm": nn.LayerNorm(4)})
    model["output"] = linear(4, 3)
    assert named_heads(model) == {"output"}


def test_names_count_under_wrappers():
    model = nn.ModuleDict({"body": block(4), "output": linear(4, 3)})
    wrapped = nn.ModuleDict({"module": nn.ModuleDict({"_orig_mod": model})})
    assert named_heads(wrapped) == {"module._orig_mod.output"}


def test_the_last_layer_of_a_named_part_is_the_head():
    model = nn.ModuleDict({"body": linear(), "classifier": nn.Sequential(linear(), nn.ReLU(), linear(4, 3))})
    assert named_heads(model) == {"classifier.2"}


def test_a_row_for_each_entry_of_the_embedding_makes_a_head():
    model = nn.ModuleDict({"embed": nn.Embedding(11, 4), "body": block(4), "predict": linear(4, 11)})
    assert named_heads(model) == {"predict"}
    assert output_heads(model)[model["predict"]] == "output head: as many rows as embed has entries"


def test_several_heads_over_one_vocabulary():
    predict = nn.ModuleList(linear(4, 11) for _ in range(3))
    model = nn.ModuleDict({"embed": nn.Embedding(11, 4), "body": block(4), "predict": predict})
    assert named_heads(model) == {"predict.0", "predict.1", "predict.2"}


def test_as_many_positions_as_the_width_make_no_head():
    model = nn.ModuleDict({"tokens": nn.Embedding(50, 8), "positions": nn.Embedding(8, 8)})
    model["blocks"] = nn.ModuleList(block(8) for _ in range(2))
    model["predict"] = linear(8, 50)
    assert named_heads(model) == {"predict"}


def test_a_vocabulary_of_the_hidden_width_leaves_the_last_layer_alone():
    model = nn.ModuleDict(
        {"tokens": nn.Embedding(32, 8), "blocks": nn.ModuleList([block(8)]), "predict": linear(8, 32)}
    )
    assert named_heads(model) == {"predict"}


def test_layers_repeated_over_blocks_are_hidden():
    blocks = nn.ModuleList(block(8, fused=linear(8, 24)) for _ in range(2))
    model = nn.ModuleDict({"tokens": nn.Embedding(24, 8), "blocks": blocks, "predict": linear(8, 24)})
    assert named_heads(model) == {"predict"}


def test_models_without_linear_layers_have_none():
    assert output_heads(nn.Embedding(3, 4)) == {}
