"""The package that `pip install .` put into this environment: what is in it, and that a C++ program can use it."""

import importlib.metadata
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

import pytest

try:
    DISTRIBUTION = importlib.metadata.distribution("quincunx")
except importlib.metadata.PackageNotFoundError:
    pytest.skip("the package is not installed in this environment", allow_module_level=True)

PACKAGE = pathlib.Path(sysconfig.get_path("platlib")) / "quincunx"
PREFIX = pathlib.Path(sys.prefix)
# The C library, the compiler's runtime and what a torch process has loaded; everything else must travel in the wheel.
FROM_OUTSIDE = re.compile(
    r"(libc|libm|libstdc\+\+|libgcc_s|libpthread|libdl|librt|ld-linux-\S+|libtorch\w*|libc10|libcrypto|libssl)\.so"
)
# The fusion compiler uses the machine's LLVM 22, which is 250 MB; quincunx.fusion says so where it is missing.
LLVM = re.compile(r"lib(MLIR|LLVM)\.so\.22")
LLVM_FOLDER = "/usr/lib/llvm-22/lib"
COMPILER = "libquincunx_compiler.so"

CONSUMER_CMAKE = """
cmake_minimum_required(VERSION 3.25)
project(consumer CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(quincunx 0.1 REQUIRED)
add_executable(consumer main.cpp)
target_link_libraries(consumer PRIVATE quincunx::runtime)
"""
CONSUMER_MAIN = """
#include <cstdio>

#include "quincunx/base/version.h"
#include "quincunx/parallel/parallel_for.h"
#include "quincunx/tensor/tensor_view.h"

int main() {
  qx::parallel_for(0, 8, 1, [](int64_t, int64_t) {});
  std::puts(qx::version());
}
"""


def elf_files() -> list[pathlib.Path]:
    return [*sorted((PACKAGE / "lib").glob("*.so*")), PREFIX / "bin" / "qx"]


def dynamic_section(path: pathlib.Path) -> str:
    return subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout


def cmake() -> str:
    path = "/usr/bin/cmake" if pathlib.Path("/usr/bin/cmake").exists() else shutil.which("cmake")
    if path is None:
        pytest.skip("no cmake")
    return path


def test_package_holds_libraries_headers_and_the_program():
    names = {path.name for path in elf_files()}
    assert {"libquincunx_runtime.so", "libquincunx_torch.so", "qx"} <= names
    assert (PACKAGE / "include/quincunx/base/status.h").exists()
    assert not (PACKAGE / "include/quincunx/torch").exists()


def test_libraries_need_nothing_that_does_not_travel_with_them():
    names = {path.name for path in elf_files()}
    for path in elf_files():
        needed = re.findall(r"NEEDED.*\[(.+)\]", dynamic_section(path))
        foreign = [name for name in needed if name not in names and not FROM_OUTSIDE.match(name)]
        if path.name == COMPILER:
            foreign = [name for name in foreign if not LLVM.match(name)]
        assert foreign == [], path.name


def test_libraries_are_searched_beside_the_file_alone():
    for path in elf_files():
        for paths in re.findall(r"(?:RUNPATH|RPATH).*\[(.*)\]", dynamic_section(path)):
            folders = [part for part in paths.split(":") if not part.startswith("$ORIGIN")]
            assert folders == ([LLVM_FOLDER] if path.name == COMPILER else []), f"{path.name}: {paths}"


def test_files_name_no_path_of_the_machine_that_built_them():
    root = str(pathlib.Path(__file__).resolve().parents[3]).encode()
    for file in DISTRIBUTION.files:
        path = pathlib.Path(DISTRIBUTION.locate_file(file))
        # pip notes in direct_url.json where it installed from; that file is in no wheel.
        if path.name != "direct_url.json" and path.suffix != ".pyc":
            assert root not in path.read_bytes(), file


def test_program_finds_its_library_and_its_python():
    done = subprocess.run([PREFIX / "bin" / "qx", "doctor"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert str(PREFIX / "bin" / "python3") in done.stdout


@pytest.mark.parametrize("prefix", [PREFIX, PACKAGE], ids=["environment", "package"])
def test_cmake_project_finds_links_and_runs(tmp_path, prefix):
    (tmp_path / "CMakeLists.txt").write_text(CONSUMER_CMAKE)
    (tmp_path / "main.cpp").write_text(CONSUMER_MAIN)
    for command in (
        [cmake(), "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}"],
        [cmake(), "--build", tmp_path / "build"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
    done = subprocess.run([tmp_path / "build" / "consumer"], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == importlib.metadata.version("quincunx")


def test_cmake_refuses_a_newer_version_than_is_installed(tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(CONSUMER_CMAKE.replace("0.1 REQUIRED", "9.9 REQUIRED"))
    (tmp_path / "main.cpp").write_text(CONSUMER_MAIN)
    command = [cmake(), "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={PREFIX}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "9.9" in done.stderr
