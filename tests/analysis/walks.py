"""Recorded walks for the tests: random models of several kinds, and the shipped runs."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from vit import VisionTransformer, ViTConfig, load_run, record
from vit.hooks import Trace

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = {
    "usual": ViTConfig(16, 4, 3, 10, 24, 3, 4),
    "one layer, one channel, two classes": ViTConfig(6, 3, 1, 2, 8, 1, 2),
    "no bias, one head, a hundred classes": ViTConfig(8, 2, 3, 100, 10, 2, 1, qkv_bias=False),
}
WALKS = [*CONFIGS, "cifar10", "digits"]


@dataclass(frozen=True)
class Walked:
    """A model, its input (1, C, S, S), the trace and the logits (K,)."""

    model: VisionTransformer
    x: Tensor
    trace: Trace
    logits: Tensor


def walked(kind: str) -> Walked:
    """One of WALKS, with a random picture."""
    generator = torch.Generator().manual_seed(len(kind))
    if kind in CONFIGS:
        model = VisionTransformer(CONFIGS[kind]).eval().requires_grad_(False)
        for parameter in model.parameters():
            parameter.normal_(0, 0.5, generator=generator)
    else:
        model = load_run(ROOT / "checkpoints" / kind).model
    config = model.config
    x = torch.randn(1, config.in_chans, config.image_size, config.image_size, generator=generator)
    with torch.inference_mode(), record() as trace:
        logits = model(x)[0]
    return Walked(model, x, trace, logits)
