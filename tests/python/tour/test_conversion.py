"""The guards of the phases after training notice what they watch; test_tour.py switches the phases off in real runs."""

import dataclasses

import compiled
import conversion
import embeddings
import guards
import latency
import pytest
import settings as tour_settings
import torch

SETTINGS = tour_settings.quick()
GOOD = conversion.Generated(
    prompt="a",
    expected_tokens=[1, 2, 3],
    tokens=[1, 2, 3],
    text="b",
    prefill_ms=1.0,
    decode_ms=1.5,
    mapped=frozenset({"/usr/lib/libc.so.6", "/x/bin/qx"}),
    num_looks=3,
)


def test_equal_tokens_without_python_pass():
    conversion.check([GOOD, GOOD])
    assert conversion.tokens_per_second([GOOD, GOOD]) == pytest.approx(2000.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": [1, 5, 3]}, r"differ from token 1 on: \[5, 3\] and \[2, 3\]"),
        ({"tokens": [1, 2]}, r"wrote 2 tokens, PyTorch 3; they differ from token 2 on"),
        ({"tokens": []}, r"wrote 0 tokens"),
        ({"mapped": frozenset()}, "nobody saw which files"),
        ({"mapped": frozenset({"/usr/lib/libpython3.11.so.1.0"})}, "had mapped Python: .*libpython3.11"),
        ({"num_looks": 0}, "nobody saw which files"),
    ],
)
def test_another_text_or_python_is_noticed(change, message):
    with pytest.raises(guards.GuardError, match=message):
        conversion.check([GOOD, dataclasses.replace(GOOD, **change)])


def test_no_text_at_all_is_noticed():
    with pytest.raises(guards.GuardError, match="wrote no text"):
        conversion.check([])


def test_embeddings_are_held_against_pytorch():
    rows = torch.eye(3)
    embeddings.check(embeddings.Embeddings(rows, rows + 0.9e-5))
    with pytest.raises(guards.GuardError, match="differ from PyTorch's by 1.1e-05"):
        embeddings.check(embeddings.Embeddings(rows, rows + 1.1e-5))
    with pytest.raises(guards.GuardError, match="differ from PyTorch's by nan"):
        embeddings.check(embeddings.Embeddings(rows * torch.nan, rows))
    with pytest.raises(guards.GuardError, match=r"gave embeddings \[2, 3\], expected \[3, 3\]"):
        embeddings.check(embeddings.Embeddings(rows[:2], rows))


def test_latencies_count_only_with_right_logits_and_all_engines():
    rows = [{"engine": name, "length": 16, "seconds": 0.1, "error": 1e-6} for name in ("quincunx", "pytorch")]
    latency.check(rows, SETTINGS)
    assert len(latency.draw(rows).data) == 2
    with pytest.raises(guards.GuardError, match=r"latencies are of \['quincunx'\], expected \['pytorch', 'quincunx'\]"):
        latency.check(rows[:1], SETTINGS)
    with pytest.raises(guards.GuardError, match="logits of pytorch for 16 tokens differ from PyTorch's by 0.1"):
        latency.check([rows[0], rows[1] | {"error": 0.1}], SETTINGS)


def test_missing_onnxruntime_names_the_step_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setattr(latency, "_PEERS", tmp_path)
    with pytest.raises(RuntimeError, match="cmake/setup.sh peers"):
        latency.measure(tmp_path, tmp_path / "model.qxm", tour_settings.Settings())


def test_compiled_regions_are_counted_on_every_rank():
    def done(rank, **counted):
        zero = {"regions": 3, "regions_run": 9, "regions_run_by_aten": 0, "refused": {}, "operators_left": {"a": 2}}
        return {"event": "done", "rank": rank, "attempt": 1, "time_s": 0.0, "fusion": zero | counted}

    assert compiled.check([done(0), done(1, operators_left={"b": 1}, refused={"why": 4})]) == {
        "a": 2,
        "a region, because why": 4,
        "b": 1,
    }
    for counted in ({"regions": 0}, {"regions_run": 0}):
        with pytest.raises(guards.GuardError, match="no compiled region ran on rank 1"):
            compiled.check([done(0), done(1, **counted)])
    with pytest.raises(guards.GuardError, match="no compiled region ran on rank 0"):
        compiled.check([done(0) | {"fusion": {}}])
