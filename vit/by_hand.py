"""The same mathematics as ``model.py``, slow and literal: every sum a loop or a named step.

The pages open these functions to show where a number comes from, and the tests hold the fast
model against them. One picture at a time; nothing here is meant for training.

Shapes: N tokens, n patches, C channels, P patch side, D width, H heads, d = D / H, M MLP width.
"""

import math

import torch
from torch import Tensor

from vit.model import MLP, Attention, Block, PatchEmbed, VisionTransformer


def cut_patches(image: Tensor, patch_size: int) -> Tensor:
    """(C, height, width) → (n, C, P, P): walk the grid, row by row, and cut out each square."""
    _, height, width = image.shape
    squares = []
    for top in range(0, height, patch_size):
        for left in range(0, width, patch_size):
            squares.append(image[:, top : top + patch_size, left : left + patch_size])
    return torch.stack(squares)


def flatten_patch(patch: Tensor) -> Tensor:
    """(C, P, P) → (C·P·P,): the first channel row by row, then the second, then the third."""
    channels, height, width = patch.shape
    numbers = [
        patch[channel, row, column]
        for channel in range(channels)
        for row in range(height)
        for column in range(width)
    ]
    return torch.stack(numbers)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x (…, in), weight (out, in), bias (out,) → (…, out): one dot product for every output."""
    outputs = []
    for index, row in enumerate(weight):
        dot = (x * row).sum(-1)
        outputs.append(dot if bias is None else dot + bias[index])
    return torch.stack(outputs, dim=-1)


def patch_embed(image: Tensor, layer: PatchEmbed) -> Tensor:
    """(C, S, S) → (n, D): every patch flattened and sent through the same linear layer."""
    weight = layer.proj.weight.flatten(1)  # D C·P·P
    patches = cut_patches(image, layer.patch_size)
    return torch.stack([linear(flatten_patch(patch), weight, layer.proj.bias) for patch in patches])


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """(…, D) → (…, D), each token on its own (Ba et al., arXiv 1607.06450, eq. 3 and 4): take
    away the mean, divide by the deviation, then scale and shift by what was learned."""
    mean = x.sum(-1, keepdim=True) / x.shape[-1]
    variance = ((x - mean) ** 2).sum(-1, keepdim=True) / x.shape[-1]
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias


def softmax(scores: Tensor) -> Tensor:
    """(…, N) → (…, N), positive, each row summing to 1. Taking the row's maximum away first
    changes nothing but keeps exp() from overflowing."""
    exps = torch.exp(scores - scores.max(-1, keepdim=True).values)
    return exps / exps.sum(-1, keepdim=True)


def gelu(x: Tensor) -> Tensor:
    """x · Φ(x), where Φ(x) is the chance that a standard normal falls below x
    (Hendrycks & Gimpel, arXiv 1606.08415)."""
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def attention_head(x: Tensor, layer: Attention, head: int) -> tuple[Tensor, Tensor]:
    """One head on its own.

    Args:
        x: (N, D), already normalised.

    Returns:
        (N, d), each token's mixture of the values, and (N, N), who looked at whom: rows are
        queries, columns keys.
    """
    width = x.shape[-1]
    head_dim = width // layer.num_heads

    def project(which: int) -> Tensor:  # 0: query, 1: key, 2: value
        start = which * width + head * head_dim
        rows = slice(start, start + head_dim)
        bias = None if layer.qkv.bias is None else layer.qkv.bias[rows]
        return linear(x, layer.qkv.weight[rows], bias)

    q, k, v = project(0), project(1), project(2)  # each N d
    scores = torch.stack([torch.stack([(qi * kj).sum() for kj in k]) for qi in q])
    pattern = softmax(scores / math.sqrt(head_dim))
    mixed = [
        torch.stack([weight * value for weight, value in zip(row, v, strict=True)]).sum(0)
        for row in pattern
    ]
    return torch.stack(mixed), pattern


def attention(x: Tensor, layer: Attention) -> Tensor:
    """(N, D) → (N, D): the heads one after the other, laid side by side, and projected."""
    heads = [attention_head(x, layer, head)[0] for head in range(layer.num_heads)]
    return linear(torch.cat(heads, dim=-1), layer.proj.weight, layer.proj.bias)


def mlp(x: Tensor, layer: MLP) -> Tensor:
    """(N, D) → (N, M) → (N, D), each token on its own."""
    hidden = gelu(linear(x, layer.fc1.weight, layer.fc1.bias))
    return linear(hidden, layer.fc2.weight, layer.fc2.bias)


def block(x: Tensor, layer: Block) -> Tensor:
    """(N, D) → (N, D): what attention says is added, then what the MLP says is added."""
    n1, n2 = layer.norm1, layer.norm2
    x = x + attention(layer_norm(x, n1.weight, n1.bias, n1.eps), layer.attn)
    return x + mlp(layer_norm(x, n2.weight, n2.bias, n2.eps), layer.mlp)


def vision_transformer(image: Tensor, model: VisionTransformer) -> Tensor:
    """(C, S, S) → (classes,) logits: the whole walk."""
    patches = patch_embed(image, model.patch_embed)  # n D
    tokens = torch.cat([model.cls_token[0], patches])  # N D, [CLS] first
    x = tokens + model.pos_embed[0]
    for layer in model.blocks:
        x = block(x, layer)
    x = layer_norm(x, model.norm.weight, model.norm.bias, model.norm.eps)
    return linear(x[0], model.head.weight, model.head.bias)  # only [CLS] is read
