"""Where the C++ program `qx` lies."""

import os
import pathlib
import sys


def qx_program() -> pathlib.Path:
    """That of the build tree whose libraries are in use, else the one that is installed beside this interpreter."""
    libraries = os.environ.get("QUINCUNX_LIBRARY_DIR")
    folder = pathlib.Path(libraries).resolve().parent if libraries else pathlib.Path(sys.prefix)
    program = folder / "bin" / "qx"
    if not program.is_file():
        raise FileNotFoundError(f"there is no program {program}; build and install it with `make setup`")
    return program
