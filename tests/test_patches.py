"""One patch opened, against PyTorch's own convolution, NumPy and counting."""

import numpy as np
import pytest
import torch

from vit import VisionTransformer, ViTConfig, record
from vit.analysis import patches

CONFIG = ViTConfig(12, 3, 3, 5, embed_dim=16, depth=1, num_heads=2)


@pytest.fixture(scope="module")
def model():
    with torch.random.fork_rng():
        torch.manual_seed(4)
        model = VisionTransformer(CONFIG).eval().requires_grad_(False)
        model.patch_embed.proj.bias.normal_()
        model.patch_embed.proj.weight[2] = 0
        return model


@pytest.fixture(scope="module")
def images():
    return torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(5))


@pytest.fixture(scope="module")
def trace(model, images):
    with record() as trace:
        model(images)
    return trace


def test_a_raw_patch_is_the_square_at_its_row_and_column():
    pixels = np.arange(12 * 12 * 3, dtype=np.uint8).reshape(12, 12, 3)
    patch = patches.raw_patch(torch.from_numpy(pixels), 3, 6)  # row 1, column 2 of a 4 × 4 grid
    assert np.array_equal(patch, pixels[3:6, 6:9].transpose(2, 0, 1))


def test_every_number_of_a_patch_is_found_again():
    patch = np.arange(3 * 4 * 4).reshape(3, 4, 4)
    for index, value in enumerate(patch.flatten()):
        place = patches.place_in_patch(index, 4)
        assert patch[place.channel, place.row, place.column] == value


def test_a_dot_product_adds_up_to_the_recorded_number(model, images, trace):
    for patch, dimension in [(0, 0), (6, 11), (15, 15)]:
        opened = patches.open_dot_product(trace, model, patch, dimension)
        row, column = divmod(patch, 4)
        square = images[0, :, 3 * row : 3 * row + 3, 3 * column : 3 * column + 3].double()
        weight = model.patch_embed.proj.weight[dimension].double()
        expected = (square * weight).sum() + model.patch_embed.proj.bias[dimension].double()
        assert opened.total == pytest.approx(float(expected), abs=1e-5)
        assert opened.recorded == pytest.approx(float(expected), abs=1e-5)
        assert torch.equal(opened.products, opened.inputs * opened.weights)


def test_the_largest_contributions_come_first(model, trace):
    opened = patches.open_dot_product(trace, model, 3, 7)
    sizes = [abs(float(opened.products[i])) for i in opened.largest(27)]
    assert sizes == sorted(np.abs(opened.products.numpy()).tolist(), reverse=True)


def test_a_convolution_gives_the_same_tokens(model, images, trace):
    convolved = patches.convolve(model, images)
    expected = torch.nn.functional.conv2d(
        images, model.patch_embed.proj.weight, model.patch_embed.proj.bias, stride=3
    )
    # Token 6 is the one in row 1, column 2.
    assert torch.equal(convolved[:, 6], expected[:, :, 1, 2])
    torch.testing.assert_close(convolved, trace["patch_embed.projected"], rtol=0, atol=1e-5)


def test_filters_are_scaled_each_by_itself_about_grey(model):
    pictures = patches.filter_pictures(model)
    weight = model.patch_embed.proj.weight
    assert pictures.shape == (16, 3, 3, 3)
    assert torch.equal(pictures[2], torch.full((3, 3, 3), 0.5)), "a filter that learned nothing"
    for index in (0, 9):
        span = (pictures[index] - 0.5).abs().max()
        assert float(span) == pytest.approx(0.5)
        expected = 0.5 + weight[index, 1, 2, 0] / (2 * weight[index].abs().max())
        assert float(pictures[index, 2, 0, 1]) == pytest.approx(float(expected), abs=1e-6)


def test_positions_are_compared_by_their_angle(model):
    similarity = patches.position_similarity(model)
    first, second = model.pos_embed[0, 3].double(), model.pos_embed[0, 11].double()
    cosine = float(first @ second / (first.norm() * second.norm()))
    assert similarity.shape == (17, 17)
    assert float(similarity[3, 11]) == float(similarity[11, 3]) == pytest.approx(cosine, abs=1e-6)
    torch.testing.assert_close(similarity.diagonal(), torch.ones(17))


@pytest.mark.parametrize(
    ("image_size", "patch_size", "count", "pairs"),
    [(32, 4, 64, 65**2), (32, 1, 1_024, 1_025**2), (224, 16, 196, 197**2)],
)
def test_tokens_and_pairs(image_size, patch_size, count, pairs):
    cost = patches.token_cost(image_size, patch_size)
    assert (cost.patches, cost.tokens, cost.pairs) == (count, count + 1, pairs)


def test_one_token_per_pixel_at_224():
    cost = patches.token_cost(224, 1)
    assert cost.patches == 50_176
    assert f"{cost.pairs / 1e9:.1f}" == "2.5"


def test_only_patches_that_fit_are_offered():
    assert patches.patch_sizes(12) == [1, 2, 3, 4, 6, 12]
    with pytest.raises(ValueError, match="does not divide"):
        patches.token_cost(32, 5)


def test_without_their_mean_positions_are_compared_about_it(model):
    positions = model.pos_embed[0].double()
    positions = positions - positions[1:].mean(0)
    cosine = torch.nn.functional.cosine_similarity(positions[:, None], positions[None], dim=-1)
    similarity = patches.position_similarity(model, centred=True)
    torch.testing.assert_close(similarity.double(), cosine, rtol=0, atol=1e-6)


def test_the_longest_and_the_busiest_patch(trace):
    longest, shortest, busiest, rank = patches.lengths(trace)
    lengths = np.linalg.norm(trace["patch_embed.projected"][0].numpy(), axis=-1)
    spread = trace["patch_embed.flattened"][0].numpy().std(axis=-1)
    assert (longest.patch, shortest.patch) == (lengths.argmax(), lengths.argmin())
    assert (longest.length, busiest.spread) == pytest.approx((lengths.max(), spread.max()))
    assert busiest.patch == spread.argmax()
    assert np.argsort(-lengths).tolist().index(busiest.patch) == rank - 1
