"""Shape, dtype and strides of the results of the operators with low-precision weights; see _fake_kernels.

Importing this module registers them; the operators must be loaded.
"""

import torch

# As in quincunx/kernels/low_precision_gemm/weight_layout.h.
_PANEL_COLUMNS = 16
_ROW_BYTES = 64  # of a panel
_GROUP_LENGTH = 32
_MAX_SEGMENT = 32768
_ORIGIN_BYTES = 64  # as in quincunx/torch/packed_origin.h


def _ceil_div(a, b):
    return (a + b - 1) // b


def _panel_bytes(format, in_features):
    groups = _ceil_div(in_features, _GROUP_LENGTH)
    sizes = {
        "bfloat16": _ceil_div(in_features, 2) * _ROW_BYTES,
        "float16": in_features * _ROW_BYTES // 2,
        "int8": (_ceil_div(in_features, 4) + 1 + _ceil_div(in_features, _MAX_SEGMENT)) * _ROW_BYTES,
        "int8_grouped": groups * (8 * _ROW_BYTES + 2 * _PANEL_COLUMNS),
        "int4_grouped": groups * (4 * _ROW_BYTES + 2 * _PANEL_COLUMNS),
    }
    if format not in sizes:
        raise ValueError(f"format: expected one of {', '.join(sizes)}, got {format!r}")
    return sizes[format]


@torch.library.register_fake("quincunx::pack_low_precision_weight")
def _pack_low_precision_weight(weight, format):
    out_features, in_features = weight.shape
    size = _panel_bytes(format, in_features) * _ceil_div(out_features, _PANEL_COLUMNS) + _ORIGIN_BYTES
    return weight.new_empty(size, dtype=torch.uint8)


@torch.library.register_fake("quincunx::unpack_low_precision_weight")
def _unpack_low_precision_weight(packed, out_features, in_features, format):
    return packed.new_empty((out_features, in_features), dtype=torch.float32)


@torch.library.register_fake("quincunx::low_precision_linear")
def _low_precision_linear(
    x,
    packed,
    out_features,
    format,
    bias=None,
    activation="none",
    residual=None,
    input="none",
    input_scale=1.0,
    input_zero_point=0,
):
    return x.new_empty((*x.shape[:-1], out_features))
