import pathlib
import time

import pytest
from quincunx.cli.bench.workers import Workers

FOLDER = pathlib.Path(__file__).parent
MODULE = "rank_functions"


@pytest.fixture(scope="module")
def workers():
    pair = Workers(2, FOLDER)
    yield pair
    pair.close()


def test_each_rank_answers_with_its_own_result(workers):
    assert workers.run(MODULE, "identify", word="x") == [(0, 2, "x", 1), (1, 2, "x", 1)]


def test_rank_that_raises_is_named(workers):
    with pytest.raises(RuntimeError, match=r"rank_functions\.fail_on_rank_1: rank 1: ValueError: wrong"):
        workers.run(MODULE, "fail_on_rank_1")


@pytest.mark.parametrize(
    ("function", "message"), [("die", "rank 0 ended"), ("sleep", r"rank 0 gave no answer within 1 s")]
)
def test_rank_that_is_lost_is_named_and_ended(function, message):
    alone = Workers(1, FOLDER)
    pid = alone.run(MODULE, "process_id")[0]
    with pytest.raises(RuntimeError, match=message):
        alone.run(MODULE, function, limit_s=1 if function == "sleep" else 60)
    start = time.monotonic()
    alone.close()
    assert time.monotonic() - start < 30
    assert not pathlib.Path(f"/proc/{pid}").exists()
