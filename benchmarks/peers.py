"""The same model from three other libraries, with our weights in it wherever it is the same.

timm's and torchvision's Vision Transformers are the same function as ours, in other code;
:func:`differences` proves it before anything is timed. vit-pytorch's is of the same size and as
near as its options go, but not the same: it has no bias for q, k and v, and it normalises patches
before and after projecting them (13 LayerNorms become 15).
"""

from collections.abc import Mapping
from functools import partial

import timm
import torch
import torch.nn.functional as F
import torchvision.models
import vit_pytorch
from torch import Tensor, nn

from vit import VisionTransformer, ViTConfig

SAME = 1e-5  # the largest difference of a loss, logit or gradient that rounding explains

# What torchvision calls a parameter, in pieces, and what we call it.
TORCHVISION_NAMES = {
    "class_token": "cls_token",
    "conv_proj.": "patch_embed.proj.",
    "encoder.pos_embedding": "pos_embed",
    "encoder.ln.": "norm.",
    "encoder.layers.encoder_layer_": "blocks.",
    ".ln_1.": ".norm1.",
    ".ln_2.": ".norm2.",
    ".self_attention.in_proj_": ".attn.qkv.",
    ".self_attention.out_proj.": ".attn.proj.",
    ".mlp.0.": ".mlp.fc1.",
    ".mlp.3.": ".mlp.fc2.",
    "heads.head.": "head.",
}


def our_name(name: str) -> str:
    """What we call a parameter that timm (which has our names) or torchvision calls ``name``."""
    for theirs, ours in TORCHVISION_NAMES.items():
        name = name.replace(theirs, ours)
    return name


def timm_twin(model: VisionTransformer, fused: bool = True) -> nn.Module:
    """timm's model with our weights; ``fused`` leaves attention to PyTorch's one kernel, as timm
    does unless told otherwise."""
    config = model.config
    before = timm.layers.use_fused_attn()
    timm.layers.set_fused_attn(fused)
    twin = timm.models.VisionTransformer(
        img_size=config.image_size,
        patch_size=config.patch_size,
        in_chans=config.in_chans,
        num_classes=config.num_classes,
        embed_dim=config.embed_dim,
        depth=config.depth,
        num_heads=config.num_heads,
        mlp_ratio=config.mlp_ratio,
        qkv_bias=config.qkv_bias,
        norm_layer=partial(nn.LayerNorm, eps=config.norm_eps),
    )
    timm.layers.set_fused_attn(before)
    twin.load_state_dict(model.state_dict())
    return twin


def torchvision_twin(model: VisionTransformer) -> nn.Module:
    """torchvision's model with our weights. It takes colour pictures only and always has a bias
    for q, k and v."""
    config = model.config
    twin = torchvision.models.VisionTransformer(
        image_size=config.image_size,
        patch_size=config.patch_size,
        num_layers=config.depth,
        num_heads=config.num_heads,
        hidden_dim=config.embed_dim,
        mlp_dim=config.mlp_dim,
        num_classes=config.num_classes,
        norm_layer=partial(nn.LayerNorm, eps=config.norm_eps),
    )
    weights = model.state_dict()
    twin.load_state_dict({name: weights[our_name(name)] for name in twin.state_dict()})
    return twin


def vit_pytorch_relative(config: ViTConfig) -> nn.Module:
    """vit-pytorch's model of the same width, depth and heads, read at [CLS], with weights of its
    own."""
    return vit_pytorch.ViT(
        image_size=config.image_size,
        patch_size=config.patch_size,
        channels=config.in_chans,
        num_classes=config.num_classes,
        dim=config.embed_dim,
        depth=config.depth,
        heads=config.num_heads,
        dim_head=config.head_dim,
        mlp_dim=config.mlp_dim,
        pool="cls",
    )


def all_models(config: ViTConfig, device: torch.device, seed: int = 0) -> dict[str, nn.Module]:
    """Ours and its peers, by the names that the tables show. Every model has weights to itself."""
    torch.manual_seed(seed)
    ours = VisionTransformer(config)
    models = {
        "ours": ours,
        "timm": timm_twin(ours),
        "timm, attention not fused": timm_twin(ours, fused=False),
        "torchvision": torchvision_twin(ours),
        "vit-pytorch": vit_pytorch_relative(config),
    }
    return {name: model.to(device) for name, model in models.items()}


def compiled(models: Mapping[str, nn.Module], device: torch.device) -> dict[str, nn.Module]:
    """The same models through torch.compile, on a GPU; elsewhere none."""
    if device.type != "cuda":
        return {}
    return {f"{name}, compiled": torch.compile(model) for name, model in models.items()}


def twins(models: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    """Those of the peers that must give what ours gives."""
    return {name: models[name] for name in models if name not in ("ours", "vit-pytorch")}


def differences(
    models: Mapping[str, nn.Module], images: Tensor, labels: Tensor
) -> dict[str, float]:
    """The largest difference between ours and each twin, over the loss and every gradient."""

    def measured(model: nn.Module) -> dict[str, Tensor]:
        loss = F.cross_entropy(model(images), labels)
        names, parameters = zip(*model.named_parameters(), strict=True)
        gradients = torch.autograd.grad(loss, parameters)
        return {"loss": loss.detach()} | dict(zip(map(our_name, names), gradients, strict=True))

    ours = measured(models["ours"])
    return {name: largest_gap(ours, measured(twin)) for name, twin in twins(models).items()}


@torch.inference_mode()
def logit_differences(models: Mapping[str, nn.Module], images: Tensor) -> dict[str, float]:
    """The largest difference between a logit of ours and of each twin."""
    ours = models["ours"](images)
    return {name: float((ours - twin(images)).abs().max()) for name, twin in twins(models).items()}


def largest_gap(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> float:
    """The largest absolute difference over tensors of the same names.

    Raises:
        KeyError: if the names differ.
    """
    if ours.keys() != theirs.keys():
        raise KeyError(f"only one of the two has {sorted(ours.keys() ^ theirs.keys())}")
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours)
