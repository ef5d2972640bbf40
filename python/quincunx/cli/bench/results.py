"""Files of figures: JSON for programs, Markdown for `benchmarks/RESULTS.md`."""

import json
import os
import pathlib

from .display import HEADINGS, cells, summary
from .row import Row


def check_writable(option: str, path: pathlib.Path) -> None:
    """ValueError naming the option, before anything is measured, where the file could not be written."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise ValueError(f"{option}: expected a file in an existing folder, got {path}: there is no folder {folder}")
    if path.is_dir():
        raise ValueError(f"{option}: expected the path of a file, got the folder {path}")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise ValueError(f"{option}: {path} may not be written")


def _replace(path: pathlib.Path, text: str) -> None:
    """Never leaves half a file."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text)
    partial.replace(path)


def write_json(path: pathlib.Path, rows: list[Row]) -> None:
    """One object a row."""
    lines = ",\n".join("  " + json.dumps(row.as_json()) for row in rows)
    _replace(path, f"[\n{lines}\n]\n")


def _line(texts: list[str]) -> str:
    return "| " + " | ".join(text.replace("|", "/").replace("\n", " ") for text in texts) + " |"


_INTRODUCTION = """# Measured figures

Written by `qx bench`, never by hand. What the columns mean: [docs/benchmarks.md](../docs/benchmarks.md).
"""


def _section(capability: str, machine: dict[str, str], command: str, rows: list[Row]) -> str:
    lines = [f"## {capability}", "", *(f"- {what}: {value}" for what, value in machine.items())]
    lines += [f"- command: `{command}`", "", summary(rows), "", _line(list(HEADINGS)), _line(["---"] * len(HEADINGS))]
    lines += [_line(cells(row)) for row in rows]
    notes = [f"- {row.name}: {row.note.splitlines()[0]}" for row in rows if row.note]
    return "\n".join([*lines, *(["", *notes] if notes else []), ""])


def _sections_of(page: str) -> dict[str, str]:
    """By capability, in the page's order."""
    sections = page.split("\n## ")[1:]
    return {text.splitlines()[0]: f"## {text.rstrip()}\n" for text in sections}


def write_markdown(path: pathlib.Path, machine: dict[str, str], command: str, rows: list[Row]) -> None:
    """All rows, those that miss their demand too, each capability under the machine, date, commit and command.

    Capabilities of which `rows` has none keep what the page says of them.
    """
    sections = _sections_of(path.read_text()) if path.exists() else {}
    for capability in dict.fromkeys(row.capability for row in rows):
        of_it = [row for row in rows if row.capability == capability]
        sections[capability] = _section(capability, machine, command, of_it)
    _replace(path, "\n".join([_INTRODUCTION, *sections.values()]))
