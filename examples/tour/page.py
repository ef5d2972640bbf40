"""The tour's report page."""

import dataclasses
import pathlib
import statistics

import charts
import conversion
import embeddings
import latency
import machine
import memory_chart
import video
from quincunx.report import Report
from records import Record, of_event
from settings import Settings
from text import Corpus


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a finished tour measured."""

    settings: Settings
    corpus: Corpus
    unigram_entropy: float
    training: list[Record]
    bandwidth: list[Record]
    samples: list[dict[str, str]]
    conversion: conversion.Conversion
    latencies: list[latency.Row]
    embeddings: embeddings.Embeddings
    video: video.Video
    num_repeated_steps: int

    @property
    def held_out_loss(self) -> float:
        return of_event(self.training, "evaluation", rank=0, step=self.settings.steps)[-1]["loss"]

    @property
    def tokens_per_second(self) -> float:
        seconds = [record["seconds"] for record in of_event(self.training, "step", rank=0)]
        return self.settings.tokens_per_step / statistics.median(seconds)


def write(outcome: Outcome, path: pathlib.Path) -> Report:
    """Writes the report to the file and returns it."""
    report = Report(
        title="Quincunx tour: a language model learns real text",
        summary="Two processes train a small Llama-style model on the Python documentation under FSDP2, with mccl for "
        "the collectives, Muon for the matrices and a policy for activation memory. They are killed on the way and go "
        "on from their checkpoint.",
    )
    _add_key_figures(report, outcome)
    _add_training(report, outcome)
    _add_memory(report, outcome)
    _add_collectives(report, outcome)
    _add_samples(report, outcome)
    conversion.add_to(report, outcome.conversion)
    latency.add_to(report, outcome.latencies, outcome.settings)
    embeddings.add_to(report, outcome.embeddings)
    video.add_to(report, outcome.video)
    _add_configuration(report, outcome)
    report.write(path)
    return report


def _add_key_figures(report: Report, outcome: Outcome) -> None:
    start = of_event(outcome.training, "start")[0]
    steps = outcome.settings.steps
    share = outcome.held_out_loss / outcome.unigram_entropy
    report.add_key_figures(
        [
            ("held-out loss", f"{outcome.held_out_loss:.3f}", f"nats a token, {share:.2f} x the unigram entropy"),
            ("parameters", f"{start['num_parameters'] / 1e6:.1f} M", f"{start['num_matrices']} matrices under Muon"),
            ("tokens seen", f"{steps * outcome.settings.tokens_per_step / 1e3:,.0f} k", f"in {steps} steps"),
            ("speed", f"{outcome.tokens_per_second:,.0f}", "tokens/s, median step, two processes of one thread"),
            ("steps repeated bit for bit", str(outcome.num_repeated_steps), "between the checkpoint and the kill"),
        ]
    )


def _add_training(report: Report, outcome: Outcome) -> None:
    report.add_section(
        "Learning",
        "Loss is the mean surprise at the next token. A model that knows how often each token occurs, and nothing "
        "else, scores the unigram entropy.",
    )
    first = of_event(outcome.training, "start", attempt=1)[0]["first_step"]
    report.add_chart(
        charts.loss(outcome.training, outcome.unigram_entropy, outcome.settings.loss_bound),
        name="loss",
        title="Loss against the step",
        caption="Thick line: until both workers were killed with SIGKILL. Thin line: after torchrun had restarted them "
        f"and they had resumed at step {first}. Where both exist they are the same numbers, bit for bit. The last "
        + (
            "held-out point covers the whole held-out text."
            if outcome.settings.evaluate_all_at_end
            else "point, too, covers a sample of the held-out text: this was a quick tour."
        ),
    )
    report.add_chart(
        charts.step(outcome.training),
        name="step",
        title=f"One step: step {outcome.settings.trace_step} on both ranks",
        caption="Phases run in the training thread, collectives in mccl's. FSDP2 gathers each layer's parameters "
        "before it is needed, forward and backward, and reduces its gradients behind the backward pass. In the "
        "optimizer's phase Muon sends each matrix to one owner, which orthogonalises it by Newton-Schulz iterations "
        "and sends the update back. The step was run under a profiler, which slows it a little.",
    )


def _add_memory(report: Report, outcome: Outcome) -> None:
    report.add_section(
        "Memory",
        "What the backward pass needs of a layer is kept in memory (attention and its projections), written to a file "
        "and read back (the wide products of the feed-forward), or computed again (norms, rotary positions, SiLU).",
    )
    record = memory_chart.memory_of_step(outcome.training)
    peak_mib, without_mib = memory_chart.peaks_mib(record)
    report.add_chart(
        memory_chart.draw(outcome.training),
        name=memory_chart.NAME,
        title=f"Bytes that activations hold in step {record['step']}, rank 0",
        caption=f"Areas: in memory, at most {peak_mib:.1f} MiB. Dotted: in the file. Dashed: what autograd would hold "
        f"of the layers' tensors without a policy, at most {without_mib:.1f} MiB. Tensors outside of the layers, such "
        "as the logits, are not counted.",
    )


def _add_collectives(report: Report, outcome: Outcome) -> None:
    report.add_section("Collectives", "The operations that FSDP2 calls, between two processes on this machine.")
    report.add_chart(
        charts.bandwidth(outcome.bandwidth),
        name="bandwidth",
        title="Bandwidth of mccl and gloo",
        caption="Bytes of the whole tensor (summed, gathered or scattered) over the time of one call, f32, median of "
        f"{outcome.settings.bandwidth_repeats} calls that alternate between the two in the same processes. Higher is "
        "better. Both axes are logarithmic.",
    )


def _add_samples(report: Report, outcome: Outcome) -> None:
    report.add_section(
        "Samples", "What the model writes after the prompt in blue: one process loads the two processes' checkpoint."
    )
    for sample in outcome.samples:
        report.add_sample(given=sample["prompt"], text=sample["text"], note=sample["how"])


def _add_configuration(report: Report, outcome: Outcome) -> None:
    settings, corpus = outcome.settings, outcome.corpus
    model = settings.model
    report.add_section("Configuration", "Everything that a second run needs to be compared with this one.")
    rows = [
        (
            "text",
            f"{corpus.num_train_files} files for training, {corpus.num_held_out_files} held out, "
            f"{corpus.num_bytes / 1e6:.1f} MB of python3.11-doc",
        ),
        (
            "tokens",
            f"byte-fallback BPE with {settings.vocab_size} tokens; {len(corpus.train_tokens()):,} for training, "
            f"{len(corpus.held_out_tokens()):,} held out",
        ),
        (
            "model",
            f"{model.num_layers} layers of width {model.dim}, {model.num_heads} heads, "
            f"feed-forward width {model.hidden_dim}",
        ),
        (
            "step",
            f"{settings.world_size} ranks x {settings.sequences_per_rank} sequences of "
            f"{settings.sequence_length} tokens",
        ),
        (
            "optimizer",
            f"Muon (learning rate {settings.muon_lr}, weight decay {settings.muon_weight_decay}) for the "
            f"layers' matrices, AdamW (learning rate {settings.adamw_lr}) for the rest",
        ),
        (
            "schedule",
            f"{settings.warmup_steps} steps of warm-up, linear decay over the last {settings.decay_fraction:.0%}",
        ),
        ("seed", str(settings.seed)),
        *machine.rows(),
    ]
    report.add_table(["", "value"], rows)
