"""The tour's optimizer: Muon for the matrices of the layers, AdamW for the rest."""

import torch
from settings import Settings


def layer_matrices(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [parameter for name, parameter in model.named_parameters() if "layers." in name and parameter.ndim == 2]


def num_matrices(model: torch.nn.Module) -> int:
    return len(layer_matrices(model))


def build_optimizer(model: torch.nn.Module, settings: Settings) -> torch.optim.Optimizer:
    adamw = {"lr": settings.adamw_lr, "betas": (0.9, 0.95), "weight_decay": 0.0}
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(model.parameters(), **adamw)
    if settings.optimizer != "muon":
        raise ValueError(f"Settings: optimizer {settings.optimizer!r}; expected 'muon' or 'adamw'")
    from quincunx import muon

    return muon.build_optimizer(
        model, muon={"lr": settings.muon_lr, "weight_decay": settings.muon_weight_decay}, adamw=adamw
    )


def matrices_orthogonalized(optimizer: torch.optim.Optimizer) -> int:
    """Matrices whose Newton-Schulz iteration ran on this rank in the last step, by the optimizer's own count."""
    return int(getattr(optimizer, "counters", {}).get("matrices_orthogonalized", 0))
