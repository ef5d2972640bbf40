"""`qx convert`, by its Python side (quincunx.cli.convert)."""

import pytest
from quincunx.cli import convert
from quincunx.lite import Session


def test_it_writes_a_model_and_says_what_it_did(tmp_path, capsys):
    source = tmp_path / "make.py"
    source.write_text("import torch\ndef build():\n    return torch.nn.Linear(2, 2), (torch.zeros(3, 2),)\n")
    output = tmp_path / "m.qxm"
    assert convert.main([f"{source}:build", "-o", str(output)]) == 0
    printed = capsys.readouterr()
    assert "forward (1 nodes, 0 fused regions)" in printed.out and "largest error" in printed.out
    assert "qx convert: exporting" in printed.err
    assert list(Session(output).methods) == ["forward"]
    assert convert.main([f"{source}:build", "-o", str(output), "--no-check", "--quiet"]) == 0
    printed = capsys.readouterr()
    assert "not compared" in printed.out and printed.err == ""


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["no_such_model", "-o", "m.qxm"], 1, "recipe"),
        (["no_such_model", "-o", "m.bin"], 1, ".qxm"),
        (["no_such_model"], 2, "--output"),
        (["m", "-o", "m.qxm", "--max-length", "many"], 2, "--max-length"),
    ],
)
def test_wrong_arguments_are_named(arguments, status, message, capsys):
    assert convert.main(arguments) == status
    assert message in capsys.readouterr().err


def test_help_lists_the_recipes(capsys):
    assert convert.main(["--help"]) == 0
    assert "all-minilm-l6-v2" in capsys.readouterr().out
