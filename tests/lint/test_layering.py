import pathlib

import pytest
from layering import violations
from repository import ROOT


def _tree(root: pathlib.Path, **contents: str) -> pathlib.Path:
    """A repository with the given files; `__` in a name stands for `/` and `_dot_` for `.`."""
    for name, text in contents.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_repository_keeps_the_dependency_order():
    assert violations(ROOT) == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("quincunx__base__a_dot_h", '#include "quincunx/tensor/t.h"\n', "tensor does not stand above base"),
        ("quincunx__tensor__a_dot_h", "#include <torch/library.h>\n", "headers of torch stay in"),
        ("quincunx__lite__a_dot_cpp", "#include <mlir/IR/Value.h>\n", "headers of MLIR and LLVM stay in"),
        ("quincunx__graph__a_dot_cpp", "#include <Python.h>\n", "headers of Python stay in"),
        ("quincunx__apps__a_dot_cpp", '#include "quincunx/torch/t.h"\n', "torch does not stand above apps"),
        ("quincunx__lite__a_dot_cpp", '#include "quincunx/compiler/c.h"\n', "only convert/ may use the compiler"),
        ("quincunx__torch__a_dot_cpp", "#include <torch/extension.h>\n", "torch/extension.h is banned"),
        ("tests__a_dot_cpp", "#include <torch/extension.h>\n", "torch/extension.h is banned"),
        ("quincunx__utils__a_dot_h", "", "quincunx/utils is not in the dependency order"),
        (
            "quincunx__base__CMakeLists_dot_txt",
            "qx_folder(NAME base SOURCES a.cpp DEPENDS tensor)",
            "base: DEPENDS tensor",
        ),
        ("quincunx__apps__CMakeLists_dot_txt", "target_link_libraries(qx PRIVATE torch_cpu)", "qx links torch_cpu"),
    ],
)
def test_planted_violation_is_caught(tmp_path, name, text, expected):
    found = violations(_tree(tmp_path, **{name: text}))
    assert any(expected in line for line in found), found


def test_undeclared_dependency_is_caught(tmp_path):
    _tree(
        tmp_path,
        quincunx__tensor__CMakeLists_dot_txt="qx_folder(NAME tensor SOURCES a.cpp DEPENDS base)",
        quincunx__tensor__a_dot_cpp='#include "quincunx/parallel/p.h"\n',
    )
    assert "does not declare that it depends on parallel" in violations(tmp_path)[0]


def test_kernel_family_below_another_may_not_be_included(tmp_path):
    _tree(
        tmp_path,
        quincunx__kernels__CMakeLists_dot_txt="add_subdirectory(gemm)\nadd_subdirectory(attention)\n",
        quincunx__kernels__gemm__a_dot_cpp='#include "quincunx/kernels/attention/b.h"\n',
    )
    assert "kernels/attention does not stand above kernels/gemm" in violations(tmp_path)[0]


def test_compiler_folder_below_another_may_not_be_included(tmp_path):
    _tree(
        tmp_path,
        quincunx__compiler__CMakeLists_dot_txt="add_subdirectory(dialect)\nadd_subdirectory(import)\n",
        quincunx__compiler__dialect__a_dot_cpp='#include "quincunx/compiler/import/b.h"\n',
        quincunx__compiler__import__CMakeLists_dot_txt="qx_compiler_folder(import SOURCES a.cpp DEPENDS base)",
        quincunx__compiler__import__a_dot_cpp='#include "quincunx/compiler/dialect/b.h"\n',
        quincunx__compiler__import__c_dot_cpp='#include "quincunx/compiler/compiler.h"\n',
    )
    above, undeclared = sorted(violations(tmp_path))
    assert "compiler/import does not stand above compiler/dialect" in above
    assert "does not declare that it depends on compiler/dialect" in undeclared


def test_relative_include_is_caught(tmp_path):
    _tree(tmp_path, quincunx__base__a_dot_h='#include "b.h"\n', quincunx__base__b_dot_h="")
    assert "as a path from the root" in violations(tmp_path)[0]
