"""Pictures of a report, held in its file."""

import base64
import dataclasses
import struct
import zlib

import numpy

MEDIA_TYPES = ("image/png", "image/svg+xml")
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_EIGHT_BITS, _RGB = 8, 2


@dataclasses.dataclass(frozen=True)
class Picture:
    """`label` stands above it. `data`: the bytes of a file of that media type."""

    name: str
    label: str
    data: bytes
    media_type: str = "image/png"

    def __post_init__(self) -> None:
        if self.media_type not in MEDIA_TYPES:
            raise ValueError(f"media_type: expected one of {', '.join(MEDIA_TYPES)}, got {self.media_type!r}")
        if not isinstance(self.data, bytes) or not self.data:
            raise ValueError(f"data: expected the bytes of the picture {self.name!r}, got {type(self.data).__name__}")

    @property
    def address(self) -> str:
        """A data: address that holds the whole picture."""
        return f"data:{self.media_type};base64,{base64.b64encode(self.data).decode('ascii')}"


def png(pixels: numpy.ndarray) -> bytes:
    """A PNG file of pixels [height, width, 3] with values 0 to 1, or integers 0 to 255."""
    pixels = numpy.asarray(pixels)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or 0 in pixels.shape:
        raise ValueError(f"pixels: expected [height, width, 3] with at least one pixel, got {list(pixels.shape)}")
    if numpy.issubdtype(pixels.dtype, numpy.integer):
        if pixels.min() < 0 or pixels.max() > 255:
            raise ValueError(f"pixels: expected integers from 0 to 255, got {pixels.min()} to {pixels.max()}")
        pixels = pixels.astype(numpy.uint8)
    else:
        if not numpy.isfinite(pixels).all():
            raise ValueError("pixels: expected finite values from 0 to 1")
        pixels = (pixels.clip(0.0, 1.0) * 255.0 + 0.5).astype(numpy.uint8)
    height, width, _ = pixels.shape
    rows = numpy.zeros((height, 1 + 3 * width), numpy.uint8)  # each row begins with the number of its filter: none
    rows[:, 1:] = pixels.reshape(height, 3 * width)
    header = struct.pack(">IIBBBBB", width, height, _EIGHT_BITS, _RGB, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
