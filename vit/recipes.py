"""Named recipes: a model, how it is trained, and on what.

``RECIPES[name]()`` returns one; :meth:`Recipe.from_dict` and :func:`read_settings` check settings
that somebody wrote. The three reference systems are public write-ups of small ViTs;
what they leave unsaid is filled in from system C and said here.
"""

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from vit.config import ViTConfig

# From and to which value a setting makes sense, both included.
_BOUNDS: dict[str, tuple[float, float]] = {
    "epochs": (1, 10_000),
    "batch_size": (1, 100_000),
    "share": (0.001, 1),
    "validation": (1, 1_000_000),
    "learning_rate": (1e-9, 100),
    "muon_learning_rate": (1e-9, 100),
    "muon_weight_decay": (0, 100),
    "betas": (0, 0.99999),
    "weight_decay": (0, 100),
    "warmup_epochs": (0, 10_000),
    "label_smoothing": (0, 0.99),
    "clip_norm": (1e-9, 1e9),
    "crop_padding": (0, 1_000),
    "jitter": (0, 1),
    "cutmix": (0, 1),
    "cutmix_until": (0, 1),
    "kept_patches": (0, 1),
    "kept_patches_until": (0, 1),
    "image_size": (1, 1_024),
    "in_chans": (1, 64),
    "num_classes": (1, 100_000),
    "embed_dim": (1, 8_192),
    "depth": (1, 128),
}


@dataclass(frozen=True)
class Recipe:
    """One training run, but for its seed.

    Lengths are in epochs over the training part: of the training split less ``validation``
    pictures, the ``share`` that :func:`vit.holdout.held_out` chooses, the same for every seed; a
    smaller share is a part of a larger one. With ``optimizer="muon"`` the matrices inside the
    blocks take Muon steps of ``muon_learning_rate`` and everything else AdamW steps of
    ``learning_rate``. With ``bfloat16`` the matrix products run in bfloat16 where the hardware
    has units for it.
    """

    name: str
    summary: str
    dataset: str = "cifar10"
    model: ViTConfig = ViTConfig()
    epochs: int = 50
    batch_size: int = 128
    optimizer: Literal["adamw", "muon"] = "adamw"
    learning_rate: float = 3e-4
    muon_learning_rate: float = 0.01
    muon_weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.05
    schedule: Literal["flat", "cosine"] = "cosine"
    warmup_epochs: float = 0.0
    label_smoothing: float = 0.0
    clip_norm: float | None = 1.0
    init: Literal["truncated_normal", "mimetic"] = "truncated_normal"
    crop_padding: int = 4
    padding_mode: Literal["constant", "reflect"] = "constant"
    flip: Literal["none", "random", "alternating"] = "random"
    jitter: float = 0.0  # brightness, contrast and saturation change by up to this share
    cutmix: float = 0.0  # share of the pictures that get a box of another one pasted in …
    cutmix_until: float = 0.0  # … up to this share of all steps
    kept_patches: float = 1.0  # share of the patches that early training goes on with …
    kept_patches_until: float = 0.0  # … up to this share of all steps
    bfloat16: bool = False
    validation: int = 5_000
    share: float = 1.0
    keep: Literal["best", "last"] = "best"  # the weights of the best validation epoch, or the last
    test_every_epoch: bool = True  # else the test split is read once, at the end

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Any) -> "Recipe":
        """The reverse of :meth:`to_dict`, for values that anybody may have written. What is left
        out has its default; ``name`` and ``model`` must be there.

        Raises:
            ValueError: for a setting of an unknown name, a wrong type, or a value without sense.
        """
        if not isinstance(values, dict):
            raise ValueError(f"A recipe is a set of named settings, not {_shown(values)}.")
        hints = get_type_hints(cls)
        if unknown := sorted(str(key) for key in values.keys() - hints.keys()):
            raise ValueError(
                f"Unknown settings: {', '.join(map(_shown, unknown))}. Known are: "
                f"{', '.join(hints)}."
            )
        if missing := [key for key in ("name", "model") if key not in values]:
            raise ValueError(f"The recipe lacks its {' and its '.join(missing)}.")
        if not isinstance(values["model"], dict):
            raise ValueError(
                f"model must be a set of named settings, not {_shown(values['model'])}."
            )
        checked = {
            key: _checked(key, value, hints[key]) for key, value in values.items() if key != "model"
        }
        model = ViTConfig.from_dict(values["model"])
        for key in _BOUNDS.keys() & {field.name for field in fields(model)}:
            _within_bounds(key, getattr(model, key))
        recipe = cls(**{"summary": "", **checked, "model": model})
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}", recipe.name):
            raise ValueError(
                f"name must be letters, digits, dots, hyphens and underscores, at most 80, the "
                f"first a letter or digit; not {_shown(recipe.name)}."
            )
        if recipe.crop_padding >= model.image_size:
            raise ValueError(
                f"crop_padding {recipe.crop_padding} would move all of a picture of "
                f"{model.image_size} pixels out of sight. Use at most {model.image_size - 1}."
            )
        return recipe


def read_settings(file: Path) -> tuple[Recipe, int]:
    """A recipe and a seed from a JSON file: a recipe's settings, or a run's ``config.json`` or
    ``request.json``, which hold them as ``recipe``. The seed is 0 where none is named.

    Raises:
        ValueError: if the file cannot be read, or its settings cannot be used.
    """
    try:
        values = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{file} cannot be read as JSON settings ({error}).") from error
    whole = isinstance(values, dict) and "recipe" in values
    seed = values.get("seed", 0) if whole else 0
    try:
        recipe = Recipe.from_dict(values["recipe"] if whole else values)
        if type(seed) is not int or not 0 <= seed < 2**32:
            raise ValueError(f"seed must be from 0 to {2**32 - 1}, not {_shown(seed)}.")
    except ValueError as error:
        raise ValueError(f"The settings in {file} cannot be used: {error}") from error
    return recipe, seed


def _checked(key: str, value: Any, hint: Any) -> Any:
    """``value`` if it is of the type ``hint`` and makes sense for ``key``."""
    choices = get_args(hint)
    if hint is bool:
        fits, wanted = isinstance(value, bool), "true or false"
    elif hint is str:
        fits = isinstance(value, str) and value.isprintable() and len(value) <= 1_000
        wanted = "text in one line of at most 1,000 characters"
    elif isinstance(choices and choices[0], str):
        fits, wanted = value in choices, " or ".join(map(repr, choices))
    elif hint == tuple[float, float]:
        fits, wanted = isinstance(value, list | tuple) and len(value) == 2, "two numbers"
        if fits:
            return tuple(_checked(key, number, float) for number in value)
    elif hint is int:
        fits, wanted = type(value) is int, "a whole number"
    else:
        fits, wanted = type(value) in (int, float), "a number"
        if value is None and type(None) in choices:
            return None
    if not fits:
        raise ValueError(f"{key} must be {wanted}, not {_shown(value)}.")
    if key in _BOUNDS:
        _within_bounds(key, value)
    return value


def _within_bounds(key: str, value: float) -> None:
    low, high = _BOUNDS[key]
    if not low <= value <= high:  # not a number is neither
        raise ValueError(f"{key} must be from {low:,} to {high:,}, not {_shown(value)}.")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def system_a_flat() -> Recipe:
    """System A's first run. Its write-up leaves the rate unsaid; system C's is used."""
    return Recipe(
        name="system_a_flat",
        summary="System A's first run: 4 blocks, 10 epochs at one learning rate.",
        model=ViTConfig(depth=4),
        epochs=10,
        schedule="flat",
        bfloat16=True,
    )


def system_a_cosine() -> Recipe:
    """System A's second run, at system C's learning rate."""
    return Recipe(
        name="system_a_cosine",
        summary="System A's second run: 40 epochs, three to warm up, then a cosine.",
        model=ViTConfig(depth=4),
        epochs=40,
        warmup_epochs=3,
        label_smoothing=0.1,
        bfloat16=True,
    )


def system_b() -> Recipe:
    """System B's whole training: a smoke test on noise."""
    return Recipe(
        name="system_b",
        summary="System B's smoke test: 200 steps on random pixels; the loss must stay near ln 10.",
        dataset="random_pixels",
        model=ViTConfig(depth=4, qkv_bias=False, norm_eps=1e-5),
        epochs=1,
        batch_size=16,
        learning_rate=1e-3,
        schedule="flat",
        clip_norm=None,
        crop_padding=0,
        flip="none",
        validation=400,
    )


def system_c() -> Recipe:
    """System C as published; two epochs of warm-up are our choice."""
    return Recipe(
        name="system_c",
        summary="System C: 6 blocks, 50 epochs, AdamW, cosine, label smoothing.",
        epochs=50,
        warmup_epochs=2,
        label_smoothing=0.1,
        bfloat16=True,
    )


def sixty_five_short() -> Recipe:
    """Our own, in a fifth of the epochs of system C. docs/recipe.md has what each part gives."""
    return Recipe(
        name="sixty_five_short",
        summary="Our own, short: system C's model in 10 epochs, by Muon and a better start.",
        epochs=10,
        optimizer="muon",
        learning_rate=2e-3,
        betas=(0.9, 0.95),
        warmup_epochs=0.5,
        label_smoothing=0.1,
        clip_norm=None,
        init="mimetic",
        padding_mode="reflect",
        flip="alternating",
        kept_patches=0.5,
        kept_patches_until=0.65,
        bfloat16=True,
        validation=1_000,
        keep="last",
        test_every_epoch=False,
    )


def sixty_five() -> Recipe:
    """What the shipped CIFAR-10 model was trained by: the short recipe for longer, with stronger
    augmentation against learning by heart."""
    return replace(
        sixty_five_short(),
        name="sixty_five",
        summary="Our own: system C's model and its 50 epochs, by Muon, a better start and CutMix.",
        epochs=50,
        jitter=0.2,
        cutmix=0.5,
        cutmix_until=0.88,
    )


def digits() -> Recipe:
    """A model small enough to train while you wait."""
    return Recipe(
        name="digits",
        summary="Handwritten digits of 8 × 8 pixels: a whole run in about a minute on a CPU.",
        dataset="digits",
        model=ViTConfig(image_size=8, patch_size=2, in_chans=1, embed_dim=64, depth=4, num_heads=4),
        epochs=30,
        batch_size=64,
        optimizer="muon",
        learning_rate=1e-3,
        muon_weight_decay=0.0,
        betas=(0.9, 0.95),
        warmup_epochs=1,
        label_smoothing=0.1,
        clip_norm=None,
        init="mimetic",
        crop_padding=1,
        flip="none",
        validation=144,
    )


def debug() -> Recipe:
    """The least that runs every part of training."""
    return replace(
        digits(),
        name="debug",
        summary="Two epochs of a tiny model on digits: does everything run?",
        model=ViTConfig(image_size=8, patch_size=4, in_chans=1, embed_dim=16, depth=2, num_heads=2),
        epochs=2,
    )


RECIPES: dict[str, Callable[[], Recipe]] = {
    recipe.__name__: recipe
    for recipe in (
        system_a_flat,
        system_a_cosine,
        system_b,
        system_c,
        sixty_five,
        sixty_five_short,
        digits,
        debug,
    )
}
