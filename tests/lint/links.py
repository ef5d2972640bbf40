"""Links between the Markdown pages of the repository lead somewhere."""

import pathlib
import re

from repository import files

_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def violations(root: pathlib.Path) -> list[str]:
    found = []
    for page in files(root, ".md"):
        for target in _LINK.findall(_CODE.sub("", page.read_text())):
            if "://" not in target and not target.startswith("mailto:") and not (page.parent / target).exists():
                found.append(f"{page.relative_to(root)}: links to {target}, which does not exist")
    return found
