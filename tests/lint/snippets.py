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

from repository import BUILD, ROOT

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


def _complete_program(block: str) -> str:
    """A block without main becomes the body of a function below its includes."""
    if re.search(r"\bint main\(", block):
        return block
    lines = block.splitlines()
    includes = [line for line in lines if line.startswith(("#include", "using namespace"))]
    body = [line for line in lines if line not in includes]
    return "\n".join([*includes, "void snippet() {", *body, "}", "int main() {}"])


def cpp_violations(page: pathlib.Path, build: pathlib.Path = BUILD, root: pathlib.Path = ROOT) -> list[str]:
    compiler, found = shutil.which("clang++-22") or shutil.which("g++"), []
    for block in blocks(page, "cpp"):
        with tempfile.TemporaryDirectory() as folder:
            source, program = pathlib.Path(folder) / "snippet.cpp", pathlib.Path(folder) / "snippet"
            source.write_text(_complete_program(block))
            flags = ["-std=c++20", f"-I{root}", f"-L{build}/lib", "-lquincunx_runtime", f"-Wl,-rpath,{build}/lib"]
            error = _run([compiler, source, *flags, "-o", program], folder) or _run([program], folder)
        if error:
            found.append(f"{page.name}: a cpp block fails: {error}")
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
