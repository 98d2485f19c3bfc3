"""The lens and the opened logit, against timm's model, by_hand and plain loops."""

import math

import numpy as np
import pytest
import torch

from tests.analysis.walks import WALKS, Walked, walked
from tests.test_model import timm_twin
from vit import by_hand
from vit.analysis import readout


@pytest.fixture(scope="module", params=WALKS)
def walk(request: pytest.FixtureRequest) -> Walked:
    return walked(request.param)


def timm_logits(walk: Walked) -> tuple[torch.Tensor, torch.Tensor]:
    """timm's own stop after every block: logits of [CLS] (L, K) and of the patches (L, n, K)."""
    model = timm_twin(walk.model.config).eval()
    model.load_state_dict(walk.model.state_dict())
    with torch.no_grad():
        stages = model.forward_intermediates(
            walk.x, norm=True, return_prefix_tokens=True, output_fmt="NLC", intermediates_only=True
        )
        patches, cls = zip(*stages, strict=True)
        return model.head(torch.cat(cls)[:, 0]), model.head(torch.cat(patches))


def test_after_every_layer_the_lens_reads_what_timm_reads(walk: Walked) -> None:
    cls, patches = timm_logits(walk)
    ours = readout.cls_by_layer(walk.model, walk.trace)
    assert ours.shape == (walk.model.config.depth + 1, walk.model.config.num_classes)
    torch.testing.assert_close(ours[1:], cls, atol=2e-5, rtol=1e-5)
    ours = readout.patches_by_layer(walk.model, walk.trace)
    assert ours.shape[:2] == (walk.model.config.depth + 1, walk.model.config.num_patches)
    torch.testing.assert_close(ours[1:], patches, atol=2e-5, rtol=1e-5)


def test_the_last_reading_is_the_models_answer_to_the_bit(walk: Walked) -> None:
    assert readout.cls_by_layer(walk.model, walk.trace)[-1].equal(walk.logits)


def test_before_the_first_layer_the_lens_reads_the_embedding(walk: Walked) -> None:
    """By hand from the weights: [CLS] is the same for every picture, a patch its own square."""
    model, norm, head = walk.model, walk.model.norm, walk.model.head

    def read(token: torch.Tensor) -> torch.Tensor:
        normed = by_hand.layer_norm(token, norm.weight, norm.bias, norm.eps)
        return by_hand.linear(normed, head.weight, head.bias)

    with torch.no_grad():
        cls = read(model.cls_token[0, 0] + model.pos_embed[0, 0])
        patches = by_hand.patch_embed(walk.x[0], model.patch_embed)
        second = read(patches[1] + model.pos_embed[0, 2])
    options = {"atol": 2e-5, "rtol": 1e-5}
    torch.testing.assert_close(readout.cls_by_layer(model, walk.trace)[0], cls, **options)
    torch.testing.assert_close(readout.patches_by_layer(model, walk.trace)[0, 1], second, **options)


def test_a_logit_is_the_sum_over_its_terms_and_the_bias(walk: Walked) -> None:
    for index in (0, walk.model.config.num_classes - 1):
        score = readout.open_logit(walk.model, walk.trace, index)
        cls = walk.trace["cls_out"][0].tolist()
        weights = walk.model.head.weight[index].tolist()
        products = [a * b for a, b in zip(cls, weights, strict=True)]
        assert (score.cls.tolist(), score.weights.tolist()) == (cls, weights)
        assert score.products.tolist() == products
        assert score.dot == pytest.approx(math.fsum(products), abs=1e-9)
        assert score.bias == walk.model.head.bias[index].item()
        assert score.logit == pytest.approx(math.fsum([*products, score.bias]), abs=1e-9)
        assert score.error == abs(score.logit - walk.logits[index].item()) < 1e-4


def test_patch_mean_is_the_mean_of_the_patches_own_logits(walk: Walked) -> None:
    """The head is linear, so averaging before it or after it is the same."""
    alone = readout.patches_by_layer(walk.model, walk.trace)[-1]
    pooled = readout.patch_mean(walk.model, walk.trace)
    np.testing.assert_allclose(pooled, alone.numpy().mean(0), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("tops", "layers"),
    [([1, 1, 1], 0), ([0, 1, 1], 1), ([1, 0, 1], 2), ([1, 0, 2], 2), ([0, 1], 1)],
)
def test_settled_after_the_last_change_of_mind(tops: list[int], layers: int) -> None:
    assert readout.settled_after(torch.eye(3)[tops]) == layers
