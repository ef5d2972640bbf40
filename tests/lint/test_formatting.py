import shutil

import pytest
from formatting import cpp_violations, python_violations
from repository import ROOT


def test_cpp_sources_are_formatted():
    if shutil.which("clang-format-22") is None:
        pytest.skip("no clang-format-22")
    assert cpp_violations(ROOT) == []


def test_python_sources_are_formatted():
    assert python_violations(ROOT) == []


def test_unformatted_cpp_is_caught(tmp_path):
    if shutil.which("clang-format-22") is None:
        pytest.skip("no clang-format-22")
    (tmp_path / ".clang-format").write_text((ROOT / ".clang-format").read_text())
    (tmp_path / "a.cpp").write_text("int  f( ){return 1 ;}\n")
    assert "a.cpp" in cpp_violations(tmp_path)[0]


@pytest.mark.parametrize("text", ["import os\n", "x = {  }\n"])
def test_unformatted_python_is_caught(tmp_path, text):
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    (tmp_path / "a.py").write_text(text)
    assert python_violations(tmp_path) != []
