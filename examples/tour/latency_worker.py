"""Times the converted model, PyTorch eager and onnxruntime in turns, in one process of one thread:

    python examples/tour/latency_worker.py RUN_DIRECTORY MODEL.qxm OUTPUT.json PEERS...

PEERS are names among "pytorch" and "onnxruntime". The packages of the latter lie in the folder that the variable
QX_TOUR_PEER_PACKAGES names, because this environment must not have them.
"""

import json
import os
import pathlib
import statistics
import sys
import time
import warnings
from collections.abc import Callable

import generate
import numpy
import settings as tour_settings
import torch
from model import Llama
from quincunx.lite import Session

PEER_PACKAGES = "QX_TOUR_PEER_PACKAGES"

Engine = Callable[[torch.Tensor], torch.Tensor]


class LastToken(torch.nn.Module):
    """Logits of the last token alone: what the converted `prefill` gives."""

    def __init__(self, model: Llama):
        super().__init__()
        self.model = model

    def forward(self, tokens_BL: torch.Tensor) -> torch.Tensor:
        return self.model.head(self.model.hidden(tokens_BL)[:, -1:])


def converted(path: str) -> Engine:
    session = Session(path, num_threads=1)
    return lambda tokens: session.run(tokens, numpy.asarray(0), method="prefill")[0]


def by_onnxruntime(module: LastToken, max_length: int, path: pathlib.Path) -> Engine:
    # Behind this environment's own, so that both have one torch and one NumPy.
    sys.path.append(os.environ[PEER_PACKAGES])
    import onnxruntime

    tokens = torch.ones(1, max_length // 2, dtype=torch.int64)
    length = torch.export.Dim("length", min=2, max=max_length)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, (tokens,), path, dynamo=True, verbose=False, input_names=["tokens"], dynamic_shapes=({1: length},)
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda tokens: torch.from_numpy(session.run(None, {"tokens": tokens.numpy()})[0])


def medians(engines: dict[str, Engine], tokens: torch.Tensor, rounds: int) -> dict[str, float]:
    """Seconds a call, each engine once in every round, so that all see the same states of the machine."""
    samples: dict[str, list[float]] = {name: [] for name in engines}
    for round_index in range(rounds + 1):
        for name, engine in engines.items():
            start = time.perf_counter()
            engine(tokens)
            if round_index > 0:  # the first one warms up
                samples[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in samples.items()}


@torch.no_grad()
def main(run: pathlib.Path, qxm: str, output: pathlib.Path, peers: list[str]) -> None:
    torch.set_num_threads(1)
    settings = tour_settings.read(run / "settings.json")
    module = LastToken(generate.load(run / "checkpoints", settings.model)).eval()
    engines: dict[str, Engine] = {"quincunx": converted(qxm)}
    if "pytorch" in peers:
        engines["pytorch"] = module
    if "onnxruntime" in peers:
        engines["onnxruntime"] = by_onnxruntime(module, max(settings.latency_lengths), run / "model.onnx")
    rows = []
    for length in settings.latency_lengths:
        tokens = torch.randint(settings.vocab_size, (1, length), generator=torch.Generator().manual_seed(length))
        expected = module(tokens)
        seconds = medians(engines, tokens, settings.latency_rounds)
        for name, engine in engines.items():
            error = (torch.as_tensor(engine(tokens)) - expected).abs().max().item()
            rows.append({"engine": name, "length": length, "seconds": seconds[name], "error": error})
    output.write_text(json.dumps(rows))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3]), sys.argv[4:])
