"""Muon: momentum, orthogonalised, as a torch.optim.Optimizer for plain tensors and DTensors."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .explain import ExplainedParameter, explanation
from .grid import Grid, NewtonSchulzSettings, StepTensors, Timeline
from .parameter import check_momentum, check_parameter, local_grad
from .placement import Placement, local_part, place
from .plan import PlannedTensor
from .routing import Route, route_all_to_muon
from .settings import Coefficients, check_settings, coefficient_table, lr_scale


@dataclasses.dataclass(frozen=True)
class _Entry:
    """One parameter and where it stands in param_groups."""

    name: str
    param: torch.Tensor
    group: int
    placement: Placement


class Muon(torch.optim.Optimizer):
    """Muon with each matrix orthogonalised once in the whole grid of ranks.

        m <- m + (1 - momentum) (g - m)          u = nesterov ? g + momentum (m - g) : m
        p <- (1 - lr weight_decay) p - lr scale newton_schulz(u)

    `model_or_params`: a module (all of its trainable parameters must be hidden matrices; weights of convolutions are
    read as [out, the rest]) or parameters or groups as any torch optimizer takes them. Tensors of three or more
    dimensions are batches of matrices. Takes the keywords of torch.optim.Muon too (`ns_coefficients` is another name
    of `coefficients`), and its state.

    coefficients: "polar_express", "quintic", "classic", one triple or a list of triples.
    adjust_lr_fn: "original" (or None) scales by sqrt(max(1, rows / columns)), "match_rms_adamw" by
        matched_adamw_rms * sqrt(max(rows, columns)).
    memory_cap_bytes: upper bound of what a step adds on each rank; more of them means fewer, larger messages.
    timeline: called with (stage, bucket, begin, end), times of time.perf_counter().

    A parameter whose gradient is missing on all ranks is skipped; missing on some, it counts as zero there.
    DTensors: every rank of the mesh must call step(); its first call compares the plans of the ranks.
    """

    def __init__(
        self,
        model_or_params: nn.Module | Iterable[Any],
        lr: float | torch.Tensor = 2e-2,
        *,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_steps: int = 5,
        coefficients: Coefficients | None = None,
        ns_coefficients: Coefficients | None = None,
        adjust_lr_fn: str | None = "match_rms_adamw",
        matched_adamw_rms: float = 0.2,
        eps: float = 1e-7,
        memory_cap_bytes: int | None = None,
        timeline: Timeline | None = None,
    ) -> None:
        if coefficients is not None and ns_coefficients is not None:
            raise ValueError("coefficients and ns_coefficients: two names of one option, give one of them")
        if memory_cap_bytes is not None and not (isinstance(memory_cap_bytes, int) and memory_cap_bytes > 0):
            raise ValueError(f"memory_cap_bytes: must be a positive int or None, got {memory_cap_bytes!r}")
        chosen = coefficients if coefficients is not None else ns_coefficients
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": "polar_express" if chosen is None else chosen,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
            "matched_adamw_rms": matched_adamw_rms,
        }
        check_settings(defaults)
        self.memory_cap_bytes = memory_cap_bytes
        self.timeline = timeline
        self.counters: dict[str, float] = {}
        self._names: dict[torch.Tensor, str] = {}
        self._convolutions: set[torch.Tensor] = set()
        self._reasons: dict[torch.Tensor, str] = {}
        self._grids: list[tuple[Grid, list[_Entry]]] | None = None
        self._planned_settings: list[tuple] = []
        self._process_groups: dict[tuple[int, ...], dist.ProcessGroup] = {}
        super().__init__(self._parameters_of(model_or_params), defaults)
        self._plan()

    def _parameters_of(self, model_or_params: nn.Module | Iterable[Any]) -> Iterable[Any]:
        if isinstance(model_or_params, nn.Module):
            model_or_params = route_all_to_muon(model_or_params)
        given = list(model_or_params)
        for entry in given:
            if isinstance(entry, Route):
                self._names[entry.param] = entry.name
                self._reasons[entry.param] = entry.why
                if entry.is_convolution:
                    self._convolutions.add(entry.param)
        return [entry.param if isinstance(entry, Route) else entry for entry in given]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group; its keys override the defaults. With DTensors every rank must do the same."""
        super().add_param_group(param_group)
        try:
            self._accept(self.param_groups[-1])
        except Exception:
            self.param_groups.pop()
            raise
        self._grids = None
        self._ensure_state()

    def _accept(self, group: dict[str, Any]) -> None:
        if "coefficients" in group:
            group["ns_coefficients"] = group.pop("coefficients")
        check_settings(group)
        first = f"params[{len(self.param_groups) - 1}]"
        given = group.get("param_names", [f"{first}[{position}]" for position in range(len(group["params"]))])
        names = {param: self._names.get(param, name) for param, name in zip(group["params"], given, strict=True)}
        for param, name in names.items():
            check_parameter(name, param)
        self._names.update(names)

    def _entries(self) -> Iterator[tuple[int, dict[str, Any], torch.Tensor]]:
        for number, group in enumerate(self.param_groups):
            for param in group["params"]:
                yield number, group, param

    def _plan(self) -> None:
        """Makes the plan of each grid and the momentum of each parameter."""
        by_grid: dict[tuple, list[_Entry]] = {}
        for number, _, param in self._entries():
            name = self._names[param]
            entry = _Entry(name, param, number, place(name, param, param in self._convolutions))
            ranks = entry.placement.ranks if entry.placement.mesh else ()
            by_grid.setdefault((ranks, str(param.device)), []).append(entry)
        self._planned_settings = self._current_settings()
        distinct = list(dict.fromkeys(self._planned_settings))
        # In the order of their ranks: the same on every rank, whatever the order of the parameters.
        self._grids = [(self._make_grid(entries, distinct), entries) for _, entries in sorted(by_grid.items())]
        self._ensure_state()
        self._count(orthogonalized=0, bytes_sent=0)

    def _make_grid(self, entries: list[_Entry], distinct: list[tuple]) -> Grid:
        planned = [
            PlannedTensor(
                e.name,
                e.placement,
                self.param_groups[e.group]["ns_steps"],
                distinct.index(self._planned_settings[e.group]),
            )
            for e in entries
        ]
        group = self._process_group(entries[0].placement)
        return Grid(planned, group, self.memory_cap_bytes, entries[0].param.device)

    def _process_group(self, placement: Placement) -> dist.ProcessGroup | None:
        """A group over all ranks of the mesh. A new one is made once, however often the work is planned."""
        mesh, ranks = placement.mesh, placement.ranks
        if mesh is None:
            return None
        if mesh.ndim == 1:
            return mesh.get_group()
        if len(ranks) == dist.get_world_size():
            return dist.group.WORLD
        if ranks not in self._process_groups:
            self._process_groups[ranks] = dist.new_group(list(ranks), use_local_synchronization=True)
        return self._process_groups[ranks]

    def _current_settings(self) -> list[tuple]:
        return [(repr(g["ns_coefficients"]), g["ns_steps"], float(g["eps"])) for g in self.param_groups]

    def _ensure_state(self) -> None:
        for _, _, param in self._entries():
            if "momentum_buffer" not in self.state[param]:
                self.state[param]["momentum_buffer"] = torch.zeros_like(param.detach())

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; `closure` is called once. Collective over the meshes of the parameters."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            check_settings(group)
        if self._grids is None or self._planned_settings != self._current_settings():
            self._plan()
        settings = self._newton_schulz_settings()
        steps = [(grid, self._step_tensors(entries)) for grid, entries in self._grids]
        for grid, _ in steps:
            grid.check_agreement()
        counts = [grid.step(tensors, settings, self.timeline) for grid, tensors in steps]
        self._count(sum(c.orthogonalized for c in counts), sum(c.bytes_sent for c in counts))
        return loss

    def _newton_schulz_settings(self) -> dict[int, NewtonSchulzSettings]:
        distinct = list(dict.fromkeys(self._planned_settings))
        groups = [self.param_groups[self._planned_settings.index(key)] for key in distinct]
        return {
            i: NewtonSchulzSettings(coefficient_table(g["ns_coefficients"], g["ns_steps"]), float(g["eps"]))
            for i, g in enumerate(groups)
        }

    def _step_tensors(self, entries: list[_Entry]) -> StepTensors:
        rules = []
        for entry in entries:
            group, placement = self.param_groups[entry.group], entry.placement
            lr = float(group["lr"])
            scale = lr_scale(group, placement.rows, max(1, placement.columns))
            rules.append((group["momentum"], float(group["nesterov"]), 1 - lr * group["weight_decay"], lr * scale))
        return StepTensors(
            params=[local_part(e.param) for e in entries],
            momenta=[local_part(self.state[e.param]["momentum_buffer"]) for e in entries],
            grads=[local_grad(e.name, e.param) for e in entries],
            rules=rules,
        )

    def _count(self, orthogonalized: int, bytes_sent: int) -> None:
        plans = [grid.plan for grid, _ in self._grids]
        self.counters = {
            "matrices_orthogonalized": orthogonalized,
            "matrices_total": sum(len(plan.matrices) for plan in plans),
            "bytes_sent": bytes_sent,
            "imbalance": max((plan.imbalance for plan in plans), default=1.0),
        }

    def explain(self) -> str:
        """A table of the plan: parameter, family, why, shape, owners, form, buckets, bytes, FLOPs of a step."""
        return explanation(self.explained())

    def explained(self) -> list[ExplainedParameter]:
        """The rows of explain()."""
        if self._grids is None:
            self._plan()
        rows = []
        for grid, entries in self._grids:
            for number, entry in enumerate(entries):
                matrices = [m for m in grid.plan.matrices if m.tensor == number]
                why = self._reasons.get(entry.param, "given to Muon")
                ranks = entry.placement.ranks
                rows.append(ExplainedParameter.planned(entry.name, why, entry.placement, matrices, ranks))
        return rows

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a state of this class or of torch.optim.Muon. Where it does not fit, nothing is loaded."""
        self.check_loadable(state_dict["state"], state_dict["param_groups"])
        super().load_state_dict(state_dict)
        self.refresh()

    def check_loadable(self, state: Mapping[Any, Any], groups: Iterable[Mapping[str, Any]]) -> None:
        """Raises ValueError naming the parameter or option of a saved state that does not fit."""
        groups = list(groups)
        for group in groups:
            check_settings({**self.defaults, **group})
        saved = [key for group in groups for key in group["params"]]
        for key, (_, _, param) in zip(saved, self._entries(), strict=False):
            momentum = state.get(key, {}).get("momentum_buffer")
            if momentum is not None:
                check_momentum(self._names[param], param, momentum)

    def refresh(self) -> None:
        """Completes groups and state after they were replaced; the next step plans again."""
        for group in self.param_groups:
            for option, value in self.defaults.items():
                group.setdefault(option, value)
        self._grids = None
        self._ensure_state()

    def __getstate__(self) -> dict[str, Any]:
        own = ("memory_cap_bytes", "counters", "_names", "_reasons", "_convolutions")
        return {**super().__getstate__(), **{name: getattr(self, name) for name in own}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("timeline", None)
        self.__dict__.setdefault("_process_groups", {})
        self._grids = None
