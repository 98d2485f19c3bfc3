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

    def __getitem__(self, part: slice) -> "Draw":
        return Draw(self.top[part], self.left[part], self.mirror[part])

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
