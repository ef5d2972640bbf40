"""Muon as plain PyTorch in float64, written from its formulas: what quincunx.muon is compared with."""

import math

import torch

# Polar Express (Amsel et al. 2025): the optimal polynomials of the first five steps, for a lower bound of 1e-3.
POLAR_EXPRESS = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
)
SAFETY = 1.05


def newton_schulz(matrix: torch.Tensor) -> torch.Tensor:
    x = matrix.double()
    is_tall = x.shape[0] > x.shape[1]
    x = x.T if is_tall else x
    x = x / (x.norm() + 1e-7)
    for a, b, c in POLAR_EXPRESS:
        gram = x @ x.T
        x = (a / SAFETY) * x + ((b / SAFETY**3) * gram + (c / SAFETY**5) * gram @ gram) @ x
    return x.T if is_tall else x


class ReferenceMuon(torch.optim.Optimizer):
    """The same update on every rank, from gradients that are already averaged."""

    def __init__(self, matrices: list[torch.Tensor], *, lr: float, weight_decay: float, momentum: float = 0.95):
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                momentum = state.setdefault("momentum", torch.zeros_like(parameter, dtype=torch.float64))
                gradient = parameter.grad.double()
                momentum.lerp_(gradient, 1.0 - group["momentum"])
                update = newton_schulz(gradient.lerp(momentum, group["momentum"]))
                scale = 0.2 * math.sqrt(max(parameter.shape))
                updated = parameter.double() * (1.0 - group["lr"] * group["weight_decay"])
                parameter.copy_(updated - group["lr"] * scale * update)
