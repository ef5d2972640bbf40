"""What one tour runs: the full one, and the quick one of the tests. Workers read it from a JSON file."""

import dataclasses
import json
import pathlib
from typing import Any

from model import ModelConfig


@dataclasses.dataclass(frozen=True)
class Settings:
    """Steps count from 1; the checkpoint of step s holds the state after s steps."""

    steps: int = 180
    sequences_per_rank: int = 4
    sequence_length: int = 256
    evaluate_every: int = 20
    evaluation_windows: int = 16
    checkpoint_every: int = 90
    kill_after_step: int = 98
    trace_step: int = 150
    warmup_steps: int = 10
    decay_fraction: float = 0.4
    vocab_size: int = 2048
    max_files: int | None = None
    seed: int = 20230207
    world_size: int = 2
    # Fails above this share of the held-out text's unigram entropy; None in runs too short to learn.
    loss_bound: float | None = 0.75
    # The quick tour scores the same evenly spaced windows at the end instead of the whole held-out text.
    evaluate_all_at_end: bool = True
    backend: str = "mccl"
    optimizer: str = "muon"
    muon_lr: float = 0.01
    muon_weight_decay: float = 0.1
    adamw_lr: float = 0.003
    activation: str = "policy"
    compile: str = "quincunx"
    collective_timeout_s: int = 120
    deadline_s: int = 1800
    bandwidth_bytes: tuple[int, ...] = (4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20, 64 << 20)
    bandwidth_repeats: int = 9
    sample_tokens: int = 96
    # Tokens that the converted model's caches hold.
    converted_max_length: int = 512
    latency_lengths: tuple[int, ...] = (16, 64, 256)
    latency_rounds: int = 9
    latency_peers: tuple[str, ...] = ("pytorch", "onnxruntime")
    video_steps: int = 120
    video_sparsity: float = 0.5
    video_psnr_bound: float | None = 20.0
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)

    def __post_init__(self) -> None:
        if not 0 < self.checkpoint_every < self.kill_after_step < self.trace_step <= self.steps:
            raise ValueError(
                "Settings: expected 0 < checkpoint_every < kill_after_step < trace_step <= steps, got "
                f"{self.checkpoint_every}, {self.kill_after_step}, {self.trace_step}, {self.steps}"
            )
        for name in ("sequences_per_rank", "sequence_length", "evaluate_every", "warmup_steps", "world_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"Settings: {name} must be at least 1, got {getattr(self, name)}")
        if self.evaluation_windows < self.world_size:
            raise ValueError(
                f"Settings: evaluation_windows {self.evaluation_windows} must be at least one for each of the "
                f"{self.world_size} workers"
            )
        if self.model.vocab_size != self.vocab_size:
            raise ValueError(f"Settings: vocab_size {self.vocab_size} differs from the model's {self.model.vocab_size}")

    @property
    def tokens_per_step(self) -> int:
        return self.world_size * self.sequences_per_rank * self.sequence_length

    def write(self, path: pathlib.Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n")


def from_dict(values: dict[str, Any]) -> Settings:
    known = {field.name for field in dataclasses.fields(Settings)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ValueError(f"Settings: unknown names {unknown}; known are {sorted(known)}")
    values = dict(values)
    for name in ("bandwidth_bytes", "latency_lengths", "latency_peers"):
        if name in values:
            values[name] = tuple(values[name])
    if "model" in values:
        values["model"] = ModelConfig(**values["model"])
    return Settings(**values)


def read(path: pathlib.Path) -> Settings:
    return from_dict(json.loads(path.read_text()))


def quick() -> Settings:
    """The same path in about a minute: the same model, fewer and shorter steps, an eighth of the text."""
    return Settings(
        steps=12,
        sequences_per_rank=2,
        sequence_length=128,
        evaluate_every=4,
        evaluation_windows=8,
        checkpoint_every=5,
        kill_after_step=7,
        trace_step=9,
        warmup_steps=3,
        max_files=64,
        loss_bound=None,
        evaluate_all_at_end=False,
        deadline_s=300,
        bandwidth_bytes=(4 << 10, 256 << 10, 4 << 20),
        bandwidth_repeats=5,
        sample_tokens=32,
        latency_lengths=(16, 64),
        latency_rounds=3,
        latency_peers=("pytorch",),
        video_steps=6,
        video_psnr_bound=None,
    )
