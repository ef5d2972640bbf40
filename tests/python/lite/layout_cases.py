"""Calls of the operators that move, make or choose elements; see operator_cases.py."""

import torch
from lite.operator_cases import HALF, INF, NAN, SPECIAL, WHOLE, A, on, real, truth, whole


def view_cases():
    x, t = real(4, 6, 5), real(5, 6, 4).transpose(0, 2)
    cases = {}
    for name in ("view", "reshape", "_unsafe_view", "_reshape_copy", "view_copy"):
        op = getattr(A, name).default
        cases[f"aten.{name}.default"] = on(op, [x], [2, 12, -1]) + on(op, [real(0, 3)], [3, 0])
    cases["aten.reshape.default"] += on(A.reshape.default, [t], [24, 5]) + on(A.reshape.default, [t], [4, 3, 2, 5])
    cases |= {
        "aten.view_as.default": [(lambda x: A.view_as.default(x, torch.zeros(24, 5)), (x,))],
        "aten.reshape_as.default": [(lambda x: A.reshape_as.default(x, torch.zeros(24, 5)), (t,))],
        "aten.flatten.using_ints": on(A.flatten.using_ints, [x, t]) + on(A.flatten.using_ints, [x], 1, 2),
        "aten.unflatten.int": on(A.unflatten.int, [x], 1, [2, -1]),
        "aten.t.default": on(A.t.default, [real(3, 4), real(3)]),
        "aten.t_copy.default": on(A.t_copy.default, [real(3, 4)]),
        "aten.numpy_T.default": on(A.numpy_T.default, [real(3, 4)]),
        "aten.mT.default": on(A.mT.default, [x]),
        "aten.adjoint.default": on(A.adjoint.default, [x]),
        "aten.movedim.int": on(A.movedim.int, [x], 0, -1),
        "aten.movedim.intlist": on(A.movedim.intlist, [x], [0, 1], [-1, 0]),
        "aten.expand_as.default": [(lambda x: A.expand_as.default(x, torch.zeros(3, 4, 2)), (real(4, 1),))],
        "aten.broadcast_to.default": on(A.broadcast_to.default, [real(4, 1)], [2, 4, 3]),
        "aten.squeeze.default": on(A.squeeze.default, [real(1, 3, 1)]),
        "aten.squeeze.dim": on(A.squeeze.dim, [real(1, 3, 1)], -1) + on(A.squeeze.dim, [real(1, 3, 1)], 1),
        "aten.squeeze.dims": on(A.squeeze.dims, [real(1, 3, 1)], [0, 1]),
        "aten.squeeze_copy.dims": on(A.squeeze_copy.dims, [real(1, 3, 1)], [0, 2]),
        "aten.split.Tensor": on(A.split.Tensor, [x], 4, 1),
        "aten.split_copy.Tensor": on(A.split_copy.Tensor, [x], 2),
        "aten.split.sizes": on(A.split.sizes, [x], [1, 3, 2], 1),
        "aten.split_with_sizes.default": on(A.split_with_sizes.default, [x], [1, 3, 2], 1),
        "aten.split_with_sizes_copy.default": on(A.split_with_sizes_copy.default, [x], [1, 3, 2], 1),
        "aten.chunk.default": on(A.chunk.default, [x], 4, 1),
        "aten.unbind.int": on(A.unbind.int, [real(3, 4)], 1),
        "aten.diagonal.default": on(A.diagonal.default, [x], 1, 0, 2) + on(A.diagonal.default, [real(3, 5)], -1),
        "aten.narrow.default": on(A.narrow.default, [x], -1, 1, 2),
        "aten.narrow_copy.default": on(A.narrow_copy.default, [x], -1, 1, 2) + on(A.narrow_copy.default, [x], 1, 0, 0),
        "aten.alias.default": on(A.alias.default, [x]),
        "aten.detach.default": on(A.detach.default, [x]),
        "aten.lift_fresh_copy.default": [(lambda x: A.lift_fresh_copy.default(x), (x,))],
        "aten.dropout.default": on(A.dropout.default, [x], 0.5, False),
        "aten.flip.default": on(A.flip.default, [x, t], [0, -1]),
        "aten.roll.default": on(A.roll.default, [x], [2], [1]) + on(A.roll.default, [x], [-1], [0]),
    }
    for name in ("permute", "permute_copy"):
        cases[f"aten.{name}.default"] = on(getattr(A, name).default, [x], [2, 0, -2])
    for name in ("transpose.int", "transpose_copy.int", "swapaxes.default", "swapdims.default"):
        op, overload = name.split(".")
        cases[f"aten.{name}"] = on(getattr(getattr(A, op), overload), [x], 0, -1)
    for name in ("expand", "expand_copy"):
        cases[f"aten.{name}.default"] = on(getattr(A, name).default, [real(4, 1)], [2, -1, 3])
    for name in ("unsqueeze", "unsqueeze_copy"):
        cases[f"aten.{name}.default"] = on(getattr(A, name).default, [x, t], -1) + on(getattr(A, name).default, [x], 1)
    for name in ("slice", "slice_copy"):
        op = getattr(A, name).Tensor
        cases[f"aten.{name}.Tensor"] = on(op, [x], 1, 1, 6, 2) + on(op, [x], 0, -3, -1) + on(op, [x], 2, 4, 2)
    for name in ("select", "select_copy"):
        cases[f"aten.{name}.int"] = on(getattr(A, name).int, [x, t], 1, -2)
    for name in ("unfold", "unfold_copy"):
        cases[f"aten.{name}.default"] = on(getattr(A, name).default, [x], 1, 3, 2)
    return cases


def copy_cases():
    floats = [real(3, 5), SPECIAL, *HALF, real(3, dtype=torch.float64), *WHOLE, truth(4)]
    finite = [torch.tensor([1.7, 255.0, 0.2, -1.5]), whole(5, dtype=torch.int32), truth(4)]
    targets = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool)
    cases = {"aten._to_copy.default": [], "aten.to.dtype": [], "prims.convert_element_type.default": []}
    for dtype in targets:
        cases["aten._to_copy.default"] += [(lambda x, d=dtype: A._to_copy.default(x, dtype=d), (x,)) for x in floats]
        cases["aten.to.dtype"] += on(A.to.dtype, floats, dtype)
    for dtype in (torch.int8, torch.int32, torch.int64):
        cases["aten._to_copy.default"] += [(lambda x, d=dtype: A._to_copy.default(x, dtype=d), (x,)) for x in finite]
    convert = torch.ops.prims.convert_element_type.default
    cases["prims.convert_element_type.default"] = on(convert, [real(3, 5)], torch.float64)
    return cases | {
        "aten.clone.default": on(A.clone.default, floats),
        "aten.contiguous.default": on(A.contiguous.default, [real(3, 5).t()]),
        "aten.to.dtype_layout": [(lambda x: A.to.dtype_layout(x, dtype=torch.float64), (real(3),))],
        "aten.to.device": [(lambda x: A.to.device(x, torch.device("cpu"), torch.float64), (real(3),))],
        "aten.to.other": [(lambda x, y: A.to.other(x, y), (real(3), real(3, dtype=torch.float64)))],
        "aten.type_as.default": [(A.type_as.default, (whole(3), real(3)))],
        "aten.copy.default": [(A.copy.default, (real(3, 4), whole(4)))],
    }


def creation_cases():
    x = real(3, 4)
    return {
        "aten.zeros.default": [(lambda x: x + A.zeros.default([3, 4]), (x,))],
        "aten.ones.default": [(lambda x: x + A.ones.default([4], dtype=torch.int64), (x,))],
        "aten.full.default": [
            (lambda x: (A.full.default([2, 3], 2.5), A.full.default([2], 7), A.full.default([], True)), (x,))
        ],
        "aten.zeros_like.default": on(A.zeros_like.default, [x, WHOLE[0]]),
        "aten.ones_like.default": on(A.ones_like.default, [x, truth(3)]),
        "aten.full_like.default": on(A.full_like.default, [x, WHOLE[0]], 3),
        "aten.new_zeros.default": on(A.new_zeros.default, [x], [2, 2]),
        "aten.new_ones.default": on(A.new_ones.default, [x], [2, 2]),
        "aten.new_full.default": on(A.new_full.default, [x], [2, 2], 1.5),
        "aten.fill.Scalar": on(A.fill.Scalar, [x], 1.5),
        "aten.scalar_tensor.default": [(lambda x: x * A.scalar_tensor.default(2.5), (x,))],
        "aten.arange.default": [(lambda x: (A.arange.default(7), A.arange.default(2.5)), (x,))],
        "aten.arange.start": [(lambda x: (A.arange.start(2, 7), A.arange.start(-1.0, 2.5)), (x,))],
        "aten.arange.start_step": [(lambda x: (A.arange.start_step(9, 0, -2), A.arange.start_step(0, 1, 0.1)), (x,))],
        "aten.linspace.default": [(lambda x: A.linspace.default(-1, 1, 7), (x,))],
        "aten.eye.default": [(lambda x: A.eye.default(3), (x,))],
        "aten.eye.m": [(lambda x: A.eye.m(2, 4), (x,))],
    }


def index_cases():
    x, index = real(4, 5, 6), torch.tensor([2, 0, -1])
    matrix, cache = torch.tensor([[0, 3], [1, -1]]), real(2, 8, 3)
    put = A.index_put.default
    return {
        "aten.embedding.default": [(A.embedding.default, (real(7, 5), whole(2, 3, low=0, high=7)))],
        "aten.index_select.default": [(lambda x, i: A.index_select.default(x, 1, i), (x, torch.tensor([4, 0])))],
        "aten.gather.default": [(lambda x, i: A.gather.default(x, 1, i), (x, whole(4, 2, 6, low=0, high=5)))],
        "aten.index.Tensor": [
            (lambda x, i: A.index.Tensor(x, [None, i]), (x, index)),
            (lambda x, i: A.index.Tensor(x, [i, None, i]), (x, index)),
            (lambda x, i, j: A.index.Tensor(x, [i, j]), (x, index, torch.tensor([[1], [2]]))),
            (lambda x, i: A.index.Tensor(x, [i]), (x, matrix)),
        ],
        "aten.index_put.default": [
            (lambda x, i, v: put(x, [None, i], v), (cache, torch.tensor([3, 4]), real(2, 2, 3, seed=1))),
            (lambda x, i, v: put(x, [i], v), (cache, torch.tensor([1]), torch.tensor(5.0))),
        ],
        "aten.slice_scatter.default": [
            (lambda x, y: A.slice_scatter.default(x, y, 1, 2, 5), (cache, real(2, 3, 3, seed=1)))
        ],
        "aten.select_scatter.default": [
            (lambda x, y: A.select_scatter.default(x, y, 1, -2), (cache, real(2, 3, seed=1)))
        ],
        "aten.triu.default": on(A.triu.default, [x, real(3, 3)]) + on(A.triu.default, [x], 1),
        "aten.tril.default": on(A.tril.default, [x]) + on(A.tril.default, [x], -2),
        "aten.cat.default": [
            (lambda *x: A.cat.default(list(x), 1), (real(2, 3), real(2, 0), real(2, 4))),
            (lambda *x: A.cat.default(list(x)), (real(2), whole(3))),
        ],
        "aten.concat.default": [(lambda *x: A.concat.default(list(x), -1), (real(2, 3), real(2, 1)))],
        "aten.stack.default": [(lambda *x: A.stack.default(list(x), 1), (real(2, 3), real(2, 3, seed=1)))],
        "aten.repeat.default": on(A.repeat.default, [real(2, 3)], [2, 1, 3]),
        "aten.repeat_interleave.self_int": on(A.repeat_interleave.self_int, [real(2, 3)], 3, 1),
    }


def softmax_cases():
    samples = [real(3, 5, 9), real(40), real(3, 8, dtype=torch.bfloat16), real(5, 3, dtype=torch.float64)]
    special = torch.tensor([[-INF, -INF, -INF], [1.0, NAN, 2.0], [1.0, -INF, 2.0]])
    cases = {}
    for name in ("softmax.int", "log_softmax.int"):
        op = getattr(A, name.split(".")[0]).int
        cases[f"aten.{name}"] = on(op, [*samples, special], -1) + on(op, samples[:1], 0) + on(op, [real(4)], 0)
    for name in ("_softmax", "_log_softmax"):
        cases[f"aten.{name}.default"] = on(getattr(A, name).default, [*samples, special], -1, False)
    return cases


FAMILIES = {
    "view": view_cases,
    "copy": copy_cases,
    "creation": creation_cases,
    "index": index_cases,
    "softmax": softmax_cases,
}
