"""The table that says what an optimizer does with each parameter."""

import dataclasses
from collections.abc import Iterable, Sequence

from .placement import Placement
from .plan import Matrix

_HEADINGS = ("parameter", "family", "why", "shape", "owner", "form", "bucket", "bytes", "MFLOP")


@dataclasses.dataclass(frozen=True)
class ExplainedParameter:
    """One row of the table, as text."""

    name: str
    family: str
    why: str
    shape: str
    owner: str = "-"
    form: str = "-"
    bucket: str = "-"
    num_bytes: str = "-"
    mflop: str = "-"

    @classmethod
    def planned(
        cls, name: str, why: str, placement: Placement, matrices: Sequence[Matrix], ranks: Sequence[int]
    ) -> "ExplainedParameter":
        """A parameter that Muon steps. Bytes: of its matrices in f32, over all ranks."""
        sizes = (placement.num_matrices, placement.rows, placement.columns)
        return cls(
            name=name,
            family="muon",
            why=why,
            shape="x".join(str(size) for size in (sizes if sizes[0] != 1 else sizes[1:])),
            owner=_listed(ranks[m.owner] for m in matrices) if placement.mesh else "local",
            form=_listed("gram" if m.is_gram else "direct" for m in matrices),
            bucket=_listed(m.bucket for m in matrices),
            num_bytes=str(4 * len(matrices) * placement.rows * placement.columns),
            mflop=f"{sum(m.flops for m in matrices) / 1e6:.3f}",
        )


def _listed(values: Iterable) -> str:
    return ",".join(str(value) for value in dict.fromkeys(values)) or "-"


def explanation(rows: Sequence[ExplainedParameter]) -> str:
    """Aligned columns under their headings."""
    table = [_HEADINGS, *(dataclasses.astuple(row) for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(_HEADINGS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
    )
