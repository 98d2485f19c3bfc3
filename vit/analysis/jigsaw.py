"""A picture whose patches were thrown on a table and laid out again: what is left without order?"""

import torch
from torch import Tensor

from vit.model import cut_patches


def shuffle_patches(images: Tensor, patch_size: int, seed: int = 0) -> Tensor:
    """(B, C, S, S) → (B, C, S, S): the same patches, all pictures in the same random order."""
    batch, channels, height, width = images.shape
    patches = cut_patches(images, patch_size)  # B n C P P
    order = torch.randperm(patches.shape[1], generator=torch.Generator().manual_seed(seed))
    rows, columns = height // patch_size, width // patch_size
    grid = patches[:, order].reshape(batch, rows, columns, channels, patch_size, patch_size)
    return grid.permute(0, 3, 1, 4, 2, 5).reshape(images.shape)
