"""Lengths of files and functions: past the hard limit a file holds two ideas, and a function more than one."""

import ast
import pathlib
import re

from repository import files

# (pattern of the path, soft limit, hard limit), the first that matches. The soft limit is advice, shown by `report`.
FILE_LIMITS = [
    (r"(^|/)tests/.*\.(cpp|h|py)$", 350, 700),
    (r"\.mlir$", 200, 400),
    (r"(^|/)CMakeLists\.txt$", 40, 120),
    (r"\.(cpp|td)$", 300, 600),
    (r"\.h$", 150, 350),
    (r"\.py$", 250, 450),
]
FUNCTION_HARD = 80
# At most five, each with its reason: {"path": "why it may be longer"}.
EXCEPTIONS: dict[str, str] = {}
MAX_EXCEPTIONS = 5

_CPP_OPENING = re.compile(r"^(?!namespace\b|class\b|struct\b|enum\b|union\b|extern\b|#)[A-Za-z_].*\{$")


def _limits(name: str) -> tuple[int, int] | None:
    return next(((soft, hard) for pattern, soft, hard in FILE_LIMITS if re.search(pattern, name)), None)


def _python_functions(text: str) -> list[tuple[str, int]]:
    nodes = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [(n.name, n.end_lineno - n.lineno + 1) for n in ast.walk(ast.parse(text)) if isinstance(n, nodes)]


def _cpp_functions(text: str) -> list[tuple[str, int]]:
    """Functions outside classes: formatted sources open them at the first column and close them there."""
    found, start = [], None
    for number, line in enumerate(text.splitlines()):
        if start is None and _CPP_OPENING.match(line) and "(" in line:
            start = (line, number)
        elif start is not None and line.startswith("}"):
            found.append((start[0].rstrip(" {"), number - start[1] + 1))
            start = None
    return found


def violations(root: pathlib.Path, exceptions: dict[str, str] | None = None) -> list[str]:
    exceptions = EXCEPTIONS if exceptions is None else exceptions
    found = []
    if len(exceptions) > MAX_EXCEPTIONS:
        found.append(f"{len(exceptions)} exceptions, expected at most {MAX_EXCEPTIONS}")
    for path in files(root):
        name = path.relative_to(root).as_posix()
        limits = _limits(name)
        if limits is None or name in exceptions:
            continue
        text = path.read_text()
        length = len(text.splitlines())
        if length > limits[1]:
            found.append(f"{name}: {length} lines, expected at most {limits[1]}")
        functions = []
        if name.endswith(".py"):
            functions = _python_functions(text)
        elif name.endswith((".cpp", ".h")):
            functions = _cpp_functions(text)
        found += [
            f"{name}: {function} has {lines} lines, expected at most {FUNCTION_HARD}"
            for function, lines in functions
            if lines > FUNCTION_HARD
        ]
    return found


def report(root: pathlib.Path) -> list[str]:
    """Files past the soft limit, for a reader who looks for what to split next."""
    found = []
    for path in files(root):
        name = path.relative_to(root).as_posix()
        limits = _limits(name)
        length = len(path.read_text().splitlines()) if limits else 0
        if limits and length > limits[0]:
            found.append(f"{name}: {length} lines, soft limit {limits[0]}")
    return found


if __name__ == "__main__":
    from repository import ROOT

    print("\n".join(report(ROOT)))
