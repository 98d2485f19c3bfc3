"""Attention rollout: attention followed through all layers at once."""

import torch
from torch import Tensor


def rollout(patterns: Tensor) -> Tensor:
    """Multiply the layers' attention, half of each token kept for itself.

    A token after layer l draws on tokens before it by its attention, averaged over the heads, and
    by the residual connection, which carries the token itself past the layer. Abnar & Zuidema,
    "Quantifying Attention Flow in Transformers" (arXiv 2005.00928), section 3, count both alike:

        A_l = 0.5 · mean over heads of the pattern + 0.5 · I        R_l = A_l · R_(l−1),  R_0 = I

    Args:
        patterns: (L, H, N, N), rows queries, each summing to 1.

    Returns:
        (L, N, N): row i after layer l says how much of token i stems from each token of the
        embedding. Rows sum to 1.
    """
    tokens = patterns.shape[-1]
    identity = torch.eye(tokens, dtype=patterns.dtype)
    so_far, after = identity, []
    for pattern in patterns.mean(dim=1):
        so_far = (0.5 * pattern + 0.5 * identity) @ so_far
        after.append(so_far)
    return torch.stack(after)
