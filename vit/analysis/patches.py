"""What becomes of one patch: its numbers, its token, its place, and what tokens cost."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vit import by_hand
from vit.config import ViTConfig
from vit.hooks import Trace
from vit.model import VisionTransformer


@dataclass(frozen=True)
class DotProduct:
    """One number of a token, opened: products (C·P·P,) of ``inputs`` and ``weights``, and a bias.

    ``recorded`` is the same number as the forward pass computed it.
    """

    inputs: Tensor
    weights: Tensor
    products: Tensor
    bias: float
    recorded: float

    @property
    def total(self) -> float:
        """The products, summed, and the bias."""
        return float(self.products.sum()) + self.bias

    def largest(self, count: int) -> list[int]:
        """Which products weigh most, whatever their sign."""
        return self.products.abs().argsort(descending=True, stable=True)[:count].tolist()


@dataclass(frozen=True)
class Number:
    """Where a number of a flattened patch comes from, counted from 0."""

    channel: int
    row: int
    column: int


@dataclass(frozen=True)
class Length:
    """A patch, the length of its token, and the standard deviation of its numbers."""

    patch: int
    length: float
    spread: float


@dataclass(frozen=True)
class TokenCost:
    """What cutting a picture this way costs: every token attends to every token."""

    image_size: int
    patch_size: int
    patches: int
    tokens: int

    @property
    def pairs(self) -> int:
        """N²: query and key pairs in each head of each layer."""
        return self.tokens**2


def raw_patch(pixels: Tensor, patch_size: int, patch: int) -> Tensor:
    """Patch number ``patch`` of ``pixels`` (S, S, C), as (C, P, P), cut by hand."""
    return by_hand.cut_patches(pixels.permute(2, 0, 1), patch_size)[patch]


def place_in_patch(index: int, patch_size: int) -> Number:
    """Which pixel and channel number ``index`` of a flattened patch is."""
    channel, within = divmod(index, patch_size**2)
    return Number(channel, *divmod(within, patch_size))


def open_dot_product(
    trace: Trace, model: VisionTransformer, patch: int, dimension: int
) -> DotProduct:
    """How number ``dimension`` of a patch's token came about, in the trace's first picture."""
    layer = model.patch_embed.proj
    inputs = by_hand.flatten_patch(trace["patch_embed.patches"][0, patch])
    weights = layer.weight.flatten(1)[dimension]
    assert layer.bias is not None
    return DotProduct(
        inputs,
        weights,
        inputs * weights,
        float(layer.bias[dimension]),
        float(trace["patch_embed.projected"][0, patch, dimension]),
    )


def convolve(model: VisionTransformer, images: Tensor) -> Tensor:
    """The tokens (B, n, D) by ``nn.Conv2d``: the same weight, moved on by its own size."""
    with torch.inference_mode():
        return model.patch_embed.proj(images).flatten(2).mT


def filter_pictures(model: VisionTransformer) -> Tensor:
    """The learned filters as pictures (D, P, P, C) from 0 to 1, each scaled by its own largest
    weight, with 0 at middle grey."""
    weight = model.patch_embed.proj.weight.detach()
    largest = weight.abs().amax(dim=(1, 2, 3), keepdim=True)
    scaled = weight / torch.where(largest > 0, largest, 1)
    return (scaled.permute(0, 2, 3, 1) + 1) / 2


def position_similarity(model: VisionTransformer, centred: bool = False) -> Tensor:
    """Cosine of every two learned positions, (N, N); [CLS] is number 0.

    As in figure 7 of the ViT paper, which leaves [CLS] out. What all places have in common makes
    every cosine large and hides how they differ; ``centred`` takes their mean (without [CLS]'s)
    away first.
    """
    positions = model.pos_embed.detach()[0]
    if centred:
        positions = positions - positions[1:].mean(dim=0)
    return F.normalize(positions, dim=-1) @ F.normalize(positions, dim=-1).mT


def lengths(trace: Trace) -> tuple[Length, Length, Length, int]:
    """The longest, the shortest and the busiest patch of the trace's first picture, and the
    busiest one's place by length, counted from 1. Busy is a large deviation of its numbers."""
    length = trace["patch_embed.projected"][0].norm(dim=-1)
    spread = trace["patch_embed.flattened"][0].std(dim=-1, correction=0)
    found = [int(length.argmax()), int(length.argmin()), int(spread.argmax())]
    longest, shortest, busiest = (Length(i, float(length[i]), float(spread[i])) for i in found)
    return longest, shortest, busiest, 1 + int((length > busiest.length).sum())


def token_cost(image_size: int, patch_size: int) -> TokenCost:
    """Tokens and pairs of a square picture.

    Raises:
        ValueError: if the patches do not fit the picture.
    """
    config = ViTConfig(image_size=image_size, patch_size=patch_size)
    return TokenCost(image_size, patch_size, config.num_patches, config.num_tokens)


def patch_sizes(image_size: int) -> list[int]:
    """The patch sides that fit a picture, smallest first."""
    return [side for side in range(1, image_size + 1) if image_size % side == 0]
