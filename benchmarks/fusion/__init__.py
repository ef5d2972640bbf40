"""Networks, linear layers, regions and compile times against stock Inductor and MKL, in one process."""

import importlib.util
import pathlib

from quincunx._library import library_directory
from quincunx.cli.bench.capability import Capability

from . import compile_rows, linear_rows, network_rows, region_rows

_SIX = "six of the 34 networks are built here"


def check_ready(checkout: pathlib.Path) -> None:
    """RuntimeError where the compiled part was not built, or a package of the networks is missing."""
    path = library_directory() / "_quincunx_fusion.so"
    if not path.exists():
        raise RuntimeError(f"there is no {path.name} in {path.parent}; build it with `make build` in {checkout}")
    if importlib.util.find_spec("transformers") is None:
        raise RuntimeError(
            "the Python package transformers is missing; `make tour` or cmake/setup.sh python installs it"
        )


CAPABILITY = Capability(
    name="fusion",
    tasks=(*region_rows.TASKS, *linear_rows.TASKS, *compile_rows.TASKS, *network_rows.TASKS),
    unmeasured={
        "networks_default": _SIX,
        "networks_best": _SIX,
        "networks_above_one": _SIX,
        "networks_above_1_05": _SIX,
        "distance_to_limit": "the best product rate is not measured beside the networks",
        "bf16_linear": "no region takes a product in bf16",
        "wrong_results": "counted by the tests",
    },
    check_ready=check_ready,
)
