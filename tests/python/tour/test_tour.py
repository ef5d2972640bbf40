"""The tour at reduced length, as a user starts it, and what it does when a part of it does not do its work."""

import fcntl
import json
import os
import pathlib
import subprocess
import sys
import time

import charts
import conversion
import embeddings
import guards
import latency
import page
import pytest
import settings as tour_settings
import text
import tour
from quincunx.lite.convert import ConvertReport
from quincunx.report import inspect
from records import Follower, of_event

TOUR = pathlib.Path(tour.__file__)
# The demand is 60 s on two free cores; a machine that is busy with other things gets more before it is called hung.
LIMIT_S = 240
PICTURES = page.PICTURES
TINY = {
    "steps": 4,
    "checkpoint_every": 1,
    "kill_after_step": 2,
    "trace_step": 3,
    "sequence_length": 16,
    "bandwidth_bytes": [4096],
    "bandwidth_repeats": 1,
    "sample_tokens": 4,
    "video_steps": 1,
    "vocab_size": 512,
    "model": {"vocab_size": 512, "dim": 32, "num_layers": 1, "num_heads": 2, "hidden_dim": 48},
}


def run_tour(output, *arguments):
    return subprocess.run(
        [sys.executable, str(TOUR), "--output", str(output), "--quick", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        stdin=subprocess.DEVNULL,
        env={name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC")},
    )


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Folder and result of one quick tour."""
    output = tmp_path_factory.mktemp("quick")
    start = time.monotonic()
    result = run_tour(output)
    print(f"the quick tour took {time.monotonic() - start:.0f} s")
    assert result.returncode == 0, result.stdout + result.stderr
    return output, result


@pytest.fixture(scope="module")
def quick_records(quick):
    return list(Follower(quick[0] / "run" / "records").new_records())


@pytest.mark.timeout(LIMIT_S + 60)
def test_quick_tour_ends_with_a_clear_line(quick):
    output, result = quick
    last = result.stdout.strip().splitlines()[-1]
    assert last.startswith("tour: done in ")
    assert last.endswith(f"Open {output / 'report.html'}")
    assert (output / "report.html").stat().st_size > 1_000_000


def test_workers_were_killed_and_resumed_from_the_checkpoint(quick, quick_records):
    settings = tour_settings.quick()
    first, second = (of_event(quick_records, "start", attempt=attempt) for attempt in (0, 1))
    assert [record["first_step"] for record in first] == [1, 1]
    assert [record["first_step"] for record in second] == [settings.checkpoint_every + 1] * 2
    assert {record["pid"] for record in first}.isdisjoint(record["pid"] for record in second)
    assert of_event(quick_records, "done", attempt=0) == []
    assert len(of_event(quick_records, "done", attempt=1)) == 2
    assert guards.check_resume(quick_records) >= settings.kill_after_step - settings.checkpoint_every


def test_model_learns(quick_records):
    losses = [record["loss"] for record in of_event(quick_records, "evaluation", rank=0, attempt=1)]
    first = of_event(quick_records, "step", rank=0, attempt=0)[0]["loss"]
    assert losses[-1] < 0.9 * first


def test_traced_step_shows_what_happened_in_it(quick_records):
    traces = of_event(quick_records, "trace")
    assert [trace["rank"] for trace in traces] == [0, 1]
    for trace in traces:
        kinds = {span["kind"] for span in trace["spans"]}
        assert {"forward", "backward", "optimizer", "all_gather", "reduce_scatter", "Newton-Schulz"} <= kinds
        assert all(span["seconds"] >= 0 for span in trace["spans"])


def test_every_chart_of_the_report_is_drawn_without_script_errors(quick, browser):
    state = inspect(quick[0] / "report.html", browser=browser)
    assert state.problems() == []
    marks = {chart.name: chart.num_marks for chart in state.charts}
    assert tuple(marks) == charts.NAMES
    # Three curves with their points; two ranks' phases and collectives; two backends for each of three operations.
    assert marks["loss"] >= 3
    assert marks["step"] >= 20
    assert marks["bandwidth"] >= 6
    # Three areas, and a line for the file and one for the comparison.
    assert marks["memory"] >= 5
    # Two engines at two lengths.
    assert marks["latency"] >= 4
    assert {picture.name for picture in state.pictures} == set(PICTURES)


@pytest.fixture
def trained(quick, quick_records, monkeypatch):
    """What took the finished tour long stands for the same in the tours that a test runs in its folder."""
    output = quick[0]
    corpus = text.prepare(output / "text", vocab_size=tour_settings.quick().vocab_size, max_files=64)
    measured = list(Follower(output / "run" / "bandwidth").new_records())
    monkeypatch.setattr(tour, "prepare_run", lambda output, settings: (output / "run", corpus))
    monkeypatch.setattr(tour, "run_training", lambda run, settings, show: quick_records)
    monkeypatch.setattr(tour, "measure_bandwidth", lambda run, settings: measured)
    qxm = output / "run" / "model.qxm"
    converted = ConvertReport(qxm, qxm.stat().st_size, 1, {"prefill": 1, "decode": 1}, 0.0, 0.0)
    monkeypatch.setattr(conversion, "convert_model", lambda *arguments: converted)
    latencies = json.loads((output / "run" / "latency.json").read_text())
    monkeypatch.setattr(latency, "measure", lambda *arguments: latencies)
    monkeypatch.setattr(embeddings, "convert_model", lambda run, settings: run / "minilm.qxm")
    return output


def run_after_training(output, tmp_path, **switched_off):
    (tmp_path / "settings.json").write_text(json.dumps({"video_steps": 1, "sample_tokens": 1} | switched_off))
    return tour.main(["--output", str(output), "--quick", "--settings", str(tmp_path / "settings.json")])


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize(
    ("switched_off", "message"),
    [
        ({"video_sparsity": 0.0}, "boosted attention used a part of 1.000 of all pairs of tokens"),
        ({"video_psnr_bound": 200.0}, "below the bound of 200.0 dB"),
        ({"loss_bound": 0.01}, "above 0.01 x the unigram entropy"),
    ],
)
def test_part_after_training_that_is_switched_off_fails_the_tour(trained, tmp_path, capsys, switched_off, message):
    assert run_after_training(trained, tmp_path, **switched_off) == 1
    printed = capsys.readouterr().out
    assert "tour: FAILED guard: " in printed
    assert message in printed


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("pass", "the generating process had mapped Python: "),
        ("found['tokens'][0] += 1", "they differ from token 0 on"),
        ("found['tokens'].pop()", "wrote 0 tokens, PyTorch 1; they differ from token 0 on"),
    ],
)
def test_generation_by_another_program_fails_the_tour(trained, tmp_path, capsys, monkeypatch, change, message):
    program = tmp_path / "generate.py"
    program.write_text(
        "import json, subprocess, sys, time\n"
        "found = json.loads(subprocess.run(sys.argv[1:], capture_output=True, check=True).stdout)\n"
        f"{change}\nprint(json.dumps(found), flush=True)\ntime.sleep(0.1)\n"
    )
    original = conversion.generating_command
    monkeypatch.setattr(conversion, "generating_command", lambda qxm: [sys.executable, str(program), *original(qxm)])
    assert run_after_training(trained, tmp_path) == 1
    assert message in capsys.readouterr().out


@pytest.mark.timeout(LIMIT_S)
def test_embeddings_that_differ_fail_the_tour(trained, tmp_path, capsys, monkeypatch):
    original = embeddings.by_pytorch
    monkeypatch.setattr(embeddings, "by_pytorch", lambda: original() + 1e-4)
    assert run_after_training(trained, tmp_path) == 1
    assert "MiniLM's embeddings by qx differ from PyTorch's by 0.0001" in capsys.readouterr().out


def test_report_without_a_chart_fails_the_tour(trained, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(page, "_add_collectives", lambda report, outcome: None)
    assert run_after_training(trained, tmp_path) == 1
    assert "the report lacks the charts ['bandwidth']" in capsys.readouterr().out


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize(
    ("switched_off", "message"),
    [
        ({"optimizer": "adamw"}, "step 1 (attempt 0) orthogonalized 0 matrices of 7"),
        ({"backend": "gloo"}, "a process group of gloo was asked for; every collective must be served by mccl"),
        ({"activation": "none"}, "the activation policy swapped no bytes on rank 0"),
        ({"compile": "none"}, "no compiled region ran on rank 0"),
    ],
)
def test_part_that_is_switched_off_fails_the_tour(quick, tmp_path, switched_off, message):
    # In the folder of the finished tour: a second run starts afresh there, and its old report must not survive.
    output = quick[0]
    before = (output / "report.html").read_bytes() if (output / "report.html").exists() else b""
    (tmp_path / "settings.json").write_text(json.dumps(TINY | switched_off))
    result = run_tour(output, "--settings", str(tmp_path / "settings.json"))
    assert result.returncode == 1
    assert "tour: FAILED" in result.stdout
    assert message in result.stdout
    after = (output / "report.html").read_bytes() if (output / "report.html").exists() else None
    assert after != before


def test_second_tour_in_a_folder_is_refused_while_one_runs(tmp_path, capsys):
    with open(tmp_path / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert tour.main(["--output", str(tmp_path), "--quick"]) == 1
    assert f"another tour is running in {tmp_path}" in capsys.readouterr().out


def test_bad_settings_are_named(tmp_path, capsys):
    (tmp_path / "settings.json").write_text(json.dumps({"stepz": 3}))
    assert tour.main(["--output", str(tmp_path / "out"), "--settings", str(tmp_path / "settings.json")]) == 1
    assert "tour: FAILED Settings: unknown names ['stepz']" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_missing_documentation_fails_with_the_name_of_its_package(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tour, "prepare_run", lambda output, settings: text.find_files(tmp_path / "absent"))
    assert tour.main(["--output", str(tmp_path / "out"), "--quick"]) == 1
    assert "install Debian's package python3.11-doc" in capsys.readouterr().out


def test_settings_file_replaces_fields(tmp_path):
    (tmp_path / "settings.json").write_text(json.dumps(TINY))
    settings = tour.chosen_settings(quick=True, overrides=tmp_path / "settings.json")
    assert settings.steps == 4
    assert settings.model.dim == 32
    assert settings.max_files == tour_settings.quick().max_files
    assert tour.chosen_settings(quick=False, overrides=None) == tour_settings.Settings()
