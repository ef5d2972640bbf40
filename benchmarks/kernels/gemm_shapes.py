"""The 40 products of the f32 table, with what the peers reached on one thread before ours was optimised."""

import csv
import dataclasses
import pathlib

_TABLE = pathlib.Path(__file__).with_name("gemm_shapes.csv")


@dataclasses.dataclass(frozen=True)
class Shape:
    """[rows, inner] times [inner, columns], as in `network`."""

    network: str
    rows: int
    columns: int
    inner: int

    @property
    def row_id(self) -> str:
        return f"gemm_{self}"

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}x{self.inner}"

    @property
    def operations(self) -> float:
        return 2.0 * self.rows * self.columns * self.inner

    @property
    def weight_bytes(self) -> int:
        return 4 * self.columns * self.inner


def load_shapes() -> tuple[Shape, ...]:
    with _TABLE.open(newline="") as file:
        return tuple(
            Shape(line["network"], int(line["rows"]), int(line["columns"]), int(line["inner"]))
            for line in csv.DictReader(file)
        )


SHAPES = load_shapes()
