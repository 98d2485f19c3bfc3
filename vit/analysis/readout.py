"""Reading classes off tokens: the final norm and the head, at every layer and for every token.

The logit lens (nostalgebraist, "interpreting GPT: the logit lens", LessWrong 2020) asks what the
model would say if it stopped here. For ViTs, and for patch tokens too: Vilas et al., "Analyzing
Vision Transformers for Image Classification in Class Embedding Space" (arXiv 2310.18969). Of a
batch, the first picture is read.

Shapes: L layers, N tokens ([CLS] first), n patches, D width, K classes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from vit.analysis.attention import depth
from vit.hooks import Trace
from vit.model import VisionTransformer


def lens(model: VisionTransformer, tokens: Tensor) -> Tensor:
    """(…, D) → (…, K) logits: what the model's last two steps make of any token."""
    return model.head(model.norm(tokens))


def residuals(trace: Trace) -> list[Tensor]:
    """L + 1 tensors (1, N, D): the tokens before the first layer and after each one."""
    after = [trace[f"blocks.{i}.resid_post"][:1] for i in range(depth(trace))]
    return [trace["pos_added"][:1], *after]


def cls_by_layer(model: VisionTransformer, trace: Trace) -> Tensor:
    """(L + 1, K) logits of [CLS] before the first layer and after each; the last are the model's
    own, since there the lens is what the model does."""
    return torch.cat([lens(model, tokens[:, 0]) for tokens in residuals(trace)])


def patches_by_layer(model: VisionTransformer, trace: Trace) -> Tensor:
    """(L + 1, n, K) logits of every patch, through the same lens. The model was never trained to
    answer from them."""
    return torch.cat([lens(model, tokens[:, 1:]) for tokens in residuals(trace)])


def patch_mean(model: VisionTransformer, trace: Trace) -> Tensor:
    """(K,) logits that the head gives for the patches' mean after the final norm: what pooling
    would read in place of [CLS]. The model was never trained to answer from it either."""
    return model.head(trace["normalized"][0, 1:].mean(0))


@dataclass(frozen=True)
class Score:
    """A class's logit, opened: cls_out · weights + bias, in double precision.

    Attributes:
        cls, weights: (D,), what [CLS] holds and what the head looks for.
        products: (D,), the dot product term by term; ``dot`` is their sum.
        logit: dot + bias; ``error`` is its difference from the recorded one.
    """

    cls: Tensor
    weights: Tensor
    products: Tensor
    dot: float
    bias: float
    logit: float
    error: float


def open_logit(model: VisionTransformer, trace: Trace, index: int) -> Score:
    """Work out the logit of class ``index`` (the paper's eq. 4 and the linear head after it)."""
    cls = trace["cls_out"][0].double()
    weights = model.head.weight[index].double()
    bias = model.head.bias[index].item()
    products = cls * weights
    dot = products.sum().item()
    error = abs(dot + bias - trace["logits"][0, index].item())
    return Score(cls, weights, products, dot, bias, dot + bias, error)


def settled_after(by_layer: Tensor) -> int:
    """After how many layers the most likely class is the final one and stays it.

    Args:
        by_layer: (L + 1, K), as from :func:`cls_by_layer`.

    Returns:
        0 (before the first layer) to L.
    """
    tops = by_layer.argmax(-1)
    others = (tops != tops[-1]).nonzero()
    return int(others[-1]) + 1 if len(others) else 0
