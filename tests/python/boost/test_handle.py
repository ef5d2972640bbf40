"""boost, boosted and the handle: once, reversible whatever happens, and explained."""

import pytest
import torch
from boost.tiny_wan import everything_in, inputs_of, tiny_pipeline, tiny_transformer
from quincunx import boost


def test_an_exception_inside_undoes_too():
    transformer = tiny_transformer()
    before = everything_in(transformer)
    with pytest.raises(KeyError, match="mine"), boost.boosted(transformer):
        raise KeyError("mine")
    assert everything_in(transformer) == before


def test_boosting_twice_is_refused_and_the_first_stays():
    pipe = tiny_pipeline()
    with boost.boosted(pipe) as first:
        inside = everything_in(pipe.transformer)
        for again in (pipe, pipe.transformer):
            with pytest.raises(ValueError, match=r"pipe: is boosted already \(rope of a WanTr.*undo that first"):
                boost.boost(again)
        assert everything_in(pipe.transformer) == inside
        assert first.is_active
    boost.boost(pipe).undo()


def test_undoing_twice_is_refused():
    handle = boost.boost(tiny_transformer())
    handle.undo()
    with pytest.raises(RuntimeError, match="undo: this boost has been undone already"):
        handle.undo()


def test_undo_inside_the_context_is_enough():
    transformer = tiny_transformer()
    with boost.boosted(transformer) as handle:
        handle.undo()
    assert not handle.is_active


def test_what_others_changed_meanwhile_stays_and_is_named():
    transformer = tiny_transformer()
    before = everything_in(transformer)
    theirs = object()
    original = transformer.blocks[1].attn1.processor
    handle = boost.boost(transformer)
    transformer.blocks[1].attn1.processor = theirs
    with pytest.raises(RuntimeError, match=r"undo: transformer.blocks\[1\].attn1.processor had been replaced since"):
        handle.undo()
    assert transformer.blocks[1].attn1.processor is theirs
    transformer.blocks[1].attn1.processor = original
    assert everything_in(transformer) == before


def test_explain_tells_parts_options_calls_and_densities():
    transformer = tiny_transformer()
    with boost.boosted(transformer, {"sparsity": 0.5, "tile": (1, 2, 2)}) as handle:
        text = handle.explain()
        assert "boost (active): 7 parts replaced" in text
        assert "transformer.blocks[1].attn2.processor" in text
        assert "sparsity 0.5, rule topk, tile (1, 2, 2)" in text
        assert "calls:\n  none" in text
        with torch.no_grad():
            transformer(**inputs_of(transformer))
    text = handle.explain()
    assert "boost (undone)" in text
    assert "density of transformer.blocks[0]: 0.500 in 1 calls" in text
    assert text.endswith("density of all self-attention: 0.500")
    assert "     2 sparse self-attention" in text


def test_an_unknown_pipeline_is_told_the_supported_ones():
    with pytest.raises(ValueError, match=r"pipe: expected one of .*WanPipeline.*, got Linear; register_model\("):
        boost.boost(torch.nn.Linear(2, 2))
