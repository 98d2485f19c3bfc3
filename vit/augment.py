"""Augmentation of whole batches at once, with draws of its own for every picture.

A loop over pictures costs more than the model's forward pass; these functions move a batch
through a few tensor operations instead. Each is split into the draw, which is cheap and takes a
generator, and the deed, which is deterministic and easy to compare with torchvision's.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Draw:
    """What happens to each picture of a batch: the crop's corner in the padded picture (pixels),
    and whether it is mirrored."""

    top: Tensor  # (B,) int64, 0 … 2·padding
    left: Tensor  # (B,) int64
    mirror: Tensor  # (B,) bool

    def to(self, device: torch.device) -> "Draw":
        return Draw(self.top.to(device), self.left.to(device), self.mirror.to(device))


def draw(
    indices: Tensor, epoch: int, padding: int, flip: str, generator: torch.Generator, seed: int
) -> Draw:
    """Draw the crop and flip of the pictures ``indices`` (B,) of the data set.

    ``flip`` is ``"none"``, ``"random"`` (a coin for every picture) or ``"alternating"``: a coin
    in the first epoch, then the other side each time, so that in two epochs every picture is seen
    both ways (Jordan, arXiv 2404.00498).
    """
    size = (len(indices),)
    top = torch.randint(2 * padding + 1, size, generator=generator)
    left = torch.randint(2 * padding + 1, size, generator=generator)
    if flip == "none":
        mirror = torch.zeros(size, dtype=torch.bool)
    elif flip == "random":
        mirror = torch.rand(size, generator=generator) < 0.5
    else:
        mirror = (_coins(indices, seed) + epoch) % 2 == 1
    return Draw(top, left, mirror)


def _coins(indices: Tensor, seed: int) -> Tensor:
    """A fixed 0 or 1 for every picture: one bit of a multiplicative hash of index and seed."""
    mixed = (indices + 1) * 0x9E3779B1 + seed * 0x85EBCA77
    return ((mixed ^ (mixed >> 15)) * 0x2C1B3C6D >> 20) & 1


def crop_and_flip(images: Tensor, drawn: Draw, padding: int, padding_mode: str) -> Tensor:
    """Pad each picture, cut its drawn window of the original size, and mirror it if drawn.

    Args:
        images: (B, C, S, S) uint8
        padding: pixels added on each side
        padding_mode: ``"constant"`` (black, as torchvision's RandomCrop does) or ``"reflect"``

    Returns:
        (B, C, S, S) float32, still 0 … 255
    """
    size = images.shape[-1]
    images = images.float()
    if padding:
        padded = F.pad(images, (padding,) * 4, mode=padding_mode)
        windows = padded.unfold(2, size, 1).unfold(3, size, 1)  # B C top left S S, a view
        each = torch.arange(len(images), device=images.device)
        images = windows[each, :, drawn.top, drawn.left]
    return torch.where(drawn.mirror[:, None, None, None], images.flip(-1), images)


def jitter_colours(images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    """Change brightness, contrast and saturation of each picture, each by its own factor between
    1 − ``strength`` and 1 + ``strength``. torchvision's ColorJitter does the same to one picture,
    with the three in an order drawn anew.

    Args:
        images: (B, C, S, S) float32, 0 … 255, with C = 3 or 1

    Returns:
        the same shape and range
    """
    factors = 1 + strength * (2 * torch.rand(3, len(images), 1, 1, 1, generator=generator) - 1)
    brightness, contrast, saturation = factors.to(images.device)
    images = (images * brightness).clamp(0, 255)
    middle = luminance(images).mean((2, 3), keepdim=True)
    images = torch.lerp(middle, images, contrast).clamp(0, 255)
    return torch.lerp(luminance(images), images, saturation).clamp(0, 255)


def luminance(images: Tensor) -> Tensor:
    """(B, 3 or 1, S, S) → (B, 1, S, S): how bright each pixel looks (ITU-R BT.601)."""
    if images.shape[1] == 1:
        return images
    weights = torch.tensor([0.2989, 0.5870, 0.1140], device=images.device)
    return (images * weights[:, None, None]).sum(1, keepdim=True)


def cutmix(
    images: Tensor, targets: Tensor, share: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Paste a box of the picture before it into ``share`` of the pictures, and mix their targets
    by area (Yun et al., arXiv 1905.04899, with their α = 1: the box's area is drawn evenly from
    none to all before it is cut off at the border).

    Args:
        images: (B, C, S, S)
        targets: (B, classes), each row a distribution

    Returns:
        mixed images and targets of the same shapes
    """
    count, size = len(images), images.shape[-1]
    side = size * torch.rand(count, generator=generator).sqrt()
    side *= torch.rand(count, generator=generator) < share
    middle = size * torch.rand(2, count, generator=generator)  # of the box: row, column
    start = (middle - side / 2).round()[..., None]  # 2 B 1
    end = (middle + side / 2).round()[..., None]
    pixels = torch.arange(size)
    rows, columns = (start <= pixels) & (pixels < end)  # each B S
    box = (rows[:, :, None] & columns[:, None, :]).to(images.device)  # B S S
    pasted = box.float().mean((1, 2))[:, None]
    mixed = torch.where(box[:, None], images.roll(1, 0), images)
    return mixed, torch.lerp(targets, targets.roll(1, 0), pasted)


def normalize(images: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """(B, C, S, S) of 0 … 255 → float32 with the given channel means and deviations taken out.

    ``mean`` and ``std`` are per channel, on the scale 0 … 1.
    """
    scale = torch.tensor([1 / (255 * s) for s in std], device=images.device)
    shift = torch.tensor([-m / s for m, s in zip(mean, std, strict=True)], device=images.device)
    return images * scale[:, None, None] + shift[:, None, None]


def keep_patches(count: int, num_patches: int, share: float, generator: torch.Generator) -> Tensor:
    """(count, kept) indices of the patches that each picture keeps, ``share`` of all and at least
    one, drawn without repeats (patch dropping: Liu et al., arXiv 2208.07220)."""
    kept = max(1, round(share * num_patches))
    return torch.rand(count, num_patches, generator=generator).argsort(dim=1)[:, :kept]
