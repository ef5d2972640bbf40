import os
import pathlib
import sys

import pytest
from quincunx.report import find_browser

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
# The tour is a program of plain modules in one folder, as its workers import them.
sys.path.insert(0, str(REPOSITORY / "examples" / "tour"))


@pytest.fixture(scope="session")
def browser():
    """Path of the browser; without one the test is skipped, but under CI it fails."""
    found = find_browser()
    if found is None and os.environ.get("CI") == "true":
        pytest.fail("CI looks at reports in a browser: install Debian's package chromium")
    if found is None:
        pytest.skip("no Chromium: install Debian's package chromium to look at reports")
    return found
