from pairs import violations
from repository import ROOT


def _write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_repository_pairs_kernels_and_modules_with_tests():
    assert violations(ROOT) == []


def test_kernel_without_test_and_benchmark_is_caught(tmp_path):
    _write(tmp_path / "quincunx/kernels/gemm/pack.cpp", "HWY_EXPORT(Pack);")
    found = violations(tmp_path)
    assert "pack.cpp: no test includes quincunx/kernels/gemm/pack.h" in found[0]
    assert "gemm: no *_benchmark.cpp" in found[1]


def test_variant_is_tested_through_its_dispatching_header(tmp_path):
    _write(tmp_path / "quincunx/kernels/gemm/pack_avx512bf16.cpp")
    _write(tmp_path / "tests/kernels/gemm/packing_test.cpp", '#include "quincunx/kernels/gemm/pack.h"\n')
    _write(tmp_path / "benchmarks/kernels/gemm/gemm_benchmark.cpp")
    assert violations(tmp_path) == []


def test_python_module_without_test_is_caught(tmp_path):
    _write(tmp_path / "python/quincunx/muon/optimizer.py")
    assert "there is no tests/python/muon/test_optimizer.py" in violations(tmp_path)[0]
    _write(tmp_path / "tests/python/muon/test_optimizer.py")
    assert violations(tmp_path) == []


def test_pass_without_lit_test_is_caught(tmp_path):
    _write(tmp_path / "quincunx/compiler/transforms/passes.td", 'def FuseSilu : QxPattern<"silu"> {\n')
    assert violations(tmp_path) == [
        "quincunx/compiler/transforms/passes.td: pass qx-fuse-silu has no tests/lit/fuse_silu.mlir"
    ]
    _write(tmp_path / "tests/lit/fuse_silu.mlir")
    assert violations(tmp_path) == []
