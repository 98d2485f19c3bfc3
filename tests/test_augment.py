import numpy as np
import torch
import torchvision.transforms.v2.functional as tv

from vit import augment


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_whole_batches_equal_torchvision_picture_by_picture():
    images = torch.randint(256, (32, 3, 12, 12), dtype=torch.uint8)
    for mode in ("constant", "reflect"):
        drawn = augment.draw(torch.arange(32), 1, 4, "random", generator(), seed=0)
        got = augment.crop_and_flip(images, drawn, 4, mode)
        for image, top, left, mirror, result in zip(
            images, drawn.top, drawn.left, drawn.mirror, got, strict=True
        ):
            expected = tv.crop(tv.pad(image, [4], padding_mode=mode), int(top), int(left), 12, 12)
            expected = tv.horizontal_flip(expected) if mirror else expected
            assert torch.equal(result, expected.float())


def test_normalize_equals_torchvision():
    images = torch.randint(256, (4, 3, 8, 8), dtype=torch.uint8)
    mean, std = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
    expected = tv.normalize(tv.to_dtype(images, torch.float32, scale=True), list(mean), list(std))
    torch.testing.assert_close(augment.normalize(images, mean, std), expected)


def test_crops_and_flips_are_uniform():
    drawn = augment.draw(torch.arange(90_000), 1, 4, "random", generator(), seed=0)
    for offsets in (drawn.top, drawn.left):
        counts = np.bincount(offsets, minlength=9)
        assert len(counts) == 9
        assert ((counts - 10_000) ** 2 / 10_000).sum() < 30  # chi-squared, 8 degrees of freedom
    joint = np.histogram2d(drawn.top, drawn.left, bins=9)[0]
    assert ((joint - 90_000 / 81) ** 2 / (90_000 / 81)).sum() < 140  # 80 degrees of freedom
    assert abs(drawn.mirror.double().mean() - 0.5) < 0.01


def test_alternating_flips_show_both_sides_within_two_epochs():
    indices = torch.arange(10_000)
    mirrors = [
        augment.draw(indices, epoch, 4, "alternating", generator(epoch), seed=3).mirror
        for epoch in (1, 2, 3)
    ]
    assert torch.equal(mirrors[0], ~mirrors[1])
    assert torch.equal(mirrors[0], mirrors[2])
    assert abs(mirrors[0].double().mean() - 0.5) < 0.02
    other = augment.draw(indices, 1, 4, "alternating", generator(), seed=4).mirror
    assert 0.4 < (other == mirrors[0]).double().mean() < 0.6
    neighbours = (mirrors[0][1:] == mirrors[0][:-1]).double().mean()
    assert 0.47 < neighbours < 0.53


def test_no_flip_and_no_padding_leave_the_picture_alone():
    images = torch.randint(256, (3, 1, 8, 8), dtype=torch.uint8)
    drawn = augment.draw(torch.arange(3), 1, 0, "none", generator(), seed=0)
    assert torch.equal(augment.crop_and_flip(images, drawn, 0, "constant"), images.float())


def test_kept_patches_are_distinct_and_all_equally_likely():
    kept = augment.keep_patches(20_000, 16, 0.5, generator())
    assert kept.shape == (20_000, 8)
    assert (kept.sort(1).values.diff(dim=1) > 0).all()
    shares = torch.bincount(kept.flatten(), minlength=16) / 20_000
    assert (shares - 0.5).abs().max() < 0.02
