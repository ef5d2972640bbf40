"""Calls of the operators that layers of networks are made of; see operator_cases.py."""

import torch
from lite.operator_cases import INF, A, on, real, truth


def product_cases():
    x, w, b = real(2, 5, 7), real(9, 7, seed=1), real(9, seed=2)
    half = torch.bfloat16
    return {
        "aten.linear.default": [
            (A.linear.default, (x, w, b)),
            (A.linear.default, (real(7), w)),
            (A.linear.default, (x.transpose(0, 1), w, b)),
            (A.linear.default, (real(0, 7), w, b)),
            (A.linear.default, (x.to(half), w.to(half), b.to(half))),
            (lambda x: A.linear.default(x, w, b), (x,)),
            (A.linear.default, (x.double(), w.double(), b.double())),
        ],
        "aten.mm.default": [(A.mm.default, (real(5, 7), w.t())), (lambda x: A.mm.default(x, w.t()), (real(5, 7),))],
        "aten.addmm.default": [
            (A.addmm.default, (b, real(5, 7), w.t())),
            (A.addmm.default, (real(5, 9, seed=3), real(5, 7), w.t())),
            (lambda b, x: A.addmm.default(b, x, w.t(), alpha=0.5), (b, real(5, 7))),
        ],
        "aten.matmul.default": [
            (A.matmul.default, (x, real(7, 3, seed=1))),
            (A.matmul.default, (x, real(2, 7, 3, seed=1))),
            (A.matmul.default, (real(3, 1, 4, 7), real(5, 7, 2, seed=1))),
            (A.matmul.default, (real(7), real(7, 3, seed=1))),
            (A.matmul.default, (x, real(7, seed=1))),
            (A.matmul.default, (real(7), real(7, seed=1))),
            (A.matmul.default, (real(7), real(2, 7, 3, seed=1))),
            (lambda x: A.matmul.default(x, torch.ones(7, 2)), (x,)),
        ],
        "aten.mv.default": [(A.mv.default, (real(5, 7), real(7, seed=1)))],
        "aten.dot.default": [(A.dot.default, (real(7), real(7, seed=1)))],
        "aten.bmm.default": [(A.bmm.default, (real(3, 4, 7), real(3, 7, 2, seed=1)))],
        "aten.baddbmm.default": [(A.baddbmm.default, (real(2), real(3, 4, 7), real(3, 7, 2, seed=1)))],
    }


def attention_cases():
    sdpa = A.scaled_dot_product_attention.default
    flash = A._scaled_dot_product_flash_attention_for_cpu.default
    q, k, v = real(2, 4, 9, 8), real(2, 4, 9, 8, seed=1), real(2, 4, 9, 8, seed=2)
    mask = truth(9, 9)
    mask[3] = False
    added = torch.zeros(9, 9).masked_fill(~mask, -INF)
    kv = real(2, 2, 9, 8, seed=1), real(2, 2, 9, 8, seed=2)
    short = real(2, 4, 5, 8)
    return {
        "aten.scaled_dot_product_attention.default": [
            (sdpa, (q, k, v)),
            (lambda q, k, v: sdpa(q, k, v, is_causal=True), (q, k, v)),
            (lambda q, k, v: sdpa(q, k, v, is_causal=True), (short, k, v)),
            (lambda q, k, v: sdpa(q, k, v, scale=0.3), (q, k, v)),
            (sdpa, (q, k, v, mask)),
            (sdpa, (q, k, v, added)),
            (sdpa, (q, k, v, truth(2, 1, 1, 9))),
            (lambda q, k, v: sdpa(q, k, v, enable_gqa=True), (q, *kv)),
            (lambda q, k, v, m: sdpa(q, k, v, m, enable_gqa=True), (q, *kv, mask)),
            (sdpa, (q[0], k[0], v[0])),
            (sdpa, (q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))),
            (sdpa, (real(1, 1, 6, 300), real(1, 1, 7, 300, seed=1), real(1, 1, 7, 300, seed=2))),
            (sdpa, (real(0, 4, 9, 8), real(0, 4, 9, 8), real(0, 4, 9, 8))),
            (sdpa, tuple(t.to(torch.bfloat16) for t in (q, k, v))),
        ],
        "aten._scaled_dot_product_flash_attention_for_cpu.default": [
            (lambda q, k, v: flash(q, k, v)[0], (q, k, v)),
            (lambda q, k, v: flash(q, k, v, is_causal=True)[0], (q, k, v)),
        ],
    }


def norm_cases():
    x, image = real(3, 5, 16), real(2, 6, 4, 5)
    w, b = real(16, seed=1), real(16, seed=2)
    statistics = (real(6, seed=1), real(6, seed=2), real(6, seed=3), real(6, seed=4).abs() + 0.1)
    return {
        "aten.layer_norm.default": [
            (lambda x, w, b: A.layer_norm.default(x, [16], w, b), (x, w, b)),
            (lambda x: A.layer_norm.default(x, [5, 16]), (x,)),
            (lambda x: A.layer_norm.default(x, [16]), (real(2, 16, dtype=torch.float16),)),
            (lambda x, w, b: A.layer_norm.default(x, [16], w, b), (x.double(), w.double(), b.double())),
            # Rows whose elements do not lie in order.
            (lambda x: A.layer_norm.default(x.transpose(1, 3), [5, 4, 6]), (image,)),
            (lambda x, w: A.layer_norm.default(x.transpose(0, 2), [5, 3], w.reshape(5, 3)), (x, real(15, seed=3))),
            (lambda x: A.layer_norm.default(x.transpose(1, 2), [5]), (x.double(),)),
        ],
        "aten.native_layer_norm.default": [
            (lambda x, w, b: A.native_layer_norm.default(x, [16], w, b, 1e-6)[0], (x, w, b))
        ],
        "aten.rms_norm.default": [
            (lambda x, w: A.rms_norm.default(x, [16], w, 1e-6), (x, w)),
            (lambda x: A.rms_norm.default(x, [16]), (1e-4 * x,)),
            (lambda x: A.rms_norm.default(x.transpose(0, 1), [3, 16]), (x,)),
        ],
        "aten._fused_rms_norm.default": [(lambda x, w: A._fused_rms_norm.default(x, [16], w, 1e-6)[0], (x, w))],
        "aten.batch_norm.default": [
            (lambda x, *s: A.batch_norm.default(x, *s, False, 0.1, 1e-5, False), (image, *statistics)),
            (lambda x, *s: A.batch_norm.default(x, None, None, *s, False, 0.1, 1e-3, False), (image, *statistics[2:])),
        ],
        "aten._native_batch_norm_legit_no_training.default": [
            (
                lambda x, *s: A._native_batch_norm_legit_no_training.default(x, *s, 0.1, 1e-5)[0],
                (image.transpose(2, 3), *statistics),
            )
        ],
        "aten.group_norm.default": [
            (lambda x, w, b: A.group_norm.default(x, 3, w, b), (image, real(6, seed=1), real(6, seed=2))),
            (lambda x: A.group_norm.default(x, 2), (real(2, 6),)),
        ],
        "aten.native_group_norm.default": [
            (lambda x, w, b: A.native_group_norm.default(x, w, b, 2, 6, 20, 2, 1e-5)[0], (image, *statistics[:2]))
        ],
    }


def convolution_cases():
    x, w, wide = real(2, 4, 9, 8), real(6, 4, 3, 3, seed=1), real(64, 64, 3, 3, seed=1)
    deep, spread = real(4, 1, 3, 3, seed=1), real(4, 3, 3, 2, seed=1)
    return {
        "aten.conv1d.default": [(A.conv1d.default, (real(2, 4, 9), real(6, 4, 3, seed=1), real(6, seed=2)))],
        "aten.conv2d.default": [
            (A.conv2d.default, (x, w, real(6, seed=2))),
            (lambda x, w: A.conv2d.default(x, w, None, [2, 1], [1, 2], [2, 1]), (x, w)),
            (lambda x: A.conv2d.default(x, w, None, [1, 1], [1, 1]), (x,)),
            (lambda x, w: A.conv2d.default(x, w, None, [1, 1], [0, 0], [1, 1], 2), (x, real(6, 2, 3, 3, seed=1))),
            (lambda x, w: A.conv2d.default(x, w, None, [1, 1], [1, 1], [1, 1], 4), (x, real(4, 1, 3, 3, seed=1))),
            (A.conv2d.default, (x[0], w)),
            (A.conv2d.default, (x.double(), w.double())),
            (A.conv2d.default, (real(0, 4, 9, 8), w)),
            (lambda x: A.conv2d.default(x, deep, None, [1, 1], [1, 1], [1, 1], 4), (x,)),
            (lambda x: A.conv2d.default(x, wide, None, [1, 1], [1, 1]), (real(1, 64, 9, 10),)),
        ],
        "aten.conv3d.default": [(A.conv3d.default, (real(1, 2, 4, 5, 6), real(3, 2, 2, 3, 2, seed=1)))],
        "aten.conv1d.padding": [
            (lambda x, w: A.conv1d.padding(x, w, None, [1], "same"), (real(2, 4, 9), real(6, 4, 3, seed=1))),
            (lambda x, w: A.conv1d.padding(x, w, None, [1], "same"), (real(2, 4, 9), real(6, 4, 4, seed=1))),
        ],
        "aten.conv2d.padding": [(lambda x, w: A.conv2d.padding(x, w, None, [1, 1], "valid"), (x, w))],
        "aten.convolution.default": [
            (lambda x, w: A.convolution.default(x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1), (x, w)),
            (
                lambda x, w: A.convolution.default(x, w, None, [2, 2], [1, 1], [1, 1], True, [1, 0], 2),
                (x, real(4, 3, 3, 3, seed=1)),
            ),
        ],
        "aten.conv_transpose1d.default": [
            (lambda x, w: A.conv_transpose1d.default(x, w, None, [2], [1], [1], 1, [2]), (real(1, 2, 5), real(2, 3, 3)))
        ],
        "aten.conv_transpose2d.input": [
            (A.conv_transpose2d.input, (x, real(4, 3, 3, 2, seed=1), real(3, seed=2))),
            (A.conv_transpose2d.input, (x.double(), real(4, 3, 3, 2, seed=1).double())),
            (lambda x: A.conv_transpose2d.input(x, spread, None, [2, 2], [1, 0]), (x,)),
        ],
        "aten.conv_transpose3d.input": [(A.conv_transpose3d.input, (real(1, 2, 3, 3, 3), real(2, 2, 2, 2, 2, seed=1)))],
    }


def pool_cases():
    x = real(2, 3, 7, 6)
    average, maximum = A.avg_pool2d.default, A.max_pool2d.default
    return {
        "aten.avg_pool1d.default": on(A.avg_pool1d.default, [real(2, 3, 9)], [3], [2], [1]),
        "aten.avg_pool2d.default": on(average, [x, x.transpose(2, 3), x[0]], [3, 2])
        + on(average, [x], [3, 3], [2, 2], [1, 1], True, True)
        + on(average, [x], [3, 3], [2, 2], [1, 1], True, False)
        + on(average, [x], [2, 2], [2, 2], [0, 0], False, True, 3),
        "aten.avg_pool3d.default": on(A.avg_pool3d.default, [real(1, 2, 4, 5, 6)], [2, 2, 2]),
        "aten.max_pool1d.default": on(A.max_pool1d.default, [real(2, 3, 9)], [3], [2], [1]),
        "aten.max_pool2d.default": on(maximum, [x], [3, 3], [2, 2], [1, 1], [1, 1], True),
        "aten.max_pool3d.default": on(A.max_pool3d.default, [real(1, 2, 4, 5, 6)], [2, 2, 2]),
        "aten.max_pool2d_with_indices.default": on(A.max_pool2d_with_indices.default, [x], [3, 3], [2, 2], [1, 1]),
        "aten.adaptive_avg_pool1d.default": on(A.adaptive_avg_pool1d.default, [real(2, 3, 9)], [4]),
        "aten.adaptive_avg_pool2d.default": on(A.adaptive_avg_pool2d.default, [x], [3, 4]),
        "aten._adaptive_avg_pool2d.default": on(A._adaptive_avg_pool2d.default, [x], [1, 1]),
        "aten.adaptive_avg_pool3d.default": on(A.adaptive_avg_pool3d.default, [real(1, 2, 4, 5, 6)], [2, 3, 1]),
        "aten.adaptive_max_pool2d.default": [(lambda x: A.adaptive_max_pool2d.default(x, [3, 4])[0], (x,))],
    }


def pad_cases():
    line, image, block = real(1, 2, 8), real(2, 3, 5, 6), real(1, 2, 4, 4, 4)
    constant = [(lambda x: A.pad.default(x, [1, 2, -1, 0]), (image,))]
    for mode in ("reflect", "replicate", "circular"):
        constant.append((lambda x, mode=mode: A.pad.default(x, [2, 3], mode), (line,)))
    return {
        "aten.pad.default": constant + [(lambda x: A.pad.default(x, [-1, 2], "constant", 7.0), (line,))],
        "aten.constant_pad_nd.default": on(A.constant_pad_nd.default, [image], [1, 1, 0, 2], -INF),
        "aten.reflection_pad1d.default": on(A.reflection_pad1d.default, [line], [3, 1]),
        "aten.reflection_pad2d.default": on(A.reflection_pad2d.default, [image], [3, 1, 2, 0]),
        "aten.reflection_pad3d.default": on(A.reflection_pad3d.default, [block], [1, 1, 2, 0, 1, 1]),
        "aten.replication_pad1d.default": on(A.replication_pad1d.default, [line], [-1, 2]),
        "aten.replication_pad2d.default": on(A.replication_pad2d.default, [image], [3, 1, 2, 0]),
        "aten.replication_pad3d.default": on(A.replication_pad3d.default, [block], [1, 1, 2, 0, 1, 1]),
        "aten._pad_circular.default": on(A._pad_circular.default, [image], [1, 2, 3, 0]),
    }


def resample_cases():
    line, image, block = real(1, 2, 5), real(2, 3, 5, 6), real(1, 2, 3, 3, 3)
    grid = torch.rand(2, 4, 3, 2, generator=torch.Generator().manual_seed(0)) * 3 - 1.5
    cases = {
        "aten.upsample_nearest1d.vec": on(A.upsample_nearest1d.vec, [line], [8], None),
        "aten.upsample_nearest2d.vec": on(A.upsample_nearest2d.vec, [image], None, [2.0, 1.5]),
        "aten.upsample_nearest3d.vec": on(A.upsample_nearest3d.vec, [block], [4, 5, 6], None),
        "aten.upsample_nearest1d.default": on(A.upsample_nearest1d.default, [line], [11]),
        "aten.upsample_nearest2d.default": on(A.upsample_nearest2d.default, [image], [3, 11]),
        "aten.upsample_nearest3d.default": on(A.upsample_nearest3d.default, [block], [4, 5, 6]),
        "aten._upsample_nearest_exact1d.vec": on(A._upsample_nearest_exact1d.vec, [line], [8], None),
        "aten._upsample_nearest_exact2d.vec": on(A._upsample_nearest_exact2d.vec, [image], None, [2.0, 1.5]),
        "aten._upsample_nearest_exact3d.vec": on(A._upsample_nearest_exact3d.vec, [block], [4, 5, 6], None),
        "aten.upsample_bilinear2d.vec": on(A.upsample_bilinear2d.vec, [image], None, False, [2.0, 1.5])
        + on(A.upsample_bilinear2d.vec, [image], [4, 9], True, None),
        "aten.upsample_bilinear2d.default": on(A.upsample_bilinear2d.default, [image], [7, 3], False),
        "aten.grid_sampler.default": [
            (lambda x, g, m=mode, p=padding, c=corners: A.grid_sampler.default(x, g, m, p, c), (image, grid))
            for mode in (0, 1)
            for padding in (0, 1, 2)
            for corners in (False, True)
        ],
        "aten.grid_sampler_2d.default": [(lambda x, g: A.grid_sampler_2d.default(x, g, 0, 0, False), (image, grid))],
    }
    return cases


FAMILIES = {
    "product": product_cases,
    "attention": attention_cases,
    "norm": norm_cases,
    "convolution": convolution_cases,
    "pool": pool_cases,
    "pad": pad_cases,
    "resample": resample_cases,
}
