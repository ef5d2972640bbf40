import pathlib

import pytest
from quincunx.cli.bench import peak
from quincunx.cli.bench.peak import PeakMeter, load_reader

CHECKOUT = pathlib.Path(__file__).resolve().parents[4]


def readings(*values: float):
    """A reader that gives the values in turn, and then the last one again and again."""
    pending = list(values)
    return lambda threads: pending.pop(0) if len(pending) > 1 else pending[0]


def test_reading_near_the_best_one_is_free():
    assert PeakMeter(readings(100.0, *[95.0] * 14, 90.0)).is_free(1)


def test_reading_below_nine_tenths_of_the_best_is_not():
    assert not PeakMeter(readings(100.0, *[95.0] * 14, 89.9)).is_free(1)


def test_better_reading_raises_the_mark():
    meter = PeakMeter(readings(*[100.0] * 15, 120.0, 105.0))
    assert meter.is_free(1)
    assert not meter.is_free(1)


def test_thread_counts_have_marks_of_their_own():
    meter = PeakMeter(lambda threads: 100.0 * threads)
    assert meter.is_free(2)
    assert meter.is_free(1)
    assert meter.best == {1: 100.0, 2: 200.0}


def test_waiting_ends_when_the_machine_is_free():
    waits: list[float] = []
    meter = PeakMeter(readings(*[100.0] * 15, 50.0, 50.0, 100.0), sleep=waits.append)
    assert meter.wait_until_free(1)
    assert len(waits) == 2


def test_waiting_ends_where_the_machine_stays_busy():
    waits: list[float] = []
    assert not PeakMeter(readings(*[100.0] * 15, 50.0), sleep=waits.append).wait_until_free(1)
    assert 0 < len(waits) < 100


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
