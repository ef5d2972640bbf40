"""Generation by the `qx` program and from Python: the same tokens as PyTorch, without Python in the process."""

import io
import json
import os
import pathlib
import subprocess

import pytest
import sentencepiece
import torch
from lite.decoders import greedy, llama_decoder, tour_decoder, train_briefly
from quincunx.lite import Session, Tokenizer, convert, generate

ROOT = pathlib.Path(__file__).resolve().parents[3]
QX = pathlib.Path(os.environ.get("QUINCUNX_BUILD_DIR", ROOT / "build" / "release")) / "bin" / "qx"
pytestmark = pytest.mark.skipif(not QX.exists(), reason=f"no {QX}")

LENGTH = 128
COUNT = 80
PROMPT = [3, 14, 15, 9, 26, 5]
EXAMPLE = (torch.zeros(1, 7, dtype=torch.int64),)


def qx(*arguments: object, text: bool = True) -> subprocess.CompletedProcess:
    return subprocess.run([QX, *map(str, arguments)], capture_output=True, text=text, timeout=60)


def qx_json(*arguments: object) -> dict:
    done = qx(*arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    return tmp_path_factory.mktemp("generate")


@pytest.fixture(scope="module")
def tour(folder):
    """A decoder of bytes that was trained for some steps, with a SentencePiece tokenizer of bytes and its file."""
    text = (ROOT / "CONTRIBUTING.md").read_bytes() * 2
    model_file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text.decode().splitlines()),
        model_writer=model_file,
        model_type="bpe",
        vocab_size=400,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=False,
        user_defined_symbols=["\n"],
        num_threads=1,
        minloglevel=2,
    )
    (folder / "tokenizer.model").write_bytes(model_file.getvalue())
    model = tour_decoder(vocab_size=400)
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=model_file.getvalue())
    tokens = torch.tensor(tokenizer.encode(text.decode()))
    train_briefly(model, tokens, steps=60)
    path = folder / "tour.qxm"
    convert(model, EXAMPLE, output=path, kind="decoder", max_length=LENGTH, tokenizer=folder / "tokenizer.model")
    return model, tokenizer, path


@pytest.fixture(scope="module")
def llama(folder):
    model = llama_decoder()
    model.save_pretrained(folder / "llama")
    convert(folder / "llama", output=folder / "llama.qxm", max_length=LENGTH)
    return model, folder / "llama.qxm"


def test_random_weights_give_pytorchs_greedy_tokens(llama):
    model, path = llama
    expected = greedy(lambda tokens: model(tokens).logits, PROMPT, COUNT)
    prompt = ",".join(map(str, PROMPT))
    found = qx_json("run", path, "--prompt-tokens", prompt, "--max-tokens", COUNT, "--json")
    assert found["tokens"] == expected
    assert len(set(expected)) > 5  # not one token again and again
    assert found["stop_reason"] == "max_tokens" and found["prompt_tokens"] == len(PROMPT)


@pytest.mark.parametrize("prompt", ["The ", "Run `make", "\n", "caf\u00e9 \U0001f600"])
def test_a_trained_model_gives_pytorchs_greedy_text(tour, prompt):
    model, tokenizer, path = tour
    expected = greedy(model, tokenizer.encode(prompt), COUNT)
    found = qx_json("run", path, "--prompt", prompt, "--max-tokens", COUNT, "--json")
    assert found["tokens"] == expected
    assert found["text"] == tokenizer.decode(expected)


def test_the_text_is_streamed_to_the_same_text(tour):
    _, _, path = tour
    done = qx("run", path, "--prompt", "The ", "--max-tokens", 20)
    found = qx_json("run", path, "--prompt", "The ", "--max-tokens", 20, "--json")
    assert done.stdout == found["text"] + "\n"
    assert "new tokens at" in done.stderr


def test_no_python_and_no_torch_are_mapped(tour):
    _, _, path = tour
    files = qx_json("run", path, "--prompt", "The ", "--max-tokens", 2, "--json")["mapped_files"]
    assert any("libquincunx_runtime" in file for file in files)
    wrong = [file for file in files if "python" in pathlib.Path(file).name.lower() or "torch" in file.lower()]
    assert wrong == []


def test_python_generates_the_same_tokens(llama):
    model, path = llama
    expected = greedy(lambda tokens: model(tokens).logits, PROMPT, 16)
    session = Session(path)
    seen: list[int] = []
    found = generate(session, PROMPT, max_tokens=16, on_token=seen.append)
    assert found.tokens == seen == expected
    # The caches of an earlier text do not matter.
    assert generate(session, PROMPT, max_tokens=16).tokens == expected


def test_a_callback_ends_a_generation_and_its_exception_is_raised(llama):
    _, path = llama
    session = Session(path)
    found = generate(session, PROMPT, max_tokens=16, on_token=lambda token: False)
    assert len(found.tokens) == 1 and found.stop_reason == "callback"

    def fail(token):
        raise KeyError(token)

    with pytest.raises(KeyError):
        generate(session, PROMPT, on_token=fail)
    with pytest.raises(TypeError, match="on_token"):
        generate(session, PROMPT, on_token=lambda token: "no")


def test_a_generation_ends_at_stop_tokens_and_where_the_caches_are_full(llama):
    _, path = llama
    session = Session(path)
    free = generate(session, PROMPT, max_tokens=1000)
    assert free.stop_reason == "full_cache" and len(free.tokens) == LENGTH - len(PROMPT) + 1
    stop = free.tokens[7]
    stopped = generate(session, PROMPT, stop_tokens=[stop])
    assert stopped.tokens == free.tokens[: free.tokens.index(stop)] and stopped.stop_reason == "stop_token"


def test_sampling_follows_the_seed(llama):
    _, path = llama
    session = Session(path)
    options = {"max_tokens": 30, "temperature": 1.0}
    first = generate(session, PROMPT, seed=1, **options).tokens
    assert generate(session, PROMPT, seed=1, **options).tokens == first
    assert generate(session, PROMPT, seed=2, **options).tokens != first
    greedy_tokens = generate(session, PROMPT, max_tokens=30).tokens
    assert generate(session, PROMPT, seed=5, top_k=1, **options).tokens == greedy_tokens
    assert generate(session, PROMPT, seed=5, top_p=1e-6, **options).tokens == greedy_tokens
    drawn = qx_json(
        "run", path, "--prompt-tokens", ",".join(map(str, PROMPT)), "--max-tokens", 30, "--temperature", 1.0,
        "--seed", 1, "--json",
    )  # fmt: skip
    assert drawn["tokens"] == first


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"prompt": []}, ValueError, "prompt has no tokens"),
        ({"prompt": [64]}, ValueError, r"prompt\[0\] is 64, expected 0 to 63"),
        ({"prompt": [-1]}, ValueError, r"prompt\[0\]"),
        ({"prompt": [1] * (LENGTH + 1)}, ValueError, "expected at most 128"),
        ({"max_tokens": 0}, ValueError, "max_tokens is 0"),
        ({"temperature": -1.0}, ValueError, "temperature"),
        ({"temperature": float("nan")}, ValueError, "temperature"),
        ({"top_k": -1}, ValueError, "top_k"),
        ({"top_p": 0.0}, ValueError, "top_p"),
        ({"timeout_s": -1.0}, TimeoutError, "deadline"),
    ],
)
def test_wrong_arguments_are_named(options, error, message, llama):
    session = Session(llama[1])
    with pytest.raises(error, match=message):
        generate(session, options.pop("prompt", PROMPT), **options)


def test_qx_says_what_is_wrong(llama, tour, folder):
    _, llama_path = llama
    plain = folder / "plain.qxm"
    convert(torch.nn.Linear(2, 2), (torch.zeros(3, 2),), output=plain)
    torn = folder / "torn.qxm"
    torn.write_bytes(tour[2].read_bytes()[:5000])
    for arguments, message in (
        (("run", llama_path, "--prompt", "x"), "holds no tokenizer"),
        (("run", llama_path, "--prompt-tokens", "1,,2"), "expected numbers separated by commas"),
        (("run", llama_path, "--prompt-tokens", "1", "--prompt", "x"), "expected one of them"),
        (("run", llama_path, "--prompt-tokens", ""), "--prompt-tokens is ''"),
        (("run", llama_path, "--prompt-tokens", "1", "--timeout", "nan"), "timeout_s is nan"),
        (("run", llama_path, "--prompt-tokens", "1", "--timeout", "-1"), "--timeout is -1"),
        (("run", plain, "--prompt-tokens", "1"), "prefill"),
        (("run", tour[2], "--text", "x"), "encode"),
        (("run", tour[2], "--prompt", "x" * 2000), "expected at most 128"),
        (("run", tour[2], "--prompt", "x", "--top-p", "2"), "top_p is 2"),
        (("run", folder / "none.qxm", "--prompt", "x"), "none.qxm"),
        (("run", torn, "--prompt", "x"), "torn.qxm"),
    ):
        done = qx(*arguments)
        assert done.returncode == 1 and message in done.stderr, (arguments, done.stderr)
        assert done.stdout == ""


def test_a_session_that_is_none_is_refused():
    with pytest.raises(TypeError, match="session"):
        generate("model.qxm", [1])


def test_the_tokenizer_of_a_file_is_pythons(tour):
    _, tokenizer, path = tour
    ours = Tokenizer.from_sentencepiece(path.parent / "tokenizer.model")
    assert ours.encode("The end") == tokenizer.encode("The end")


def test_token_ids_too_end_at_the_models_stop_tokens(llama, folder):
    model, _ = llama
    free = greedy(lambda tokens: model(tokens).logits, PROMPT, COUNT)
    stop = free[4]
    convert(folder / "llama", output=folder / "stops.qxm", max_length=LENGTH, stop_tokens=[stop])
    prompt = ",".join(map(str, PROMPT))
    found = qx_json("run", folder / "stops.qxm", "--prompt-tokens", prompt, "--max-tokens", COUNT, "--json")
    assert found["tokens"] == free[: free.index(stop)] and found["stop_reason"] == "stop_token"
