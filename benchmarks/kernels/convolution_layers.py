"""Every distinct convolution of four networks at batch 1, with what the peers took on one thread before ours was tuned.

ResNet-50 and MobileNet-v3 (large) at 224 x 224, the UNet of Stable Diffusion 1.5 at 32 x 32 latents, AutoencoderKLWan
decoding and encoding chunks of 48 x 48 pixels (its causal padding is part of the input, as its layers pass it on).
"""

import csv
import dataclasses
import math
import pathlib

_TABLE = pathlib.Path(__file__).with_name("convolution_layers.csv")


@dataclasses.dataclass(frozen=True)
class Layer:
    """`input`: channels and sizes; `kernel`, `stride` and `padding`: one number a spatial dimension."""

    network: str
    input: tuple[int, ...]
    out_channels: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    groups: int

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.out_channels, self.input[0] // self.groups, *self.kernel)

    @property
    def output_sizes(self) -> tuple[int, ...]:
        dims = zip(self.input[1:], self.kernel, self.stride, self.padding, strict=True)
        return tuple((size + 2 * pad - taps) // step + 1 for size, taps, step, pad in dims)

    @property
    def operations(self) -> float:
        operations = 2.0
        for factor in (*self.weight_shape, *self.output_sizes):
            operations *= factor
        return operations

    @property
    def moved_bytes(self) -> int:
        """Of input, weight and output."""
        output = (self.out_channels, *self.output_sizes)
        return 4 * sum(math.prod(shape) for shape in (self.input, self.weight_shape, output))

    @property
    def row_id(self) -> str:
        return "conv_" + str(self).replace(" ", "_")

    def __str__(self) -> str:
        sizes, kernel = ("x".join(str(value) for value in values) for values in (self.input[1:], self.kernel))
        groups = f" groups {self.groups}" if self.groups > 1 else ""
        step = f" stride {max(self.stride)}" if max(self.stride) > 1 else ""
        return f"{self.network} {self.input[0]}-{self.out_channels} {kernel} at {sizes}{step}{groups}"


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("x"))


def load_layers() -> tuple[Layer, ...]:
    with _TABLE.open(newline="") as file:
        return tuple(
            Layer(
                line["network"],
                _sizes(line["input"]),
                int(line["out_channels"]),
                _sizes(line["kernel"]),
                _sizes(line["stride"]),
                _sizes(line["padding"]),
                int(line["groups"]),
            )
            for line in csv.DictReader(file)
        )


LAYERS = load_layers()
