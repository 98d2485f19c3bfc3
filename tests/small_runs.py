"""Untrained runs with a complete config.json, and test results as one wishes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from vit import runs
from vit.config import ViTConfig
from vit.model import VisionTransformer, count_parameters
from vit.recipes import debug

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


def write_run(folder: Path, dataset: str, class_names: list[str], seed: int = 3) -> Path:
    """A run for 32 × 32 pictures in colour, with snapshots of epochs 0 and 2 and the kept weights
    of epoch 2."""
    torch.manual_seed(seed)
    config = ViTConfig(embed_dim=16, depth=1, num_heads=2, num_classes=len(class_names))
    recipe = replace(debug(), dataset=dataset, model=config)
    model = VisionTransformer(config)
    settings = {
        "format": 1,
        "recipe": recipe.to_dict(),
        "model": config.to_dict(),
        "class_names": class_names,
        "mean": MEAN,
        "std": STD,
        "seed": seed,
        "parameters": count_parameters(model),
        "fingerprints": {"train": "", "test": ""},
        "versions": {"python": "3.11"},
    }
    runs.write_json(folder / runs.CONFIG, settings)
    runs.write_snapshot(folder, 0, model.state_dict())
    torch.nn.init.normal_(model.head.weight, std=0.5)
    runs.write_snapshot(folder, 2, model.state_dict())
    runs.write_weights(folder / runs.MODEL, model.state_dict(), {"epoch": "2"})
    return folder


def probabilities_of(said: np.ndarray, classes: int, sure: np.ndarray) -> np.ndarray:
    """(n, classes) that give the class ``said`` (n,) the probability ``sure`` (n,), above 1/2."""
    n = len(said)
    rest = (1 - sure) / (classes - 1)
    probabilities = np.repeat(rest[:, None], classes, axis=1)
    probabilities[np.arange(n), said] = sure
    return probabilities.astype(np.float32)


def predictions_of(matrix: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Labels and probabilities whose confusion matrix is ``matrix``, in random order."""
    random = np.random.default_rng(seed)
    cells = np.repeat(np.arange(matrix.size), matrix.ravel())
    labels, said = np.divmod(random.permutation(cells), len(matrix))
    return labels, probabilities_of(said, len(matrix), random.uniform(0.55, 0.99, len(said)))
