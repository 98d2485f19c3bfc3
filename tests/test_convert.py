"""Weights to timm and back, as files."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.test_model import randomize, timm_twin
from vit import VisionTransformer, ViTConfig
from vit.convert import load_timm, save_timm
from vit.runs import RunError

CONFIG = ViTConfig(image_size=8, patch_size=2, embed_dim=12, depth=2, num_heads=3)


def test_timm_reads_ours_and_we_read_timms(tmp_path: Path) -> None:
    ours, theirs = VisionTransformer(CONFIG).eval(), timm_twin(CONFIG)
    randomize(ours, seed=7)
    save_timm(ours, tmp_path / "ours.safetensors")
    theirs.load_state_dict(load_file(tmp_path / "ours.safetensors"))
    images = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(theirs(images), ours(images), rtol=1e-5, atol=1e-5)

    randomize(theirs, seed=8)
    save_file(theirs.state_dict(), tmp_path / "theirs.safetensors")
    load_timm(ours, tmp_path / "theirs.safetensors")
    torch.testing.assert_close(ours(images), theirs(images), rtol=1e-5, atol=1e-5)


def test_weights_of_another_model_are_named(tmp_path: Path) -> None:
    other = ViTConfig(image_size=8, patch_size=2, embed_dim=12, depth=1, num_heads=3, num_classes=4)
    save_timm(VisionTransformer(other), tmp_path / "other.safetensors")
    model = VisionTransformer(CONFIG)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(RunError, match=r"blocks\.1\..* is missing"):
        load_timm(model, tmp_path / "other.safetensors")
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
