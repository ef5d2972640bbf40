"""Muon by its definition, in float64, one whole matrix at a time."""

import dataclasses
import math

import torch

CLASSIC = (3.4445, -4.7750, 2.0315)
# Algorithm 1 of arXiv 2505.16932 with the safety factor 1.05 on all but the last polynomial, first five steps.
_POLAR_EXPRESS = [
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
]
POLAR_EXPRESS = [(a / 1.05, b / 1.05**3, c / 1.05**5) for a, b, c in _POLAR_EXPRESS]
QUINTIC = [
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
]

# A rounding error in the normalised matrix grows by the slopes at zero of all polynomials: below 1000 for each set.
SLOPES_PRODUCT = 1000
NEWTON_SCHULZ_ERROR = SLOPES_PRODUCT * torch.finfo(torch.float32).eps


def newton_schulz(matrix: torch.Tensor, triples: list[tuple[float, float, float]]) -> torch.Tensor:
    x = matrix.double()
    if x.shape[0] > x.shape[1]:
        return newton_schulz(x.T, triples).T
    norm = x.norm()
    if norm == 0:
        return x
    x = x / norm
    for a, b, c in triples:
        gram = x @ x.T
        x = a * x + b * gram @ x + c * gram @ gram @ x
    return x


@dataclasses.dataclass
class Reference:
    """One parameter: step(grad) does what Muon does to it."""

    value: torch.Tensor
    lr: float = 2e-2
    weight_decay: float = 0.1
    momentum: float = 0.95
    nesterov: bool = True
    triples: list = dataclasses.field(default_factory=lambda: list(POLAR_EXPRESS))
    match_rms: float | None = 0.2

    def __post_init__(self) -> None:
        self.value = self.value.detach().double().clone()
        self.state = torch.zeros_like(self.value)

    def step(self, grad: torch.Tensor) -> None:
        grad = grad.double()
        self.state = self.momentum * self.state + (1 - self.momentum) * grad
        update = (1 - self.momentum) * grad + self.momentum * self.state if self.nesterov else self.state
        rows, columns = update.shape[-2:]
        flat = update.reshape(-1, rows, columns)
        change = torch.stack([newton_schulz(matrix, self.triples) for matrix in flat]).reshape(update.shape)
        scale = math.sqrt(max(1, rows / columns))
        if self.match_rms is not None:
            scale = self.match_rms * math.sqrt(max(rows, columns))
        self.value = self.value * (1 - self.lr * self.weight_decay) - self.lr * scale * change


def relative_error(value: torch.Tensor, reference: torch.Tensor) -> float:
    reference = reference.detach()
    return float((value.detach().double() - reference).norm() / reference.norm().clamp(min=1e-300))


def random_matrix(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
