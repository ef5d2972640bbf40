"""Which family of update a parameter gets, and why: decided from the module that holds it."""

import dataclasses
import re
from collections.abc import Mapping

import torch
from torch import nn

from .heads import output_heads

FAMILIES = ("muon", "adamw")

_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
_NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._BatchNorm)
_CONVOLUTIONS = (nn.modules.conv._ConvNd,)


@dataclasses.dataclass(frozen=True)
class Route:
    """A trainable parameter, its first name, its family and the reason."""

    name: str
    param: torch.Tensor
    family: str
    why: str
    is_convolution: bool = False


def _holder(model: nn.Module, name: str) -> nn.Module:
    return model.get_submodule(name.rpartition(".")[0])


def _is_convolution_weight(model: nn.Module, name: str) -> bool:
    """Whether `name` is the weight of a convolution: read as [out, the rest]."""
    return isinstance(_holder(model, name), _CONVOLUTIONS) and name.rpartition(".")[2] == "weight"


def _trainable(model: nn.Module) -> dict[torch.Tensor, list[str]]:
    """Each trainable parameter with all of its names."""
    names: dict[torch.Tensor, list[str]] = {}
    for name, param in model.named_parameters(remove_duplicate=False):
        if param.requires_grad:
            names.setdefault(param, []).append(name)
    if not names:
        raise ValueError("model: has no trainable parameter")
    return names


def frozen_routes(model: nn.Module) -> list[Route]:
    """The parameters that no family steps."""
    why = "requires no gradient; if that changes, build the optimizer again"
    return [Route(name, p, "none", why) for name, p in model.named_parameters() if not p.requires_grad]


def route_all_to_muon(model: nn.Module) -> list[Route]:
    """Every trainable parameter to Muon. Raises ValueError naming one that is no matrix of a hidden layer."""
    routes = []
    for param, aliases in _trainable(model).items():
        reason = _not_hidden(model, aliases, param, {})
        if reason is not None:
            raise ValueError(
                f"parameter {aliases[0]}: {reason}, not a hidden matrix; use "
                "quincunx.muon.build_optimizer(model), or give Muon the parameters that it shall step"
            )
        routes.append(
            Route(
                aliases[0],
                param,
                "muon",
                "matrix of the model given to Muon",
                _is_convolution_weight(model, aliases[0]),
            )
        )
    return routes


def _not_hidden(model: nn.Module, names: list[str], param: torch.Tensor, heads: Mapping[nn.Module, str]) -> str | None:
    """Why a parameter is no hidden matrix, or None."""
    for name in names:
        holder, leaf = _holder(model, name), name.rpartition(".")[2]
        if isinstance(holder, _EMBEDDINGS):
            return "embedding"
        if param.ndim < 2 or leaf == "bias":
            return "norm, bias or scalar"
        if isinstance(holder, _NORMS):
            return "norm"
        if holder in heads:
            return heads[holder]
    return None


def route(model: nn.Module, overrides: Mapping[str, str], available: frozenset[str]) -> list[Route]:
    """Routes each trainable parameter once, under its first name.

    Raises ValueError for an override that is no regular expression, matches nothing, overlaps another or sends a
    parameter to a family that cannot take it, and for a parameter whose family is not available.
    """
    names = _trainable(model)
    chosen = _overridden(names, overrides)
    heads = output_heads(model)
    routes = [_route_of(model, param, aliases, chosen.get(param), heads) for param, aliases in names.items()]
    for r in routes:
        if r.family not in available:
            raise ValueError(f"parameter {r.name}: belongs to {r.family} ({r.why}), which was given as None")
    return routes


def _route_of(
    model: nn.Module,
    param: torch.Tensor,
    aliases: list[str],
    override: tuple[str, str] | None,
    heads: Mapping[nn.Module, str],
) -> Route:
    name = aliases[0]
    is_convolution = _is_convolution_weight(model, name)
    tied = f", tied: {' = '.join(aliases)}" if len(aliases) > 1 else ""
    if override is not None:
        pattern, family = override
        if family == "muon" and param.ndim < 2:
            raise ValueError(
                f"overrides: {pattern!r} sends {name} of shape {tuple(param.shape)} to muon, which needs matrices"
            )
        return Route(name, param, family, f"override {pattern!r}{tied}", is_convolution)
    reason = _not_hidden(model, aliases, param, heads)
    family = "muon" if reason is None else "adamw"
    return Route(name, param, family, (reason or "hidden matrix") + tied, is_convolution)


def _overridden(names: Mapping[torch.Tensor, list[str]], overrides: Mapping[str, str]) -> dict:
    """Parameter -> (pattern, family)."""
    chosen: dict[torch.Tensor, tuple[str, str]] = {}
    for pattern, family in overrides.items():
        if family not in FAMILIES:
            raise ValueError(f"overrides: family of {pattern!r}: must be one of {FAMILIES}, got {family!r}")
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise ValueError(f"overrides: {pattern!r} is no regular expression: {error}") from None
        matched = [p for p, aliases in names.items() if any(compiled.search(alias) for alias in aliases)]
        if not matched:
            raise ValueError(f"overrides: {pattern!r} matches no trainable parameter")
        for param in matched:
            if param in chosen:
                raise ValueError(f"overrides: {pattern!r} and {chosen[param][0]!r} both match {names[param][0]}")
            chosen[param] = (pattern, family)
    return chosen
