"""build_optimizer: one optimizer that gives hidden matrices to Muon and everything else to AdamW."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from .explain import ExplainedParameter, explanation
from .optimizer import Muon
from .routing import Route, frozen_routes, route


class RoutedOptimizer(torch.optim.Optimizer):
    """Muon and AdamW behind one state, one list of parameter groups and one step. Made by build_optimizer.

    Each group has a key "family". The state of both families exists from construction.
    """

    def __init__(
        self, routes: list[Route], muon: Mapping[str, Any], adamw: Mapping[str, Any], frozen: Sequence[Route] = ()
    ) -> None:
        self.routes = routes
        self._frozen = list(frozen)
        by_family = {family: [r for r in routes if r.family == family] for family in ("muon", "adamw")}
        self._parts: dict[str, torch.optim.Optimizer] = {}
        if by_family["muon"]:
            self._parts["muon"] = Muon(by_family["muon"], **muon)
        if by_family["adamw"]:
            self._parts["adamw"] = torch.optim.AdamW([r.param for r in by_family["adamw"]], **adamw)
        groups = [{**g, "family": family} for family, part in self._parts.items() for g in part.param_groups]
        super().__init__(groups, {})
        for part in self._parts.values():
            self.state.update(part.state)
        self._share()
        self._start_adamw()

    def _share(self) -> None:
        """Makes the parts work on this optimizer's groups and state."""
        for family, part in self._parts.items():
            part.param_groups = [g for g in self.param_groups if g["family"] == family]
            part.state = self.state

    def _start_adamw(self) -> None:
        """The state that AdamW would make at its first step, so that a checkpoint can be loaded before it."""
        for group in self.param_groups:
            if group["family"] != "adamw":
                continue
            on_device = group["capturable"] or group["fused"]
            for param in group["params"]:
                step = torch.zeros((), dtype=torch.float32, device=param.device if on_device else None)
                names = ["exp_avg", "exp_avg_sq"] + ["max_exp_avg_sq"] * bool(group["amsgrad"])
                state = {name: torch.zeros_like(param.detach()) for name in names}
                self.state.setdefault(param, {"step": step, **state})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refused once built: routes are decided by build_optimizer."""
        if hasattr(self, "state") and self.state:
            raise ValueError("add_param_group: all parameters were routed at once; call build_optimizer again")
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of both families; `closure` is called once."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self._parts.values():
            part.step()
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a state of an optimizer that was built for the same routes."""
        families = [g["family"] for g in self.param_groups]
        loaded = [g.get("family") for g in state_dict["param_groups"]]
        if loaded != families:
            raise ValueError(f"state_dict: its groups are {loaded}, expected {families}: it was routed differently")
        if "muon" in self._parts:
            groups = [g for g in state_dict["param_groups"] if g["family"] == "muon"]
            self._parts["muon"].check_loadable(state_dict["state"], groups)
        super().load_state_dict(state_dict)
        self._start_adamw()
        if "muon" in self._parts:
            self._parts["muon"].refresh()

    def __getstate__(self) -> dict[str, Any]:
        own = ("routes", "_frozen", "_parts")
        return {**super().__getstate__(), **{name: getattr(self, name) for name in own}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._share()

    @property
    def counters(self) -> dict[str, float]:
        """Counters of the Muon part; see Muon."""
        return self._parts["muon"].counters if "muon" in self._parts else {}

    @property
    def timeline(self) -> Callable[[str, int, float, float], None] | None:
        """Called with (stage, bucket, begin, end) of the Muon part."""
        return self._parts["muon"].timeline if "muon" in self._parts else None

    @timeline.setter
    def timeline(self, value: Callable[[str, int, float, float], None] | None) -> None:
        if "muon" in self._parts:
            self._parts["muon"].timeline = value

    def explain(self) -> str:
        """A table of all parameters; see Muon.explain."""
        rows = self._parts["muon"].explained() if "muon" in self._parts else []
        others = [r for r in self.routes if r.family == "adamw"] + self._frozen
        rows += [
            ExplainedParameter(r.name, r.family, r.why, "x".join(map(str, r.param.shape)) or "scalar") for r in others
        ]
        return explanation(rows)


def build_optimizer(
    model: nn.Module,
    muon: Mapping[str, Any] | None = {},  # noqa: B006
    adamw: Mapping[str, Any] | None = {},  # noqa: B006
    overrides: Mapping[str, str] | None = None,
) -> RoutedOptimizer:
    """One optimizer for a whole model: hidden matrices to Muon; embeddings, output heads, norms and biases to AdamW.

    `muon` and `adamw` are the options of the two; None leaves a family out. `overrides` maps regular expressions
    (re.search on the parameter's name) to "muon" or "adamw". Tied weights are stepped once, frozen ones not at all.
    Raises ValueError for an override that matches nothing, overlaps another or does not fit, and for a parameter whose
    family was left out.
    """
    options = {"muon": muon, "adamw": adamw}
    available = frozenset(family for family, value in options.items() if value is not None)
    routes = route(model, overrides or {}, available)
    return RoutedOptimizer(routes, muon or {}, adamw or {}, frozen_routes(model))
