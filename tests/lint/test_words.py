import pytest
from repository import ROOT
from words import violations


def test_repository_speaks_of_itself_alone():
    assert violations(ROOT) == []


@pytest.mark.parametrize(
    "text",
    [
        "see /wo" + "rk/main",
        '"/ho' + 'me/someone/model"',
        "../sha" + "red/design.md",
        "// TO" + "DO: later",
        "/tmp/bui" + "ld-x",
    ],
)
def test_planted_text_is_caught(tmp_path, text):
    (tmp_path / "a.md").write_text(f"one\n{text}\n")
    assert violations(tmp_path)[0].startswith("a.md:2: ")


@pytest.mark.parametrize("text", ["make wo" + "rk/s", "$HO" + "ME", "build/wo" + "rk", "a/wo" + "rk/b"])
def test_relative_paths_pass(tmp_path, text):
    (tmp_path / "a.md").write_text(text)
    assert violations(tmp_path) == []


def test_character_past_ascii_in_a_source_is_caught(tmp_path):
    (tmp_path / "a.h").write_text("// caf\u00e9\n")
    assert "not ASCII" in violations(tmp_path)[0]
