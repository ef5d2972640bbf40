"""The command line of `qx bench`."""

import argparse
import dataclasses
import fnmatch
import importlib
import importlib.util
import pathlib
import shlex
import sys
import time

from .capability import Capability, Context, Meters, measure_all
from .demand import Demand, load_demands
from .display import HEADINGS, cells, print_table, summary
from .instruction_set import LEVELS, restricted
from .load import LoadMeter
from .machine import cpu_flags, describe
from .peak import PeakMeter, load_reader
from .results import check_writable, write_json, write_markdown
from .roofline import read_limits, write_html
from .row import Row

CAPABILITIES = ("kernels", "mccl", "muon", "activation", "fusion", "boost")
_WRONG_USAGE = 2
_FAILED = 1


def _arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="qx bench",
        description="Measures ours against its named peers, interleaved in one run, and judges the median ratios.",
    )
    known = ", ".join(CAPABILITIES)
    parser.add_argument("capability", metavar="CAPABILITY", help=f"{known}, or all")
    parser.add_argument("--quick", action="store_true", help="every row, fewer repeats: at most ten minutes")
    parser.add_argument("--only", metavar="PATTERN", help="rows whose id matches, such as 'gemm_1x*'")
    parser.add_argument("--instruction-set", metavar="NAME", help=f"ours on {' or '.join(LEVELS)} alone")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write one object a row")
    parser.add_argument("--results", type=pathlib.Path, metavar="FILE", help="write into a Markdown page")
    parser.add_argument("--html", type=pathlib.Path, metavar="FILE", help="draw the kernels under the machine's limits")
    options = parser.parse_args(arguments)
    if options.capability not in (*CAPABILITIES, "all"):
        raise ValueError(f"unknown capability '{options.capability}', expected {known} or all")
    if options.html is not None and options.capability not in ("kernels", "all"):
        raise ValueError(f"--html: expected the capability kernels or all, got {options.capability}")
    if options.instruction_set not in (None, *LEVELS):
        raise ValueError(f"--instruction-set: expected {' or '.join(LEVELS)}, got '{options.instruction_set}'")
    if options.results is not None and (options.only or options.instruction_set):
        raise ValueError("--results: expected all rows with every instruction set, got --only or --instruction-set")
    for option, path in (("--json", options.json), ("--results", options.results), ("--html", options.html)):
        if path is not None:
            check_writable(option, path)
    return options


def find_checkout(start: pathlib.Path) -> pathlib.Path:
    """The folder that holds `benchmarks/demands.toml`: `start` or one above it."""
    for folder in (start, *start.parents):
        if (folder / "benchmarks" / "demands.toml").exists():
            return folder
    raise RuntimeError(f"found no benchmarks/demands.toml in {start} or above it; run this in a checkout of Quincunx")


def load_capability(name: str, checkout: pathlib.Path) -> Capability:
    """What `benchmarks/<name>` measures."""
    if str(checkout) not in sys.path:
        sys.path.insert(0, str(checkout))
    return importlib.import_module(f"benchmarks.{name}").CAPABILITY


def only(pattern: str, capability: Capability) -> Capability | None:
    """The tasks that answer a row whose id matches. None where there is none."""
    tasks = tuple(task for task in capability.tasks if fnmatch.filter(task.ids, pattern))
    unmeasured = {row_id: why for row_id, why in capability.unmeasured.items() if fnmatch.fnmatchcase(row_id, pattern)}
    if not tasks and not unmeasured:
        return None
    return dataclasses.replace(capability, tasks=tasks, unmeasured=unmeasured)


def _chosen(names: list[str], checkout: pathlib.Path, pattern: str | None) -> list[Capability]:
    capabilities = [load_capability(name, checkout) for name in names]
    if pattern is None:
        return capabilities
    chosen = [some for capability in capabilities if (some := only(pattern, capability)) is not None]
    if not chosen:
        raise ValueError(f"--only: no row of {', '.join(names)} matches '{pattern}'")
    return chosen


def _run(names: list[str], checkout: pathlib.Path, options: argparse.Namespace) -> list[Row]:
    demands = load_demands(checkout / "benchmarks" / "demands.toml")
    capabilities = _chosen(names, checkout, options.only)
    for capability in capabilities:
        capability.check_ready(checkout)
    with restricted(options.instruction_set):
        return _take_rows(capabilities, demands, checkout, options)


def _take_rows(
    capabilities: list[Capability],
    demands: dict[str, dict[str, Demand]],
    checkout: pathlib.Path,
    options: argparse.Namespace,
) -> list[Row]:
    meters = Meters(PeakMeter(load_reader(checkout)), LoadMeter())
    rows: list[Row] = []
    for capability in capabilities:
        context, start, own = Context(checkout, options.quick), time.monotonic(), []
        asked = demands.get(capability.name, {})
        if options.only is not None:
            asked = {row_id: demand for row_id, demand in asked.items() if fnmatch.fnmatchcase(row_id, options.only)}
        for row in measure_all(capability, asked, context, meters, cpu_flags=cpu_flags()):
            own.append(row)
            shown = dict(zip(HEADINGS, cells(row), strict=True))
            line = f"{shown['row']}, {row.threads} threads: {shown['ratio']} of {shown['demand']}, {row.verdict}"
            print(f"[{time.monotonic() - start:4.0f} s] {capability.name}: {line}", flush=True)
        print_table(capability.name, own)
        rows += own
    return rows


def reproducing_command(options: argparse.Namespace) -> str:
    """What takes the same rows again; where the files of this run lie is nobody else's matter."""
    level = ["--instruction-set", options.instruction_set] if options.instruction_set else []
    chosen = ["--only", options.only] if options.only else []
    return shlex.join(["qx", "bench", options.capability, *(["--quick"] if options.quick else []), *chosen, *level])


def main(arguments: list[str]) -> int:
    """Exit status 0: the rows were taken, whatever their verdicts; 1: they could not be; 2: wrong usage."""
    try:
        options = _arguments(arguments)
    except ValueError as error:
        print(f"qx bench: {error}", file=sys.stderr)
        return _WRONG_USAGE
    names = list(CAPABILITIES) if options.capability == "all" else [options.capability]
    try:
        if importlib.util.find_spec("rich") is None:
            raise RuntimeError("the Python package rich is missing; install it with `pip install rich`")
        checkout = find_checkout(pathlib.Path.cwd())
        limits = read_limits(checkout) if options.html is not None else []
        rows = _run(names, checkout, options)
    except (RuntimeError, ValueError) as error:
        print(f"qx bench: {error}", file=sys.stderr)
        return _FAILED
    if options.json is not None:
        write_json(options.json, rows)
    if options.results is not None:
        write_markdown(options.results, describe(checkout), reproducing_command(options), rows)
    if options.html is not None:
        write_html(options.html, describe(checkout), rows, limits)
    print(f"qx bench {options.capability}: {summary(rows)}")
    return 0
