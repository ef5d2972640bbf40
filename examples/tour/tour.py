"""The tour: a small Llama-style model learns real text, and a report shows how.

    python examples/tour/tour.py --output tour [--quick]

Two processes train it under FSDP2 on mccl with Muon, are killed on the way and resume from their checkpoint. The
result is OUTPUT/report.html. Running it again starts afresh; only the tokenized text is kept.
"""

import argparse
import contextlib
import dataclasses
import fcntl
import json
import pathlib
import shutil
import signal
import sys
from collections.abc import Iterator

import bandwidth
import charts
import compiled
import conversion
import display
import embeddings
import generate
import guards
import latency
import launch
import page
import settings as tour_settings
import text
import train
import video
from records import Record, of_event

NUM_PHASES = 8


@contextlib.contextmanager
def exclusive(output: pathlib.Path) -> Iterator[None]:
    """One tour at a time in a folder; the lock goes with the process, however it ends."""
    output.mkdir(parents=True, exist_ok=True)
    with open(output / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RuntimeError(f"another tour is running in {output}; wait for it or give another --output") from error
        yield


def prepare_run(output: pathlib.Path, settings: tour_settings.Settings) -> tuple[pathlib.Path, text.Corpus]:
    """An empty run folder with the workers' input. An old report goes first: it must not pass for this run's."""
    (output / "report.html").unlink(missing_ok=True)
    run = output / "run"
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir()
    corpus = text.prepare(output / "text", vocab_size=settings.vocab_size, max_files=settings.max_files)
    settings.write(run / "settings.json")
    paths = {"train_path": corpus.train_path, "held_out_path": corpus.held_out_path}
    (run / "corpus.json").write_text(json.dumps({name: str(path.resolve()) for name, path in paths.items()}))
    return run, corpus


def run_training(run: pathlib.Path, settings: tour_settings.Settings, show: display.Display) -> list[Record]:
    """Trains, kills all workers once they have passed settings.kill_after_step, and sees them resume."""
    records: list[Record] = []
    killed = False
    progress = display.TrainingProgress(show, num_steps=settings.steps, tokens_per_step=settings.tokens_per_step)
    stream = launch.follow(
        pathlib.Path(train.__file__),
        [str(run), "--await-kill"],
        records=run / "records",
        log=run / "train.log",
        world_size=settings.world_size,
        max_restarts=1,
        deadline_s=settings.deadline_s,
    )
    with contextlib.closing(stream), progress:
        for record in stream:
            records.append(record)
            if record["rank"] != 0:
                continue
            if record["event"] == "step":
                progress.step(record)
                if not killed and record["step"] >= settings.kill_after_step:
                    killed = True
                    pids = launch.kill_workers(of_event(records, "start", attempt=0))
                    show.detail(
                        f"step {record['step']}: killed the workers (SIGKILL to {pids}); torchrun restarts them"
                    )
                    progress.waiting("workers restart")
            elif record["event"] == "evaluation":
                progress.evaluation(record)
            elif record["event"] == "start" and record["attempt"] > 0:
                show.detail(f"resumed from the checkpoint of step {record['first_step'] - 1}")
    return records


def measure_bandwidth(run: pathlib.Path, settings: tour_settings.Settings) -> list[Record]:
    stream = launch.follow(
        pathlib.Path(bandwidth.__file__),
        [str(run)],
        records=run / "bandwidth",
        log=run / "bandwidth.log",
        world_size=settings.world_size,
        deadline_s=settings.deadline_s,
    )
    with contextlib.closing(stream):
        return list(stream)


def write_samples(
    run: pathlib.Path, settings: tour_settings.Settings, corpus: text.Corpus, show: display.Display
) -> list[dict[str, str]]:
    model = generate.load(run / "checkpoints", settings.model)
    samples = generate.samples(model, corpus.tokenizer(), num_tokens=settings.sample_tokens, seed=settings.seed)
    for sample in samples:
        show.console.print(f"      [dim]{sample['how']}:[/]")
        show.console.print(sample["prompt"], style="bold", end="", markup=False)
        show.console.print(sample["text"], markup=False)
    return samples


def tour(output: pathlib.Path, settings: tour_settings.Settings, show: display.Display) -> page.Outcome:
    show.phase("text: the reST sources of python3.11-doc")
    run, corpus = prepare_run(output, settings)
    entropy = text.unigram_entropy(corpus.held_out_tokens(), corpus.vocab_size)
    show.detail(
        f"{len(corpus.train_tokens()):,} training tokens, {len(corpus.held_out_tokens()):,} held out with a unigram "
        f"entropy of {entropy:.3f} nats"
    )
    show.phase(
        f"training: {settings.world_size} processes, FSDP2 on {settings.backend}, {settings.optimizer}, layers "
        "compiled, activations saved, swapped and computed again"
    )
    training = run_training(run, settings, show)
    guards.check_collectives(training)
    guards.check_matrices(training, settings.world_size)
    swapped_bytes = guards.check_activation(training)
    num_repeated_steps = guards.check_resume(training)
    show.detail(f"{num_repeated_steps} steps were run again after the resume, with the same losses bit for bit")
    show.detail(f"{swapped_bytes / 1e6:,.0f} MB of activations went to a file and back")
    operators_left = compiled.check(training)
    explanation = compiled.explain(settings, run / "kernels")
    show.detail(f"{explanation.num_regions} compiled regions in a layer, forward and backward; PyTorch's own ran for:")
    show.detail(", ".join(f"{count} x {name}" for name, count in operators_left.items()))
    show.phase("samples: one process loads the checkpoint of two and writes")
    samples = write_samples(run, settings, corpus, show)
    show.phase("conversion: model.qxm, and the C++ program writes what PyTorch writes")
    converted = conversion.run(run, settings, corpus, show.detail)
    conversion.check(converted.generated)
    show.detail(
        f"{len(converted.generated)} texts equal PyTorch's token for token, without Python in the process, at "
        f"{conversion.tokens_per_second(converted.generated):,.0f} tokens/s"
    )
    latencies = latency.measure(run, converted.report.output, settings)
    latency.check(latencies, settings)
    show.phase("embeddings: MiniLM by qx")
    embedded = embeddings.run(run, settings)
    embeddings.check(embedded)
    show.detail(f"they differ from PyTorch's by at most {embedded.largest_difference:.1e}")
    show.phase("video: a tiny diffusion pipeline, as it is and boosted")
    made_video = video.run(settings, show.detail)
    video.check(made_video, settings)
    show.detail(f"PSNR {made_video.quality.psnr:.1f} dB, attained density {made_video.quality.density:.3f}")
    show.phase("collectives: mccl beside gloo")
    measured = measure_bandwidth(run, settings)
    return page.Outcome(
        settings=settings,
        corpus=corpus,
        unigram_entropy=entropy,
        training=training,
        bandwidth=measured,
        samples=samples,
        conversion=converted,
        latencies=latencies,
        embeddings=embedded,
        video=made_video,
        num_repeated_steps=num_repeated_steps,
        explanation=explanation,
        operators_left=operators_left,
    )


def chosen_settings(*, quick: bool, overrides: pathlib.Path | None) -> tour_settings.Settings:
    values = dataclasses.asdict(tour_settings.quick() if quick else tour_settings.Settings())
    if overrides is not None:
        values |= json.loads(overrides.read_text(encoding="utf-8"))
    return tour_settings.from_dict(values)


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("tour"), help="folder of the report")
    parser.add_argument("--quick", action="store_true", help="about a minute: every part, but too short to learn much")
    parser.add_argument("--settings", type=pathlib.Path, help="JSON file whose fields replace those of settings.py")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse_arguments(arguments)
    show = display.Display(NUM_PHASES)
    try:
        settings = chosen_settings(quick=options.quick, overrides=options.settings)
        with exclusive(options.output):
            outcome = tour(options.output, settings, show)
            show.phase("report")
            report = options.output / "report.html"
            guards.check_report(page.write(outcome, report), charts.NAMES, page.PICTURES)
            # Checked last, so that the report of a run that learned too little can be looked at.
            guards.check_loss(outcome.held_out_loss, outcome.unigram_entropy, settings.loss_bound)
    except (OSError, ValueError, RuntimeError) as error:
        show.fail(str(error))
        return 1
    except KeyboardInterrupt:
        show.fail("interrupted; its workers were ended")
        return 130
    share = outcome.held_out_loss / outcome.unigram_entropy
    show.finish(
        f"Held-out loss {outcome.held_out_loss:.3f} nats a token, {share:.2f} x the unigram entropy. Open {report}"
    )
    return 0


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    # As for an interrupt: the clean-up runs, and no worker is left behind.
    signal.signal(signal.SIGTERM, interrupt)
    sys.exit(main(sys.argv[1:]))
