"""The examples in README.md, CONTRIBUTING.md and docs/ run.

The blocks of one page run in order: `python` blocks share one process, `cpp` blocks are built against the library
(and run where they hold main), `sh` lines run where they start with `qx`, and `make` lines must name a target.
Blocks of another language (`text`, `console`) show output and are left alone.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from repository import BUILD, ROOT, files

TIME_LIMIT_S = 120
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pages(root: pathlib.Path) -> Iterator[pathlib.Path]:
    yield from (path for path in (root / "README.md", root / "CONTRIBUTING.md") if path.exists())
    yield from sorted((root / "docs").rglob("*.md"))


def blocks(page: pathlib.Path, language: str) -> list[str]:
    return [text for name, text in _BLOCK.findall(page.read_text()) if name == language]


def _environment() -> dict[str, str]:
    """One rank alone, so that examples of a distributed job run as they stand."""
    single_rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    return os.environ | single_rank | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "QX_PYTHON": sys.executable}


def _run(command: list, folder: str) -> str | None:
    """What went wrong, or None."""
    try:
        done = subprocess.run(
            command, cwd=folder, env=_environment(), capture_output=True, text=True, timeout=TIME_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return f"took more than {TIME_LIMIT_S} s"
    if done.returncode == 0:
        return None
    return f"exit status {done.returncode}: {(done.stdout + done.stderr)[-2000:]}"


def python_violations(page: pathlib.Path) -> list[str]:
    code = "\n".join(blocks(page, "python"))
    if not code:
        return []
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "snippet.py").write_text(code)
        error = _run([sys.executable, "snippet.py"], folder)
    return [f"{page.name}: the python blocks fail: {error}"] if error else []


def _programs(block: str, root: pathlib.Path) -> list[str]:
    """What a block can mean: a program, else statements or declarations that see all public headers."""
    if re.search(r"\bint main\(", block):
        return [block]
    public = [path for path in files(root / "quincunx", ".h") if not path.name.endswith("-inl.h")]
    names = [path.relative_to(root).as_posix() for path in public]
    others = ("torch", "python", "apps", "compiler")
    includes = [f'#include "{name}"' for name in names if name.split("/")[1] not in others]
    includes += ["#include <vector>", *(line for line in block.splitlines() if line.startswith("#include"))]
    body = "\n".join(line for line in block.splitlines() if not line.startswith("#include"))
    start = "\n".join(includes)
    return [
        f"{start}\nqx::Status snippet() {{\n{body}\nreturn {{}};\n}}\nint main() {{}}",
        f"{start}\n{body}\nint main() {{}}",
    ]


def _build_and_run(program: str, build: pathlib.Path, root: pathlib.Path) -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "snippet.cpp").write_text(program)
        flags = [f"-I{root}", f"-L{build}/lib", "-lquincunx_runtime", f"-Wl,-rpath,{build}/lib"]
        compiler = shutil.which("clang++-22") or shutil.which("g++")
        command = [compiler, "-std=c++20", "snippet.cpp", *flags, "-o", "snippet"]
        return _run(command, folder) or _run(["./snippet"], folder)


def cpp_violations(page: pathlib.Path, build: pathlib.Path = BUILD, root: pathlib.Path = ROOT) -> list[str]:
    found = []
    for block in blocks(page, "cpp"):
        errors = []
        for program in _programs(block, root):
            errors.append(_build_and_run(program, build, root))
            if errors[-1] is None:
                break
        if errors[-1] is not None:
            found.append(f"{page.name}: a cpp block fails: {errors[0]}")
    return found


def shell_violations(page: pathlib.Path, build: pathlib.Path = BUILD, root: pathlib.Path = ROOT) -> list[str]:
    found = []
    for line in "".join(blocks(page, "sh")).splitlines():
        words = line.split("#")[0].split()
        if words[:1] == ["make"]:
            error = _run(["make", "-n", *words[1:]], str(root))
        elif words[:1] == ["qx"]:
            error = _run([build / "bin" / "qx", *words[1:]], str(root))
        else:
            continue
        if error:
            found.append(f"{page.name}: `{line}` fails: {error}")
    return found
