"""Calls of every operator of lite's table: {family: {operator: [(function, arguments), ...]}}.

A function calls the operator by its name, so that torch.export keeps it; its result is a tensor or several.
"""

import torch

A = torch.ops.aten
NAN, INF = float("nan"), float("inf")


def _generator(seed):
    return torch.Generator().manual_seed(seed)


def real(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=_generator(seed)).to(dtype)


def whole(*shape, low=-9, high=9, seed=0, dtype=torch.int64):
    return torch.randint(low, high, shape, generator=_generator(seed)).to(dtype)


def truth(*shape, seed=0):
    return torch.rand(*shape, generator=_generator(seed)) < 0.6


SPECIAL = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1e-42, 3e38, -1.5, 0.5, 2.5])
SAMPLES = [real(3, 17), real(4, 1, 5).transpose(0, 2), torch.tensor(1.25), real(0, 3), real(33, dtype=torch.float64)]
POSITIVE = [x.abs() + 0.1 for x in SAMPLES] + [SPECIAL]
UNIT = [torch.rand(3, 17, generator=_generator(1)) * 1.9 - 0.95, torch.rand(33, generator=_generator(2)).double()]
WHOLE = [whole(3, 5), whole(4, dtype=torch.int32), whole(7, low=0, dtype=torch.uint8)]
HALF = [real(3, 17, dtype=torch.float16), real(70, dtype=torch.bfloat16)]


def on(op, samples, *rest):
    return [(lambda *x, op=op: op(*x, *rest), (sample,)) for sample in samples]


def unary_cases():
    cases = {}
    for name in ("neg", "abs", "relu", "sign", "square"):
        cases[f"aten.{name}.default"] = on(getattr(A, name).default, [*SAMPLES, *WHOLE, *HALF, SPECIAL])
    for name in ("exp", "exp2", "expm1", "sin", "cos", "tan", "atan", "sinh", "cosh", "tanh", "erf", "erfc", "sigmoid"):
        cases[f"aten.{name}.default"] = on(getattr(A, name).default, [*SAMPLES, WHOLE[1], *HALF])
    for name in ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal"):
        cases[f"aten.{name}.default"] = on(getattr(A, name).default, [*POSITIVE, *HALF])
    for name in ("asin", "acos"):
        cases[f"aten.{name}.default"] = on(getattr(A, name).default, UNIT)
    for name in ("floor", "ceil", "trunc", "round", "frac"):
        samples = [*SAMPLES, SPECIAL, *HALF] + ([] if name == "frac" else [WHOLE[0]])
        cases[f"aten.{name}.default"] = on(getattr(A, name).default, samples)
    cases["aten.isnan.default"] = on(A.isnan.default, [SPECIAL, *SAMPLES[:2]])
    cases["aten.isinf.default"] = on(A.isinf.default, [SPECIAL, *SAMPLES[:2]])
    cases["aten.logical_not.default"] = on(A.logical_not.default, [SPECIAL, WHOLE[0], truth(9)])
    cases["aten.bitwise_not.default"] = on(A.bitwise_not.default, [*WHOLE, truth(9)])
    return cases


def activation_cases():
    samples = [*SAMPLES, *HALF]
    return {
        "aten.silu.default": on(A.silu.default, samples),
        "aten.gelu.default": on(A.gelu.default, samples)
        + [(lambda x: A.gelu.default(x, approximate="tanh"), (x,)) for x in samples],
        "aten.mish.default": on(A.mish.default, samples),
        "aten.hardsigmoid.default": on(A.hardsigmoid.default, samples),
        "aten.hardswish.default": on(A.hardswish.default, samples),
        "aten.leaky_relu.default": on(A.leaky_relu.default, samples) + on(A.leaky_relu.default, SAMPLES, 0.2),
        "aten.elu.default": on(A.elu.default, SAMPLES) + on(A.elu.default, SAMPLES, 0.7),
        "aten.softplus.default": on(A.softplus.default, SAMPLES) + on(A.softplus.default, [30 * real(20)], 2.0, 5.0),
    }


PAIRS = [
    (real(3, 17), real(17, seed=1)),
    (real(2, 1, 5), real(4, 1, seed=1)),
    (torch.tensor(2.0), real(3, seed=1)),
    (real(3, 4), whole(3, 4, low=1)),
    (real(5, dtype=torch.float64), real(5, seed=1)),
    (real(9, dtype=torch.float16), real(9, seed=1, dtype=torch.float16)),
    (real(0, 4), real(4)),
    (SPECIAL, SPECIAL.flip(0)),
]
WHOLE_PAIRS = [
    (torch.tensor([8, -8, 7, -7, -1, 0]), torch.tensor([-3, 3, -2, 2, 5, -4])),
    (torch.tensor([8, -8, 7], dtype=torch.int32), torch.tensor([-3, 3, -1])),
    (torch.tensor([200, 250], dtype=torch.uint8), torch.tensor([100, 3], dtype=torch.uint8)),
]


def each(op, pairs, *rest, **named):
    return [(lambda x, y, op=op: op(x, y, *rest, **named), pair) for pair in pairs]


def binary_cases():
    everything = [*PAIRS, *WHOLE_PAIRS]
    cases = {
        "aten.add.Tensor": each(A.add.Tensor, everything) + each(A.add.Tensor, PAIRS[:4], alpha=2),
        "aten.add.Scalar": on(A.add.Scalar, [*SAMPLES, *WHOLE], 3) + on(A.add.Scalar, WHOLE, 0.5),
        "aten.sub.Tensor": each(A.sub.Tensor, everything) + each(A.sub.Tensor, PAIRS[:4], alpha=-0.5),
        "aten.sub.Scalar": on(A.sub.Scalar, [*SAMPLES, *WHOLE], 3),
        "aten.rsub.Scalar": on(A.rsub.Scalar, [*SAMPLES, *WHOLE], 3),
        "aten.rsub.Tensor": each(A.rsub.Tensor, everything),
        "aten.mul.Tensor": each(A.mul.Tensor, everything),
        "aten.mul.Scalar": on(A.mul.Scalar, [*SAMPLES, *WHOLE], 3) + on(A.mul.Scalar, HALF, 0.3),
        "aten.div.Tensor": each(A.div.Tensor, everything),
        "aten.div.Scalar": on(A.div.Scalar, [*SAMPLES, *WHOLE], 3),
        "aten.true_divide.Tensor": each(A.true_divide.Tensor, PAIRS),
        "aten.floor_divide.default": each(A.floor_divide.default, everything),
        "aten.maximum.default": each(A.maximum.default, everything),
        "aten.minimum.default": each(A.minimum.default, everything),
        "aten.max.other": each(A.max.other, everything),
        "aten.min.other": each(A.min.other, everything),
        "aten.atan2.default": each(A.atan2.default, PAIRS),
        "aten.pow.Tensor_Tensor": each(A.pow.Tensor_Tensor, [(x.abs(), y) for x, y in PAIRS[:5]])
        + each(A.pow.Tensor_Tensor, [(whole(5), whole(5, low=0, seed=1))]),
        "aten.pow.Scalar": [(lambda x: A.pow.Scalar(2.5, x), (real(7),)), (lambda x: A.pow.Scalar(3, x), (WHOLE[2],))],
        "aten.pow.Tensor_Scalar": [
            (lambda x, e=e: A.pow.Tensor_Scalar(x, e), (real(3, 7).abs(),)) for e in (2, 3, 0.5, -1, 2.7)
        ]
        + on(A.pow.Tensor_Scalar, WHOLE, 3),
    }
    for mode in (None, "trunc", "floor"):
        wanted = PAIRS if mode is None else everything
        cases.setdefault("aten.div.Tensor_mode", []).extend(each(A.div.Tensor_mode, wanted, rounding_mode=mode))
        for sample in (real(9), WHOLE[0]):
            call = (lambda x, mode=mode: A.div.Scalar_mode(x, -2, rounding_mode=mode), (sample,))
            cases.setdefault("aten.div.Scalar_mode", []).append(call)
    for name in ("remainder", "fmod"):
        op = getattr(A, name)
        cases[f"aten.{name}.Tensor"] = each(op.Tensor, everything[:7] + WHOLE_PAIRS)
        cases[f"aten.{name}.Scalar"] = on(op.Scalar, [*SAMPLES, *WHOLE], 3)
    return cases


def comparison_cases():
    cases = {}
    everything = [*PAIRS, *WHOLE_PAIRS, (truth(5), truth(5, seed=1))]
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        op = getattr(A, name)
        cases[f"aten.{name}.Tensor"] = each(op.Tensor, everything)
        cases[f"aten.{name}.Scalar"] = on(op.Scalar, [*SAMPLES, *WHOLE, SPECIAL], 1) + on(op.Scalar, WHOLE, 0.5)
    for name in ("logical_and", "logical_or", "logical_xor"):
        cases[f"aten.{name}.default"] = each(getattr(A, name).default, everything)
    integers = [*WHOLE_PAIRS, (truth(5), truth(5, seed=1))]
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        op = getattr(A, name)
        cases[f"aten.{name}.Tensor"] = each(op.Tensor, integers)
        cases[f"aten.{name}.Scalar"] = on(op.Scalar, WHOLE, 5)
    shifts = [(whole(6), whole(6, low=0, high=5, seed=1))]
    cases["aten.bitwise_left_shift.Tensor"] = each(A.bitwise_left_shift.Tensor, shifts)
    cases["aten.bitwise_right_shift.Tensor"] = each(A.bitwise_right_shift.Tensor, shifts)
    amounts = [whole(6, low=0)]
    cases["aten.bitwise_left_shift.Tensor_Scalar"] = on(A.bitwise_left_shift.Tensor_Scalar, amounts, 2)
    cases["aten.bitwise_right_shift.Tensor_Scalar"] = on(A.bitwise_right_shift.Tensor_Scalar, amounts, 2)
    cases["aten.__and__.Tensor"] = each(A.__and__.Tensor, integers)
    cases["aten.__or__.Tensor"] = each(A.__or__.Tensor, integers)
    return cases


def ternary_cases():
    x, y, condition = real(3, 4), real(4, seed=1), truth(3, 1)
    nan = torch.tensor([[1.0, NAN, 3.0], [0.5, -1.0, 2.0]])
    return {
        "aten.where.self": [(A.where.self, (condition, x, y)), (A.where.self, (truth(4), whole(4), whole(4, seed=1)))],
        "aten.where.ScalarOther": [(lambda c, x: A.where.ScalarOther(c, x, -1.5), (condition, x))],
        "aten.where.ScalarSelf": [(lambda c, x: A.where.ScalarSelf(c, 2, x), (condition, x))],
        "aten.where.Scalar": [(lambda c: A.where.Scalar(c, 2.0, 3.0), (condition,))],
        "aten.masked_fill.Scalar": [(lambda x, m: A.masked_fill.Scalar(x, m, -INF), (x, condition))],
        "aten.masked_fill.Tensor": [(A.masked_fill.Tensor, (x, condition, torch.tensor(7.0)))],
        "aten.clamp.default": on(A.clamp.default, [nan, SPECIAL, *WHOLE], 0, 1)
        + [(lambda x: A.clamp.default(x, min=0.25), (nan,)), (lambda x: A.clamp.default(x, max=0.25), (nan,))]
        + [(lambda x: A.clamp.default(x, 2.0, 1.0), (nan,))],
        "aten.clamp.Tensor": [(A.clamp.Tensor, (nan, torch.tensor([0.0, 1.0, NAN]), torch.tensor([2.0, 0.5, 3.0])))],
        "aten.clamp_min.default": on(A.clamp_min.default, [nan, WHOLE[0]], 1),
        "aten.clamp_min.Tensor": [(A.clamp_min.Tensor, (nan, torch.tensor(0.75)))],
        "aten.clamp_max.default": on(A.clamp_max.default, [nan, WHOLE[0]], 1),
        "aten.clamp_max.Tensor": [(A.clamp_max.Tensor, (nan, torch.tensor(0.75)))],
        "aten.hardtanh.default": on(A.hardtanh.default, [nan, *SAMPLES]) + on(A.hardtanh.default, [nan], -0.5, 0.25),
        "aten.relu6.default": on(A.relu6.default, [nan, 5 * real(20)]),
        "aten.lerp.Scalar": [(lambda x, y, w=w: A.lerp.Scalar(x, y, w), (x, y)) for w in (0.0, 0.3, 0.9, 1.0)],
        "aten.lerp.Tensor": [(A.lerp.Tensor, (x, y, torch.rand(3, 4, generator=_generator(3))))],
        "aten.addcmul.default": [(A.addcmul.default, (x, y, real(3, 1, seed=2)))],
        "aten.addcdiv.default": [(A.addcdiv.default, (x, y, real(3, 1, seed=2).abs() + 1))],
    }


def reduction_cases():
    nan = torch.tensor([[1.0, NAN, 3.0], [0.5, -1.0, 2.0]])
    x = real(3, 5, 7)
    samples = [x, x.transpose(0, 2), torch.tensor(2.5), whole(4, 6), real(70, dtype=torch.float16), truth(3, 4)]
    numbers = samples[:5]
    ordered = [x, nan, whole(4, 6), torch.tensor([3.0, 3.0, 1.0, 1.0])]
    cases = {
        "aten.sum.default": on(A.sum.default, [*samples, real(0, 3)]),
        "aten.prod.default": on(A.prod.default, numbers),
        "aten.mean.default": on(A.mean.default, [x, real(70, dtype=torch.float16), real(0)]),
        "aten.max.default": on(A.max.default, [*ordered, truth(5)]),
        "aten.min.default": on(A.min.default, ordered),
        "aten.argmax.default": on(A.argmax.default, ordered) + on(A.argmax.default, ordered, -1, True),
        "aten.argmin.default": on(A.argmin.default, ordered) + on(A.argmin.default, ordered, 0),
        "aten.any.default": on(A.any.default, samples),
        "aten.all.default": on(A.all.default, samples),
        "aten.any.dim": on(A.any.dim, [truth(3, 4), x], 1),
        "aten.all.dim": on(A.all.dim, [truth(3, 4), x], 1, True),
        "aten.any.dims": on(A.any.dims, [truth(3, 4, 2)], [0, 2]),
        "aten.all.dims": on(A.all.dims, [truth(3, 4, 2)], [0, 2], True),
        "aten.logsumexp.default": on(A.logsumexp.default, [x, 100 * x], [1, 2])
        + on(A.logsumexp.default, [torch.tensor([[-INF, -INF], [INF, 1.0], [NAN, 1.0], [-INF, 3.0]])], [1], True),
        "aten.linalg_vector_norm.default": [
            (lambda t, p=p: A.linalg_vector_norm.default(t, p, [1], True), (x,)) for p in (0, 0.5, 1, 2, 3, INF)
        ]
        + on(A.linalg_vector_norm.default, [x]),
        "aten.norm.ScalarOpt_dim": on(A.norm.ScalarOpt_dim, [x], 2, [-1], True),
        "aten.norm.Scalar": on(A.norm.Scalar, [x], 2),
        "aten.cumsum.default": on(A.cumsum.default, [x, whole(4, 6), torch.tensor(3.0)], 0),
        "aten.cumprod.default": on(A.cumprod.default, [x, whole(4, 6)], -1),
        "aten.sort.default": on(A.sort.default, [*ordered, truth(5)]) + on(A.sort.default, [x], 1, True),
        "aten.sort.stable": [(lambda t: A.sort.stable(t, stable=True, dim=0), (ordered[3],))],
        "aten.argsort.default": on(A.argsort.default, [x], 1),
        "aten.topk.default": on(A.topk.default, [x, nan], 2) + on(A.topk.default, [x], 3, 1, False),
    }
    for name in ("sum", "mean"):
        op = getattr(A, name).dim_IntList if name == "sum" else A.mean.dim
        key = "aten.sum.dim_IntList" if name == "sum" else "aten.mean.dim"
        cases[key] = on(op, [x, x.transpose(0, 2)], [0, -1]) + on(op, [x], [1], True)
    cases["aten.prod.dim_int"] = on(A.prod.dim_int, [x, whole(4, 6)], 1)
    for name in ("amax", "amin"):
        op = getattr(A, name).default
        cases[f"aten.{name}.default"] = on(op, ordered, [-1]) + on(op, [x], [0, 2], True) + on(op, [nan])
    for name in ("max", "min"):
        cases[f"aten.{name}.dim"] = on(getattr(A, name).dim, ordered, -1)
    for name in ("var", "std"):
        op = getattr(A, name)
        cases[f"aten.{name}.correction"] = [
            (lambda t, op=op, c=c: op.correction(t, [1], correction=c, keepdim=True), (x + 1000,)) for c in (0, 1, 2)
        ]
        cases[f"aten.{name}.dim"] = on(op.dim, [x], [0], False) + on(op.dim, [x], [2], True, True)
    return cases


FAMILIES = {
    "unary": unary_cases,
    "activation": activation_cases,
    "binary": binary_cases,
    "comparison": comparison_cases,
    "ternary": ternary_cases,
    "reduction": reduction_cases,
}
