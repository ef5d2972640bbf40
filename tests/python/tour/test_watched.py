"""The watcher sees what a program maps, and Python where there is one."""

import sys

import pytest
import watched


def test_a_program_without_python_has_none():
    outcome = watched.run(["/bin/sleep", "0.2"], timeout_s=20)
    assert outcome.num_looks > 3
    assert any("libc" in path for path in outcome.mapped)
    assert watched.of_python(outcome.mapped) == []


def test_python_is_seen_even_where_it_is_loaded_late():
    outcome = watched.run([sys.executable, "-c", "import time; time.sleep(0.2); print('done')"], timeout_s=20)
    assert outcome.output == "done\n"
    assert any("python" in path for path in watched.of_python(outcome.mapped))


def test_failures_and_hangs_are_reported():
    with pytest.raises(watched.ProgramError, match="(?s)ended with code 2.*nowhere"):
        watched.run(["/bin/ls", "/nowhere"], timeout_s=20)
    with pytest.raises(watched.ProgramError, match="/bin/sleep did not end within 0 s"):
        watched.run(["/bin/sleep", "30"], timeout_s=0.1)


def test_what_belongs_to_python_is_told_apart():
    ours = "/usr/lib/python3.11/site-packages/quincunx/lib/libquincunx_runtime.so"
    theirs = ["/usr/bin/python3.11", "/usr/lib/libpython3.11.so.1.0", "/home/quincunx/python3.11/site-packages/a.so"]
    assert watched.of_python([ours, "/usr/lib/libc.so.6", *theirs]) == sorted(theirs)
