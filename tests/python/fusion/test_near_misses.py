"""What looks like a pattern and is none: other axes, constants, operands and users. No pattern may be found in it, and
the value must be that of eager.
"""

import math

import pytest
import torch
from fusion.reference import assert_close, doubled
from quincunx.fusion import Settings, pattern_names
from quincunx.fusion.backend import compile_with
from torch.nn import functional


def x():
    return torch.randn(4, 6, 12)


def w(size=12):
    return torch.rand(size) + 0.5


def with_two_users(t, weight):
    inverse = torch.rsqrt(t.pow(2).mean(-1, keepdim=True) + 1e-5)
    return t * inverse * weight + inverse


def changed_between(t, weight):
    t = t.clone()
    inverse = torch.rsqrt(t.pow(2).mean(-1, keepdim=True) + 1e-5)
    t.add_(1)
    return t * inverse * weight


RMS_NORM = {
    "another_axis": (lambda t, g: t * torch.rsqrt(t.pow(2).mean(1, keepdim=True) + 1e-5) * g, (x, w)),
    "two_axes": (lambda t, g: t * torch.rsqrt(t.pow(2).mean((1, 2), keepdim=True) + 1e-5) * g, (x, w)),
    "sum_instead_of_mean": (lambda t, g: t * torch.rsqrt(t.pow(2).sum(-1, keepdim=True) + 1e-5) * g, (x, w)),
    "cube": (lambda t, g: t * torch.rsqrt(t.abs().pow(3).mean(-1, keepdim=True) + 1e-5) * g, (x, w)),
    "other_factor": (lambda t, g: (t + 1) * torch.rsqrt(t.pow(2).mean(-1, keepdim=True) + 1e-5) * g, (x, w)),
    "minus_epsilon": (lambda t, g: t * torch.rsqrt(t.pow(2).mean(-1, keepdim=True) - 1e-5) * g, (x, w)),
    "alpha": (lambda t, g: t * torch.rsqrt(torch.add(t.pow(2).mean(-1, keepdim=True), 0.5, alpha=3)) * g, (x, w)),
    "sqrt_instead_of_rsqrt": (lambda t, g: t * torch.sqrt(t.pow(2).mean(-1, keepdim=True) + 1e-5) * g, (x, w)),
    "weight_of_rows": (
        lambda t, g: t * torch.rsqrt(t.pow(2).mean(-1, keepdim=True) + 1e-5) * g,
        (x, lambda: w(6)[:, None]),
    ),
    "second_user": (with_two_users, (x, w)),
    "in_place_between": (changed_between, (x, w)),
    "no_keepdim": (lambda t, g: t * torch.rsqrt(t.pow(2).mean(-1) + 1e-5) * g, (lambda: torch.randn(12, 12), w)),
}
LAYER_NORM = {
    "other_epsilons": (lambda t: (t - t.mean(-1, True)) / (t.var(-1, correction=0, keepdim=True) + 0.1).sqrt(), (x,)),
    "unbiased": (lambda t: (t - t.mean(-1, True)) / (t.var(-1, correction=1, keepdim=True) + 1e-5).sqrt(), (x,)),
    "correction_two": (lambda t: (t - t.mean(-1, True)) / (t.var(-1, correction=2, keepdim=True) + 1e-5).sqrt(), (x,)),
    "means_of_two_axes": (
        lambda t: (t - t.mean(1, True)) / (t.var(-1, correction=0, keepdim=True) + 1e-5).sqrt(),
        (x,),
    ),
    "epsilon_outside": (lambda t: (t - t.mean(-1, True)) / (t.std(-1, correction=0, keepdim=True) + 1e-5), (x,)),
    "mean_of_another": (
        lambda t: (t - t.abs().mean(-1, True)) / (t.var(-1, correction=0, keepdim=True) + 1e-5).sqrt(),
        (x,),
    ),
}
GELU = {
    "other_root": (lambda t: 0.5 * t * (1 + torch.erf(t * 0.7)), (x,)),
    "other_half": (lambda t: 0.4 * t * (1 + torch.erf(t * math.sqrt(0.5))), (x,)),
    "minus_one": (lambda t: 0.5 * t * (torch.erf(t * math.sqrt(0.5)) - 1), (x,)),
    "other_cubic": (lambda t: 0.5 * t * (1 + torch.tanh(0.7978845608 * (t + 0.05 * t.pow(3)))), (x,)),
    "square_for_cube": (lambda t: 0.5 * t * (1 + torch.tanh(0.7978845608 * (t + 0.044715 * t.pow(2)))), (x,)),
    "other_argument": (lambda t, u: 0.5 * t * (1 + torch.erf(u * math.sqrt(0.5))), (x, x)),
    "quick_gelu_with_another_slope": (lambda t: t * torch.sigmoid(1.7 * t), (x,)),
}
SOFTMAX = {
    "another_axis_for_the_sum": (lambda t: t.exp() / t.exp().sum(1, keepdim=True), (x,)),
    "maximum_of_another_axis": (
        lambda t: (t - t.amax(1, True)).exp() / (t - t.amax(1, True)).exp().sum(-1, True),
        (x,),
    ),
    "sum_of_a_softmax": (lambda t: torch.softmax(t, -1).sum(-1), (x,)),
    "two_to_the_power": (lambda t: torch.exp2(t) / torch.exp2(t).sum(-1, keepdim=True), (x,)),
    "minus_the_minimum": (lambda t: (t - t.amin(-1, True)).exp() / (t - t.amin(-1, True)).exp().sum(-1, True), (x,)),
}
SWIGLU = {
    "halves_exchanged": (lambda t: t.chunk(2, -1)[0] * functional.silu(t.chunk(2, -1)[1]), (x,)),
    "halves_in_order": (lambda t: functional.silu(t.chunk(2, -1)[0]) * t.chunk(2, -1)[1], (x,)),
    "three_parts": (lambda t: functional.silu(t[..., :4]) * t[..., 4:8] + t[..., 8:], (x,)),
    "split_along_rows": (lambda t: functional.silu(t.chunk(2, 1)[0]) * t.chunk(2, 1)[1], (x,)),
    "both_activated": (lambda t: functional.silu(t.chunk(2, -1)[0]) * functional.silu(t.chunk(2, -1)[1]), (x,)),
    "overlapping": (lambda t: functional.silu(t[..., :8]) * t[..., 4:], (x,)),
}


def rotated(t, cos, sin, first=(0, 6), second=(6, 12), sign=-1):
    return t * cos + torch.cat((sign * t[..., slice(*second)], t[..., slice(*first)]), -1) * sin


TABLES = (x, lambda: torch.randn(6, 12), lambda: torch.randn(6, 12))
ROPE = {
    "wrong_sign": (lambda t, c, s: rotated(t, c, s, sign=1), TABLES),
    "uneven_halves": (lambda t, c, s: rotated(t, c, s, first=(0, 4), second=(4, 12)), TABLES),
    "halves_not_exchanged": (lambda t, c, s: t * c + torch.cat((-t[..., :6], t[..., 6:]), -1) * s, TABLES),
    "gap": (lambda t, c, s: rotated(t, c, s, first=(0, 6), second=(5, 11)), TABLES),
    "another_axis": (lambda t, c, s: t * c + torch.cat((-t[:, 3:], t[:, :3]), 1) * s, TABLES),
    "tables_exchanged": (lambda t, c, s: rotated(t, s, c), TABLES),
}
CASES = {
    f"{family}_{name}": case
    for family, cases in (
        ("rms_norm", RMS_NORM),
        ("layer_norm", LAYER_NORM),
        ("gelu", GELU),
        ("softmax", SOFTMAX),
        ("swiglu", SWIGLU),
        ("rope", ROPE),
    )
    for name, case in cases.items()
}


# Neighbours that the pattern does cover: any epsilon, both variances, any two tensors as gate and up, any two tables.
COVERED = {
    "rms_norm_weight_of_rows": {"rms_norm"},  # without the weight
    "layer_norm_other_epsilons": {"layer_norm"},
    "layer_norm_unbiased": {"layer_norm"},
    "layer_norm_epsilon_outside": {"layer_norm"},
    **{f"swiglu_{name}": {"swiglu"} for name in SWIGLU},
    "rope_tables_exchanged": {"rope"},
}


@pytest.mark.parametrize("name", CASES)
def test_no_pattern_is_found_and_the_value_is_that_of_eager(name):
    function, makers = CASES[name]
    inputs = [make() for make in makers]
    reports = []
    backend = compile_with(Settings(), lambda report, _before, _after: reports.append(report))
    assert_close(torch.compile(function, backend=backend)(*inputs), function(*doubled(inputs)))
    found = {entry.stage for report in reports for entry in report.candidates if entry.fused}
    assert found & set(pattern_names()) == COVERED.get(name, set())
