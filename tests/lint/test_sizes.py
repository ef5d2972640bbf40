import pytest
from repository import ROOT
from sizes import violations


def test_repository_keeps_the_length_limits():
    assert violations(ROOT) == []


@pytest.mark.parametrize(
    ("name", "length"),
    [("a.cpp", 601), ("a.h", 351), ("a.py", 451), ("tests/a_test.cpp", 701), ("CMakeLists.txt", 121), ("a.td", 601)],
)
def test_file_past_the_hard_limit_is_caught(tmp_path, name, length):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n" * length)
    assert f"{length} lines, expected at most {length - 1}" in violations(tmp_path, {})[0]
    path.write_text("\n" * (length - 1))
    assert violations(tmp_path, {}) == []


@pytest.mark.parametrize(
    ("name", "head", "body", "tail"),
    [("a.py", "def long():\n", "    pass\n", ""), ("a.cpp", "void grow(int n) {\n", "  n++;\n", "}\n")],
)
def test_long_function_is_caught(tmp_path, name, head, body, tail):
    (tmp_path / name).write_text(head + body * 80 + tail)
    assert "expected at most 80" in violations(tmp_path, {})[0]


def test_sixth_exception_is_caught(tmp_path):
    assert "6 exceptions" in violations(tmp_path, {f"{i}.cpp": "reason" for i in range(6)})[0]
