"""Where the shapes change: a forward pass, watched.

Nothing here is a formula for a shape, a parameter count or a source line. The model runs under
``record()``; every hook point gives a step, and what happened between two of them gives its
parameters, its multiply-adds and the line that did the work. A model that only might be is built
on PyTorch's meta device, whose tensors have shapes but no numbers, so that any size is traced at
once.
"""

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import prod
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from vit import model as source
from vit.config import ViTConfig
from vit.hooks import HookPoint, record
from vit.model import VisionTransformer

LEGEND = {
    "B": "pictures",
    "C": "channels",
    "S": "side of the picture",
    "P": "side of a patch",
    "n": "patches",
    "N": "tokens: the patches and [CLS]",
    "D": "width of a token",
    "H": "heads",
    "d": "width of a head",
    "M": "hidden width of the MLP",
    "K": "classes",
}

PUBLISHED = {  # the sizes of Dosovitskiy et al., table 1, and Touvron et al. (arXiv 2012.12877)
    "ViT-Ti/16": ViTConfig(224, 16, 3, 1000, embed_dim=192, depth=12, num_heads=3),
    "ViT-S/16": ViTConfig(224, 16, 3, 1000, embed_dim=384, depth=12, num_heads=6),
    "ViT-B/16": ViTConfig(224, 16, 3, 1000, embed_dim=768, depth=12, num_heads=12),
}

HAPPENED = {
    "images": "The pictures, resized and normalised.",
    "patch_embed.patches": "Each picture is cut into squares, in reading order.",
    "patch_embed.flattened": "Each square's numbers are laid in one row.",
    "patch_embed.projected": "One linear layer, the same for every patch, makes each row a token.",
    "cls_prepended": "The learned [CLS] token goes in front.",
    "pos_added": "Every token is given the learned vector of its place.",
    "resid_pre": "What the block receives.",
    "norm1": "Each token brought to mean 0 and deviation 1, then scaled and shifted.",
    "attn.q, attn.k, attn.v": "All tokens ask, offer and answer: three projections, in heads.",
    "attn.attn_scores": "Every query meets every key: a dot product, over √d.",
    "attn.pattern": "Softmax over the keys: each row sums to 1.",
    "attn.z": "Every token's mixture of the values, head by head.",
    "attn_out": "The heads laid side by side and projected.",
    "resid_mid": "Added to what the block received.",
    "norm2": "Each token normalised again.",
    "mlp.hidden": "Each token alone: widened by a linear layer, bent by GELU.",
    "mlp_out": "A second linear layer brings it back to the width.",
    "resid_post": "Added again: what the block hands on.",
    "normalized": "The final LayerNorm, on every token.",
    "cls_out": "[CLS] alone goes on: nothing reads the patches any more.",
    "logits": "One linear layer: one score for each class.",
}


@dataclass(frozen=True)
class SourceLine:
    """A statement of the package: file, the line it starts on, and its text on one line."""

    file: str
    number: int
    text: str


@dataclass(frozen=True)
class Step:
    """One recorded tensor, or several of one shape that one statement makes (q, k and v).

    ``parameters`` are those first used on the way here, ``multiply_adds`` those of the linear
    layers and of attention's two matrix products; sums, norms, softmax and GELU are not counted,
    as is usual.
    """

    names: tuple[str, ...]
    symbols: tuple[str, ...]
    shape: tuple[int, ...]
    parameters: int
    multiply_adds: int
    line: SourceLine

    @property
    def block(self) -> int | None:
        """The block it lies in; None before the first and after the last."""
        parts = self.names[0].split(".")
        return int(parts[1]) if parts[0] == "blocks" else None

    @property
    def label(self) -> str:
        """Its names, without the block's."""
        start = 0 if self.block is None else len(f"blocks.{self.block}.")
        return ", ".join(name[start:] for name in self.names)

    @property
    def happened(self) -> str:
        return HAPPENED[self.label]

    @property
    def tokens(self) -> int | None:
        """Tokens (or patches) of each picture; 1 once only [CLS] is left; None before the cut."""
        if self.symbols == ("B", "D"):
            return 1
        return next(
            (n for s, n in zip(self.symbols, self.shape, strict=True) if s in ("n", "N")), None
        )

    @property
    def numbers_per_token(self) -> int | None:
        """How many numbers each token holds; None before the cut and after the last token."""
        if self.tokens is None:
            return None
        return prod(self.shape) // (self.shape[0] * self.tokens)


@dataclass(frozen=True)
class Turn:
    """A step outside the blocks where the number of tokens, or of numbers in one, changes."""

    step: Step
    what: str
    before: int
    after: int


@dataclass(frozen=True)
class ShapeTrace:
    """All steps of one forward pass of ``batch`` pictures, in order."""

    config: ViTConfig
    batch: int
    steps: tuple[Step, ...]
    multiply_adds_unrecorded: int

    @property
    def parameters(self) -> int:
        return sum(step.parameters for step in self.steps)

    @property
    def multiply_adds(self) -> int:
        """With every token carried to the end, as when recording."""
        return sum(step.multiply_adds for step in self.steps)

    @property
    def skipped(self) -> int:
        """Multiply-adds that the model leaves out when nobody records."""
        return self.multiply_adds - self.multiply_adds_unrecorded

    def for_batch(self, batch: int) -> "ShapeTrace":
        """The same pass with another number of pictures: each step's first length is theirs."""
        steps = tuple(
            replace(
                step,
                shape=(batch, *step.shape[1:]),
                multiply_adds=step.multiply_adds // self.batch * batch,
            )
            for step in self.steps
        )
        return ShapeTrace(
            self.config, batch, steps, self.multiply_adds_unrecorded // self.batch * batch
        )

    @property
    def before(self) -> tuple[Step, ...]:
        """The steps up to the first block."""
        first = next(i for i, step in enumerate(self.steps) if step.block is not None)
        return self.steps[:first]

    @property
    def after(self) -> tuple[Step, ...]:
        """The steps behind the last block."""
        return self.steps[len(self.before) + sum(s.block is not None for s in self.steps) :]

    def block(self, index: int) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.block == index)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Where the shape of the stream of tokens changes, found by comparing its steps."""
        found = []
        stream = [s for s in self.steps if s.block is None or s.label.startswith("resid_")]
        for last, step in zip(stream, stream[1:], strict=False):
            if last.tokens is None or step.tokens is None:
                continue
            if step.tokens != last.tokens:
                found.append(Turn(step, "tokens", last.tokens, step.tokens))
            # Compared by symbol: a patch may happen to hold as many numbers as a token is wide.
            flat = last.symbols[:2] == step.symbols[:2] == ("B", "n") and len(last.symbols) == 3
            if flat and last.symbols[2] != step.symbols[2]:
                before, after = last.numbers_per_token, step.numbers_per_token
                assert before is not None and after is not None
                found.append(Turn(step, "numbers per token", before, after))
        return tuple(found)


def trace_shapes(model: VisionTransformer, images: Tensor) -> ShapeTrace:
    """The steps of the forward pass of ``images`` (B, C, S, S) through ``model``.

    Runs the model twice: recorded, and as it runs when nobody looks.
    """
    letters = _letters()
    with torch.inference_mode():
        steps = _watch(model, images)
        with _Watcher(model) as idle:
            model(images)
    return ShapeTrace(
        model.config,
        len(images),
        tuple(
            Step(
                tuple(seen.names),
                letters[_in_first_block(seen.names[0])],
                seen.shape,
                seen.parameters,
                seen.multiply_adds,
                seen.line,
            )
            for seen in steps
        ),
        idle.multiply_adds,
    )


@lru_cache(maxsize=128)
def trace_config(config: ViTConfig, batch: int = 1) -> ShapeTrace:
    """The same for a model that does not exist: no weight is allocated, nothing is computed."""
    with torch.device("meta"):
        return trace_shapes(VisionTransformer(config), _pictures(config, batch))


def _pictures(config: ViTConfig, batch: int) -> Tensor:
    return torch.zeros(batch, config.in_chans, config.image_size, config.image_size)


def _in_first_block(name: str) -> str:
    head, *rest = name.split(".")
    return ".".join(["blocks.0", *rest[1:]]) if head == "blocks" else name


@lru_cache(maxsize=1)
def _letters() -> dict[str, tuple[str, ...]]:
    """The letters of each step's shape, read off a model in which no two lengths are the same."""
    batch, config = 2, ViTConfig(77, 7, 5, 17, embed_dim=39, depth=1, num_heads=3)
    lengths = {
        batch: "B",
        config.in_chans: "C",
        config.image_size: "S",
        config.patch_size: "P",
        config.num_patches: "n",
        config.num_tokens: "N",
        config.patch_dim: "C·P·P",
        config.embed_dim: "D",
        config.num_heads: "H",
        config.head_dim: "d",
        config.mlp_dim: "M",
        config.num_classes: "K",
    }
    assert len(lengths) == 12, "two lengths are the same"
    with torch.device("cpu"):
        steps = _watch(VisionTransformer(config), _pictures(config, batch))
    return {seen.names[0]: tuple(lengths[length] for length in seen.shape) for seen in steps}


@dataclass
class _Seen:
    names: list[str]
    shape: tuple[int, ...]
    parameters: int
    multiply_adds: int
    line: SourceLine


def _watch(model: VisionTransformer, images: Tensor) -> list[_Seen]:
    watcher = _Watcher(model)
    watcher.begin(images)
    with watcher, record(edits=dict(watcher.hooks())):
        model(images)
    return watcher.steps


class _Watcher(TorchFunctionMode):
    """Sees every PyTorch call of a forward pass, and every hook point that it passes."""

    def __init__(self, model: VisionTransformer) -> None:
        super().__init__()
        self.model = model
        self.multiply_adds = 0
        self.steps: list[_Seen] = []
        self._names = {id(parameter): name for name, parameter in model.named_parameters()}
        self._sizes = {id(parameter): parameter.numel() for parameter in model.parameters()}
        self._new = 0  # parameters first used since the last step
        self._counted = 0  # multiply-adds up to the last step
        self._worked: int | None = None  # the line that did the step's work
        self._still = False  # nothing was computed since the last step
        self._visited = -1  # the line of the last hook point
        self._normed: Tensor | None = None  # a LayerNorm's output, until a hook point names it

    def hooks(self) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
        """An edit for every hook point that looks and changes nothing."""
        for name, module in self.model.named_modules():
            if isinstance(module, HookPoint):
                yield name, partial(self._visit, name)

    def begin(self, images: Tensor) -> None:
        lines, first = inspect.getsourcelines(VisionTransformer.forward)
        line = SourceLine(_file(), first, lines[0].strip())
        self.steps.append(_Seen(["images"], tuple(images.shape), 0, 0, line))

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func.__name__ == "__get__":  # an attribute read computes nothing
            return result
        self._still = False
        self._normed = None
        for argument in (*args, *kwargs.values()):
            self._new += self._sizes.pop(id(argument), 0)
        if func is F.linear:
            self._work(args[0].numel() * args[1].shape[0])
        elif func in (torch.Tensor.matmul, torch.Tensor.__matmul__):
            self._work(result.numel() * args[0].shape[-1])
        elif func is F.layer_norm:
            self._work(0)
            self._add(self._names[id(kwargs["weight"])].removesuffix(".weight"), result)
            self._normed = result
        return result

    def _work(self, multiply_adds: int) -> None:
        self.multiply_adds += multiply_adds
        self._worked = _line_in_model()

    def _visit(self, name: str, value: Tensor) -> Tensor:
        line = _line_in_model()
        if value is self._normed:  # this hook point names the LayerNorm that just ran
            self.steps[-1].names = [name]
        elif self._still and line == self._visited:
            self.steps[-1].names.append(name)
        else:
            self._add(name, value)
        self._still, self._visited, self._normed = True, line, None
        return value

    def _add(self, name: str, value: Tensor) -> None:
        line = _statement(self._worked or _line_in_model())
        self.steps.append(
            _Seen([name], tuple(value.shape), self._new, self.multiply_adds - self._counted, line)
        )
        self._new, self._counted, self._worked = 0, self.multiply_adds, None


def _line_in_model() -> int:
    """The line of ``model.py`` that is being executed, seen from a call below it."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename != source.__file__:
        assert frame.f_back is not None, "called from outside the model"
        frame = frame.f_back
    return frame.f_lineno


def _file() -> str:
    path = Path(source.__file__)
    return f"{path.parent.name}/{path.name}"


@lru_cache(maxsize=1)
def _statements() -> tuple[str, list[tuple[int, int]]]:
    """The text of ``model.py``, and the first and last line of each of its statements."""
    text = inspect.getsource(source)
    nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt))
    return text, [(node.lineno, node.end_lineno or node.lineno) for node in nodes]


def _statement(line: int) -> SourceLine:
    """The shortest statement that covers a line of ``model.py``."""
    text, spans = _statements()
    around = [(first, last) for first, last in spans if first <= line <= last]
    first, last = min(around, key=lambda span: span[1] - span[0])
    words = " ".join(text.splitlines()[first - 1 : last]).split("  #")[0].split()
    tidy = " ".join(words).replace("( ", "(").replace(" )", ")")
    return SourceLine(_file(), first, tidy)
