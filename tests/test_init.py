import math

import torch

from vit import VisionTransformer, ViTConfig, record
from vit.init import mimetic_, sincos_positions


def test_mimetic_products_are_near_the_identity():
    model = VisionTransformer(ViTConfig())
    mimetic_(model, torch.Generator().manual_seed(0))
    eye = torch.eye(128)
    for block in model.blocks:
        to_q, to_k, to_v = (part.detach() for part in block.attn.qkv.weight.chunk(3))
        value_to_output = to_v.T @ block.attn.proj.weight.detach().T
        noise = value_to_output + 0.4 * eye
        assert abs(noise.std() - 0.4 / math.sqrt(128)) < 0.002
        assert abs(value_to_output.diagonal().mean() + 0.4) < 0.02
        query_to_key = sum(
            to_q[rows].T @ to_k[rows] for rows in (slice(32 * h, 32 * h + 32) for h in range(4))
        )
        diagonal = query_to_key.diagonal().mean()
        assert diagonal > 0.5 and abs(query_to_key.mean()) < 0.02


def test_queries_and_keys_are_the_closest_of_their_rank():
    """Eckart–Young: the product of the factors keeps the largest singular values, exactly."""
    model = VisionTransformer(ViTConfig(embed_dim=16, num_heads=1, depth=1))
    mimetic_(model, torch.Generator().manual_seed(5))
    to_q, to_k, _ = (part.detach() for part in model.blocks[0].attn.qkv.weight.chunk(3))
    random = torch.randn(16, 16, generator=torch.Generator().manual_seed(5)) / 4
    torch.testing.assert_close(
        to_q.T @ to_k, 0.7 * torch.eye(16) + 0.7 * random, rtol=1e-4, atol=1e-4
    )


def test_the_first_loss_is_ln_of_the_number_of_classes():
    model = VisionTransformer(ViTConfig(num_classes=7))
    mimetic_(model, torch.Generator().manual_seed(0))
    with record() as trace:
        logits = model(torch.randn(4, 3, 32, 32))
    assert torch.equal(logits, torch.zeros(4, 7))
    assert torch.equal(model.pos_embed[0, 0], torch.zeros(128))
    assert trace["blocks.5.resid_post"].isfinite().all()


def test_sincos_positions_equal_the_formula():
    code = sincos_positions(3, 8)
    for row in range(3):
        for column in range(3):
            expected = []
            for place in (column, row):
                angles = [place / 10_000 ** (i / 2) for i in range(2)]
                expected += [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
            torch.testing.assert_close(code[3 * row + column], torch.tensor(expected))


def test_sincos_positions_of_any_width():
    assert torch.equal(sincos_positions(2, 6)[:, 4:], torch.zeros(4, 2))
    assert torch.equal(sincos_positions(2, 3), torch.zeros(4, 3))
