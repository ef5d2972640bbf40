"""Every source goes on as it did before, whatever was drawn in between."""

import random

import numpy
import pytest
import torch
from quincunx.activation import random_state
from quincunx.activation.random_state import NumpyState, RandomState


def draw_numpy():
    return [numpy.random.rand(3).tolist(), numpy.random.standard_normal(), numpy.random.randint(1 << 30)]


def draw():
    return [torch.rand(3).tolist(), random.random(), random.gauss(0, 1), *draw_numpy()]


@pytest.fixture(params=["memory", "functions"])
def way(request, monkeypatch):
    if request.param == "functions":
        monkeypatch.setattr(random_state, "_offset_of_normal", lambda kind: None)
    assert isinstance(NumpyState()._state, bytes) == (request.param == "memory")


@pytest.mark.parametrize("num_normals", [0, 1, 2, 3])
@pytest.mark.parametrize("num_words", [0, 1, 623, 624, 625, 2000])
def test_numpy_goes_on_as_before(way, num_normals, num_words):
    numpy.random.seed(num_words)
    numpy.random.randint(0, 1 << 32, num_words, dtype=numpy.uint32)
    numpy.random.standard_normal(num_normals)  # Of an odd number, one stays in store.
    state = NumpyState()
    first = draw_numpy()
    state.restore()
    assert draw_numpy() == first
    state.restore()
    assert draw_numpy() == first


def test_a_normal_number_in_store_is_part_of_the_state(way):
    numpy.random.seed(5)
    numpy.random.standard_normal()
    state = NumpyState()
    first = numpy.random.standard_normal()  # The one in store: the generator itself does not move.
    assert numpy.random.standard_normal() != first
    state.restore()
    assert numpy.random.standard_normal() == first


def test_all_sources_go_on_as_before():
    random.gauss(0, 1)
    state = RandomState()
    first = draw()
    state.restore()
    assert draw() == first


def test_another_generator_of_numpy_is_restored_too():
    before = numpy.random.get_bit_generator()
    try:
        numpy.random.set_bit_generator(numpy.random.PCG64(3))
        state = NumpyState()
        first = numpy.random.rand(5)
        state.restore()
        assert (numpy.random.rand(5) == first).all()
    finally:
        numpy.random.set_bit_generator(before)


def test_the_place_of_the_normal_number_is_not_guessed():
    class Other:
        def __init__(self, seed):
            self.seed = seed

        def standard_normal(self):
            return 0.0

        def get_state(self):
            return (None, None, None, 1, 1.25 * self.seed)

    assert random_state._offset_of_normal(Other) is None
