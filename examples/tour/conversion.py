"""The tour's conversion: the trained model becomes model.qxm, and the C++ program writes what PyTorch writes."""

import dataclasses
import json
import pathlib
from collections.abc import Callable

import generate
import torch
import watched
from guards import GuardError
from program import qx_program
from quincunx.lite.convert import ConvertReport, convert
from quincunx.report import Report
from settings import Settings
from text import Corpus

_EXAMPLE_TOKENS = 16


@dataclasses.dataclass(frozen=True)
class Generated:
    """What the program wrote after a prompt, with the files that it had mapped: by itself and by us."""

    prompt: str
    expected_tokens: list[int]
    tokens: list[int]
    text: str
    prefill_ms: float
    decode_ms: float
    mapped: frozenset[str]
    num_looks: int


@dataclasses.dataclass(frozen=True)
class Conversion:
    report: ConvertReport
    generated: list[Generated]


def convert_model(
    run: pathlib.Path, settings: Settings, corpus: Corpus, progress: Callable[[str], None]
) -> ConvertReport:
    model = generate.load(run / "checkpoints", settings.model)
    example = torch.ones(1, _EXAMPLE_TOKENS, dtype=torch.int64)
    return convert(
        model,
        (example,),
        output=run / "model.qxm",
        kind="decoder",
        max_length=settings.converted_max_length,
        tokenizer=corpus.tokenizer_path,
        progress=progress,
    )


def write_texts(run: pathlib.Path, qxm: pathlib.Path, settings: Settings, corpus: Corpus) -> list[Generated]:
    """Greedy continuations of the tour's prompts: by PyTorch in this process, and by `qx run` in one of its own."""
    model, tokenizer = generate.load(run / "checkpoints", settings.model), corpus.tokenizer()
    result = []
    for prompt in generate.PROMPTS:
        expected = generate.continuation(
            model, tokenizer.encode(prompt), num_tokens=settings.sample_tokens, temperature=0.0, generator=None
        )
        command = [*generating_command(qxm), "--prompt", prompt, "--max-tokens", str(settings.sample_tokens), "--json"]
        outcome = watched.run(command, timeout_s=settings.deadline_s)
        found = json.loads(outcome.output)
        result.append(
            Generated(
                prompt=prompt,
                expected_tokens=expected,
                tokens=found["tokens"],
                text=found["text"],
                prefill_ms=found["prefill_ms"],
                decode_ms=found["decode_ms"],
                mapped=outcome.mapped | frozenset(found["mapped_files"]),
                num_looks=outcome.num_looks,
            )
        )
    return result


def run(directory: pathlib.Path, settings: Settings, corpus: Corpus, progress: Callable[[str], None]) -> Conversion:
    report = convert_model(directory, settings, corpus, progress)
    return Conversion(report, write_texts(directory, report.output, settings, corpus))


def generating_command(qxm: pathlib.Path) -> list[str]:
    return [str(qx_program()), "run", str(qxm)]


def _first_difference(a: list[int], b: list[int]) -> int:
    differing = (place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    return next(differing, min(len(a), len(b)))


def check(generated: list[Generated]) -> None:
    """Token for token PyTorch's, and without any file of Python's in the process."""
    if not generated:
        raise GuardError("guard: the C++ program wrote no text")
    for text in generated:
        if text.tokens != text.expected_tokens:
            place = _first_difference(text.tokens, text.expected_tokens)
            raise GuardError(
                f"guard: after {text.prompt!r} the C++ program wrote {len(text.tokens)} tokens, PyTorch "
                f"{len(text.expected_tokens)}; they differ from token {place} on: {text.tokens[place : place + 5]} and "
                f"{text.expected_tokens[place : place + 5]}"
            )
        if not text.mapped or text.num_looks == 0:
            raise GuardError(f"guard: nobody saw which files the process mapped that wrote after {text.prompt!r}")
        if python := watched.of_python(text.mapped):
            raise GuardError(f"guard: the generating process had mapped Python: {python[:5]}")


def tokens_per_second(generated: list[Generated]) -> float:
    return sum(len(text.tokens) for text in generated) / max(1e-9, sum(text.decode_ms for text in generated) / 1e3)


def add_to(report: Report, conversion: Conversion) -> None:
    report.add_section(
        "Without Python",
        f"The trained model was converted to model.qxm ({conversion.report.size_bytes / 1e6:.1f} MB, "
        f"{', '.join(f'{name} with {nodes} nodes' for name, nodes in conversion.report.methods.items())}). The C++ "
        "program `qx run` wrote these texts, token for token what PyTorch writes with the same weights, at "
        f"{tokens_per_second(conversion.generated):,.0f} tokens a second on one thread.",
    )
    for text in conversion.generated:
        report.add_sample(given=text.prompt, text=text.text.rstrip(), note="greedy, by qx run")
    files = sorted({pathlib.Path(path).name for text in conversion.generated for path in text.mapped})
    report.add_table(
        ["files that the generating processes had mapped"],
        [(name,) for name in files],
        caption="Seen by the processes themselves, and from outside while they ran.",
    )
