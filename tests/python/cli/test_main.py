import subprocess
import sys

from quincunx.cli.__main__ import main, verbs


def test_unknown_verb_is_refused_with_the_known_ones(capsys):
    assert main(["fly"]) == 2
    message = capsys.readouterr().err
    assert "unknown verb 'fly'" in message
    assert all(verb in message for verb in verbs())


def test_missing_verb_is_refused(capsys):
    assert main([]) == 2
    assert "no verb given" in capsys.readouterr().err


def test_module_starts_as_qx_starts_it():
    done = subprocess.run([sys.executable, "-m", "quincunx.cli", "fly"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "unknown verb 'fly'" in done.stderr
