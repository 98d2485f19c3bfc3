"""The changes of pictures, against torchvision's and NumPy's."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as reference

from vit import robustness
from vit.robustness import blur, changes, quarter_turn, shuffle_patches, through_jpeg, to_grey


def pictures(channels: int, size: int, count: int = 12) -> Tensor:
    """Noise, coarse to fine: (count, channels, size, size) uint8."""
    generator = torch.Generator().manual_seed(size)
    made = []
    for index in range(count):
        side = 2 + index * (size - 2) // (count - 1)
        coarse = torch.rand(1, channels, side, side, generator=generator)
        made.append(torch.nn.functional.interpolate(coarse, size=size, mode="bilinear"))
    return (255 * torch.cat(made)).round().to(torch.uint8)


def largest_difference(one: Tensor, other: Tensor) -> int:
    assert one.dtype == other.dtype == torch.uint8
    assert one.shape == other.shape
    return int((one.int() - other.int()).abs().max())


def test_grey_is_torchvisions() -> None:
    """Which cuts off what lies behind the point, where ours rounds."""
    images = pictures(3, 32)
    assert largest_difference(to_grey(images), reference.rgb_to_grayscale(images, 3)) <= 1
    assert (to_grey(images) == to_grey(images)[:, :1]).all()
    assert (
        largest_difference(
            to_grey(images[:, :1].expand_as(images)), images[:, :1].expand_as(images)
        )
        == 0
    )


@pytest.mark.parametrize(("channels", "size"), [(3, 32), (1, 8)])
def test_blur_is_torchvisions(channels: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    images = pictures(channels, size)
    expected = reference.gaussian_blur(images, [7, 7], [1.0, 1.0])
    monkeypatch.setattr(robustness, "CHUNK", 5)
    assert largest_difference(blur(images), expected) <= 1
    assert (blur(images) == expected).float().mean() > 0.99


@pytest.mark.filterwarnings("ignore:The image decoding and encoding:DeprecationWarning")
@pytest.mark.parametrize(("channels", "size"), [(3, 32), (1, 8)])
def test_jpeg_is_torchvisions(channels: int, size: int) -> None:
    images = pictures(channels, size)
    expected = reference.jpeg(images, robustness.QUALITY)
    assert largest_difference(through_jpeg(images), expected) <= 2
    assert largest_difference(images, expected) > 10, "something was lost"


def test_the_turn_is_numpys() -> None:
    images = pictures(3, 8)
    expected = np.stack([np.rot90(image, axes=(1, 2)) for image in images.numpy()])
    assert (quarter_turn(images).numpy() == expected).all()


@pytest.mark.parametrize(("channels", "size", "side"), [(3, 32, 4), (1, 8, 2), (3, 32, 16)])
def test_shuffling_keeps_every_patch_whole(channels: int, size: int, side: int) -> None:
    images = pictures(channels, size)
    images[:, 0] += torch.arange(12, dtype=torch.uint8)[:, None, None]
    shuffled = shuffle_patches(images, side)

    def patches(image: np.ndarray) -> list[bytes]:
        starts = range(0, size, side)
        return [image[:, y : y + side, x : x + side].tobytes() for y in starts for x in starts]

    orders = set()
    for before, after in zip(images.numpy(), shuffled.numpy(), strict=True):
        old, new = patches(before), patches(after)
        assert sorted(old) == sorted(new)
        orders.add(tuple(old.index(patch) for patch in new))
    assert len(orders) > 6, "each picture has an order of its own"
    assert (shuffle_patches(images, side) == shuffled).all()
    assert (shuffle_patches(images[:5], side) == shuffled[:5]).all()


@pytest.mark.parametrize(("channels", "size", "side"), [(3, 32, 4), (1, 8, 2)])
def test_every_change_gives_pictures_of_the_same_kind(channels: int, size: int, side: int) -> None:
    images = pictures(channels, size)
    before = images.clone()
    made = changes(channels, side)
    assert list(made) == [
        *(["grey"] if channels == 3 else []),
        *("blur", "jpeg", "rotation", "shuffled_patches"),
    ]
    for change in made.values():
        changed = change(images)
        assert (changed.dtype, changed.shape) == (torch.uint8, images.shape)
        assert (changed != images).any()
        assert (images == before).all()
