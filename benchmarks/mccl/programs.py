"""Where the compiled programs of these rows are: beside the libraries in use, or in the checkout's build folder."""

import pathlib

from quincunx._library import library_directory

_CHECKOUT = pathlib.Path(__file__).resolve().parents[2]


def find_program(name: str, *, build_folder: pathlib.Path = _CHECKOUT / "build" / "release") -> pathlib.Path:
    """The program's path. RuntimeError where it is in neither place: an installed package holds no benchmarks."""
    folders = [library_directory().parent / "bin", build_folder / "bin"]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    looked = " or ".join(map(str, folders))
    raise RuntimeError(f"there is no program {name} in {looked}; build it with `make build`")
