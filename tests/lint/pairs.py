"""Everything that can be wrong or slow has its partner: a kernel its test and benchmark, a Python module and a pass
its test."""

import pathlib
import re

from repository import files

# The parts of one kernel are reached through its dispatching header, and so is its scalar reference.
# A source with a dispatch table is a kernel; what it is made of (packing, argument checks) is tested through it.
_DISPATCHED = re.compile(r"\bHWY_(EXPORT|DYNAMIC_DISPATCH)")
_VARIANT = re.compile(r"(_reference|_kernel|_portable|_avx\w*|_sse\w*|_neon|_sve\w*)$")


def _kernel_violations(root: pathlib.Path) -> list[str]:
    found = []
    kernels = root / "quincunx" / "kernels"
    families = sorted(path for path in kernels.iterdir() if path.is_dir()) if kernels.exists() else []
    for family in families:
        tests = list((root / "tests" / "kernels" / family.name).glob("*_test.cpp"))
        tested = "".join(path.read_text() for path in tests)
        for source in sorted(family.glob("*.cpp")):
            stem = _VARIANT.sub("", source.stem)
            if stem == source.stem and not _DISPATCHED.search(source.read_text()):
                continue
            header = f"quincunx/kernels/{family.name}/{stem}.h"
            if not any(path.name == f"{stem}_test.cpp" for path in tests) and header not in tested:
                found.append(f"quincunx/kernels/{family.name}/{source.name}: no test includes {header}")
        if not list((root / "benchmarks" / "kernels" / family.name).glob("*_benchmark.cpp")):
            found.append(f"quincunx/kernels/{family.name}: no *_benchmark.cpp in benchmarks/kernels/{family.name}")
    return found


def _python_violations(root: pathlib.Path) -> list[str]:
    """A module's test is the file of its name, or any test that names it; `_private` ones are tested through others."""
    found = []
    package = root / "python" / "quincunx"
    tests = "".join(path.read_text() for path in files(root / "tests" / "python", ".py"))
    for path in files(package, ".py"):
        if path.name.startswith("_"):
            continue
        name = path.relative_to(package)
        module = ".".join(("quincunx", *name.with_suffix("").parts))
        parent, _, last = module.rpartition(".")
        named = re.search(rf"\b{re.escape(module)}\b|from {re.escape(parent)} import [^\n]*\b{last}\b", tests)
        test = pathlib.Path("tests/python") / name.parent / f"test_{path.stem}.py"
        if not (root / test).exists() and not named:
            found.append(f"python/quincunx/{name}: there is no {test}, and no other test names {module}")
    return found


def _pass_violations(root: pathlib.Path) -> list[str]:
    """Every pass that passes.td declares has the lit test of its name."""
    found = []
    for path in files(root / "quincunx" / "compiler", ".td"):
        text = path.read_text()
        names = [f"fuse-{name}" for name in re.findall(r':\s*QxPattern<"([\w-]+)">', text)]
        names += re.findall(r':\s*Pass<"qx-([\w-]+)",', text)
        for name in names:
            test = f"tests/lit/{name.replace('-', '_')}.mlir"
            if not (root / test).exists():
                found.append(f"{path.relative_to(root).as_posix()}: pass qx-{name} has no {test}")
    return found


def violations(root: pathlib.Path) -> list[str]:
    return _kernel_violations(root) + _python_violations(root) + _pass_violations(root)
