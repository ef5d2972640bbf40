"""Text that a repository which speaks of itself alone does not hold: paths of one machine, and places outside it."""

import pathlib
import re

from repository import files

# Written in pieces so that this file passes its own check.
_FORBIDDEN = {
    "a path of one machine": re.compile(r"(?<![\w.$}/-])/(wo" + r"rk|ho" + r"me|ro" + r"ot|tmp/build)(/|\b)"),
    "a place outside the repository": re.compile(r"\.\./sha" + "red"),
    "an unfinished part": re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b"),
    "a merge conflict": re.compile(r"^(<{7}|>{7}) ", re.MULTILINE),
}
_NOT_TEXT = (".png", ".jpg", ".qxm", ".bin", ".pt", ".so", ".gz", ".woff2")


def violations(root: pathlib.Path) -> list[str]:
    found = []
    for path in files(root):
        if path.name.endswith(_NOT_TEXT) or path.name == "LICENSE":
            continue
        text = path.read_text(errors="replace")
        for what, pattern in _FORBIDDEN.items():
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{path.relative_to(root)}:{line}: {what}: {match.group(0)!r}")
        if path.name.endswith((".cpp", ".h", ".cmake", ".sh")) and not text.isascii():
            found.append(f"{path.relative_to(root)}: holds characters that are not ASCII")
    return found
