"""Who may use whom. The folder list is the dependency order: a folder uses itself and what stands above it.

Checked for the includes of every C++ file and for the dependencies that the CMake lists declare, and that a folder
declares what it includes.
"""

import pathlib
import re

from repository import files

ORDER = "base parallel tensor kernels planning collectives tile graph compiler lite torch python apps".split()
# Headers of a library that stay in a few folders, so that everything else can be used without that library.
CONFINED = {
    "torch": (r"(torch|ATen|c10)/", {"torch"}),
    "MLIR and LLVM": (r"(mlir|mlir-c|llvm|llvm-c)/", {"compiler", "apps"}),
    "Python": (r"(Python\.h|pybind11/|nanobind/)", {"python", "torch"}),
}
CONFINED_TARGETS = {"torch": (r"(qx_libtorch|torch|torch_cpu|torch_python|c10)", {"torch"})}
BANNED = {"torch/extension.h": "include the headers of the stable ABI, or the few of ATen that are needed"}

_INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.MULTILINE)
_FOLDER_CALL = re.compile(r"qx_folder\(\s*NAME\s+(\S+)\s*(.*?)\)", re.DOTALL)
_FAMILY_CALL = re.compile(r"qx_kernel_family\(\s*(\S+)\s*(.*?)\)", re.DOTALL)
_LINK_CALL = re.compile(r"target_link_libraries\(\s*(\S+)\s+(.*?)\)", re.DOTALL)
_COMPILER_CALL = re.compile(r"qx_compiler_folder\(\s*(\S+)\s*(.*?)\)", re.DOTALL)
_KEYWORDS = {"SOURCES", "DEPENDS", "LIBRARIES", "LIBRARY"}
# Folders whose subfolders have an order of their own, that of the add_subdirectory() calls in their CMake lists.
_DIVIDED = ("kernels", "compiler")
# The compiler's entry: its interface stands above the folders that implement it.
_COMPILER_ENTRY = "quincunx/compiler/compiler.h"


def _part(path: str) -> str:
    """The unit of the order that a path below quincunx/ belongs to: its folder, or a subfolder of a divided one."""
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] in _DIVIDED and len(parts) > 2 else parts[0]


def _order(root: pathlib.Path) -> list[str]:
    """The folders in dependency order. What stands in compiler/ itself is made of its subfolders: it comes last."""
    order = []
    for folder in ORDER:
        path = root / "quincunx" / folder / "CMakeLists.txt"
        text = path.read_text() if folder in _DIVIDED and path.exists() else ""
        parts = [f"{folder}/{name}" for name in re.findall(r"^\s*add_subdirectory\((\w+)\)", text, re.MULTILINE)]
        order += [*parts, folder] if folder == "compiler" else [folder, *parts]
    return order


def _section(arguments: str, keyword: str) -> list[str]:
    words, inside = [], False
    for word in arguments.split():
        if word in _KEYWORDS:
            inside = word == keyword
        elif inside:
            words.append(word)
    return words


def _declared(root: pathlib.Path) -> dict[str, set[str]]:
    """What each folder depends on according to its CMake list, directly."""
    declared: dict[str, set[str]] = {}
    for path in files(root / "quincunx", "CMakeLists.txt"):
        text = re.sub(r"#.*", "", path.read_text())
        for name, arguments in _FOLDER_CALL.findall(text):
            declared[name] = set(_section(arguments, "DEPENDS"))
        for name, arguments in _FAMILY_CALL.findall(text):
            declared[f"kernels/{name}"] = {"base", "parallel", "tensor", *_section(arguments, "DEPENDS")}
        for name, arguments in _COMPILER_CALL.findall(text):
            declared[f"compiler/{name}"] = set(_section(arguments, "DEPENDS"))
    return declared


def _closure(part: str, declared: dict[str, set[str]]) -> set[str]:
    reached, pending = set(), [part]
    while pending:
        current = pending.pop()
        if current not in reached:
            reached.add(current)
            pending.extend(declared.get(current, ()))
    return reached


def _check_include(header: str, part: str, order: list[str], declared: dict[str, set[str]]) -> str | None:
    for library, (pattern, allowed) in CONFINED.items():
        if re.match(pattern, header) and part.split("/")[0] not in allowed:
            return f"headers of {library} stay in {sorted(allowed)}"
    if not header.startswith("quincunx/") or (header == _COMPILER_ENTRY and part.startswith("compiler/")):
        return None
    used = _part(header.removeprefix("quincunx/"))
    if used not in order:
        return f"quincunx/{used} is not in the dependency order"
    if order.index(used) > order.index(part) or (part == "apps" and used == "torch"):
        return f"{used} does not stand above {part}"
    # lite/convert alone uses the compiler, in a library of its own that the folder's list does not name.
    converts = part == "lite" and used == "compiler"
    if part in declared and not converts and used not in _closure(part, declared):
        return f"the CMake list of {part} does not declare that it depends on {used}"
    return None


def include_violations(root: pathlib.Path) -> list[str]:
    order, declared, found = _order(root), _declared(root), []
    for path in files(root, ".h", ".cpp", ".inc"):
        name = path.relative_to(root).as_posix()
        headers = _INCLUDE.findall(path.read_text())
        found += [f"{name}: {header} is banned: {BANNED[header]}" for header in headers if header in BANNED]
        if not name.startswith("quincunx/"):
            continue
        part = _part(name.removeprefix("quincunx/"))
        if part not in order:
            found.append(f"{name}: quincunx/{part} is not in the dependency order")
            continue
        for header in headers:
            if (path.parent / header).exists() and not header.startswith("quincunx/"):
                found.append(f'{name}: write "{header}" as a path from the root of the repository')
            if (reason := _check_include(header, part, order, declared)) is not None:
                found.append(f"{name}: includes {header}, but {reason}")
            if name.startswith("quincunx/lite/") and header.startswith("quincunx/compiler/"):
                if not name.startswith("quincunx/lite/convert/"):
                    found.append(f"{name}: includes {header}, but of lite only convert/ may use the compiler")
    return found


def link_violations(root: pathlib.Path) -> list[str]:
    order, found = _order(root), []
    for part, depends in sorted(_declared(root).items()):
        if part not in order:
            found.append(f"qx_folder {part} is not in the dependency order")
            continue
        for used in sorted(depends):
            if used not in order or order.index(used) >= order.index(part):
                found.append(f"{part}: DEPENDS {used}, which does not stand above it")
    for path in files(root / "quincunx", "CMakeLists.txt"):
        name = path.relative_to(root).as_posix()
        folder = name.split("/")[1]
        for target, arguments in _LINK_CALL.findall(re.sub(r"#.*", "", path.read_text())):
            for library, (pattern, allowed) in CONFINED_TARGETS.items():
                hits = [word for word in arguments.split() if re.fullmatch(pattern, word)]
                if hits and folder not in allowed:
                    found.append(f"{name}: {target} links {hits[0]}, but {library} stays in {sorted(allowed)}")
    return found


def violations(root: pathlib.Path) -> list[str]:
    return include_violations(root) + link_violations(root)
