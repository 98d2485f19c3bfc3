"""Initialisations for a Vision Transformer that learns fast from few pictures.

Training may start from the truncated normal that ``VisionTransformer`` begins with, or from
weights that already look, in two respects, like those of a trained model: attention that mostly
compares like with like, and positions that know their neighbours.
"""

import math

import torch
from torch import Tensor, nn

from vit.model import VisionTransformer


@torch.no_grad()
def mimetic_(model: VisionTransformer, generator: torch.Generator) -> None:
    """Initialise in place after Trockman & Kolter, "Mimetic Initialization" (arXiv 2305.09828).

    Per head, W_Q W_Kᵀ is the best approximation of its rank to 0.7 I + 0.7 Z, and
    W_V W_proj = −0.4 I + 0.4 Z, with Z a fresh (D, D) matrix of independent normals of variance
    1/D. Positions start as the 2-D sine–cosine code, [CLS]'s at zero; the patch projection keeps
    the variance of its input, so that place and content weigh alike at first; the head starts at
    zero, so that the first loss is ln(classes).
    """
    config = model.config
    width, head_dim = config.embed_dim, config.head_dim

    def near_identity(identity: float, noise: float) -> Tensor:
        random = torch.randn(width, width, generator=generator) / math.sqrt(width)
        return identity * torch.eye(width) + noise * random

    for block in model.blocks:
        to_q, to_k, to_v = block.attn.qkv.weight.chunk(3)  # views, each D D
        for head in range(config.num_heads):
            rows = slice(head * head_dim, (head + 1) * head_dim)
            left, right = _factors(near_identity(0.7, 0.7), head_dim)
            to_q[rows], to_k[rows] = left.T, right
        left, right = _factors(near_identity(-0.4, 0.4), width)
        to_v.copy_(left.T)
        block.attn.proj.weight.copy_(right.T)
    nn.init.normal_(model.patch_embed.proj.weight, std=config.patch_dim**-0.5, generator=generator)
    nn.init.zeros_(model.cls_token)
    nn.init.zeros_(model.pos_embed)
    model.pos_embed[0, 1:] = sincos_positions(config.grid_size, width)
    nn.init.zeros_(model.head.weight)


def _factors(matrix: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """(D, rank) and (rank, D) whose product is the closest of that rank to ``matrix``."""
    u, s, vh = torch.linalg.svd(matrix)
    root = s[:rank].sqrt()
    return u[:, :rank] * root, root[:, None] * vh[:rank]


def sincos_positions(grid_size: int, width: int) -> Tensor:
    """The 2-D sine–cosine position code of MAE (arXiv 2111.06377) and "Better plain ViT
    baselines" (arXiv 2205.01580).

    A quarter of the features each for the sine and cosine of the column and of the row, at
    frequencies from 1 down to 1/10,000 per patch. Features left over by a width that four does
    not divide stay zero.

    Returns:
        (grid_size², width), in reading order.
    """
    quarter = width // 4
    frequencies = 10_000.0 ** -(torch.arange(quarter) / max(quarter, 1))
    angles = torch.arange(grid_size)[:, None] * frequencies  # side quarter
    rows = angles.repeat_interleave(grid_size, dim=0)
    columns = angles.repeat(grid_size, 1)
    code = torch.zeros(grid_size**2, width)
    code[:, : 4 * quarter] = torch.cat(
        [columns.sin(), columns.cos(), rows.sin(), rows.cos()], dim=1
    )
    return code
