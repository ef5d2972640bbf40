"""The C interfaces: a library exports no C name that is not prefixed, and everything that a C header declares."""

import re
import subprocess

import pytest
from repository import BUILD, ROOT, files

LIBRARY = BUILD / "lib" / "libquincunx_runtime.so"
_FUNCTION = re.compile(r"^(?!typedef|static|#)[\w*]+[\w* ]*?\b(\w+)\(", re.MULTILINE)


def exported_c_names(library):
    listing = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1] for line in listing.splitlines()}
    return {name for name in names if not name.startswith(("_Z", "__odr_asan", "_init", "_fini"))}


def declared_c_names():
    """Functions of headers for C: those with a part for C++ alone."""
    headers = [path.read_text() for path in files(ROOT / "quincunx", ".h")]
    texts = [text.split('extern "C" {', 1)[1] for text in headers if text.startswith("/*") and 'extern "C" {' in text]
    return {name for text in texts for name in _FUNCTION.findall(re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))}


def test_declarations_are_found():
    names = declared_c_names()
    assert {"qx_last_error", "qx_session_load", "qx_all_reduce", "qx_text_free"} <= names
    assert all(name.startswith("qx_") for name in names)


@pytest.mark.needs_build
def test_c_names_of_the_library_are_prefixed_and_complete():
    if not LIBRARY.exists():
        pytest.skip(f"no build in {BUILD}")
    exported = exported_c_names(LIBRARY)
    assert {name for name in exported if not name.startswith("qx_")} == set()
    assert declared_c_names() - exported == set()
