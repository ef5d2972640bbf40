import json
import pathlib

import pytest
from quincunx.cli.bench import command
from quincunx.cli.bench.capability import Capability, Task
from quincunx.cli.bench.command import CAPABILITIES, find_checkout, load_capability, main
from quincunx.cli.bench.demand import load_demands
from quincunx.cli.bench.row import Measurement

CHECKOUT = pathlib.Path(__file__).resolve().parents[4]


def one_task(checkout: pathlib.Path) -> Capability:
    measurement = Measurement("gemm_512x768x768", "gemm", "s", [1.0], {"peer": [1.0]})
    task = Task(("gemm_512x768x768",), lambda context: [measurement], cores=0)
    demanded = load_demands(CHECKOUT / "benchmarks" / "demands.toml")["kernels"]
    rest = [row_id for row_id in demanded if row_id != "gemm_512x768x768"]
    return Capability("kernels", (task,), dict.fromkeys(rest, "left out"), lambda checkout: None)


def test_unknown_capability_is_refused_with_the_known_ones(capsys):
    assert main(["lite"]) == 2
    message = capsys.readouterr().err
    assert "unknown capability 'lite'" in message
    assert all(name in message for name in CAPABILITIES)


def test_missing_capability_is_refused(capsys):
    with pytest.raises(SystemExit) as exit_:
        main([])
    assert exit_.value.code == 2
    assert "CAPABILITY" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--json", "--results"])
def test_unwritable_file_is_refused_before_anything_is_measured(option, tmp_path, capsys):
    assert main(["kernels", option, str(tmp_path / "nowhere" / "file")]) == 2
    assert f"{option}: expected a file in an existing folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--instruction-set", "SSE9"], "--instruction-set: expected AVX2 or portable, got 'SSE9'"),
        (["--only", "gemm_*", "--results", "page.md"], "--results: expected all rows"),
        (["--instruction-set", "AVX2", "--results", "page.md"], "--results: expected all rows"),
    ],
)
def test_wrong_options_are_refused(arguments, message, capsys):
    assert main(["kernels", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_only_the_rows_asked_for_are_taken(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(CHECKOUT)
    monkeypatch.setattr(command, "load_capability", lambda name, checkout: one_task(checkout))
    monkeypatch.setattr(command, "load_reader", lambda checkout: lambda threads: 100.0)
    rows = tmp_path / "rows.json"
    assert main(["kernels", "--only", "gemm_512x*", "--json", str(rows)]) == 0
    verdicts = {row["id"]: row["verdict"] for row in json.loads(rows.read_text())}
    assert verdicts["gemm_512x768x768"] == "pass"
    assert set(verdicts.values()) == {"pass", "missing"} and all(row_id.startswith("gemm_512x") for row_id in verdicts)
    assert main(["kernels", "--only", "nothing"]) == 1
    assert "--only: no row of kernels matches 'nothing'" in capsys.readouterr().err


def test_capabilities_without_a_row_that_matches_are_passed_over(tmp_path, monkeypatch, capsys):
    def refused(checkout: pathlib.Path) -> None:
        raise RuntimeError("what is passed over need not be ready")

    def load(name: str, checkout: pathlib.Path) -> Capability:
        return one_task(checkout) if name == "kernels" else Capability(name, (), {f"{name}_row": "so"}, refused)

    monkeypatch.chdir(CHECKOUT)
    monkeypatch.setattr(command, "load_capability", load)
    monkeypatch.setattr(command, "load_reader", lambda checkout: lambda threads: 100.0)
    rows = tmp_path / "rows.json"
    assert main(["all", "--only", "gemm_512x768x768", "--json", str(rows)]) == 0
    assert [(row["capability"], row["id"]) for row in json.loads(rows.read_text())] == [("kernels", "gemm_512x768x768")]
    assert main(["all", "--only", "mccl_row"]) == 1
    assert "what is passed over need not be ready" in capsys.readouterr().err
    assert main(["all", "--only", "nothing"]) == 1
    assert f"--only: no row of {', '.join(CAPABILITIES)} matches 'nothing'" in capsys.readouterr().err


def test_folder_outside_a_checkout_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["kernels"]) == 1
    assert "found no benchmarks/demands.toml" in capsys.readouterr().err


def test_checkout_is_found_from_below():
    assert find_checkout(CHECKOUT / "benchmarks" / "kernels") == CHECKOUT


def test_missing_peers_are_named_with_the_command_that_installs_them(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(CHECKOUT))
    with pytest.raises(RuntimeError, match="OpenBLAS is missing.*make bench-peers"):
        load_capability("kernels", CHECKOUT).check_ready(tmp_path)


def test_run_prints_the_rows_and_writes_both_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(CHECKOUT)
    monkeypatch.setattr(command, "load_capability", lambda name, checkout: one_task(checkout))
    monkeypatch.setattr(command, "load_reader", lambda checkout: lambda threads: 100.0)
    files = [tmp_path / "rows.json", tmp_path / "page.md"]
    assert main(["kernels", "--quick", "--json", str(files[0]), "--results", str(files[1])]) == 0
    rows = json.loads(files[0].read_text())
    missing = len(load_demands(CHECKOUT / "benchmarks" / "demands.toml")["kernels"]) - 1
    assert [row["verdict"] for row in rows] == ["pass"] + ["missing"] * missing
    assert f"1 pass, {missing} missing" in capsys.readouterr().out
    page = files[1].read_text()
    assert "## kernels" in page
    assert "- command: `qx bench kernels --quick`\n" in page and str(tmp_path) not in page
