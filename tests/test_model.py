"""The model against torchvision's, timm's, and the numbers of the papers."""

import random
from functools import partial

import pytest
import timm.models.vision_transformer
import torch
import torch.nn.functional as F
import torchvision.models

import vit.model
from benchmarks.peers import our_name
from vit import VisionTransformer, ViTConfig, record
from vit.hooks import is_recording
from vit.model import count_parameters, cut_patches

SYSTEM_B = ViTConfig(depth=4, qkv_bias=False)


def at_224(width: int, heads: int) -> ViTConfig:
    return ViTConfig(224, 16, 3, 1000, width, 12, heads)


def random_configs(count: int) -> list[ViTConfig]:
    """Configurations of many kinds; the first ones are sure to be grey, or without bias."""
    draw = random.Random(65)
    configs = []
    for index in range(count):
        patch, heads = draw.choice([1, 2, 3, 4, 7]), draw.choice([1, 2, 3, 5, 8])
        configs.append(
            ViTConfig(
                image_size=patch * draw.randint(1, 6),
                patch_size=patch,
                in_chans=1 if index < 3 else draw.choice([1, 2, 3, 4]),
                num_classes=draw.randint(2, 12),
                embed_dim=heads * draw.choice([4, 6, 16]),
                depth=draw.randint(1, 4),
                num_heads=heads,
                mlp_ratio=draw.choice([1.0, 2.5, 4.0]),
                qkv_bias=index % 3 != 0,
                norm_eps=draw.choice([1e-6, 1e-5]),
            )
        )
    return configs


def randomize(model: torch.nn.Module, seed: int) -> None:
    """Weights large enough that a wrong scale, order or bias shows in the logits."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=generator)


def timm_twin(config: ViTConfig) -> torch.nn.Module:
    return timm.models.vision_transformer.VisionTransformer(
        img_size=config.image_size,
        patch_size=config.patch_size,
        in_chans=config.in_chans,
        num_classes=config.num_classes,
        embed_dim=config.embed_dim,
        depth=config.depth,
        num_heads=config.num_heads,
        mlp_ratio=config.mlp_ratio,
        qkv_bias=config.qkv_bias,
        norm_layer=partial(torch.nn.LayerNorm, eps=config.norm_eps),
    ).eval()


def torchvision_twin(config: ViTConfig, ours: dict[str, torch.Tensor]) -> torch.nn.Module:
    """torchvision's model with our weights; it always has a q, k, v bias and three channels."""
    twin = torchvision.models.VisionTransformer(
        image_size=config.image_size,
        patch_size=config.patch_size,
        num_layers=config.depth,
        num_heads=config.num_heads,
        hidden_dim=config.embed_dim,
        mlp_dim=config.mlp_dim,
        num_classes=config.num_classes,
        norm_layer=partial(torch.nn.LayerNorm, eps=config.norm_eps),
    ).eval()
    twin.conv_proj = torch.nn.Conv2d(
        config.in_chans, config.embed_dim, config.patch_size, config.patch_size
    )

    def ours_for(name: str) -> torch.Tensor:
        name = our_name(name)
        if name.endswith("qkv.bias") and name not in ours:
            return torch.zeros(3 * config.embed_dim)
        return ours[name]

    twin.load_state_dict({name: ours_for(name) for name in twin.state_dict()})
    return twin


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (ViTConfig(), 1_205_898),
        (SYSTEM_B, 807_818),
        (at_224(192, 3), 5_717_416),
        (at_224(384, 6), 22_050_664),
        (at_224(768, 12), 86_567_656),
    ],
)
def test_parameters_are_as_many_as_published(config, count):
    with torch.device("meta"):
        assert count_parameters(VisionTransformer(config)) == count


def test_parameters_of_system_c_part_by_part():
    model = VisionTransformer(ViTConfig())
    embedding = count_parameters(model.patch_embed)
    assert embedding + model.cls_token.numel() + model.pos_embed.numel() == 14_720
    assert [count_parameters(block) for block in model.blocks] == [198_272] * 6
    assert count_parameters(model.norm) + count_parameters(model.head) == 1_546


@pytest.mark.parametrize("config", random_configs(12), ids=str)
def test_logits_equal_timm_and_torchvision(config):
    twin = timm_twin(config)
    randomize(twin, seed=1)
    model = VisionTransformer(config).eval()
    model.load_state_dict(twin.state_dict())  # the names are timm's
    images = torch.randn(3, config.in_chans, config.image_size, config.image_size)
    with torch.inference_mode():
        logits = model(images)
        torch.testing.assert_close(logits, twin(images), rtol=1e-5, atol=1e-5)
        other = torchvision_twin(config, model.state_dict())
        torch.testing.assert_close(logits, other(images), rtol=1e-5, atol=1e-5)
    assert logits.std() > 1e-2  # equal, and not because nothing happened


def test_gradients_equal_timm_although_the_last_block_reads_only_cls():
    config = ViTConfig(image_size=8, patch_size=2, embed_dim=24, depth=3, num_heads=4)
    twin = timm_twin(config).train()
    randomize(twin, seed=2)
    model = VisionTransformer(config)
    model.load_state_dict(twin.state_dict())
    images, labels = torch.randn(5, 3, 8, 8), torch.randint(10, (5,))
    for each in (model, twin):
        F.cross_entropy(each(images), labels).backward()
    theirs = dict(twin.named_parameters())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(
            parameter.grad,
            theirs[name].grad,
            rtol=1e-4,
            atol=1e-5,
            msg=lambda m, n=name: f"{n}: {m}",
        )


def test_fused_attention_is_the_same_and_steps_aside_for_a_recorder(monkeypatch):
    """On a CPU, which has the kernel too; the model itself asks for it on a GPU only."""
    model = VisionTransformer(ViTConfig(depth=2)).eval()
    images = torch.randn(2, 3, 32, 32)
    plain = model(images)
    calls = 0
    kernel = F.scaled_dot_product_attention

    def fused(*qkv):
        nonlocal calls
        calls += 1
        return kernel(*qkv)

    monkeypatch.setattr(F, "scaled_dot_product_attention", fused)
    monkeypatch.setattr(vit.model, "is_fused", lambda x: not is_recording())
    torch.testing.assert_close(model(images), plain, atol=1e-5, rtol=0)
    assert calls == 2
    with record() as trace:
        torch.testing.assert_close(model(images), plain, atol=1e-5, rtol=0)
    assert calls == 2
    torch.testing.assert_close(trace["blocks.1.attn.pattern"].sum(-1), torch.ones(2, 4, 65))


def test_flatten_and_linear_is_the_convolution():
    model = VisionTransformer(ViTConfig())
    randomize(model, seed=3)
    images = torch.randn(2, 3, 32, 32)
    convolved = model.patch_embed.proj(images).flatten(2).mT
    torch.testing.assert_close(model.patch_embed(images), convolved, rtol=1e-5, atol=1e-5)


def test_patches_are_in_reading_order():
    image = torch.arange(16.0).reshape(1, 1, 4, 4)
    patches = cut_patches(image, 2)[0, :, 0]
    assert patches[1].tolist() == [[2, 3], [6, 7]]
    assert patches[2].tolist() == [[8, 9], [12, 13]]


def test_keeping_every_patch_in_another_order_changes_nothing():
    model = VisionTransformer(ViTConfig()).eval()
    images = torch.randn(2, 3, 32, 32)
    shuffled = torch.stack([torch.randperm(64), torch.randperm(64)])
    torch.testing.assert_close(model(images, kept=shuffled), model(images), rtol=1e-5, atol=1e-5)


def test_dropped_patches_have_no_say():
    model = VisionTransformer(ViTConfig()).eval()
    images = torch.randn(1, 3, 32, 32)
    kept = torch.arange(32)[None]  # the upper half
    changed = images.clone()
    changed[:, :, 16:] = 0
    assert torch.equal(model(images, kept), model(changed, kept))
    assert not torch.allclose(model(images, kept), model(images))


@pytest.mark.parametrize("shape", [(1, 3, 28, 28), (1, 1, 32, 32), (3, 32, 32)])
def test_pictures_of_another_shape_are_refused_with_the_right_one(shape):
    with pytest.raises(ValueError, match=r"\(B, 3, 32, 32\)"):
        VisionTransformer(ViTConfig())(torch.zeros(shape))


def test_system_b_scale_of_a_fresh_model():
    """A fresh model knows nothing: its loss is close to ln 10 whatever it is shown."""
    torch.manual_seed(0)
    logits = VisionTransformer(SYSTEM_B)(torch.randn(64, 3, 32, 32))
    loss = F.cross_entropy(logits, torch.randint(10, (64,)))
    assert abs(loss.item() - 2.3026) < 0.1
