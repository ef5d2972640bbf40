import pytest
from repository import BUILD, ROOT
from snippets import cpp_violations, pages, python_violations, shell_violations

PAGES = list(pages(ROOT))
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]
needs_build = pytest.mark.skipif(not (BUILD / "lib" / "libquincunx_runtime.so").exists(), reason=f"no build in {BUILD}")


@needs_build
@pytest.mark.needs_build
@pytest.mark.parametrize("page", PAGES, ids=NAMES)
@pytest.mark.parametrize("check", [python_violations, cpp_violations, shell_violations])
def test_examples_of_the_page_run(page, check):
    assert check(page) == []


@pytest.fixture
def planted(tmp_path):
    def plant(language, text):
        page = tmp_path / "page.md"
        page.write_text(f"Example:\n\n```{language}\n{text}\n```\n")
        return page

    return plant


def test_failing_python_block_is_caught(planted):
    assert "ZeroDivisionError" in python_violations(planted("python", "1 / 0"))[0]
    assert python_violations(planted("python", "assert 1 + 1 == 2")) == []


def test_python_blocks_of_a_page_share_names(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\ntext\n```python\nassert x == 1\n```\n")
    assert python_violations(page) == []


@needs_build
@pytest.mark.needs_build
def test_failing_cpp_block_is_caught(planted):
    assert "no_such_function" in cpp_violations(planted("cpp", "no_such_function();"))[0]
    assert cpp_violations(planted("cpp", "#include <vector>\nint main() { return 3; }")) != []
    assert cpp_violations(planted("cpp", '#include "quincunx/base/version.h"\nqx::version();')) == []


def test_unknown_make_target_is_caught(planted):
    assert "no_such_target" in shell_violations(planted("sh", "make no_such_target"))[0]
    assert shell_violations(planted("sh", "make help")) == []


@needs_build
@pytest.mark.needs_build
def test_unknown_verb_of_qx_is_caught(planted):
    assert "unknown verb" in shell_violations(planted("sh", "qx fly"))[0]
    assert shell_violations(planted("sh", "qx doctor")) == []
