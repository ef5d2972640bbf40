"""Comparing converted methods with the module that they come from, before anything is written."""

from typing import Any

import numpy
import torch

from . import _export
from .session import Session
from .source import Source

# Both sides compute in float32, in another order of sums: rounding leaves five digits of the largest value even after
# dozens of layers, and a wrong rewrite does not. Narrower types round each intermediate result once more: this many
# units in the last place.
RELATIVE_TOLERANCE = 1e-4
NARROW_ULPS = 16
ABSOLUTE_TOLERANCE = 1e-6
_SEED = 0
_PROMPT = 5
_STEPS = 3


def check_methods(source: Source, methods: list[Any]) -> float:
    """The largest absolute error. ValueError where it is larger than rounding explains."""
    session = Session(methods)
    if source.kind == "decoder":
        pairs = _decoder_pairs(source, session)
    elif source.kind == "encoder":
        pairs = _encoder_pairs(source, session)
    else:
        pairs = _plain_pairs(source, session)
    worst = 0.0
    tolerance = _relative_tolerance(source)
    for name, ours, expected in pairs:
        worst = max(worst, _error(name, ours, expected, tolerance))
    return worst


def _relative_tolerance(source: Source) -> float:
    """That of the narrowest type which the source computes in."""
    module = source.module
    weights = module.state_dict() if isinstance(module, torch.nn.Module) else module.state_dict
    tensors = [*weights.values(), *_export.tensors_of(source.example_inputs or ())]
    units = [torch.finfo(tensor.dtype).eps for tensor in tensors if tensor.is_floating_point()]
    return max(RELATIVE_TOLERANCE, NARROW_ULPS * max(units)) if units else RELATIVE_TOLERANCE


def _error(name: str, ours: Any, expected: torch.Tensor, relative_tolerance: float) -> float:
    actual = ours if isinstance(ours, torch.Tensor) else torch.as_tensor(numpy.asarray(ours))
    expected = expected.detach()
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        raise ValueError(
            f"check: {name} is {actual.dtype}{list(actual.shape)}, expected {expected.dtype}{list(expected.shape)}"
        )
    if actual.numel() == 0:
        return 0.0
    difference = (actual.double() - expected.double()).abs()
    same = (actual == expected) | (actual.isnan() & expected.isnan())
    error = float(torch.where(same, 0.0, difference).max())
    scale = float(torch.nan_to_num(expected.double(), posinf=0.0, neginf=0.0).abs().max())
    bound = relative_tolerance * scale + ABSOLUTE_TOLERANCE
    if not error <= bound:
        raise ValueError(
            f"check: {name} differs from the source by {error:.3g}, expected at most {bound:.3g}; "
            "nothing was written. Please report the model: the converter is wrong"
        )
    return error


@torch.no_grad()
def _reference(source: Source, inputs: tuple[Any, ...]) -> list[torch.Tensor]:
    module = source.module.module() if isinstance(source.module, torch.export.ExportedProgram) else source.module
    with _export.evaluating(source.module):
        return _export.tensors_of(module(*inputs))


def _plain_pairs(source: Source, session: Session):
    if source.example_inputs is None:
        raise ValueError("example_inputs: expected a tuple of tensors to check with, or check=False")
    expected = _reference(source, source.example_inputs)
    results = session.run(*_export.tensors_of(source.example_inputs))
    if len(results) != len(expected):
        raise ValueError(f"check: the method has {len(results)} outputs, expected {len(expected)}")
    for index, (ours, reference) in enumerate(zip(results, expected, strict=True)):
        yield f"output {index}", ours, reference


def _vocabulary(source: Source) -> int:
    if isinstance(source.module, torch.export.ExportedProgram):
        return 2
    sizes = [module.num_embeddings for module in source.module.modules() if isinstance(module, torch.nn.Embedding)]
    return max(sizes, default=2)


def _decoder_pairs(source: Source, session: Session):
    """The prompt through prefill, then single tokens through decode: each against the whole text at once."""
    generator = torch.Generator().manual_seed(_SEED)
    count = min(_PROMPT + _STEPS, source.max_length)
    tokens = torch.randint(0, _vocabulary(source), (1, count), generator=generator)
    (expected,) = _reference(source, (tokens,))
    prompt = count - min(_STEPS, count - 1)
    for end in range(prompt, count + 1):
        begin = 0 if end == prompt else end - 1
        method = "prefill" if end == prompt else "decode"
        position = numpy.array(begin, dtype=numpy.int64)
        (logits,) = session.run(tokens[:, begin:end].numpy(), position, method=method)
        yield f"{method} of tokens {begin} to {end - 1}", logits, expected[:, end - 1 : end]


def _encoder_pairs(source: Source, session: Session):
    """Texts of different lengths in one batch, and one alone."""
    generator = torch.Generator().manual_seed(_SEED)
    length = min(9, source.max_length)
    for lengths in ((length, max(1, length // 2), 1), (max(1, length - 2),)):
        tokens = torch.randint(0, _vocabulary(source), (len(lengths), max(lengths)), generator=generator)
        mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
        (expected,) = _reference(source, (tokens, mask))
        (ours,) = session.run(tokens.numpy(), mask.numpy(), method="encode")
        yield f"encode of {len(lengths)} texts", ours, expected
