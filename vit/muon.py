"""Muon: momentum whose every step is made orthogonal first (Jordan et al., 2024).

A gradient of a weight matrix is mostly a few strong directions. Muon replaces it by the nearest
(semi-)orthogonal matrix, so that all directions learn at one pace. The nearest orthogonal matrix
of G = U S Vᵀ is U Vᵀ; five Newton–Schulz iterations come close without an SVD.

Unlike ``torch.optim.Muon`` this one iterates in float32, which a CPU without bfloat16 units does
many times faster, and takes all matrices of one shape through the iterations together.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

# Jordan's quintic: chosen for a steep start, so singular values end near 1, between 0.7 and 1.2.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


def orthogonalize(matrices: Tensor) -> Tensor:
    """Near-orthogonal matrices with the singular vectors of the given ones.

    Args:
        matrices: (..., rows, columns)

    Returns:
        the same shape; every singular value that was not tiny lies near 1.
    """
    a, b, c = COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum and decoupled weight decay, for hidden weight matrices.

    Args:
        params: matrices, or groups of them. A group's ``stacked`` says how many matrices lie on
            top of each other in each parameter (3 for a joint q, k, v projection); each is
            orthogonalised apart.
        lr: step size; the step of a (rows, columns) matrix is lr · √max(1, rows / columns) times
            an orthogonal matrix.
        momentum: share of the running mean of gradients that is kept at each step.
        weight_decay: the weights shrink by lr · weight_decay at each step.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        stacked: int = 1,
    ) -> None:
        defaults = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, stacked=stacked)
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # no closure: gradients are there
        """Move every parameter once, by its gradient."""
        by_shape: dict[torch.Size, list[tuple[Tensor, Tensor, float]]] = defaultdict(list)
        for group in self.param_groups:
            lr, momentum = group["lr"], group["momentum"]
            for weight in group["params"]:
                state = self.state[weight]
                if not state:
                    state["mean"] = torch.zeros_like(weight)
                mean = state["mean"]
                mean.lerp_(weight.grad, 1 - momentum)
                ahead = weight.grad.lerp(mean, momentum)  # Nesterov: one step further along
                weight.mul_(1 - lr * group["weight_decay"])
                for part, update in zip(
                    weight.chunk(group["stacked"]), ahead.chunk(group["stacked"]), strict=True
                ):
                    by_shape[part.shape].append((part, update, lr))
        for (rows, columns), matrices in by_shape.items():
            updates = orthogonalize(torch.stack([update for _, update, _ in matrices]))
            stretch = max(1.0, rows / columns) ** 0.5
            for (part, _, lr), update in zip(matrices, updates, strict=True):
                part.sub_(update, alpha=lr * stretch)
