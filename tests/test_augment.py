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


def test_colours_equal_torchvision_picture_by_picture():
    images = torch.randint(256, (16, 3, 8, 8), generator=generator()).float()
    got = augment.jitter_colours(images, 0.5, generator(1))
    factors = 1 + 0.5 * (2 * torch.rand(3, 16, generator=generator(1)) - 1)
    for image, result, (brightness, contrast, saturation) in zip(
        images / 255, got / 255, factors.T.tolist(), strict=True
    ):
        expected = tv.adjust_contrast(tv.adjust_brightness(image, brightness), contrast)
        expected = tv.adjust_saturation(expected, saturation)
        torch.testing.assert_close(result, expected, atol=1e-4, rtol=0)
    grey = images[:, :1]
    expected = tv.adjust_brightness(grey[0] / 255, float(factors[0, 0]))
    expected = tv.adjust_contrast(expected.expand(3, -1, -1), float(factors[1, 0]))[:1] * 255
    torch.testing.assert_close(
        augment.jitter_colours(grey, 0.5, generator(1))[0], expected, atol=0.05, rtol=0
    )


def test_cutmix_pastes_a_box_and_mixes_the_targets_by_its_area():
    count, size = 4_000, 16
    images = torch.arange(count).float()[:, None, None, None].expand(-1, 3, size, size)
    targets = torch.eye(count)
    mixed, mixed_targets = augment.cutmix(images, targets, 0.5, generator())
    own = mixed == images
    assert torch.equal(mixed[~own], images.roll(1, 0)[~own])
    areas = 1 - own.float().mean((1, 2, 3))
    each = torch.arange(count)
    torch.testing.assert_close(mixed_targets[each, each], 1 - areas, atol=1e-6, rtol=0)
    torch.testing.assert_close(mixed_targets[each, each - 1], areas, atol=1e-6, rtol=0)
    assert abs((areas > 0).double().mean() - 0.5) < 0.03
    for pasted in ~own[areas > 0][:50, 0]:
        rows, columns = pasted.any(1), pasted.any(0)
        assert torch.equal(pasted, rows[:, None] & columns[None, :])  # a box …
        assert (rows.int().diff().abs().sum() <= 2) and (columns.int().diff().abs().sum() <= 2)
    sides = ((~own[:, 0]).any(2).sum(1)[areas > 0] / size).double()
    assert 0.5 < sides.mean() < 0.6  # 2/3 on average, less what the border cuts off


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
