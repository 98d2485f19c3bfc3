"""The slow, literal mathematics and the fast model say the same."""

import pytest
import torch
from torch import nn

from tests.test_model import randomize
from vit import VisionTransformer, ViTConfig, by_hand, record

CONFIGS = [
    ViTConfig(image_size=8, patch_size=2, embed_dim=12, depth=2, num_heads=3),
    ViTConfig(6, 3, 1, 4, 8, 1, 2, mlp_ratio=2.5, qkv_bias=False, norm_eps=1e-5),
    ViTConfig(
        image_size=12, patch_size=4, in_chans=2, num_classes=3, embed_dim=10, depth=3, num_heads=5
    ),
]


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.fixture(params=CONFIGS, ids=str)
def walk(request):
    config = request.param
    model = VisionTransformer(config).eval()
    randomize(model, seed=4)
    image = torch.randn(config.in_chans, config.image_size, config.image_size)
    with torch.no_grad(), record() as trace:
        logits = model(image[None])
    return model, image, trace, logits[0]


@torch.no_grad()
def test_every_step_equals_the_recorded_one(walk):
    model, image, trace, logits = walk
    patches = by_hand.cut_patches(image, model.config.patch_size)
    close(patches, trace["patch_embed.patches"][0])
    close(by_hand.flatten_patch(patches[1]), trace["patch_embed.flattened"][0, 1])
    close(by_hand.patch_embed(image, model.patch_embed), trace["patch_embed.projected"][0])
    for index, block in enumerate(model.blocks):
        name = f"blocks.{index}."
        x = trace[name + "resid_pre"][0]
        normed = by_hand.layer_norm(x, block.norm1.weight, block.norm1.bias, block.norm1.eps)
        for head in range(model.config.num_heads):
            z, pattern = by_hand.attention_head(normed, block.attn, head)
            close(z, trace[name + "attn.z"][0, head])
            close(pattern, trace[name + "attn.pattern"][0, head])
        close(by_hand.attention(normed, block.attn), trace[name + "attn_out"][0])
        middle = trace[name + "resid_mid"][0]
        normed = by_hand.layer_norm(middle, block.norm2.weight, block.norm2.bias, block.norm2.eps)
        close(by_hand.mlp(normed, block.mlp), trace[name + "mlp_out"][0])
        close(by_hand.block(x, block), trace[name + "resid_post"][0])
    close(by_hand.vision_transformer(image, model), logits)


def test_the_parts_equal_torchs_own():
    x = torch.randn(7, 20) * 5
    norm = nn.LayerNorm(20)
    randomize(norm, seed=5)
    close(by_hand.layer_norm(x, norm.weight, norm.bias, norm.eps), norm(x))
    close(by_hand.softmax(x), x.softmax(-1))
    close(by_hand.gelu(x), nn.functional.gelu(x))
    layer = nn.Linear(20, 6)
    close(by_hand.linear(x, layer.weight, layer.bias), layer(x))


def test_softmax_does_not_overflow():
    assert by_hand.softmax(torch.tensor([1000.0, 1000.0, -1000.0])).tolist() == [0.5, 0.5, 0.0]
