"""convert(): a PyTorch model becomes a .qxm file that the C++ runtime runs."""

import dataclasses
import os
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import _export
from ._artifact import write_artifact
from ._check import check_methods
from ._regions import fuse_methods
from .source import KINDS, Source, TokenizerFile, read_source
from .tokenizer import load_module

__all__ = ["ConvertReport", "convert"]

MAX_BATCH = 1024


@dataclasses.dataclass(frozen=True)
class ConvertReport:
    """What convert() did. `max_error` is None where nothing was compared."""

    output: pathlib.Path
    size_bytes: int
    weight_bytes: int
    # Method -> number of nodes.
    methods: dict[str, int]
    max_error: float | None
    seconds: float
    # Method -> number of fused regions.
    regions: dict[str, int] = dataclasses.field(default_factory=dict)


def convert(
    source: torch.nn.Module | torch.export.ExportedProgram | Source | str | os.PathLike,
    example_inputs: tuple[Any, ...] | None = None,
    *,
    output: str | os.PathLike,
    dynamic_shapes: Any = None,
    kind: str = "plain",
    max_length: int | None = None,
    tokenizer: str | os.PathLike | TokenizerFile | None = None,
    stop_tokens: Sequence[int] = (),
    regions: bool = True,
    check: bool = True,
    progress: Callable[[str], None] | None = None,
) -> ConvertReport:
    """Writes `source` as a .qxm file and says what it did.

    `source` is a module or an ExportedProgram with `example_inputs` (and `dynamic_shapes` as torch.export takes them),
    or what `qx convert` takes: "FILE.py:FUNCTION", a .pt2 file, a folder in the published layout, a recipe's name.
    `kind` is "plain" (one method `forward`), "decoder" (a causal language model becomes `prefill` and `decode` with a
    cache of `max_length` tokens) or "encoder" (tokens and mask to one vector a text: `encode`). `tokenizer` and
    `stop_tokens` travel in the file. `regions` runs the fusion compiler: what it fuses becomes tile programs, which the
    runtime executes without it. `check` compares the result with the source and raises ValueError where they
    differ. The file appears at once and whole, or not at all.
    """
    started = time.perf_counter()
    say = progress or (lambda message: None)
    output = _checked_output(output)
    if isinstance(source, str | os.PathLike):
        say(f"reading {os.fspath(source)}")
        if example_inputs is not None:
            raise ValueError("example_inputs: expected None with a path, which says itself what its inputs are")
        source = read_source(source, max_length=max_length)
    elif not isinstance(source, Source):
        source = Source(source, example_inputs, dynamic_shapes, kind, max_length)
    source = _completed(source, max_length, tokenizer, stop_tokens)
    say("exporting with torch.export")
    program = _export.export(source.module, source.example_inputs, source.dynamic_shapes)
    say(f"importing {len(program.graph.nodes)} nodes")
    methods = _methods(source, _export.import_program(program, "forward"))
    fused: dict[str, list[Any]] = {method.name: [] for method in methods}
    if regions:
        say("fusing regions")
        methods, fused = fuse_methods(methods)
    max_error = None
    if check:
        say("comparing with the source")
        max_error = check_methods(source, methods)
    say(f"writing {output}")
    write_artifact(output, methods, source)
    return ConvertReport(
        output=output,
        size_bytes=output.stat().st_size,
        weight_bytes=_export.weight_bytes(program),
        methods={method.name: len(method.nodes) for method in methods},
        regions={name: len(made) for name, made in fused.items()},
        max_error=max_error,
        seconds=time.perf_counter() - started,
    )


def _checked_output(output: str | os.PathLike) -> pathlib.Path:
    path = pathlib.Path(output)
    if path.suffix != ".qxm":
        raise ValueError(f"output: expected a name that ends in .qxm, got {path}")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"output: there is no folder {path.absolute().parent}")
    return path


def _completed(
    source: Source,
    max_length: int | None,
    tokenizer: str | os.PathLike | TokenizerFile | None,
    stop_tokens: Sequence[int],
) -> Source:
    """`source` with the caller's arguments, and the dynamic shapes that its kind implies."""
    if source.kind not in KINDS:
        raise ValueError(f"kind: expected one of {', '.join(KINDS)}, got {source.kind!r}")
    if tokenizer is not None:
        if not isinstance(tokenizer, TokenizerFile):
            tokenizer = TokenizerFile.read(tokenizer)
        source = dataclasses.replace(source, tokenizer=tokenizer)
    if stop_tokens:
        source = dataclasses.replace(source, stop_tokens=[int(token) for token in stop_tokens])
    if source.kind == "plain":
        return source
    length = max_length or source.max_length
    if length is None or length < 2:
        raise ValueError(f"max_length: expected at least 2 tokens for a {source.kind}, got {length}")
    shapes = source.dynamic_shapes
    if shapes is None and not isinstance(source.module, torch.export.ExportedProgram):
        shapes = _text_shapes(source.kind, length)
    return dataclasses.replace(source, max_length=length, dynamic_shapes=shapes)


def _text_shapes(kind: str, max_length: int) -> tuple[dict[int, Any], ...]:
    length = torch.export.Dim("length", min=_export.MIN_EXPORTED_SIZE, max=max_length)
    if kind == "decoder":
        return ({1: length},)
    batch = torch.export.Dim("batch", min=_export.MIN_EXPORTED_SIZE, max=MAX_BATCH)
    return ({0: batch, 1: length}, {0: batch, 1: length})


def _methods(source: Source, graph: Any) -> list[Any]:
    rewrites = load_module("_convert")
    if source.kind == "decoder":
        return rewrites.make_decoder_methods(graph, max_length=source.max_length)
    if source.kind == "encoder":
        return [rewrites.make_encoder(graph, max_batch=MAX_BATCH, max_length=source.max_length)]
    return [rewrites.make_method(graph, "forward")]
