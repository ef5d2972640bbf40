import shutil
import subprocess

import pytest
from denormals import violations
from repository import BUILD

LIBRARIES = [("libquincunx_runtime.so", ()), ("libquincunx_torch.so", ("torch",))]


@pytest.mark.needs_build
@pytest.mark.parametrize(("name", "modules"), LIBRARIES, ids=[name for name, _ in LIBRARIES])
def test_loading_the_library_leaves_denormals_alone(name, modules):
    library = BUILD / "lib" / name
    if not library.exists():
        pytest.skip(f"no {library}")
    assert violations(library, *modules) == []


def test_library_with_fast_math_startup_code_is_caught(tmp_path):
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++, whose -ffast-math links the start-up code")
    source = tmp_path / "fast.cpp"
    # Sets the two bits as crtfastmath.o does, for compilers that no longer link it into shared libraries.
    source.write_text(
        "#include <xmmintrin.h>\n"
        "__attribute__((constructor)) static void start() { _mm_setcsr(_mm_getcsr() | 0x8040); }\n"
    )
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", tmp_path / "libfast.so"], check=True)
    assert "denormals do not survive" in violations(tmp_path / "libfast.so")[0]
