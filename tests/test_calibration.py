"""The temperature against a search over a grid, and what folding it into a model leaves alone."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from vit.calibration import LIMIT, fit_temperature, fold, unscaled
from vit.config import ViTConfig
from vit.model import VisionTransformer


def made_up(count: int, temperature: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits (count, 10), and labels drawn by softmax(logits / temperature)."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(count, 10, generator=generator)
    labels = torch.multinomial((logits / temperature).softmax(1), 1, generator=generator)
    return logits, labels.squeeze(1)


def cross_entropy(logits: np.ndarray, labels: np.ndarray, temperature: float) -> float:
    scaled = logits.astype(np.float64) / temperature
    return float(np.mean(np.log(np.exp(scaled).sum(1)) - scaled[np.arange(len(labels)), labels]))


@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.5])
def test_no_other_temperature_does_better(temperature: float) -> None:
    logits, labels = made_up(300, temperature)
    fitted = fit_temperature(logits, labels)
    grid = np.exp(np.linspace(-math.log(LIMIT), math.log(LIMIT), 6001))  # steps of 0.1 %
    losses = [cross_entropy(logits.numpy(), labels.numpy(), t) for t in grid]
    assert fitted == pytest.approx(grid[np.argmin(losses)], rel=1.1e-3)
    assert cross_entropy(logits.numpy(), labels.numpy(), fitted) <= min(losses) + 1e-12


@pytest.mark.parametrize("temperature", [0.5, 1.7])
def test_what_the_labels_were_drawn_by_is_found_again(temperature: float) -> None:
    with torch.inference_mode():
        fitted = fit_temperature(*made_up(100_000, temperature))
    assert fitted == pytest.approx(temperature, rel=0.02)


def test_scores_shifted_by_a_constant_give_the_same_temperature() -> None:
    logits, labels = made_up(500, 1.5)
    shifted = logits.double() + 1000 * torch.arange(500)[:, None]
    assert fit_temperature(shifted, labels) == pytest.approx(
        fit_temperature(logits, labels), rel=1e-9
    )


def test_where_no_temperature_is_the_best_it_stays_1() -> None:
    logits, _ = made_up(50, 1.0)
    assert fit_temperature(logits, logits.argmax(1)) == 1, "surer would always be better"
    assert fit_temperature(logits, logits.argmin(1)) == 1, "less sure would always be better"
    assert fit_temperature(torch.zeros(50, 10), torch.arange(50) % 10) == 1


def test_a_folded_model_gives_its_logits_over_the_temperature() -> None:
    torch.manual_seed(0)
    config = ViTConfig(embed_dim=16, depth=2, num_heads=2)
    model, folded = VisionTransformer(config).eval(), VisionTransformer(config).eval()
    torch.nn.init.normal_(model.head.bias)
    weights = model.state_dict()
    before = {name: tensor.clone() for name, tensor in weights.items()}
    folded.load_state_dict(fold(weights, 1.37))
    images = torch.randn(5, 3, 32, 32)
    with torch.inference_mode():
        plain, divided = model(images), folded(images)
    torch.testing.assert_close(divided, plain / 1.37, atol=1e-6, rtol=0)
    assert (divided.argmax(1) == plain.argmax(1)).all()
    assert all(torch.equal(weights[name], before[name]) for name in before), "left as they were"


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_the_probabilities_without_the_temperature(temperature: float) -> None:
    logits, _ = made_up(200, 1.0)
    logits[0, 3] = 400.0  # all others are 0 in float32
    stored = (logits / temperature).softmax(1).numpy()
    expected = logits.double().softmax(1).numpy()
    np.testing.assert_allclose(unscaled(stored, temperature), expected, atol=1e-5)
    np.testing.assert_allclose(unscaled(stored, temperature).sum(1), 1)
