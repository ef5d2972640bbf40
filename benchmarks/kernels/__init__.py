"""Kernels against MKL (through torch) and OpenBLAS, in one process."""

from quincunx.cli.bench.capability import Capability

from . import gemm_rows, newton_schulz_rows
from .openblas import check_installed

CAPABILITY = Capability(
    name="kernels",
    tasks=(*gemm_rows.TASKS, *newton_schulz_rows.TASKS),
    unmeasured={},
    check_ready=check_installed,
)
