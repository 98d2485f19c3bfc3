"""From pictures in memory to a training batch: ours against torchvision's transforms.

Both crop each picture out of itself padded by 4 black pixels, mirror every second one, and
normalise. Ours moves a batch through a few tensor operations; torchvision's way is one picture
after the other, each from a PIL image, in the main process or in a DataLoader's workers.
"""

from collections.abc import Callable
from functools import partial
from statistics import median

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from benchmarks.tables import Table
from benchmarks.timing import interleaved
from vit import augment

PADDING = 4
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


class Pictures(Dataset[tuple[Tensor, int]]):
    """Pictures (n, S, S, 3) uint8 as torchvision's CIFAR-10 hands them out, augmented."""

    def __init__(self, pictures: np.ndarray, size: int) -> None:
        self.pictures = pictures
        self.transform = transforms.Compose(
            [
                transforms.RandomCrop(size, padding=PADDING),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(MEAN, STD),
            ]
        )

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(self.pictures[index])), index % 10


def ours_epoch(images: Tensor, batch: int, generator: torch.Generator) -> int:
    """Prepare every picture of (n, 3, S, S) uint8 once, in random order, as training does; returns
    how many there were."""
    seen = 0
    for indices in torch.randperm(len(images), generator=generator).split(batch):
        drawn = augment.draw(indices, 1, PADDING, "random", generator, seed=0).to(images.device)
        chosen = images[indices.to(images.device)]
        prepared = augment.crop_and_flip(chosen, drawn, PADDING, "constant")
        seen += len(augment.normalize(prepared, MEAN, STD))
    return seen


def torchvision_epoch(loader: DataLoader[tuple[Tensor, Tensor]], device: torch.device) -> int:
    """The same by a DataLoader over :class:`Pictures`."""
    return sum(len(batch.to(device)) for batch, _ in loader)


def measure(count: int, batch: int, threads: int, rounds: int, device: torch.device) -> Table:
    """Pictures per second, for ``count`` random pictures of 32 × 32."""
    images = torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8)
    data = Pictures(images.permute(0, 2, 3, 1).contiguous().numpy(), size=32)
    on_device = images.to(device)
    generator = torch.Generator().manual_seed(0)
    runs: dict[str, Callable[[], int]] = {
        "ours, whole batches": partial(ours_epoch, on_device, batch, generator)
    }
    for workers in (0, threads):
        loader = DataLoader(
            data, batch, shuffle=True, num_workers=workers, persistent_workers=workers > 0
        )
        where = f"{workers} workers" if workers else "in the main process"
        runs[f"torchvision, {where}"] = partial(torchvision_epoch, loader, device)
    speeds = {
        name: count / median(times) for name, times in interleaved(runs, rounds, device).items()
    }
    ours, *theirs = speeds.values()
    return Table(
        f"Data pipeline: {count:,} pictures, batches of {batch}, {threads} threads or workers",
        {"pipeline": "{}", "speed": "{:.0f} pictures/s"},
        list(speeds.items()),
        [f"ours ÷ the faster of torchvision's: {ours / max(theirs):.1f}"],
    )
