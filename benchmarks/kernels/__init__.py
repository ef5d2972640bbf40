"""Kernels against PyTorch and the libraries of .venv-peers, in one process: the TASKS of each `<family>_rows.py`."""

import importlib
import pkgutil

from quincunx.cli.bench.capability import Capability, Task

from .gemm_peers import check_installed


def _tasks() -> tuple[Task, ...]:
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name.endswith("_rows"))
    return tuple(task for name in names for task in importlib.import_module(f"{__name__}.{name}").TASKS)


CAPABILITY = Capability(name="kernels", tasks=_tasks(), unmeasured={}, check_ready=check_installed)
