"""What torch.compile and torch.export need of the convolutions of torch.ops.quincunx. Importing this registers it."""

from collections.abc import Sequence

import torch

_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def _sizes(values: Sequence[int], count: int, fallback: int) -> list[int]:
    return list(values) * (count if len(values) == 1 else 1) or [fallback] * count


def _new_image(x: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """In the memory order of x, as the operators do it."""
    if x.shape[1] == 1 or x.stride(1) != 1 or x.is_contiguous():
        return x.new_empty(shape)
    if len(shape) == 3:
        return x.new_empty((shape[0], shape[2], shape[1])).transpose(1, 2)
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=_FORMATS[len(shape)])


@torch.library.register_fake("quincunx::pack_convolution_weight")
def _pack(weight, stride=(), dilation=(), groups=1, transposed=False, exact=False, typical_output=()):
    size = torch.ops.quincunx.packed_convolution_weight_size(
        list(weight.shape), stride, dilation, groups, transposed, exact, typical_output
    )
    return weight.new_empty(size)


@torch.library.register_fake("quincunx::convolution")
def _convolution(
    x,
    weight,
    bias=None,
    stride=(),
    padding=(),
    dilation=(),
    transposed=False,
    output_padding=(),
    groups=1,
    weight_shape=(),
    activation="none",
    clamp=(),
    scale=None,
    residual=None,
    residual_first=False,
):
    shape = weight_shape or weight.shape
    count = len(shape) - 2
    before = padding[:count] if len(padding) == 2 * count else padding
    after = padding[count:] if len(padding) == 2 * count else padding
    sizes = []
    for i, size in enumerate(x.shape[2:]):
        reach = _sizes(dilation, count, 1)[i] * (shape[i + 2] - 1) + 1
        padded = _sizes(before, count, 0)[i] + _sizes(after, count, 0)[i]
        step = _sizes(stride, count, 1)[i]
        if transposed:
            sizes.append((size - 1) * step - padded + reach + _sizes(output_padding, count, 0)[i])
        else:
            sizes.append((size + padded - reach) // step + 1)
    return _new_image(x, (x.shape[0], shape[1] * groups if transposed else shape[0], *sizes))


@torch.library.register_fake("quincunx::packed_convolution")
def _packed_convolution(x, packed, bias, geometry):
    count = len(geometry) // 4
    stride, padding, dilation = (geometry[2 + i * count : 2 + (i + 1) * count] for i in (1, 2, 3))
    return _convolution(x, packed, bias, stride, padding, dilation, weight_shape=geometry[: count + 2])


@torch.library.register_fake("quincunx::causal_convolution")
def _causal_convolution(x, weight, bias=None, previous=None, stride=(), padding=(), dilation=(), weight_shape=()):
    shape = weight_shape or weight.shape
    frames = _sizes(dilation, 3, 1)[0] * (shape[2] - 1)
    plane = _sizes(padding, 2, 0)
    padding = [frames, *plane, 0, *plane]
    output = _convolution(x, weight, bias, stride, padding, dilation, weight_shape=weight_shape)
    return output, _new_image(x, (x.shape[0], x.shape[1], frames, *x.shape[3:]))
