"""The registry: a model of one's own is one function."""

import pytest
import torch
from quincunx import boost
from quincunx.boost.models import SUPPORTED_MODELS, boost_function, register_model


class Toy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.activation = torch.nn.ReLU()

    def forward(self, x):
        return self.activation(x)


class ToyChild(Toy):
    pass


class Twice(torch.nn.Module):
    def forward(self, x):
        return 2 * x


def boost_toy(pipe, config):
    changes = boost.Changes()
    changes.replace(pipe, "activation", Twice(), "toy.activation")
    return changes


@pytest.fixture
def registered():
    register_model(Toy, boost_toy)
    yield
    del SUPPORTED_MODELS["Toy"]


def test_a_registered_model_is_boosted_and_its_subclasses_too(registered):
    for cls in (Toy, ToyChild):
        toy = cls()
        own = toy.activation
        with boost.boosted(toy):
            assert toy(torch.tensor(-1.0)) == -2
        assert toy.activation is own
        assert toy(torch.tensor(-1.0)) == 0


def test_a_name_serves_where_the_class_is_not_at_hand():
    register_model("Toy", boost_toy)
    try:
        assert boost_function(Toy()) is boost_toy
    finally:
        del SUPPORTED_MODELS["Toy"]


def test_bad_registrations_are_named(registered):
    with pytest.raises(ValueError, match="model: Toy is registered already, for boost_toy"):
        register_model(Toy, boost_toy)
    with pytest.raises(TypeError, match="model: expected a class or the name of one, got Toy"):
        register_model(Toy(), boost_toy)
    with pytest.raises(TypeError, match="boost_fn: expected a function"):
        register_model("Other", None)
