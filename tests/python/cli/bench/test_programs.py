"""Programs are found beside the libraries in use and, for an installed package, in the build folder."""

import pathlib

import pytest
from quincunx.cli.bench.command import load_capability

# Importing it needs the checkout on the path.
load_capability("mccl", pathlib.Path(__file__).resolve().parents[4])
from benchmarks.mccl import programs  # noqa: E402


@pytest.fixture
def folders(tmp_path, monkeypatch) -> tuple[pathlib.Path, pathlib.Path]:
    for name in ("installed", "build"):
        (tmp_path / name / "bin").mkdir(parents=True)
    monkeypatch.setattr(programs, "library_directory", lambda: tmp_path / "installed" / "lib")
    return tmp_path / "installed", tmp_path / "build"


def test_the_program_beside_the_libraries_comes_first(folders):
    installed, build = folders
    for folder in folders:
        (folder / "bin" / "measure").touch()
    assert programs.find_program("measure", build_folder=build) == installed / "bin" / "measure"


def test_an_installed_package_uses_the_build_folder(folders):
    _, build = folders
    (build / "bin" / "measure").touch()
    assert programs.find_program("measure", build_folder=build) == build / "bin" / "measure"


def test_a_missing_program_is_named_with_both_places(folders):
    installed, build = folders
    with pytest.raises(RuntimeError, match="no program measure in") as error:
        programs.find_program("measure", build_folder=build)
    assert str(installed / "bin") in str(error.value) and str(build / "bin") in str(error.value)
