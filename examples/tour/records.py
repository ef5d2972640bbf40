"""Records of a run: one JSON object a line, one file for each attempt and rank, written by workers and read by tour.py.

Events: start, step, evaluation, checkpoint, trace, done. A killed worker leaves at most its last line unfinished.
"""

import json
import pathlib
import time
from collections.abc import Iterator
from typing import Any

Record = dict[str, Any]


class Recorder:
    """Appends one process's records; every line is in the file when `write` returns."""

    def __init__(self, directory: pathlib.Path, *, attempt: int, rank: int):
        directory.mkdir(parents=True, exist_ok=True)
        self._origin: Record = {"attempt": attempt, "rank": rank}
        self._file = open(directory / f"attempt{attempt}_rank{rank}.jsonl", "a", encoding="utf-8", buffering=1)

    def write(self, event: str, **values: Any) -> None:
        self._file.write(json.dumps({"event": event, "time_s": time.time(), **self._origin, **values}) + "\n")


class Follower:
    """Hands out the records of a folder as they arrive."""

    def __init__(self, directory: pathlib.Path):
        self._directory = directory
        self._offsets: dict[pathlib.Path, int] = {}

    def new_records(self) -> Iterator[Record]:
        for path in sorted(self._directory.glob("*.jsonl")):
            with open(path, "rb") as file:
                file.seek(self._offsets.get(path, 0))
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._offsets[path] = self._offsets.get(path, 0) + len(line)
                    yield json.loads(line)


def of_event(records: list[Record], event: str, **conditions: Any) -> list[Record]:
    """The records of one event whose fields equal the conditions, in order of attempt, rank and time."""
    chosen = [
        record
        for record in records
        if record["event"] == event and all(record[name] == value for name, value in conditions.items())
    ]
    return sorted(chosen, key=lambda record: (record["attempt"], record["rank"], record["time_s"]))
