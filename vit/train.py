"""Train a model by a recipe: ``python -m vit.train RECIPE``.

One loop, in :func:`train`, that can be read from top to bottom. All chance comes from generators
seeded by (seed, epoch), so a run that was cut off goes on from its last whole epoch exactly as if
nothing had happened, and ``torchrun`` with several processes draws what one process would.
"""

import argparse
import errno
import json
import math
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from tqdm import tqdm

from vit import augment, calibration, claims, runs
from vit.allocator import keep_freed_memory
from vit.data import DataError, Split, channel_stats, load_split
from vit.decoded import Progress
from vit.evaluate import choose_device, measure, predict_logits, score
from vit.holdout import training_part
from vit.init import mimetic_
from vit.model import VisionTransformer, count_parameters
from vit.muon import Muon
from vit.products import fast_products, has_bfloat16_units
from vit.recipes import RECIPES
from vit.runs import RunError
from vit.settings import Recipe, read_settings

CHECK_EVERY = 10  # steps between looks at the loss; each look waits for a GPU
HEARTBEAT = 2.0  # seconds between updates of status.json


class NonFiniteLoss(RuntimeError):
    """The loss became infinite or not a number; the message says at which step."""


def train(
    recipe: Recipe,
    out: Path,
    seed: int = 0,
    data_dir: Path | None = None,
    device: torch.device | None = None,
    resume: bool = False,
) -> None:
    """Train by ``recipe`` into the run directory ``out``.

    Raises:
        RunError: if ``out`` holds another run or is being trained, there is nothing to resume, or
            data, model and batch do not fit each other.
        KeyboardInterrupt: when asked to pause by a file ``pause`` in ``out``. Asked to stop by a
            file ``stop``, it ends the run after the epoch in progress.
        DataError: if the data cannot be had.
        NonFiniteLoss: if training diverges; the run keeps its last whole epoch.
    """
    device = device or choose_device("auto")
    rank, workers = join_workers(device)
    low_precision = recipe.bfloat16 and has_bfloat16_units(device)
    products = nullcontext() if low_precision else fast_products(device)
    with products, Report(out, enabled=rank == 0) as report:
        exists = (out / runs.CONFIG).exists()
        refuse_mixing(out, exists, resume)
        data = load_parts(recipe, data_dir, device, report.progress)
        model, optimizers = build(recipe, seed, device)
        forward = torch.compile(model) if device.type == "cuda" else model

        size = recipe.batch_size
        steps_per_epoch = len(data.train.labels) // size
        if not steps_per_epoch or size % workers:
            raise RunError(
                f"A batch of {size} cannot be cut from {len(data.train.labels)} training pictures "
                f"for {workers} process(es). Choose a smaller batch that their number divides."
            )
        total_steps = recipe.epochs * steps_per_epoch
        mine = slice(rank * size // workers, (rank + 1) * size // workers)
        if workers > 1:
            dist.barrier()  # every process has looked before the first one writes
        config = describe(recipe, seed, data, model, low_precision)
        first_epoch, rows = open_run(out, config, exists, model, optimizers, rank == 0)
        done = (first_epoch - 1) * steps_per_epoch
        report.begin(total_steps, done)
        record = StepRecord(out, size, steps_per_epoch, done, enabled=rank == 0)

        for epoch in range(first_epoch, recipe.epochs + 1):
            if rows and workers == 1 and report.asks(runs.STOP):
                break  # what the epochs so far gave is evaluated and kept
            started = time.perf_counter()
            model.train()
            totals = torch.zeros(3, dtype=torch.float64, device=device)  # loss, right, gradient
            recent = torch.zeros_like(totals)  # the same since the last look
            generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
            order = torch.randperm(len(data.train.labels), generator=generator)
            record.start_clock()
            for index in range(steps_per_epoch):
                if index % CHECK_EVERY == 0 and report.asks(runs.PAUSE):
                    raise KeyboardInterrupt(runs.PAUSE)  # resuming starts this epoch again
                step = (epoch - 1) * steps_per_epoch + index
                batch = order[index * size :][:size]
                x, labels, targets, kept = augmented(
                    recipe, data, batch, epoch, step, total_steps, generator, seed
                )
                x, labels, targets = x[mine], labels[mine], targets[mine]
                kept = None if kept is None else kept[mine]
                set_learning_rates(optimizers, learning_rate_factor(recipe, step, steps_per_epoch))
                logits, norm = take_step(
                    recipe, model, forward, optimizers, x, targets, kept, low_precision, workers
                )
                with torch.no_grad():
                    plain = F.cross_entropy(logits, labels, reduction="sum")
                    right = (logits.argmax(1) == labels).sum()
                    recent += torch.stack([plain, right, norm * len(labels)])
                report.advance(step + 1)
                if (index + 1) % CHECK_EVERY == 0 or index == steps_per_epoch - 1:
                    if workers > 1:
                        dist.all_reduce(recent)
                    if not recent.isfinite().all():
                        raise NonFiniteLoss(
                            f"The loss or its gradient stopped being a finite number around step "
                            f"{step + 1} of {total_steps}. Lower the learning rate, or warm up "
                            f"for longer."
                        )
                    report("running")
                    record.add(step + 1, recent.tolist(), optimizers[-1].param_groups[0]["lr"])
                    totals += recent
                    recent.zero_()

            if rank:
                continue
            seen = steps_per_epoch * size
            train_loss, train_accuracy, grad_norm = (totals / seen).tolist()
            seconds = time.perf_counter() - started
            row: dict[str, Any] = {
                "epoch": epoch,
                "step": epoch * steps_per_epoch,
                "train_loss": train_loss,
                "train_accuracy": train_accuracy,
                **_named("val", measure(model, *data.val, data.mean, data.std)),
                "test_loss": None,
                "test_accuracy": None,
                "learning_rate": optimizers[-1].param_groups[0]["lr"],
                "grad_norm": grad_norm,
                "images_per_second": seen / seconds,
                "seconds": seconds,
            }
            if recipe.test_every_epoch:
                row |= _named("test", measure(model, *data.test, data.mean, data.std))
            weights = model.state_dict()
            claims.check(out)
            if recipe.keep == "last" or _merit(row) > max(map(_merit, rows), default=(-1.0, 0.0)):
                runs.write_weights(out / runs.MODEL, weights, {"epoch": str(epoch)})
            if epoch in snapshot_epochs(recipe.epochs):
                runs.write_snapshot(out, epoch, weights)
            rows.append(row)
            runs.write_metrics(out, rows)
            save_state(out, epoch, model, optimizers)
            report.write(_line(row, recipe.epochs))

        if rank == 0:
            report.tell("Testing what was learned")
            finish(out, rows, data)
            report("finished")


def take_step(
    recipe: Recipe,
    model: VisionTransformer,
    forward: Callable[..., Tensor],
    optimizers: list[torch.optim.Optimizer],
    x: Tensor,
    targets: Tensor,
    kept: Tensor | None,
    low_precision: bool,
    workers: int = 1,
) -> tuple[Tensor, Tensor]:
    """Learn from one batch: forward, loss, backward, update.

    Args:
        forward: the model, or the same compiled.
        x: (B, C, S, S) float32, normalised; targets: (B, classes), each row a distribution.
        kept: (B, patches) indices of those that each picture goes on with, or None for all.

    Returns:
        logits: (B, classes) float32, before the update.
        norm: () of the gradient, before it was clipped.
    """
    with torch.autocast(x.device.type, torch.bfloat16, enabled=low_precision):
        logits = forward(x, kept)
    logits = logits.float()
    loss = F.cross_entropy(logits, targets, label_smoothing=recipe.label_smoothing)
    loss.backward()
    if workers > 1:
        average_gradients(model, workers)
    norm = nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm or math.inf)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return logits, norm


class Part(NamedTuple):
    """Pictures (n, C, S, S) uint8 and labels (n,) int64, all of them on the training device:
    CIFAR-10 takes 150 MB."""

    images: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Parts:
    """The data set as training needs it. Only ``train`` is learned from; ``val`` may choose an
    epoch and fits the temperature; ``test`` only reports."""

    train: Part
    val: Part
    test: Part
    mean: tuple[float, ...]
    std: tuple[float, ...]
    class_names: tuple[str, ...]
    fingerprints: dict[str, str]


def load_parts(
    recipe: Recipe,
    data_dir: Path | None,
    device: torch.device,
    progress: Callable[[str], Progress] | None = None,
) -> Parts:
    """A recipe's data set on a device, with its validation part cut from the training split.

    ``progress`` gives, by the name of some work, what is told how far it has come.

    Raises:
        DataError: if it cannot be had.
        RunError: if the recipe's model is made for other pictures or classes.
    """
    size = recipe.model.image_size
    fetching = progress and progress("Fetching CIFAR-10")
    reading = progress and progress("Reading the pictures")
    training, test = (
        load_split(
            recipe.dataset, part, data_dir, progress=fetching, image_size=size, reading=reading
        )
        for part in ("train", "test")
    )
    needs = recipe.model.num_classes, recipe.model.in_chans, size, size
    if (has := (len(training.class_names), *training.images.shape[1:])) != needs:
        raise RunError(
            f"The model is made for {needs[0]} classes and pictures of "
            f"{' × '.join(map(str, needs[1:]))} numbers, but {recipe.dataset} has {has[0]} "
            f"classes and pictures of {' × '.join(map(str, has[1:]))}. Change the model, or the "
            f"data set."
        )
    chosen, held_out = training_part(training.labels, recipe.validation, recipe.share)

    def part(split: Split, indices: np.ndarray | slice) -> Part:
        return Part(
            torch.from_numpy(np.array(split.images[indices])).to(device),
            torch.from_numpy(np.array(split.labels[indices])).to(device),
        )

    mean, std = channel_stats(training.images)
    return Parts(
        train=part(training, chosen),
        val=part(training, held_out),
        test=part(test, slice(None)),
        mean=mean,
        std=std,
        class_names=training.class_names,
        fingerprints={"train": training.fingerprint, "test": test.fingerprint},
    )


def augmented(
    recipe: Recipe,
    data: Parts,
    batch: Tensor,
    epoch: int,
    step: int,
    total_steps: int,
    generator: torch.Generator,
    seed: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """A batch of training pictures as a step sees them, drawn by the epoch's ``generator``.

    Args:
        batch: (B,) int64, which of the training pictures.

    Returns:
        x: (B, C, S, S) float32, normalised. labels: (B,) int64. targets: (B, classes) float32,
        each row a distribution, before label smoothing. kept: (B, patches) int64, which patches
        each picture goes on with, or None for all.
    """
    drawn = augment.draw(batch, epoch, recipe.crop_padding, recipe.flip, generator, seed)
    images, labels = (tensor[batch.to(tensor.device)] for tensor in data.train)
    device = images.device
    x = augment.crop_and_flip(images, drawn.to(device), recipe.crop_padding, recipe.padding_mode)
    targets = F.one_hot(labels, recipe.model.num_classes).float()
    if recipe.jitter:
        x = augment.jitter_colours(x, recipe.jitter, generator)
    if step < recipe.cutmix_until * total_steps:
        x, targets = augment.cutmix(x, targets, recipe.cutmix, generator)
    kept = None
    if step < recipe.kept_patches_until * total_steps:
        patches = recipe.model.num_patches
        kept = augment.keep_patches(len(batch), patches, recipe.kept_patches, generator).to(device)
    return augment.normalize(x, data.mean, data.std), labels, targets, kept


def build(
    recipe: Recipe, seed: int, device: torch.device
) -> tuple[VisionTransformer, list[torch.optim.Optimizer]]:
    """A recipe's model before its first step, and its optimizers."""
    torch.manual_seed(seed)
    model = VisionTransformer(recipe.model)
    if recipe.init == "mimetic":
        mimetic_(model, torch.Generator().manual_seed(seed))
    model.to(device)
    return model, make_optimizers(model, recipe)


def describe(
    recipe: Recipe, seed: int, data: Parts, model: nn.Module, low_precision: bool
) -> dict[str, Any]:
    """What ``config.json`` says: enough to build the model again, and to train it again."""
    return {
        "format": 1,
        "recipe": recipe.to_dict(),
        "model": recipe.model.to_dict(),
        "class_names": list(data.class_names),
        "mean": data.mean,
        "std": data.std,
        "seed": seed,
        "parameters": count_parameters(model),
        "matrix_products": "bfloat16" if low_precision else "float32",
        "fingerprints": data.fingerprints,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
    }


def make_optimizers(model: VisionTransformer, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """The optimizers of a recipe, AdamW last. Weight decay pulls on matrices only: biases, norms,
    positions and [CLS] have no reason to be small."""
    hidden, stacked, matrices, rest = [], [], [], []
    for name, parameter in model.named_parameters():
        if not name.endswith("weight") or parameter.ndim < 2:
            rest.append(parameter)
        elif recipe.optimizer != "muon" or not name.startswith("blocks."):
            matrices.append(parameter)
        elif name.endswith("attn.qkv.weight"):
            stacked.append(parameter)
        else:
            hidden.append(parameter)
    adamw = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": recipe.weight_decay},
            {"params": rest, "weight_decay": 0.0},
        ],
        lr=recipe.learning_rate,
        betas=recipe.betas,
        fused=True,
    )
    optimizers: list[torch.optim.Optimizer] = [adamw]
    if recipe.optimizer == "muon":
        groups: list[dict[str, Any]] = [{"params": hidden}, {"params": stacked, "stacked": 3}]
        optimizers.insert(
            0, Muon(groups, lr=recipe.muon_learning_rate, weight_decay=recipe.muon_weight_decay)
        )
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak_lr"] = group["lr"]
    return optimizers


def learning_rate_factor(recipe: Recipe, step: int, steps_per_epoch: int) -> float:
    """The share of the peak learning rate at a step: a linear warm-up that does not start at zero,
    then flat or half a cosine down to zero (Loshchilov & Hutter, arXiv 1608.03983)."""
    warmup = round(recipe.warmup_epochs * steps_per_epoch)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if recipe.schedule == "flat":
        return 1.0
    done = (step - warmup) / max(1, recipe.epochs * steps_per_epoch - warmup)
    return 0.5 * (1 + math.cos(math.pi * done))


def set_learning_rates(optimizers: list[torch.optim.Optimizer], factor: float) -> None:
    """Bring every group to its share of its own peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = factor * group["peak_lr"]


def snapshot_epochs(epochs: int, count: int = 12) -> list[int]:
    """About ``count`` epochs worth keeping, from 0 (untrained) to the last, denser at the start,
    where a model changes most."""
    if epochs <= count:
        return list(range(epochs + 1))
    spaced = epochs * np.linspace(0, 1, count) ** 2
    return sorted({0, 1, *(round(epoch) for epoch in spaced)})


def average_gradients(model: nn.Module, workers: int) -> None:
    """Replace every gradient by its mean over the processes, in one message."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    joined = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(joined)
    parts = joined.div_(workers).split([gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))


def join_workers(device: torch.device) -> tuple[int, int]:
    """(rank, processes) under ``torchrun``, (0, 1) otherwise."""
    if "WORLD_SIZE" not in os.environ:
        return 0, 1
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return dist.get_rank(), dist.get_world_size()


def refuse_mixing(out: Path, exists: bool, resume: bool) -> None:
    """See that a run is started where there is none, and resumed where there is one."""
    if exists and not resume:
        raise RunError(
            f"{out} already holds a run. Add --resume to go on with it, or --out for another place."
        )
    if resume and not exists:
        raise RunError(f"There is no run in {out} to resume. Leave --resume out to start one.")


def open_run(
    out: Path,
    config: dict[str, Any],
    exists: bool,
    model: VisionTransformer,
    optimizers: list[torch.optim.Optimizer],
    writes: bool,
) -> tuple[int, list[dict[str, Any]]]:
    """The first epoch to train and the rows of those before it; fills in a resumed run's state."""
    if not exists:
        if writes:
            claims.check(out)
            runs.remove_drafts(out)
            runs.write_snapshot(out, 0, model.state_dict())
            runs.write_json(out / runs.CONFIG, config)
        return 1, []
    if writes:
        runs.remove_drafts(out)
    stored = runs.read_config(out)
    asked = json.loads(json.dumps(config))
    # A setting that the run was started without has the value that leaves things as they were.
    stored["recipe"] = json.loads(json.dumps(Recipe("", "").to_dict())) | stored["recipe"]
    for key in ("recipe", "seed", "fingerprints"):
        if stored.get(key) != asked[key]:
            raise RunError(
                f"The run in {out} was started with another {key.rstrip('s')}; resuming would "
                f"mix two runs. Give the same settings, or --out for another place."
            )
    if not (out / runs.RESUME).exists():
        if len(runs.read_metrics(out)) > 1:  # one row is there before the first state is
            raise RunError(
                f"{out} has lost its {runs.RESUME}, so the run cannot go on where it was. Start "
                f"it again as a new run, in another place."
            )
        return 1, []
    epoch = load_state(out, model, optimizers)
    rows = [row for row in runs.read_metrics(out) if row["epoch"] <= epoch]
    if [row["epoch"] for row in rows] != list(range(1, epoch + 1)):
        raise RunError(
            f"{out / runs.METRICS} lacks some of the {epoch} epochs, so which weights to keep "
            f"cannot be told. Start it again as a new run, in another place."
        )
    return epoch + 1, rows


def save_state(
    out: Path,
    epoch: int,
    model: VisionTransformer,
    optimizers: list[torch.optim.Optimizer],
) -> None:
    """Everything exact resuming needs, after a whole epoch; the seed gives the rest."""
    tensors = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
    tensors |= dict(_optimizer_tensors(optimizers))
    runs.write_weights(out / runs.RESUME, tensors, {"epoch": str(epoch)})


def load_state(
    out: Path,
    model: VisionTransformer,
    optimizers: list[torch.optim.Optimizer],
) -> int:
    """Put a saved state into the model and its optimizers; returns the epoch it was saved after."""
    try:
        with safe_open(out / runs.RESUME, "pt") as file:
            epoch = int(file.metadata()["epoch"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        model.load_state_dict(
            {name[6:]: tensor for name, tensor in tensors.items() if name.startswith("model/")}
        )
        for number, optimizer in enumerate(optimizers):
            state = optimizer.state_dict()
            state["state"] = {}
            for name, tensor in tensors.items():
                kind, *rest = name.split("/")
                if kind == "optimizer" and int(rest[0]) == number:
                    state["state"].setdefault(int(rest[1]), {})[rest[2]] = tensor
            optimizer.load_state_dict(state)
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise RunError(
            f"{out / runs.RESUME} is damaged, so the run cannot go on where it was. "
            f"Start it again as a new run, in another place."
        ) from error
    return epoch


def _optimizer_tensors(
    optimizers: list[torch.optim.Optimizer],
) -> Iterator[tuple[str, Tensor]]:
    for number, optimizer in enumerate(optimizers):
        for index, state in optimizer.state_dict()["state"].items():
            for key, tensor in state.items():
                yield f"optimizer/{number}/{index}/{key}", tensor


def finish(out: Path, rows: list[dict[str, Any]], data: Parts) -> None:
    """Make the probabilities of the kept weights and of every snapshot honest with the validation
    pictures, then read the test split once with the kept weights and note what came of it.

    A temperature (Guo et al., arXiv 1706.04599) changes no answer. It goes into the head's
    weights, so that whoever opens the model has it; the curves stay those of the trained weights.
    """
    calibration.calibrate(out, None, data.val.images, data.val.labels)
    for epoch in runs.list_epochs(out):
        with suppress(RunError):  # a snapshot that is damaged stays so, and costs the run nothing
            calibration.calibrate(out, epoch, data.val.images, data.val.labels)
    run = runs.load_run(out)
    logits = predict_logits(
        run.model.to(data.test.images.device), data.test.images, data.mean, data.std
    )
    labels = data.test.labels
    probabilities = logits.softmax(1).cpu().numpy()
    claims.check(out)
    runs.write_predictions(out, labels.cpu().numpy(), probabilities, data.fingerprints["test"])
    for row in rows:  # a kill can leave weights of an epoch that has no row yet
        if row["epoch"] == run.epoch:
            row |= _named("test", score(logits * run.temperature, labels))
    runs.write_metrics(out, rows)


class Report:
    """A training process's hold on its run directory: while it lasts nobody else trains there, and
    readers and the terminal are told how far training is and how it ended.

    ``status.json`` is replaced at most every two seconds while nothing but numbers change. Until
    :meth:`begin`, when the directory has turned out to be this run's, a task is added to it, if it
    is there, and the rest is left as it was.

    Raises:
        RunError: if another process trains there, or the directory was removed meanwhile.
    """

    def __init__(self, out: Path, enabled: bool) -> None:
        self.out = out
        self.enabled = enabled
        self.hold = claims.hold(out)
        self.begun = False
        self.task: dict[str, Any] | None = None
        self.last: tuple[Any, float] = ("", 0.0)

    def __enter__(self) -> "Report":
        self.hold.__enter__()
        return self

    def begin(self, total: int, done: int) -> None:
        """From now on tell, starting at step ``done`` of ``total``."""
        self.begun = True
        self.task = None
        self.total, self.done = total, done
        self.process = {"pid": os.getpid(), "started": psutil.Process().create_time()}
        disable = None if self.enabled else True
        self.bar = tqdm(total=total, initial=done, unit="step", disable=disable)
        self("running")

    def advance(self, done: int) -> None:
        """Count a step; ``done`` are those since the run's start."""
        self.done = done
        self.bar.update()

    def write(self, line: str) -> None:
        """Put a line above the progress bar."""
        self.bar.write(line, file=sys.stderr)

    def asks(self, wish: str) -> bool:
        """Whether there is a wish, ``runs.PAUSE`` or ``runs.STOP``, for this process to heed."""
        return self.enabled and (self.out / wish).exists()

    def tell(self, what: str, done: int = 0, total: int = 0) -> None:
        """Say what this process is at other than training steps, and how far it has come with it;
        ``total`` is 0 where that cannot be told."""
        self.task = {"what": what, "done": done, "total": total}
        self("running" if self.begun else None)

    def progress(self, what: str) -> Progress:
        """What is to be told how far the work ``what`` has come. It heeds a wish to pause."""

        def tell(done: int, total: int) -> None:
            if self.asks(runs.PAUSE):
                raise KeyboardInterrupt(runs.PAUSE)
            self.tell(what, done, total)

        return tell

    def __call__(self, state: str | None, error: str | None = None) -> None:
        """Tell the state, or with None the task alone."""
        now = time.time()
        if not self.enabled:
            return
        claims.check(self.out)
        task = self.task if state in ("running", None) else None
        news = state, task and task["what"]
        if news == self.last[0] and abs(now - self.last[1]) < HEARTBEAT:
            return
        self.last = (news, now)
        if self.begun:
            status = {"state": state, "step": self.done, "total": self.total, **self.process}
            status["error"] = error
        elif status := runs.read_status(self.out):
            status["state"] = state or status.get("state")
        try:
            if status:
                runs.write_json(self.out / runs.STATUS, {**status, "heartbeat": now, "task": task})
        except OSError:
            if state == "finished":
                raise
            return  # a missing line about the way loses nothing; the epoch's end needs the room
        if state in ("paused", "finished"):
            for wish in (runs.PAUSE, runs.STOP):
                (self.out / wish).unlink(missing_ok=True)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if self.begun:
                self.bar.close()
            with suppress(RunError):  # where the directory is gone, nothing is written
                if self.begun and isinstance(error, Exception):
                    self("failed", explain(error))
                elif isinstance(error, KeyboardInterrupt) and (
                    runs.PAUSE in error.args or self.asks(runs.PAUSE)
                ):
                    self("paused")
                elif self.begun and error is not None:
                    self("interrupted")
        finally:
            self.hold.__exit__(None, None, None)
            if dist.is_initialized():
                dist.destroy_process_group()


class StepRecord:
    """Writes the live record of a run, ``steps.jsonl`` (see :func:`vit.runs.read_steps`), a line a
    look. It starts with what is there of the ``done`` steps that training goes on after."""

    def __init__(
        self, out: Path, batch_size: int, steps_per_epoch: int, done: int, enabled: bool
    ) -> None:
        self.out = out
        self.batch_size, self.steps_per_epoch = batch_size, steps_per_epoch
        self.done = done
        self.enabled = enabled
        if enabled:
            runs.cut_steps(out, done)

    def start_clock(self) -> None:
        """An epoch begins: what came between two of them was no training."""
        self.since = time.perf_counter()

    def add(self, step: int, sums: Sequence[float], learning_rate: float) -> None:
        """Note the steps since the last line, up to ``step``; ``sums`` are those of the loss, the
        right answers and the gradient's norm over their pictures."""
        now, seen = time.perf_counter(), (step - self.done) * self.batch_size
        loss, accuracy, grad_norm = (total / seen for total in sums)
        speed = seen / (now - self.since)
        self.done, self.since = step, now
        if self.enabled:
            epochs = step / self.steps_per_epoch
            runs.append_step(
                self.out, [step, epochs, loss, accuracy, grad_norm, learning_rate, speed]
            )


def explain(error: BaseException) -> str:
    """What went wrong, and what to do, in one line."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return (
            f"There is no room left to write in ({error.strerror}). Free some space, then resume: "
            f"at most one epoch is trained again."
        )
    if is_out_of_memory(error):
        return (
            "There is not enough memory for this model and batch. Start a run with a smaller "
            "batch, width or depth."
        )
    return str(error).partition("\n")[0] or type(error).__name__


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on a GPU or not; PyTorch has no exception for the latter."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    )


def _named(split: str, measured: tuple[float, float]) -> dict[str, float]:
    return {f"{split}_loss": measured[0], f"{split}_accuracy": measured[1]}


def _merit(row: dict[str, Any]) -> tuple[float, float]:
    """What makes an epoch's weights worth keeping: validation accuracy, then a low validation
    loss."""
    return row["val_accuracy"], -row["val_loss"]


def _line(row: dict[str, Any], epochs: int) -> str:
    parts = [f"epoch {row['epoch']}/{epochs}"]
    for split in ("train", "val", "test"):
        if row[f"{split}_accuracy"] is not None:
            accuracy, loss = 100 * row[f"{split}_accuracy"], row[f"{split}_loss"]
            parts.append(f"{split} {accuracy:.1f} % (loss {loss:.3f})")
    left = (epochs - row["epoch"]) * row["seconds"]
    return ", ".join([*parts, f"{row['images_per_second']:.0f} images/s, {left / 60:.0f} min left"])


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns its exit code."""
    keep_freed_memory()
    parser = argparse.ArgumentParser("python -m vit.train", description="Train a model.")
    parser.add_argument(
        "recipe",
        metavar="RECIPE",
        help=f"{', '.join(RECIPES)}, or a JSON file of settings, such as a run's config.json",
    )
    parser.add_argument("--data-dir", type=Path, help="default: VIT_DATA_DIR, else data/")
    parser.add_argument(
        "--out",
        type=Path,
        help="run directory; default: a folder of the recipe's name in VIT_RUNS_DIR, else in runs/",
    )
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seed", type=int, help="default: the file's, else 0")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps …")
    parser.add_argument("--resume", action="store_true", help="go on after the last whole epoch")
    # A descriptor that vit.jobs took the run directory's lock with, for this process.
    parser.add_argument("--lock", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    seed = 0
    if given.recipe in RECIPES:
        recipe = RECIPES[given.recipe]()
    elif Path(given.recipe).is_file():
        try:
            recipe, seed = read_settings(Path(given.recipe))
        except ValueError as error:
            parser.error(str(error))
    else:
        known = ", ".join(RECIPES)
        parser.error(f"there is no recipe {given.recipe!r}. Known are: {known}, or name a file.")
    if given.epochs is not None:
        if given.epochs < 1:
            parser.error(f"--epochs must be at least 1, not {given.epochs}.")
        recipe = replace(recipe, epochs=given.epochs)
    seed = seed if given.seed is None else given.seed
    if not 0 <= seed < 2**32:
        parser.error(f"--seed must be a whole number from 0 to {2**32 - 1}, not {seed}.")
    out = given.out or Path(os.environ.get("VIT_RUNS_DIR") or "runs") / recipe.name
    if given.lock is not None:
        claims.adopt(out, given.lock)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        device = choose_device(given.device)
        train(recipe, out, seed, given.data_dir, device, given.resume)
    except Exception as error:
        said = isinstance(error, DataError | RunError | NonFiniteLoss | OSError)
        if not said and not is_out_of_memory(error):
            raise
        print(f"error: {explain(error)}", file=sys.stderr)
        return 1 if isinstance(error, NonFiniteLoss) else 2
    except KeyboardInterrupt:
        print(f"Interrupted. Go on with --resume --out {out}", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
