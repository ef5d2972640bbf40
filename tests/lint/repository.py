"""The files that the lints look at."""

import os
import pathlib
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("QUINCUNX_BUILD_DIR", ROOT / "build" / "release"))

_NOT_SOURCES = {".git", ".venv", ".venv-peers", "build", "dist", "tour", "__pycache__"}
_CACHES = {".pytest_cache", ".ruff_cache", ".hypothesis"}


def files(root: pathlib.Path, *suffixes: str) -> Iterator[pathlib.Path]:
    """All source files below `root` whose names end with one of `suffixes` (all files without any), sorted."""
    for folder, names, file_names in os.walk(root):
        names[:] = sorted(name for name in names if name not in _NOT_SOURCES | _CACHES)
        for name in sorted(file_names):
            if not suffixes or name.endswith(suffixes):
                yield pathlib.Path(folder) / name
