"""How long a run will take here, and what it needs: ``python -m vit.estimate SETTINGS.json``.

A few real training steps are timed, on random pictures; the rest is arithmetic. The command line
runs at the low priority of the trainers that the app starts, so as to say how long *they* take.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from vit import train
from vit.allocator import keep_freed_memory
from vit.evaluate import BATCH, choose_device, predict_logits
from vit.model import VisionTransformer, count_parameters
from vit.products import fast_products, has_bfloat16_units
from vit.runs import RunError
from vit.settings import Recipe, read_settings

NICENESS = 10  # of training in the background: pages go first
ENOUGH = 9  # timed steps, if they take no time worth speaking of


@dataclass(frozen=True)
class Estimate:
    """What a run needs.

    Attributes:
        parameters: numbers to learn.
        tokens: of one picture, [CLS] included.
        steps: in the whole run.
        seconds_per_step: on the whole; steps that leave patches out take less, the others more.
        seconds: the whole run, with its looks at the validation and test pictures.
        memory_bytes: a rough lower bound; see :func:`memory_bytes`.
    """

    parameters: int
    tokens: int
    steps: int
    seconds_per_step: float
    seconds: float
    memory_bytes: int


def estimate(
    recipe: Recipe, pictures: int, seconds: float = 2.0, device: torch.device | None = None
) -> Estimate:
    """Time training by ``recipe`` for about ``seconds``. On a GPU the model is not compiled for
    that, so training is somewhat faster there.

    Args:
        pictures: how many are learned from in an epoch, those set aside not counted. How many the
            validation and test parts have is guessed from that.

    Raises:
        RunError: if no batch can be cut from so few pictures.
    """
    device = device or choose_device("auto")
    steps_per_epoch = pictures // recipe.batch_size
    if steps_per_epoch < 1:
        raise RunError(
            f"A batch of {recipe.batch_size:,} cannot be cut from {pictures:,} pictures. Choose a "
            f"smaller batch."
        )
    steps = recipe.epochs * steps_per_epoch
    split = pictures / recipe.share
    looks_at_val = recipe.epochs + len(train.snapshot_epochs(recipe.epochs)) + 1  # see finish()
    looks_at_test = 1 + (recipe.epochs if recipe.test_every_epoch else 0)
    looked_at = looks_at_val * min(recipe.validation, split / 9) + looks_at_test * split / 5

    model, optimizers = train.build(recipe, 0, device)
    train.set_learning_rates(optimizers, 0.0)  # what is learned from noise is not wanted
    data = _noise(recipe, device)
    low_precision = recipe.bfloat16 and has_bfloat16_units(device)
    few = recipe.kept_patches_until if recipe.kept_patches < 1 else 0.0
    phases = [
        (share, replace(recipe, kept_patches_until=until))
        for share, until in ((1 - few, 0.0), (few, 1.0))
        if share
    ]
    each = 0.0
    with nullcontext() if low_precision else fast_products(device):
        for share, phase in phases:

            def step(size: int, phase: Recipe = phase) -> None:
                generator = torch.Generator().manual_seed(0)
                batch = torch.arange(size)
                x, _, targets, kept = train.augmented(phase, data, batch, 1, 0, 1, generator, 0)
                logits, norm = train.take_step(
                    phase, model, model, optimizers, x, targets, kept, low_precision
                )
                norm.item()  # waits for a GPU

            each += share * time_step(step, recipe.batch_size, seconds / len(phases))
        looks = max(1, min(BATCH, int(seconds * recipe.batch_size / each)))
        shown = data.train.images[:looks]
        times = [_time(predict_logits, model, shown, data.mean, data.std) for _ in range(2)]
    return Estimate(
        parameters=count_parameters(model),
        tokens=recipe.model.num_tokens,
        steps=steps,
        seconds_per_step=each,
        seconds=steps * each + looked_at * min(times) / looks,
        memory_bytes=memory_bytes(recipe, pictures),
    )


def time_step(step: Callable[[int], object], size: int, seconds: float) -> float:
    """How many seconds ``step(size)`` takes, found out in about ``seconds``.

    The size is doubled from 2 while that is quick. Where it does not reach ``size``, the times of
    the last and of its half are continued in a straight line, no steeper than as many times as
    there are such batches in it.
    """
    started = time.perf_counter()
    tried = min(2, size)
    step(tried)  # the first step of a process loads and sets up a lot
    while tried < size and min(_time(step, tried) for _ in range(2)) < seconds / 4:
        tried = min(2 * tried, size)
    times: list[float] = []
    halves: list[float] = []
    while len(times) < 3 or (len(times) < ENOUGH and time.perf_counter() - started < seconds):
        times.append(_time(step, tried))
        if tried < size:
            halves.append(_time(step, tried // 2))
    whole = statistics.median(times)
    if tried == size:
        return whole
    each = (whole - statistics.median(halves)) / (tried - tried // 2)
    return whole + min(max(each, 0.0), whole / tried) * (size - tried)


def memory_bytes(recipe: Recipe, pictures: int = 0) -> int:
    """About how much memory training takes beside PyTorch itself, at least, in float32: weights,
    gradients, two moments, the activations that the backward pass needs, and the data set."""
    config = recipe.model
    tokens, width = config.num_tokens, config.embed_dim
    scores = 2 * config.num_heads * tokens**2
    each = config.depth * (tokens * (10 * width + 2 * config.mlp_dim) + scores)
    with torch.device("meta"):
        model = VisionTransformer(config)
    decoded = pictures * config.in_chans * config.image_size**2
    return 16 * count_parameters(model) + 4 * recipe.batch_size * each + decoded


def _noise(recipe: Recipe, device: torch.device) -> train.Parts:
    """Random pictures, a batch of them, in place of a data set."""
    config, size = recipe.model, max(recipe.batch_size, BATCH)
    draw = torch.Generator().manual_seed(0)
    shape = (size, config.in_chans, config.image_size, config.image_size)
    images = torch.randint(256, shape, dtype=torch.uint8, generator=draw).to(device)
    labels = torch.randint(config.num_classes, (size,), generator=draw).to(device)
    part = train.Part(images, labels)
    middle = (0.5,) * config.in_chans
    return train.Parts(part, part, part, middle, middle, (), {})


def _time(work: Callable[..., object], *given: Any) -> float:
    started = time.perf_counter()
    work(*given)
    return time.perf_counter() - started


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns its exit code."""
    parser = argparse.ArgumentParser(
        "python -m vit.estimate", description="Say how long a training run will take here."
    )
    parser.add_argument(
        "settings",
        metavar="SETTINGS.json",
        type=Path,
        help="a recipe's settings, or a run's config.json",
    )
    parser.add_argument("--pictures", type=int, required=True, help="learned from in an epoch")
    parser.add_argument("--seconds", type=float, default=2.0, help="to measure; default: 2")
    given = parser.parse_args(arguments)
    keep_freed_memory()
    try:
        recipe, _ = read_settings(given.settings)
        found = estimate(recipe, given.pictures, given.seconds)
    except Exception as error:
        if not isinstance(error, ValueError) and not train.is_out_of_memory(error):
            raise
        print(f"error: {train.explain(error)}", file=sys.stderr)
        return 2
    print(json.dumps(asdict(found)))
    return 0


if __name__ == "__main__":
    os.nice(max(0, NICENESS - os.nice(0)))
    sys.exit(main())
