"""A process of its own: compiles one network with empty caches and prints the CPU seconds that it took.

python -m benchmarks.fusion.cold_compile Inductor|ours|alone NETWORK
"""

import contextlib
import json
import resource
import sys
import time
from collections.abc import Iterator

import torch
from quincunx.fusion import counters, fuser, inductor_options

from .networks import build


def _children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@contextlib.contextmanager
def _timed_compiler(spent: list[float]) -> Iterator[None]:
    """Adds to `spent` the seconds inside our compiler: import, patterns, clustering and LLVM."""
    module = fuser._extension.load()
    plain = module.fuse

    def timed(*arguments: object) -> object:
        start = time.process_time()
        try:
            return plain(*arguments)
        finally:
            spent.append(time.process_time() - start)

    module.fuse = timed
    try:
        yield
    finally:
        module.fuse = plain


def main(how: str, network: str) -> None:
    ways = {"Inductor": {}, "ours": {"options": inductor_options()}, "alone": {"backend": "quincunx"}}
    model, inputs = build(network)
    spent: list[float] = []
    with torch.no_grad(), _timed_compiler(spent):
        start, children = time.process_time(), _children_seconds()
        torch.compile(lambda *tensors: model(*tensors), **ways[how])(*inputs)
        compilers = _children_seconds() - children
        total = time.process_time() - start + compilers
    # What a C++ compiler takes for the kernels that Inductor writes counts for both.
    found = {"kernels": compilers + sum(spent), "whole": total, "compiled": counters()["kernels_compiled"]}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
