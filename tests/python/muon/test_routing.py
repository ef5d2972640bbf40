"""quincunx.muon.routing and build_optimizer: what gets which update, and what is refused."""

import re

import pytest
import torch
from quincunx.muon import build_optimizer
from torch import nn


class Model(nn.Module):
    def __init__(self, is_tied: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 4)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.mix = nn.Conv1d(4, 4, 3, bias=False)
        self.norm = nn.LayerNorm((3, 4))
        self.experts = nn.Parameter(torch.randn(3, 4, 6))
        self.predict = nn.Linear(4, 11, bias=False)
        if is_tied:
            self.predict.weight = self.embed.weight


def families(optimizer) -> dict[str, str]:
    return {r.name: r.family for r in optimizer.routes}


def reasons(optimizer) -> dict[str, str]:
    return {r.name: r.why for r in optimizer.routes}


def test_hidden_matrices_go_to_muon_and_the_rest_to_adamw():
    assert families(build_optimizer(Model())) == {
        "experts": "muon",
        "embed.weight": "adamw",
        "layers.0.weight": "muon",
        "layers.0.bias": "adamw",
        "layers.1.weight": "muon",
        "layers.1.bias": "adamw",
        "mix.weight": "muon",
        "norm.weight": "adamw",
        "norm.bias": "adamw",
        "predict.weight": "adamw",
    }


def test_reasons_are_given():
    why = reasons(build_optimizer(Model(), overrides={"experts": "adamw"}))
    assert why["embed.weight"] == "embedding"
    assert why["predict.weight"] == "output head: as many rows as embed has entries"
    assert why["norm.weight"] == "norm"
    assert why["layers.0.bias"] == "norm, bias or scalar"
    assert why["layers.0.weight"] == "hidden matrix"
    assert why["experts"] == "override 'experts'"


def test_the_reason_of_a_head_is_given():
    model = nn.ModuleDict({"body": nn.Linear(4, 4, bias=False), "output": nn.Linear(4, 3, bias=False)})
    optimizer = build_optimizer(model)
    assert families(optimizer) == {"body.weight": "muon", "output.weight": "adamw"}
    assert reasons(optimizer)["output.weight"] == "output head: last linear layer of the model's output"


def test_tied_weights_are_routed_once():
    optimizer = build_optimizer(Model(is_tied=True))
    assert families(optimizer)["embed.weight"] == "adamw"
    assert "predict.weight" not in families(optimizer)
    assert "tied: embed.weight = predict.weight" in reasons(optimizer)["embed.weight"]


def test_frozen_parameters_are_excluded():
    model = Model()
    model.layers[0].requires_grad_(False)
    optimizer = build_optimizer(model)
    assert "layers.0.weight" not in families(optimizer)
    assert all(p.requires_grad for g in optimizer.param_groups for p in g["params"])
    assert re.search(r"layers.0.weight +none +requires no gradient", optimizer.explain())


def test_overrides_search_the_name():
    chosen = families(build_optimizer(Model(), overrides={r"layers\.0\.weight": "adamw", "^predict": "muon"}))
    assert chosen["layers.0.weight"] == "adamw"
    assert chosen["layers.1.weight"] == "muon"
    assert chosen["predict.weight"] == "muon"


def test_overrides_know_every_name_of_a_tied_weight():
    chosen = families(build_optimizer(Model(is_tied=True), overrides={"predict": "muon"}))
    assert chosen["embed.weight"] == "muon"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"overrides": {"attention": "muon"}}, "overrides: 'attention' matches no trainable parameter"),
        ({"overrides": {"layers": "adamw", r"1\.weight": "muon"}}, "both match layers.1.weight"),
        ({"overrides": {"experts": "sgd"}}, "must be one of .* got 'sgd'"),
        ({"overrides": {"(": "muon"}}, "is no regular expression"),
        ({"overrides": {"norm": "muon"}, "muon": None}, "which was given as None"),
        ({"overrides": {"layers.0.bias": "muon"}}, "sends layers.0.bias of shape .* which needs matrices"),
        ({"adamw": None}, "parameter embed.weight: belongs to adamw .embedding., which was given as None"),
        ({"muon": None}, "parameter experts: belongs to muon"),
    ],
)
def test_selectors_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        build_optimizer(Model(), **arguments)


def test_a_model_without_trainable_parameters_is_refused():
    with pytest.raises(ValueError, match="model: has no trainable parameter"):
        build_optimizer(Model().requires_grad_(False))


def test_options_of_the_families_are_checked():
    with pytest.raises(ValueError, match="momentum"):
        build_optimizer(Model(), muon={"momentum": 2.0})
    with pytest.raises(ValueError, match="Invalid learning rate"):
        build_optimizer(Model(), adamw={"lr": -1.0})
    with pytest.raises(TypeError, match="speed"):
        build_optimizer(Model(), muon={"speed": 2.0})
