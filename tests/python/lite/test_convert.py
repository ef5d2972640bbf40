"""convert(): what it writes equals the source, and what it cannot write it names."""

import pathlib

import pytest
import torch
from lite.decoders import llama_decoder, tour_decoder
from quincunx.lite import Session, Source, TokenizerFile, convert

LENGTH = 64


def mlp() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.GELU(), torch.nn.Dropout(0.5), torch.nn.Linear(12, 3))


def test_a_plain_module_gives_the_same_values_for_every_size(tmp_path):
    module = mlp()
    rows = torch.export.Dim("rows", min=2, max=100)
    report = convert(module, (torch.randn(4, 6),), output=tmp_path / "m.qxm", dynamic_shapes=({0: rows},))
    session = Session(tmp_path / "m.qxm")
    for count in (2, 3, 100):
        x = torch.randn(count, 6)
        (y,) = session.run(x)
        torch.testing.assert_close(y, module.eval()(x), rtol=1e-5, atol=1e-6)
    assert report.methods == {"forward": 2}  # dropout is gone, gelu an epilogue
    assert report.size_bytes == (tmp_path / "m.qxm").stat().st_size > report.weight_bytes > 0
    assert 0 <= report.max_error < 1e-5


def test_the_module_keeps_its_training_mode(tmp_path):
    module = mlp().train()
    convert(module, (torch.randn(4, 6),), output=tmp_path / "m.qxm")
    assert module.training


def test_an_exported_program_and_its_file_convert_alike(tmp_path):
    module, x = mlp().eval(), torch.randn(4, 6)
    program = torch.export.export(module, (x,))
    torch.export.save(program, tmp_path / "m.pt2")
    convert(program, (x,), output=tmp_path / "a.qxm")
    convert(tmp_path / "m.pt2", output=tmp_path / "b.qxm")
    expected = module(x)
    for name in ("a.qxm", "b.qxm"):
        (y,) = Session(tmp_path / name).run(x)
        torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-6)


def test_a_function_of_a_file_is_called(tmp_path):
    source = tmp_path / "make.py"
    source.write_text(
        "import torch\n"
        "def build():\n"
        "    return torch.nn.Linear(2, 2), (torch.zeros(3, 2),), ({0: torch.export.Dim('rows', min=2, max=9)},)\n"
    )
    convert(f"{source}:build", output=tmp_path / "m.qxm")
    (y,) = Session(tmp_path / "m.qxm").run(torch.zeros(7, 2))
    assert y.shape == (7, 2)


@pytest.mark.parametrize("build", [tour_decoder, llama_decoder], ids=["tour", "llama"])
def test_a_decoder_gives_the_logits_of_the_whole_text(build, tmp_path):
    model = build()
    if build is llama_decoder:
        model.save_pretrained(tmp_path / "folder")
        convert(tmp_path / "folder", output=tmp_path / "m.qxm", max_length=LENGTH)
        logits_of = lambda tokens: model(tokens).logits  # noqa: E731
    else:
        convert(
            model, (torch.zeros(1, 7, dtype=torch.int64),), output=tmp_path / "m.qxm", kind="decoder", max_length=LENGTH
        )
        logits_of = model
    session = Session(tmp_path / "m.qxm")
    tokens = torch.randint(0, 64, (1, LENGTH), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        expected = logits_of(tokens)
    for begin, end in ((0, 1), (1, 2), (2, 20), (20, 21), (21, LENGTH)):
        method = "decode" if end - begin == 1 else "prefill"
        (ours,) = session.run(tokens[:, begin:end], torch.tensor(begin), method=method)
        torch.testing.assert_close(ours, expected[:, end - 1 : end], rtol=1e-4, atol=1e-5)


def test_methods_share_their_weights(tmp_path):
    model = tour_decoder()
    report = convert(
        model, (torch.zeros(1, 7, dtype=torch.int64),), output=tmp_path / "m.qxm", kind="decoder", max_length=LENGTH
    )
    assert set(report.methods) == {"prefill", "decode"}
    assert report.size_bytes < 1.5 * report.weight_bytes + 100_000


def test_progress_names_the_steps(tmp_path):
    steps: list[str] = []
    convert(mlp(), (torch.randn(4, 6),), output=tmp_path / "m.qxm", progress=steps.append)
    assert [step.split()[0] for step in steps] == ["exporting", "importing", "fusing", "comparing", "writing"]


# What cannot be converted


class Mixing(torch.nn.Module):
    """A decoder with something that looks at other tokens."""

    def __init__(self, mix):
        super().__init__()
        self.inner = tour_decoder()
        self.mix = mix

    def forward(self, tokens):
        return self.mix(self.inner(tokens))


@pytest.mark.parametrize(
    ("mix", "message"),
    [
        (lambda x: x.cumsum(1), "works along the tokens"),
        (lambda x: x - x.mean(1, keepdim=True), "takes some of the tokens, or joins all"),
        (lambda x: x.flip(1), "works along the tokens"),
        (lambda x: x.softmax(1), "works along the tokens"),
    ],
)
def test_a_decoder_that_mixes_tokens_is_refused_by_node(mix, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        convert(
            Mixing(mix),
            (torch.zeros(1, 7, dtype=torch.int64),),
            output=tmp_path / "m.qxm",
            kind="decoder",
            max_length=LENGTH,
        )
    assert not (tmp_path / "m.qxm").exists()


class Unknown(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.inv(x)


def test_an_operator_that_the_runtime_lacks_is_named_with_its_node(tmp_path):
    with pytest.raises(NotImplementedError, match="linalg_inv"):
        convert(Unknown(), (torch.eye(3),), output=tmp_path / "m.qxm")
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_conversion_is_not_written(tmp_path, monkeypatch):
    """The check compares with the source: a source that changes its mind is caught."""

    class Fickle(torch.nn.Module):
        calls = 0

        def forward(self, x):
            Fickle.calls += 1
            return x + (0.0 if Fickle.calls == 1 else 1.0)

    with pytest.raises(ValueError, match="differs from the source by 1"):
        convert(Fickle(), (torch.zeros(2),), output=tmp_path / "m.qxm")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"output": "m.onnx"}, ValueError, "ends in .qxm"),
        ({"output": "no_such_folder/m.qxm"}, FileNotFoundError, "no folder"),
        ({"kind": "classifier"}, ValueError, "plain, decoder, encoder"),
        ({"kind": "decoder"}, ValueError, "max_length"),
        ({"kind": "decoder", "max_length": 1}, ValueError, "max_length"),
        ({"tokenizer": "tokenizer.txt"}, ValueError, "tokenizer.json or a SentencePiece"),
        ({"tokenizer": "no_such/tokenizer.json"}, FileNotFoundError, "tokenizer.json"),
        ({"example_inputs": None}, ValueError, "example_inputs"),
        ({"example_inputs": torch.zeros(2, 6)}, ValueError, "example_inputs"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {"example_inputs": (torch.zeros(2, 6),), "output": "m.qxm"} | arguments
    with pytest.raises(error, match=message):
        convert(mlp(), given.pop("example_inputs"), **given)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("no_such_model", FileNotFoundError, "recipe"),
        ("no_such.py:make", FileNotFoundError, "no file"),
        ("empty", FileNotFoundError, "config.json"),
        ("odd", NotImplementedError, "OddModel"),
        ("broken", ValueError, "not JSON"),
        ("weightless", FileNotFoundError, "safetensors"),
        ("made.py:other", ValueError, "no function 'other'"),
        ("made.py:wrong", ValueError, "returned a int"),
        ("torn.pt2", ValueError, "cannot read"),
    ],
)
def test_wrong_sources_are_named(name, error, message, tmp_path):
    for folder, config in (
        ("empty", None),
        ("odd", '{"architectures": ["OddModel"]}'),
        ("broken", "{"),
        ("weightless", '{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}'),
    ):
        (tmp_path / folder).mkdir()
        if config is not None:
            (tmp_path / folder / "config.json").write_text(config)
    (tmp_path / "made.py").write_text("def wrong():\n    return 3\n")
    (tmp_path / "torn.pt2").write_bytes(b"PK\x03\x04 torn")
    path = name if name == "no_such_model" else str(tmp_path / name)
    with pytest.raises(error, match=message):
        convert(path, output=tmp_path / "m.qxm")


def test_a_source_carries_its_tokenizer(tmp_path):
    path = pathlib.Path(tmp_path / "tokenizer.json")
    path.write_text("{}")
    source = Source(mlp(), (torch.zeros(2, 6),), tokenizer=TokenizerFile.read(path))
    assert source.tokenizer.format == "json"
    report = convert(source, output=tmp_path / "m.qxm")
    assert report.methods == {"forward": 2}


def test_an_old_file_survives_a_failed_conversion(tmp_path):
    output = tmp_path / "m.qxm"
    convert(mlp(), (torch.zeros(2, 6),), output=output)
    before = output.read_bytes()
    with pytest.raises(NotImplementedError):
        convert(Unknown(), (torch.eye(3),), output=output)
    assert output.read_bytes() == before


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_types_are_checked_by_what_they_can_hold(dtype, tmp_path):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)).to(dtype).eval()
    x = torch.randn(5, 64).to(dtype)
    report = convert(module, (x,), output=tmp_path / "narrow.qxm")
    (y,) = Session(tmp_path / "narrow.qxm").run(x)
    expected = module.double()(x.double())
    assert float((y.double() - expected).abs().max()) < 8 * torch.finfo(dtype).eps * float(expected.abs().max())
    assert report.max_error < 16 * torch.finfo(dtype).eps
