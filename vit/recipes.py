"""Named recipes: a model, how it is trained, and on what.

``RECIPES[name]()`` returns one. The three reference systems are public write-ups of small ViTs;
what they leave unsaid is filled in from system C and said here.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from vit.config import ViTConfig


@dataclass(frozen=True)
class Recipe:
    """One training run, but for its seed.

    Lengths are in epochs over the training part (the training split less ``validation``
    pictures). With ``optimizer="muon"`` the matrices inside the blocks take Muon steps of
    ``muon_learning_rate`` and everything else AdamW steps of ``learning_rate``. With
    ``bfloat16`` the matrix products run in bfloat16 where the hardware has units for it.
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
    keep: Literal["best", "last"] = "best"  # the weights of the best validation epoch, or the last
    test_every_epoch: bool = True  # else the test split is read once, at the end

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


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
