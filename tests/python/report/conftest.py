import os

import pytest
from quincunx.report import find_browser


@pytest.fixture(scope="session")
def browser():
    """Path of the browser; without one the test is skipped, but under CI it fails."""
    found = find_browser()
    if found is None and os.environ.get("CI") == "true":
        pytest.fail("CI looks at reports in a browser: install Debian's package chromium")
    if found is None:
        pytest.skip("no Chromium: install Debian's package chromium to look at reports")
    return found
