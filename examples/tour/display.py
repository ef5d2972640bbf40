"""What the tour shows while it runs: a line for each phase, a progress bar on a terminal, plain lines elsewhere."""

import time

from records import Record
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_LINE_INTERVAL_S = 5.0


class Display:
    def __init__(self, num_phases: int):
        self.console = Console(highlight=False)
        self._num_phases = num_phases
        self._phase = 0
        self._start_s = time.monotonic()

    def phase(self, title: str) -> None:
        self._phase += 1
        self.console.print(f"[bold blue]\\[{self._phase}/{self._num_phases}][/] [bold]{title}[/]", soft_wrap=True)

    def detail(self, text: str) -> None:
        self.console.print(f"      {text}", markup=False, soft_wrap=True)

    def finish(self, text: str) -> None:
        self.console.print(f"[bold green]tour: done[/] in {self.seconds():.0f} s. {text}", soft_wrap=True)

    def fail(self, reason: str) -> None:
        self.console.print("[bold red]tour: FAILED[/]", end=" ")
        self.console.print(reason, markup=False, soft_wrap=True)

    def seconds(self) -> float:
        return time.monotonic() - self._start_s


class TrainingProgress:
    """The bar of the training phase, fed with records."""

    def __init__(self, display: Display, *, num_steps: int, tokens_per_step: int):
        self._display = display
        self._num_steps = num_steps
        self._tokens_per_step = tokens_per_step
        self._held_out = ""
        self._last_line_s = time.monotonic()
        self._seconds = 0.0
        self._bar = Progress(
            TextColumn("      training"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=display.console,
        )
        self._task = self._bar.add_task("training", total=num_steps, status="workers start")

    def __enter__(self) -> "TrainingProgress":
        if self._display.console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._display.console.is_terminal:
            self._bar.stop()

    def step(self, record: Record) -> None:
        # Smoothed, because single steps are noisy and the first one warms up.
        weight = 1.0 if self._seconds == 0.0 else 0.2
        self._seconds += weight * (record["seconds"] - self._seconds)
        status = f"loss {record['loss']:.3f}{self._held_out}  {self._tokens_per_step / self._seconds:,.0f} tokens/s"
        self._bar.update(self._task, completed=record["step"], status=status)
        now = time.monotonic()
        last = record["step"] == self._num_steps
        if not self._display.console.is_terminal and (last or now - self._last_line_s > _LINE_INTERVAL_S):
            self._last_line_s = now
            self._display.detail(f"step {record['step']}/{self._num_steps}  {status}")

    def evaluation(self, record: Record) -> None:
        self._held_out = f"  held-out {record['loss']:.3f}"

    def waiting(self, status: str) -> None:
        self._bar.update(self._task, status=status)
