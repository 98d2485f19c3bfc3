"""Rollout, against its definition in loops and cases that can be worked out in the head."""

import numpy as np
import pytest
import torch

from tests.analysis.walks import WALKS, walked
from vit.analysis import attention
from vit.analysis.rollout import rollout


def literal(patterns: np.ndarray) -> list[np.ndarray]:
    """Section 3 of arXiv 2005.00928 entry by entry, in double precision."""
    layers, heads, tokens, _ = patterns.shape
    so_far = [[float(i == j) for j in range(tokens)] for i in range(tokens)]
    after = []
    for layer in range(layers):
        mixed = [
            [
                0.5 * sum(float(patterns[layer, h, i, j]) for h in range(heads)) / heads
                + 0.5 * (i == j)
                for j in range(tokens)
            ]
            for i in range(tokens)
        ]
        so_far = [
            [sum(mixed[i][m] * so_far[m][j] for m in range(tokens)) for j in range(tokens)]
            for i in range(tokens)
        ]
        after.append(np.array(so_far))
    return after


@pytest.mark.parametrize("kind", [kind for kind in WALKS if kind != "cifar10"])
def test_every_layer_is_the_product_so_far(kind: str) -> None:
    maps = attention.patterns(walked(kind).trace)
    rolled = rollout(maps)
    assert rolled.shape == (maps.shape[0], *maps.shape[2:])
    np.testing.assert_allclose(rolled, literal(maps.numpy()), atol=1e-6)


def test_the_shipped_model_rolls_out_to_numpys_product() -> None:
    maps = attention.patterns(walked("cifar10").trace)
    halves = 0.5 * maps.double().numpy().mean(1) + 0.5 * np.eye(maps.shape[-1])
    expected = np.linalg.multi_dot(halves[::-1])
    np.testing.assert_allclose(rollout(maps)[-1], expected, atol=1e-6)
    np.testing.assert_allclose(rollout(maps).sum(-1), 1, atol=1e-5)


def test_a_token_that_looks_at_one_other_is_half_that_other() -> None:
    swap = torch.eye(3)[[1, 0, 2]]
    rolled = rollout(swap.expand(2, 1, 3, 3))
    assert rolled[0].tolist() == [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]]
    assert rolled[1].tolist() == rolled[0].tolist()


def test_the_order_of_the_layers_counts() -> None:
    """Token 0 hears of token 2 only if token 1 has listened to it before."""
    from_1, from_2 = torch.eye(3), torch.eye(3)
    from_1[0] = torch.tensor([0, 1.0, 0])
    from_2[1] = torch.tensor([0, 0, 1.0])
    in_time = rollout(torch.stack([from_2, from_1])[:, None])[-1]
    too_late = rollout(torch.stack([from_1, from_2])[:, None])[-1]
    assert in_time[0].tolist() == [0.5, 0.25, 0.25]
    assert too_late[0].tolist() == [0.5, 0.5, 0]
