"""One weight opened and mean distances, against loops in plain numpy and known cases."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.analysis.walks import WALKS, Walked, walked
from vit.analysis import attention


@pytest.fixture(scope="module", params=WALKS)
def walk(request: pytest.FixtureRequest) -> Walked:
    return walked(request.param)


def last(walk: Walked) -> tuple[int, int, int, int]:
    """The last layer and head, and a query and a key that differ."""
    config = walk.model.config
    return config.depth - 1, config.num_heads - 1, 1, config.num_tokens - 1


def test_patterns_are_all_layers_and_heads_in_order(walk: Walked) -> None:
    maps = attention.patterns(walk.trace)
    config = walk.model.config
    assert attention.depth(walk.trace) == config.depth
    assert maps.shape == (config.depth, config.num_heads, config.num_tokens, config.num_tokens)
    for layer in range(config.depth):
        assert maps[layer].equal(walk.trace[f"blocks.{layer}.attn.pattern"][0])
    torch.testing.assert_close(maps.sum(-1), torch.ones(maps.shape[:3]), atol=1e-5, rtol=0)


def test_a_weight_is_the_sum_over_its_terms_and_the_share_of_its_row(walk: Walked) -> None:
    layer, head, query, key = last(walk)
    weight = attention.open_weight(walk.trace, layer, head, query, key)
    q, k, v = (walk.trace[f"blocks.{layer}.attn.{part}"][0, head].numpy() for part in "qkv")
    products = [float(a) * float(b) for a, b in zip(q[query], k[key], strict=True)]
    scores = [
        math.fsum(float(a) * float(b) for a, b in zip(q[query], kj, strict=True))
        / math.sqrt(len(products))
        for kj in k
    ]
    exps = [math.exp(score - max(scores)) for score in scores]
    weights = [e / math.fsum(exps) for e in exps]
    mixed = [
        math.fsum(w * float(vj[m]) for w, vj in zip(weights, v, strict=True))
        for m in range(len(products))
    ]

    assert weight.products.tolist() == products
    assert weight.dot == pytest.approx(math.fsum(products), rel=1e-9, abs=1e-9)
    assert weight.score == pytest.approx(scores[key], rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(weight.scores, scores, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(weight.exps, exps, rtol=1e-9)
    assert weight.total == pytest.approx(math.fsum(exps), rel=1e-9)
    assert weight.weight == pytest.approx(weights[key], rel=1e-9)
    np.testing.assert_allclose(weight.row, weights, rtol=1e-9)
    assert weight.v.numpy().astype(np.float32).tolist() == v[key].tolist()
    np.testing.assert_allclose(weight.z, mixed, rtol=1e-7, atol=1e-9)


def test_the_opened_weight_is_the_recorded_one(walk: Walked) -> None:
    layer, head, query, key = last(walk)
    weight = attention.open_weight(walk.trace, layer, head, query, key)
    recorded = walk.trace[f"blocks.{layer}.attn.pattern"][0, head, query]
    assert weight.weight == pytest.approx(recorded[key].item(), abs=2e-6)
    assert weight.row_error == np.abs(weight.row.numpy() - recorded.numpy()).max() < 2e-6
    assert weight.z_error < 1e-5 * max(1, weight.v.abs().max().item())


def test_the_opened_row_is_torchs_own_attention(walk: Walked) -> None:
    """PyTorch's fused kernel with one-hot values gives back the weights."""
    layer, head, query, _ = last(walk)
    weight = attention.open_weight(walk.trace, layer, head, query, 0)
    q, k = (
        walk.trace[f"blocks.{layer}.attn.{part}"][:1, head : head + 1].double() for part in "qk"
    )
    fused = F.scaled_dot_product_attention(q, k, torch.eye(k.shape[2], dtype=k.dtype)[None, None])
    np.testing.assert_allclose(weight.row, fused[0, 0, query], rtol=1e-9, atol=1e-12)


def test_a_head_worked_out_by_hand_is_the_recorded_one(walk: Walked) -> None:
    layer, head, *_ = last(walk)
    assert attention.by_hand_error(walk.model, walk.trace, layer, head) < 1e-5


def test_by_hand_error_notices_a_wrong_map() -> None:
    walk = walked("usual")
    walk.trace["blocks.1.attn.pattern"] = walk.trace["blocks.1.attn.pattern"].clone()
    walk.trace["blocks.1.attn.pattern"][0, 2, 3, 4] += 0.25
    assert attention.by_hand_error(walk.model, walk.trace, 1, 2) == pytest.approx(0.25, abs=1e-4)


def test_keys_for_share_counts_the_heaviest_first() -> None:
    row = torch.tensor([0.1, 0.5, 0.05, 0.35])
    assert attention.keys_for_share(row, 0.4) == 1
    assert attention.keys_for_share(row, 0.6) == 2
    assert attention.keys_for_share(row, 0.9) == 3
    assert attention.keys_for_share(torch.full((64,), 1 / 64), 0.5) == 32


def literal_distance(pattern: np.ndarray, grid: int) -> float:
    """Figure 7 as its caption says it, patch by patch, without [CLS]."""
    means = []
    for i in range(grid * grid):
        total = weighted = 0.0
        for j in range(grid * grid):
            weight = float(pattern[1 + i, 1 + j])
            down, right = i // grid - j // grid, i % grid - j % grid
            total += weight
            weighted += weight * math.hypot(down, right)
        means.append(weighted / total)
    return sum(means) / len(means)


def test_mean_distance_is_the_weighted_mean_over_patches(walk: Walked) -> None:
    maps, grid = attention.patterns(walk.trace), walk.model.config.grid_size
    far = attention.mean_distance(maps, grid)
    assert far.shape == maps.shape[:2]
    layer, head, *_ = last(walk)
    for at in {(0, 0), (layer, head)}:
        assert far[at].item() == pytest.approx(literal_distance(maps[at].numpy(), grid), rel=1e-9)


def test_mean_distance_of_heads_whose_distance_is_known() -> None:
    grid, tokens = 3, 10
    stays = torch.eye(tokens)
    evenly = torch.full((tokens, tokens), 1 / tokens)
    only_cls = 1e-3 * torch.eye(tokens)  # what little is left stays home
    only_cls[:, 0] += 1 - 1e-3
    neighbour = torch.zeros(tokens, tokens)  # the next patch; row ends go back two columns
    for patch in range(9):
        neighbour[1 + patch, 1 + (patch + 1 if patch % 3 < 2 else patch - 2)] = 1
    far = attention.mean_distance(torch.stack([stays, evenly, only_cls, neighbour]), grid)
    all_pairs = [math.dist(divmod(i, 3), divmod(j, 3)) for i in range(9) for j in range(9)]
    assert far.tolist() == pytest.approx([0, sum(all_pairs) / 81, 0, (1 + 1 + 2) / 3])
    assert attention.even_distance(grid) == pytest.approx(sum(all_pairs) / 81)
