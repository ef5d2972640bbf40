"""The operators of regions as PyTorch sees them. Importing this registers what is written in Python.

fused_region(inputs, key, program) runs the kernel of `key`; reference_region and checked_region are its reference and
the comparison of both. watch_weight(weight, entry) is called when a packed form of `weight` is kept.
"""

import threading
from collections.abc import Sequence

import torch

from quincunx.fusion import program as programs
from quincunx.fusion import weights

_library = torch.library.Library("quincunx", "FRAGMENT")
_library.define("reference_region(Tensor[] inputs, str program) -> Tensor[]")
_library.define("checked_region(Tensor[] inputs, int key, str program) -> Tensor[]")
_library.define("watch_weight(Tensor weight, int entry) -> ()")

_checked: set[int] = set()
_checked_lock = threading.Lock()

# Of one region against torch's operators. A kernel keeps 16-bit values in float32 between its operators where torch
# rounds each, and adds in another order: a few units in the last place of the smallest dtype that the region touches.
_RELATIVE_TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 4e-2, torch.float16: 5e-3}
_FLOAT_ORDER = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


def _coarsest(tensors: Sequence[torch.Tensor]) -> torch.dtype | None:
    present = {tensor.dtype for tensor in tensors}
    return next((dtype for dtype in _FLOAT_ORDER if dtype in present), None)


def difference(results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], program: str) -> str | None:
    """What is wrong about a region's results, or None."""
    expected = programs.run_reference(program, inputs)
    for index, (actual, reference) in enumerate(zip(results, expected, strict=True)):
        if actual.dtype != reference.dtype or actual.shape != reference.shape:
            return f"result {index} is {actual.dtype}{list(actual.shape)}, not {reference.dtype}{list(reference.shape)}"
        tolerance = _RELATIVE_TOLERANCE.get(_coarsest([*inputs, actual]), 0.0) if actual.is_floating_point() else 0.0
        scale = reference.double().nan_to_num(0.0, 0.0, 0.0).abs().amax().item() if reference.numel() else 0.0
        close = torch.isclose(
            actual.double(), reference.double(), rtol=tolerance, atol=tolerance * scale, equal_nan=True
        )
        if not bool(close.all()):
            worst = (actual.double() - reference.double()).abs().nan_to_num(float("inf")).max().item()
            return f"result {index} differs from torch's in {int((~close).sum())} elements, by up to {worst:.3g}"
    return None


def _reference_region(inputs: list[torch.Tensor], program: str) -> list[torch.Tensor]:
    return programs.run_reference(program, inputs)


def _checked_region(inputs: list[torch.Tensor], key: int, program: str) -> list[torch.Tensor]:
    results = torch.ops.quincunx.fused_region(inputs, key, program)
    with _checked_lock:
        if key in _checked:
            return results
        _checked.add(key)
    wrong = difference(results, inputs, program)
    if wrong is not None:
        raise RuntimeError(f"quincunx.fusion: {wrong}, in the region {program}")
    return results


def num_checked() -> int:
    """Regions that were compared so far."""
    return len(_checked)


_library.impl("reference_region", _reference_region, "CPU")
_library.impl("checked_region", _checked_region, "CPU")
_library.impl("watch_weight", weights.watch, "CPU")


@torch.library.register_fake("quincunx::fused_region")
def _fused_region_fake(inputs, key, program):
    return programs.result_types(program, inputs)


@torch.library.register_fake("quincunx::checked_region")
def _checked_region_fake(inputs, key, program):
    return programs.result_types(program, inputs)
