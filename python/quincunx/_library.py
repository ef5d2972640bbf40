"""Finds and loads the C++ libraries of this package, once."""

import functools
import importlib
import importlib.util
import os
import pathlib
import types


def library_directory() -> pathlib.Path:
    """The folder of the shared libraries: QUINCUNX_LIBRARY_DIR (a build tree's `lib`), else `lib` beside this file."""
    override = os.environ.get("QUINCUNX_LIBRARY_DIR")
    directory = pathlib.Path(override) if override else pathlib.Path(__file__).parent / "lib"
    if not (directory / "libquincunx_runtime.so").exists():
        raise RuntimeError(
            f"quincunx: no libquincunx_runtime.so in {directory}; install the package with `pip install .`, "
            "or set QUINCUNX_LIBRARY_DIR to the `lib` folder of a build tree"
        )
    return directory


@functools.cache
def load_operators() -> None:
    """Registers torch.ops.quincunx.* (LibTorch stable ABI) and what torch.compile needs of them."""
    import torch

    torch.ops.load_library(str(library_directory() / "libquincunx_torch.so"))
    importlib.import_module("._fake_kernels", __package__)
    importlib.import_module("._fake_convolution", __package__)
    importlib.import_module("._fake_low_precision", __package__)
    importlib.import_module("._gradients", __package__)


def _minor(version: str) -> tuple[str, ...]:
    return tuple(version.split("+")[0].split(".")[:2])


def check_torch_version(part: str, built_for: str, running: str) -> None:
    """RuntimeError unless both are of one minor version: the compiled `part` uses torch's C++ interface."""
    if _minor(built_for) != _minor(running):
        raise RuntimeError(
            f"{part} was built for torch {built_for}, but torch {running} is running; "
            f"install torch {'.'.join(_minor(built_for))} or build quincunx again with this torch"
        )


def load_extension(part: str, version_file: pathlib.Path) -> types.ModuleType:
    """The compiled module of `part`, which lies beside the file that names the torch it was built for."""
    import torch

    if not version_file.exists():
        raise RuntimeError(f"{part}: {version_file} is missing; build quincunx with QX_BUILD_TORCH=ON")
    check_torch_version(part, version_file.read_text().strip(), torch.__version__)
    spec = importlib.util.spec_from_file_location(version_file.stem, version_file.with_suffix(".so"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
