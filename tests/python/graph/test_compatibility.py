"""Files of every format version that was released open and mean what they meant."""

import json
import pathlib

import numpy as np
import pytest
from quincunx._graph import open_qxm

DATA = pathlib.Path(__file__).parent / "data"
FILES = sorted(DATA.glob("version_*.qxm"))


def test_there_are_files():
    assert [path.name for path in FILES] == ["version_1_0.qxm"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_of_an_earlier_version_opens(path):
    model = open_qxm(path)
    assert "".join(map(str, model.methods)) == path.with_suffix(".txt").read_text()
    assert json.loads(model.metadata) == {"made by": "version 1.0"}
    assert model.tokenizer == b"tokens"


def test_its_weights_are_read(core):
    (method,) = open_qxm(DATA / "version_1_0.qxm").methods
    (state,) = method.states
    start = method.constant_bytes(method.values[state.input].constant)[:16].view(np.float32)
    np.testing.assert_array_equal(start, np.zeros(4, np.float32))
    index = next(value.constant for value in method.values if value.name == "c_lifted_tensor_0")
    np.testing.assert_array_equal(method.constant_bytes(index)[:16].view(np.int64), [0, 1])
