"""Everything a training run can be told, and the checking of settings that somebody wrote."""

import json
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from vit.config import ViTConfig

# From and to which value a setting makes sense, both included.
BOUNDS: dict[str, tuple[float, float]] = {
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
        for key in BOUNDS.keys() & {field.name for field in fields(model)}:
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
    if key in BOUNDS:
        _within_bounds(key, value)
    return value


def _within_bounds(key: str, value: float) -> None:
    low, high = BOUNDS[key]
    if not low <= value <= high:  # not a number is neither
        raise ValueError(f"{key} must be from {low:,} to {high:,}, not {_shown(value)}.")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
