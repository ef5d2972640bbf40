"""The options of one parameter group: checked, and turned into numbers."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .._errors import core_errors
from .._library import load_operators

Triple = tuple[float, float, float]
Coefficients = str | Triple | Sequence[Triple]

COEFFICIENT_SETS = ("polar_express", "quintic", "classic")
ADJUST_LR_FUNCTIONS = ("original", "match_rms_adamw")
MAX_STEPS = 100


def check_settings(group: Mapping[str, Any]) -> None:
    """Raises ValueError or TypeError naming the option that is wrong."""
    for option in ("lr", "weight_decay", "matched_adamw_rms", "eps"):
        value = _number(option, group[option])
        if not value >= 0 or math.isinf(value):
            raise ValueError(f"{option}: must be finite and not negative, got {group[option]}")
    momentum = _number("momentum", group["momentum"])
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum: must be in [0, 1), got {group['momentum']}")
    if not isinstance(group["nesterov"], bool):
        raise TypeError(f"nesterov: must be a bool, got {group['nesterov']!r}")
    if group["adjust_lr_fn"] not in (None, *ADJUST_LR_FUNCTIONS):
        raise ValueError(f"adjust_lr_fn: must be one of {ADJUST_LR_FUNCTIONS}, got {group['adjust_lr_fn']!r}")
    steps = group["ns_steps"]
    if isinstance(steps, bool) or not isinstance(steps, int):
        raise TypeError(f"ns_steps: must be an int, got {steps!r}")
    if not 1 <= steps < MAX_STEPS:
        raise ValueError(f"ns_steps: must be in [1, {MAX_STEPS}), got {steps}")
    coefficient_table(group["ns_coefficients"], steps)


def _number(option: str, value: Any) -> float:
    if isinstance(value, torch.Tensor):
        if value.numel() != 1:
            raise ValueError(f"{option}: a tensor must have one element, got {value.numel()}")
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{option}: must be a number, got {value!r}")
    return float(value)


def coefficient_table(coefficients: Coefficients, ns_steps: int) -> torch.Tensor:
    """The polynomial (a, b, c) of each step, [ns_steps, 3]; beyond the end of a list its last triple is repeated."""
    if isinstance(coefficients, str):
        if coefficients not in COEFFICIENT_SETS:
            raise ValueError(f"coefficients: must be one of {COEFFICIENT_SETS} or triples, got {coefficients!r}")
        load_operators()
        with core_errors():
            return torch.ops.quincunx.muon_coefficients(coefficients, ns_steps)
    triples = _triples(coefficients)
    repeated = [triples[min(step, len(triples) - 1)] for step in range(ns_steps)]
    return torch.tensor(repeated, dtype=torch.float32)


def _triples(coefficients: Any) -> list[Triple]:
    try:
        values = list(coefficients)
        triples = [tuple(values)] if values and isinstance(values[0], (int, float)) else [tuple(t) for t in values]
        valid = bool(triples) and all(len(t) == 3 and all(math.isfinite(x) for x in t) for t in triples)
    except TypeError:
        valid = False
    if not valid:
        raise ValueError(f"coefficients: must be a name or triples of finite numbers, got {coefficients!r}")
    return triples


def lr_scale(group: Mapping[str, Any], rows: int, columns: int) -> float:
    """The factor on the learning rate of a rows x columns matrix."""
    if group["adjust_lr_fn"] == "match_rms_adamw":
        return group["matched_adamw_rms"] * math.sqrt(max(rows, columns))
    return math.sqrt(max(1.0, rows / columns))
