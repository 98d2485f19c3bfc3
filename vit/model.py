"""A Vision Transformer, written to be read beside its paper.

Dosovitskiy et al., "An Image is Worth 16x16 Words" (arXiv 2010.11929); equation numbers are theirs.
Parameter names are timm's, so weights move to and from timm unchanged. Every ``HookPoint`` is an
identity that names a tensor for ``vit.record`` (see ``hooks.py``).

Shapes: B images, N tokens ([CLS] and the patches), n patches, C channels, P patch side, D width,
H heads, d width of a head (D = H·d), M width of the MLP.
"""

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit.config import ViTConfig
from vit.hooks import HookPoint, is_recording

EVERY_TOKEN = slice(None)
ONLY_CLS = slice(0, 1)


class PatchEmbed(nn.Module):
    """Cut the picture into squares and project each to a token (eq. 1: x_p E).

    ``proj`` has the weight of a convolution whose kernel and stride are the patch side. Its
    forward is the same sum, spelled out: cut, flatten, one linear layer shared by all patches.
    """

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.patch_size = config.patch_size
        self.proj = nn.Conv2d(
            config.in_chans, config.embed_dim, config.patch_size, stride=config.patch_size
        )
        self.patches = HookPoint()
        self.flattened = HookPoint()
        self.projected = HookPoint()

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patches(cut_patches(images, self.patch_size))  # B n C P P
        flattened = self.flattened(patches.flatten(2))  # B n C·P·P
        return self.projected(
            F.linear(flattened, self.proj.weight.flatten(1), self.proj.bias)
        )  # B n D


def cut_patches(images: Tensor, patch_size: int) -> Tensor:
    """Squares of a picture in reading order, left to right, then down.

    Args:
        images: (B, C, height, width), both sides multiples of ``patch_size``.

    Returns:
        (B, n, C, P, P)
    """
    rows = images.unfold(2, patch_size, patch_size)  # B C height/P width P
    squares = rows.unfold(3, patch_size, patch_size)  # B C height/P width/P P P
    return squares.permute(0, 2, 3, 1, 4, 5).flatten(1, 2)


def is_fused(x: Tensor) -> bool:
    """Whether attention may skip writing its weights down: on a GPU, where one kernel does it all
    faster, and only while nobody records. On a CPU it would be slower for so few tokens."""
    return x.is_cuda and not is_recording()


class Attention(nn.Module):
    """Multi-head self-attention without a mask (eq. 5–8 of the paper's appendix A).

    ``qkv`` holds the three projections stacked, queries first; head h owns the features
    h·d … (h+1)·d of each.
    """

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.scale = config.head_dim**-0.5
        self.qkv = nn.Linear(config.embed_dim, 3 * config.embed_dim, bias=config.qkv_bias)
        self.proj = nn.Linear(config.embed_dim, config.embed_dim)
        self.q = HookPoint()
        self.k = HookPoint()
        self.v = HookPoint()
        self.attn_scores = HookPoint()
        self.pattern = HookPoint()
        self.z = HookPoint()

    def forward(self, x: Tensor, queries: slice = EVERY_TOKEN) -> Tensor:
        """Mix the tokens of each picture.

        Args:
            x: (B, N, D)
            queries: the tokens whose mixture is wanted; keys and values always come from all N.

        Returns:
            (B, number of queries, D)
        """
        width = x.shape[-1]
        if queries == EVERY_TOKEN:
            q, k, v = self.qkv(x).split(width, dim=-1)
        else:
            to_q, to_kv = self.qkv.weight.split((width, 2 * width))
            bias_q, bias_kv = (
                (None, None) if self.qkv.bias is None else self.qkv.bias.split((width, 2 * width))
            )
            q = F.linear(x[:, queries], to_q, bias_q)
            k, v = F.linear(x, to_kv, bias_kv).split(width, dim=-1)
        q, k, v = (self.split_heads(part) for part in (q, k, v))  # each B H N d
        q, k, v = self.q(q), self.k(k), self.v(v)
        if is_fused(x):
            z = F.scaled_dot_product_attention(q, k, v)  # the three lines below in one kernel
        else:
            scores = self.attn_scores(q * self.scale @ k.mT)  # B H N N
            pattern = self.pattern(scores.softmax(dim=-1))  # rows: queries, columns: keys
            z = self.z(pattern @ v)  # B H N d
        return self.proj(self.merge_heads(z))  # B N D

    def split_heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # B N D -> B H N d

    def merge_heads(self, z: Tensor) -> Tensor:
        return z.transpose(1, 2).flatten(2)  # B H N d -> B N D


class MLP(nn.Module):
    """Two linear layers with a GELU between, on each token alone."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.embed_dim, config.mlp_dim)
        self.fc2 = nn.Linear(config.mlp_dim, config.embed_dim)
        self.hidden = HookPoint()

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.hidden(F.gelu(self.fc1(x))))  # B N D -> B N M -> B N D


class Block(nn.Module):
    """Attention, then MLP, each on a normalised copy and added back (pre-norm; eq. 2 and 3)."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.embed_dim, eps=config.norm_eps)
        self.attn = Attention(config)
        self.norm2 = nn.LayerNorm(config.embed_dim, eps=config.norm_eps)
        self.mlp = MLP(config)
        self.resid_pre = HookPoint()
        self.attn_out = HookPoint()
        self.resid_mid = HookPoint()
        self.mlp_out = HookPoint()
        self.resid_post = HookPoint()

    def forward(self, x: Tensor, wanted: slice = EVERY_TOKEN) -> Tensor:
        """(B, N, D) → (B, number of wanted tokens, D)."""
        x = self.resid_pre(x)
        x = self.resid_mid(x[:, wanted] + self.attn_out(self.attn(self.norm1(x), wanted)))
        return self.resid_post(x + self.mlp_out(self.mlp(self.norm2(x))))


class VisionTransformer(nn.Module):
    """The whole model: patches, [CLS], positions, blocks, and a linear head on [CLS] (eq. 1–4)."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        self.patch_embed = PatchEmbed(config)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, config.embed_dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, config.num_tokens, config.embed_dim))
        blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
        self.blocks = cast("Sequence[Block]", blocks)
        self.norm = nn.LayerNorm(config.embed_dim, eps=config.norm_eps)
        self.head = nn.Linear(config.embed_dim, config.num_classes)
        self.cls_prepended = HookPoint()
        self.pos_added = HookPoint()
        self.normalized = HookPoint()
        self.cls_out = HookPoint()
        self.logits = HookPoint()
        for path, module in self.named_modules():
            if isinstance(module, HookPoint):
                module.name = path
        self.apply(_truncated_normal)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)

    def forward(self, images: Tensor, kept: Tensor | None = None) -> Tensor:
        """Class scores for each picture.

        Args:
            images: (B, C, image_size, image_size), normalised.
            kept: (B, m) indices of the patches to go on with, as in training on part of the
                tokens (arXiv 2208.07220); None keeps all.

        Returns:
            (B, num_classes) logits.

        Raises:
            ValueError: if the pictures are not of the model's size and channel count.
        """
        self._check(images)
        patches = self.patch_embed(images)  # B n D
        cls = self.cls_token.expand(len(images), -1, -1)
        x = self.cls_prepended(torch.cat([cls, patches], dim=1))  # B N D
        x = self.pos_added(x + self.pos_embed)
        if kept is not None:
            tokens = F.pad(kept + 1, (1, 0))  # [CLS] is token 0, patch i is token i + 1
            x = x.gather(1, tokens.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
        for block in self.blocks[:-1]:
            x = block(x)
        # The head reads [CLS] alone, so the last block may skip the other tokens' queries, output
        # projection and MLP. A recorder wants to see them, and gets them.
        x = self.blocks[-1](x, EVERY_TOKEN if is_recording() else ONLY_CLS)
        cls_out = self.cls_out(self.normalized(self.norm(x))[:, 0])  # B D
        return self.logits(self.head(cls_out))  # B num_classes

    def _check(self, images: Tensor) -> None:
        size, channels = self.config.image_size, self.config.in_chans
        if images.ndim != 4 or images.shape[1:] != (channels, size, size):
            raise ValueError(
                f"This model takes pictures of shape (B, {channels}, {size}, {size}); "
                f"got {tuple(images.shape)}. Resize them, or build a model of their size."
            )


def _truncated_normal(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Conv2d):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def count_parameters(model: nn.Module) -> int:
    """Learned numbers in a model or a part of one."""
    return sum(parameter.numel() for parameter in model.parameters())
