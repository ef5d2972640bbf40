"""Latency of the converted model beside PyTorch eager and onnxruntime, and its chart."""

import json
import os
import pathlib
import subprocess
import sys

import latency_worker
import plotly.graph_objects as go
from guards import GuardError
from quincunx.report import COLORS, Report, styled
from settings import Settings

NAME = "latency"
_PEERS = pathlib.Path(__file__).resolve().parents[2] / ".venv-peers"
# Logits are compared with PyTorch's before any time counts; f32 sums in other orders differ by less.
_LARGEST_ERROR = 1e-3

Row = dict[str, object]


def _peer_packages() -> pathlib.Path:
    """Where .venv-peers keeps what this environment must not have: onnx, its exporter and its runtime."""
    folder = _PEERS / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    if not (folder / "onnxruntime").is_dir():
        raise RuntimeError(
            f"latency: there is no onnxruntime in {folder}; run `cmake/setup.sh peers`, or leave it out of the setting "
            "latency_peers"
        )
    return folder


def measure(run: pathlib.Path, qxm: pathlib.Path, settings: Settings) -> list[Row]:
    output = run / "latency.json"
    command = [sys.executable, latency_worker.__file__, str(run), str(qxm), str(output), *settings.latency_peers]
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    if "onnxruntime" in settings.latency_peers:
        environment[latency_worker.PEER_PACKAGES] = str(_peer_packages())
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=settings.deadline_s)
    if result.returncode != 0:
        raise RuntimeError(f"latency: its process ended with code {result.returncode}:\n{result.stderr[-3000:]}")
    return json.loads(output.read_text())


def check(rows: list[Row], settings: Settings) -> None:
    measured, expected = {row["engine"] for row in rows}, {"quincunx", *settings.latency_peers}
    if measured != expected:
        raise GuardError(f"guard: latencies are of {sorted(measured)}, expected {sorted(expected)}")
    for row in rows:
        if not row["error"] <= _LARGEST_ERROR:
            raise GuardError(
                f"guard: logits of {row['engine']} for {row['length']} tokens differ from PyTorch's by "
                f"{row['error']:.3g}, expected at most {_LARGEST_ERROR}"
            )


def draw(rows: list[Row]) -> go.Figure:
    figure = go.Figure()
    for engine, color in zip(dict.fromkeys(row["engine"] for row in rows), COLORS, strict=False):
        own = [row for row in rows if row["engine"] == engine]
        figure.add_bar(
            name=engine,
            x=[f"{row['length']} tokens" for row in own],
            y=[row["seconds"] * 1e3 for row in own],
            marker={"color": color},
            text=[f"{row['seconds'] * 1e3:.1f}" for row in own],
        )
    figure.update_layout(barmode="group")
    return styled(figure, height=380, y_title="milliseconds a call")


def add_to(report: Report, rows: list[Row], settings: Settings) -> None:
    largest = max(row["error"] for row in rows if row["engine"] == "quincunx")
    report.add_chart(
        draw(rows),
        name=NAME,
        title="Latency of the trained model: a prompt to the logits of its last token",
        caption=f"One thread, median of {settings.latency_rounds} calls that alternate in one process. Lower is "
        f"better. The converted model's logits differ from PyTorch's by at most {largest:.2g}.",
    )
