"""Fused regions: converted models hold them, and give what PyTorch gives."""

import copy
import json
import os
import pathlib
import subprocess

import pytest
import torch
from lite.decoders import greedy, llama_decoder, qwen_decoder, tour_decoder
from quincunx._graph import load_core
from quincunx._library import library_directory
from quincunx.cli import convert as convert_verb
from quincunx.lite import Session, convert, generate
from quincunx.lite.source import read_source

ROOT = pathlib.Path(__file__).resolve().parents[3]
QX = pathlib.Path(os.environ.get("QUINCUNX_BUILD_DIR", ROOT / "build" / "release")) / "bin" / "qx"
LENGTH = 48
PROMPT = [3, 14, 15, 9, 26, 5]
EXAMPLE = (torch.zeros(1, 7, dtype=torch.int64),)
DECODERS = {
    "tour": tour_decoder,
    "llama": llama_decoder,
    "qwen2": lambda: qwen_decoder(2),
    "qwen3": lambda: qwen_decoder(3),
}
# The order of sums differs from PyTorch's: single logits are better here and worse there by chance, so that root mean
# squares over all of them are compared.
ERROR_RATIO = 2.0


def root_mean_square(error: torch.Tensor) -> float:
    return float(error.double().square().mean().sqrt())


def num_regions(path: pathlib.Path) -> dict[str, int]:
    """Method -> number of tile programs in the file."""
    methods = load_core().open_qxm(str(path)).methods
    return {method.name: str(method).count("= qx.tile(") for method in methods}


def convert_decoder(name: str, model: torch.nn.Module, folder: pathlib.Path, **options) -> pathlib.Path:
    output = folder / f"{name}.qxm"
    if name == "tour":
        convert(model, EXAMPLE, output=output, kind="decoder", max_length=LENGTH, **options)
    else:
        model.save_pretrained(folder / name)
        convert(folder / name, output=output, max_length=LENGTH, **options)
    return output


def logits_of(model: torch.nn.Module):
    return lambda tokens: getattr(found := model(tokens), "logits", found)


@pytest.fixture(scope="module", params=DECODERS)
def decoder(request, tmp_path_factory):
    model = DECODERS[request.param]()
    return request.param, model, convert_decoder(request.param, model, tmp_path_factory.mktemp(request.param))


def test_a_decoder_has_regions_in_every_layer(decoder):
    _, _, path = decoder
    counts = num_regions(path)
    assert set(counts) == {"prefill", "decode"}
    assert min(counts.values()) >= 2 * 2, counts


def test_a_decoder_with_regions_generates_pytorchs_tokens(decoder):
    _, model, path = decoder
    tokens = generate(Session(path), PROMPT, max_tokens=LENGTH - len(PROMPT)).tokens
    assert tokens == greedy(logits_of(model), PROMPT, LENGTH - len(PROMPT))


@torch.no_grad()
def test_a_decoders_error_is_at_most_twice_that_of_eager(decoder):
    _, model, path = decoder
    tokens = torch.randint(0, 64, (1, LENGTH), generator=torch.Generator().manual_seed(5))
    exact = logits_of(copy.deepcopy(model).double())(tokens)
    eager = logits_of(model)(tokens)
    session = Session(path)
    ours = [session.run(tokens[:, : LENGTH - 8], torch.tensor(0), method="prefill")[0]]
    for end in range(LENGTH - 8, LENGTH):
        ours.append(session.run(tokens[:, end : end + 1], torch.tensor(end), method="decode")[0])
    rows = slice(LENGTH - 9, LENGTH)
    error = root_mean_square(torch.cat(ours, dim=1) - exact[:, rows])
    assert error <= ERROR_RATIO * root_mean_square((eager - exact)[:, rows])


def test_regions_can_be_switched_off(tmp_path):
    model = tour_decoder()
    assert max(num_regions(convert_decoder("tour", model, tmp_path, regions=False)).values()) == 0
    source = tmp_path / "make.py"
    source.write_text(
        "import torch\n"
        "class Gate(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return torch.tanh(x) * x + 1\n"
        "def build():\n"
        "    return Gate(), (torch.zeros(3, 2),)\n"
    )
    for arguments, count in (([], 1), (["--no-regions"], 0)):
        assert convert_verb.main([f"{source}:build", "-o", str(tmp_path / "m.qxm"), *arguments]) == 0
        assert num_regions(tmp_path / "m.qxm") == {"forward": count}


def test_the_report_counts_the_regions(tmp_path):
    report = convert(
        tour_decoder(), EXAMPLE, output=tmp_path / "m.qxm", kind="decoder", max_length=LENGTH, progress=print
    )
    assert report.regions == num_regions(tmp_path / "m.qxm")


@pytest.mark.needs_build
def test_only_the_library_of_regions_needs_the_compiler():
    """What a deployment loads, and what converts without regions, is linked without it."""
    needed = {}
    for name in ("runtime", "convert", "regions"):
        library = library_directory() / f"libquincunx_{name}.so"
        dump = subprocess.run(["objdump", "-p", library], capture_output=True, text=True, check=True).stdout
        needed[name] = [line.split()[1] for line in dump.splitlines() if "NEEDED" in line]
    assert "libquincunx_compiler.so" in needed["regions"]
    for name in ("runtime", "convert"):
        assert not [library for library in needed[name] if "compiler" in library or "LLVM" in library], needed[name]


@pytest.mark.skipif(not QX.exists(), reason=f"no {QX}")
def test_inspect_shows_the_regions(decoder):
    _, _, path = decoder
    done = subprocess.run([QX, "inspect", path, "--json"], capture_output=True, text=True, timeout=60, check=True)
    for method in json.loads(done.stdout)["methods"]:
        assert method["operators"]["qx.tile"] == num_regions(path)[method["name"]] == len(method["regions"])
        assert all(region["program"].startswith("tile 1\n") and region["name"] for region in method["regions"])
    text = subprocess.run([QX, "inspect", path], capture_output=True, text=True, timeout=60, check=True).stdout
    assert "tile 1" in text


@torch.no_grad()
def test_minilm_with_regions_gives_pytorchs_embeddings(tmp_path):
    report = convert("all-minilm-l6-v2", output=tmp_path / "m.qxm")
    assert report.regions["encode"] >= 3
    assert num_regions(tmp_path / "m.qxm") == report.regions
    module = read_source("all-minilm-l6-v2").module
    tokens = torch.randint(1000, 30000, (3, 40), generator=torch.Generator().manual_seed(2))
    mask = (torch.arange(40) < torch.tensor([40, 17, 1])[:, None]).long()
    exact = copy.deepcopy(module).double()(tokens, mask)
    eager = module(tokens, mask)
    (ours,) = Session(tmp_path / "m.qxm").run(tokens, mask)
    torch.testing.assert_close(ours, eager, rtol=0, atol=1e-5)
    assert root_mean_square(ours - exact) <= ERROR_RATIO * root_mean_square(eager - exact)
