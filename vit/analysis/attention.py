"""Attention, opened: one weight down to its arithmetic, and how far each head looks.

Everything is read off a recorded trace; of a batch, the first picture.

Shapes: L layers, H heads, N tokens ([CLS] first), n patches, d width of a head.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from vit import by_hand
from vit.hooks import Trace
from vit.model import VisionTransformer


def depth(trace: Trace) -> int:
    """How many blocks the recorded model has."""
    return sum(name.endswith(".attn.pattern") for name in trace)


def patterns(trace: Trace) -> Tensor:
    """(L, H, N, N), who looks at whom: rows are queries, columns keys, and every row sums to 1."""
    return torch.stack([trace[f"blocks.{i}.attn.pattern"][0] for i in range(depth(trace))])


@dataclass(frozen=True)
class Weight:
    """One attention weight and every number it is made of, in double precision.

    Attributes:
        q, k: (d,), what the query token asks for and what the key token offers.
        products: (d,), q · k term by term; ``dot`` is their sum and ``score`` that over √d.
        scores: (N,), the same for every key of this query.
        exps: (N,), exp(score − the largest score); ``total`` is their sum.
        row: (N,), exps / total: the query's whole row; ``weight`` is this key's share.
        v: (d,), what the key token hands over.
        z: (d,), the row's mixture of all values: what the query token receives.
        row_error, z_error: the largest difference of ``row`` and ``z`` from what was recorded.
    """

    query: int
    key: int
    q: Tensor
    k: Tensor
    products: Tensor
    dot: float
    score: float
    scores: Tensor
    exps: Tensor
    total: float
    row: Tensor
    weight: float
    v: Tensor
    z: Tensor
    row_error: float
    z_error: float


def open_weight(trace: Trace, layer: int, head: int, query: int, key: int) -> Weight:
    """Work out one weight of softmax(q kᵀ / √d) v, step by step.

    Vaswani et al., "Attention Is All You Need" (arXiv 1706.03762), eq. 1; Dosovitskiy et al.
    (arXiv 2010.11929), eq. 6 and 7.
    """
    name = f"blocks.{layer}.attn"
    q, keys, values = (trace[f"{name}.{part}"][0, head].double() for part in "qkv")
    products = q[query] * keys[key]
    scores = keys @ q[query] / math.sqrt(len(products))
    exps = torch.exp(scores - scores.max())
    row = exps / exps.sum()
    z = row @ values
    return Weight(
        query=query,
        key=key,
        q=q[query],
        k=keys[key],
        products=products,
        dot=products.sum().item(),
        score=products.sum().item() / math.sqrt(len(products)),
        scores=scores,
        exps=exps,
        total=exps.sum().item(),
        row=row,
        weight=row[key].item(),
        v=values[key],
        z=z,
        row_error=largest_difference(row, trace[f"{name}.pattern"][0, head, query]),
        z_error=largest_difference(z, trace[f"{name}.z"][0, head, query]),
    )


def by_hand_error(model: VisionTransformer, trace: Trace, layer: int, head: int) -> float:
    """The largest difference between a head's recorded pattern and ``by_hand.attention_head``,
    which works the whole head out again, one dot product after another."""
    block = model.blocks[layer]
    norm = block.norm1
    x = trace[f"blocks.{layer}.resid_pre"][0]
    normed = by_hand.layer_norm(x, norm.weight, norm.bias, norm.eps)
    _, pattern = by_hand.attention_head(normed, block.attn, head)
    return largest_difference(pattern, trace[f"blocks.{layer}.attn.pattern"][0, head])


def largest_difference(a: Tensor, b: Tensor) -> float:
    """The largest absolute difference between two tensors of one shape."""
    return (a - b).abs().max().item()


def keys_for_share(row: Tensor, share: float) -> int:
    """How few keys, the heaviest first, together hold at least ``share`` of a row (N,)."""
    held = row.double().sort(descending=True).values.cumsum(0)
    return int((held < share).sum()) + 1


def patch_distances(grid: int) -> Tensor:
    """(n, n), from centre to centre, with the side of a patch as 1; n = grid²."""
    steps = torch.arange(grid, dtype=torch.float64)
    centres = torch.cartesian_prod(steps, steps)  # n 2: row, column
    return torch.cdist(centres, centres, compute_mode="donot_use_mm_for_euclid_dist")


def mean_distance(pattern: Tensor, grid: int) -> Tensor:
    """How far heads look: the distance from a patch to the patches it attends to, weighted by the
    attention and averaged over all patches (Dosovitskiy et al., arXiv 2010.11929, figure 7).

    [CLS] has no place in the picture: its row and its column are left out, and what a patch gives
    to the other patches is scaled up to sum to 1.

    Args:
        pattern: (…, N, N) with [CLS] first.
        grid: patches per side.

    Returns:
        (…), in patch sides, double precision; times the patch size it is in pixels.
    """
    among_patches = pattern[..., 1:, 1:].double()
    among_patches = among_patches / among_patches.sum(-1, keepdim=True)
    return (among_patches * patch_distances(grid)).sum(-1).mean(-1)


def even_distance(grid: int) -> float:
    """The mean distance of a head that attends to every patch alike, for comparison."""
    return patch_distances(grid).mean().item()
