import pathlib

import pytest
from quincunx.cli.bench import peak
from quincunx.cli.bench.peak import PeakMeter, load_reader

CHECKOUT = pathlib.Path(__file__).resolve().parents[4]


def readings(*values: float):
    """A reader that gives the values in turn, and then the last one again and again."""
    pending = list(values)
    return lambda threads: pending.pop(0) if len(pending) > 1 else pending[0]


def test_reading_is_a_part_of_the_best_one():
    assert PeakMeter(readings(100.0, *[95.0] * 14, 90.0)).part_of_best(1) == 0.9


def test_better_reading_raises_the_mark():
    meter = PeakMeter(readings(*[100.0] * 15, 120.0, 90.0))
    assert meter.part_of_best(1) == 1.0
    assert meter.part_of_best(1) == 0.75


def test_thread_counts_have_marks_of_their_own():
    meter = PeakMeter(lambda threads: 100.0 * threads)
    assert meter.part_of_best(2) == 1.0
    assert meter.part_of_best(1) == 1.0
    assert meter.best == {1: 100.0, 2: 200.0}


def test_missing_library_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(peak, "library_directory", lambda: tmp_path)
    with pytest.raises(RuntimeError, match=r"no libquincunx_fma_peak\.so in .*make build"):
        load_reader(tmp_path)


def test_built_library_reads_a_rate_and_refuses_no_threads():
    try:
        read = load_reader(CHECKOUT)
    except RuntimeError as error:
        pytest.skip(str(error))
    assert read(1) > 0
    assert read(2) > 0
    assert read(0) < 0
