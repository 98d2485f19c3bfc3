"""Pictures changed, to see what becomes of the answers.

Each change takes pictures (n, C, S, S) uint8 and gives as many of the same size, the same ones
every time. On a photograph none but the last hides from a person what is shown: shuffled patches
keep each patch and lose where it was. Blur and JPEG are of the kinds in the benchmark of Hendrycks
& Dietterich (arXiv 1903.12261), shuffling is that of Naseer et al. (arXiv 2105.10497).
"""

import io
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from vit.model import cut_patches

SIGMA = 1.0  # pixels, of the blur
QUALITY = 50  # of the JPEG, on Pillow's scale to 95
SEED = 65  # of the patches' new order
CHUNK = 1000  # pictures blurred at once


def to_grey(images: Tensor) -> Tensor:
    """Colours (n, 3, S, S) to their luma in all three channels: 0.299 R + 0.587 G + 0.114 B
    (ITU-R BT.601)."""
    weights = torch.tensor([0.299, 0.587, 0.114])[:, None, None]
    parts = [(part * weights).sum(1, keepdim=True) for part in images.split(CHUNK)]
    return torch.cat(parts).round().to(torch.uint8).expand_as(images)


def blur(images: Tensor) -> Tensor:
    """A Gaussian of standard deviation ``SIGMA`` over 7 × 7 pixels, mirrored at the edge."""
    radius = min(3, images.shape[-1] - 1)
    bell = torch.exp(-(torch.arange(-radius, radius + 1) ** 2) / (2 * SIGMA**2))
    kernel = (bell / bell.sum()).expand(images.shape[1], 1, 1, -1)
    parts = []
    for part in images.split(CHUNK):
        padded = F.pad(part.float(), (radius,) * 4, mode="reflect")
        rows = F.conv2d(padded, kernel, groups=images.shape[1])
        columns = F.conv2d(rows, kernel.mT, groups=images.shape[1])
        parts.append(columns.round().to(torch.uint8))
    return torch.cat(parts)


def through_jpeg(images: Tensor) -> Tensor:
    """Saved as JPEG of quality ``QUALITY`` and opened again."""
    return torch.from_numpy(np.stack([_through_jpeg(image) for image in images.numpy()]))


def _through_jpeg(image: np.ndarray) -> np.ndarray:
    grey = len(image) == 1
    file = io.BytesIO()
    picture = Image.fromarray(image[0] if grey else image.transpose(1, 2, 0))
    picture.save(file, "JPEG", quality=QUALITY)
    pixels = np.asarray(Image.open(file, formats=["JPEG"]))
    return pixels[None] if grey else pixels.transpose(2, 0, 1)


def quarter_turn(images: Tensor) -> Tensor:
    """Turned by 90°, against the clock."""
    return images.rot90(1, (2, 3))


def shuffle_patches(images: Tensor, patch_size: int) -> Tensor:
    """The model's own patches in an order drawn anew for each picture."""
    patches = cut_patches(images, patch_size)  # n P C p p
    count, places = patches.shape[:2]
    # RandomState's stream is frozen, so the order is the same with every version of NumPy.
    order = np.random.RandomState(SEED).random_sample((count, places)).argsort(1)
    shuffled = patches[torch.arange(count)[:, None], torch.from_numpy(order)]
    side = images.shape[-1] // patch_size
    grid = shuffled.unflatten(1, (side, side)).permute(0, 3, 1, 4, 2, 5)  # n C row p column p
    return grid.reshape(images.shape)


def changes(channels: int, patch_size: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """The changes for pictures of so many channels, by name. One channel is grey already."""
    return {
        **({"grey": to_grey} if channels == 3 else {}),
        "blur": blur,
        "jpeg": through_jpeg,
        "rotation": quarter_turn,
        "shuffled_patches": lambda images: shuffle_patches(images, patch_size),
    }
