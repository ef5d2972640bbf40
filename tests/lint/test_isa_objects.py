import json
import shutil
import subprocess

import pytest
from isa_objects import exported_violations, isa_objects, vector_violations, violations
from repository import BUILD

HEADER = "template <typename T> __attribute__((noinline)) T twice(const T* x) { return x[0] + x[1]; }\n"
WEAK = HEADER + "float sum_avx512(const float* x) { return twice(x); }\n"
UNNAMED = "void scale(float* x) { for (int i = 0; i < 16; ++i) x[i] *= 2.0f; }\n"
CLEAN = (
    "static float twice(const float* x) { return x[0] + x[1]; }\n"
    "float sum_avx512(const float* x) { return twice(x); }\n"
)


@pytest.fixture
def compiled(tmp_path):
    compiler = shutil.which("clang++-22") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")

    def compile_text(text, *flags):
        (tmp_path / "planted.cpp").write_text(text)
        subprocess.run(
            [compiler, "-O2", *flags, "-c", tmp_path / "planted.cpp", "-o", tmp_path / "planted.o"], check=True
        )
        return tmp_path / "planted.o"

    return compile_text


@pytest.mark.needs_build
def test_objects_of_the_build_keep_instruction_sets_apart():
    if not (BUILD / "compile_commands.json").exists():
        pytest.skip(f"no build in {BUILD}")
    assert violations(BUILD) == []


def test_weak_symbol_of_an_isa_object_is_caught(compiled):
    assert any("weak symbol" in line for line in exported_violations(compiled(WEAK, "-mavx512f")))


def test_export_without_the_set_in_its_name_is_caught(compiled):
    assert "not named after" in exported_violations(compiled(UNNAMED, "-mavx512f"))[0]


def test_static_helpers_and_named_exports_pass(compiled):
    obj = compiled(CLEAN, "-mavx512f")
    assert exported_violations(obj) == []


def test_vector_code_in_an_unnamed_function_is_caught(compiled):
    assert "scale" in vector_violations(compiled(UNNAMED, "-O3", "-mavx2"))[0]
    assert vector_violations(compiled(UNNAMED, "-O3")) == []


def test_instruction_set_flags_are_seen_in_compile_commands(tmp_path):
    entries = [
        {"directory": str(tmp_path), "command": f"clang++ {flag} -o {name}.o -c {name}.cpp"}
        for name, flag in [("base", "-O2"), ("bf16", "-mavx512bf16"), ("native", "-march=native")]
    ]
    (tmp_path / "compile_commands.json").write_text(json.dumps(entries))
    assert [path.name for path in isa_objects(tmp_path)] == ["bf16.o", "native.o"]
