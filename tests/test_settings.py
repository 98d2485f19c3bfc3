"""Settings that anybody may have written."""

import json
from pathlib import Path
from typing import Any

import pytest

from vit import train
from vit.recipes import RECIPES, debug
from vit.settings import Recipe, read_settings

SETTINGS = json.loads(json.dumps(debug().to_dict()))


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_survives_its_way_through_json(name: str) -> None:
    recipe = RECIPES[name]()
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe
    assert Recipe.from_dict(recipe.to_dict()) == recipe


def test_what_is_left_out_has_its_default() -> None:
    recipe = Recipe.from_dict({"name": "a", "model": {"depth": 2}})
    assert (recipe.share, recipe.epochs, recipe.model.depth) == (1, 50, 2)
    assert recipe.model.embed_dim == Recipe("a", "").model.embed_dim


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"epoch": 3}, "Unknown settings: 'epoch'"),
        ({"__class__": "os.system"}, "Unknown settings: '__class__'"),
        ({"epochs": "3"}, "epochs must be a whole number, not '3'"),
        ({"epochs": 3.5}, "epochs must be a whole number"),
        ({"epochs": True}, "epochs must be a whole number"),
        ({"epochs": None}, "epochs must be a whole number"),
        ({"epochs": 0}, "epochs must be from 1 to 10,000, not 0"),
        ({"epochs": 10**30}, "epochs must be from 1"),
        ({"batch_size": -8}, "batch_size must be from 1"),
        ({"learning_rate": 0}, "learning_rate must be from 1e-09"),
        ({"learning_rate": -1e-3}, "learning_rate must be from"),
        ({"learning_rate": float("nan")}, "learning_rate must be from"),
        ({"learning_rate": float("inf")}, "learning_rate must be from"),
        ({"learning_rate": [1e-3]}, "learning_rate must be a number"),
        ({"share": 0}, "share must be from 0.001 to 1"),
        ({"share": 1.5}, "share must be from"),
        ({"betas": [0.9]}, "betas must be two numbers"),
        ({"betas": [0.9, 1]}, "betas must be from 0 to 0.99999, not 1"),
        ({"betas": [0.9, "x"]}, "betas must be a number"),
        ({"clip_norm": 0}, "clip_norm must be from"),
        ({"optimizer": "sgd"}, "optimizer must be 'adamw' or 'muon', not 'sgd'"),
        ({"optimizer": ["adamw"]}, "optimizer must be 'adamw' or 'muon'"),
        ({"flip": None}, "flip must be 'none' or"),
        ({"bfloat16": 1}, "bfloat16 must be true or false"),
        ({"crop_padding": 8}, "crop_padding 8 would move all of a picture of 8 pixels"),
        ({"name": "../outside"}, "name must be letters"),
        ({"name": "..", "summary": ""}, "name must be letters"),
        ({"name": ""}, "name must be letters"),
        ({"name": "a\nb"}, "name must be text in one line"),
        ({"summary": "x" * 1001}, "summary must be text in one line"),
        ({"dataset": "a\0b"}, "dataset must be text in one line"),
        ({"model": 3}, "model must be a set of named settings"),
        ({"model": {"depth": 10**9}}, "depth must be from 1 to 128"),
        ({"model": {"embed_dim": 10**9, "num_heads": 1}}, "embed_dim must be from 1"),
        ({"model": {"heads": 2}}, "Unknown model settings: heads"),
        ({"model": {"image_size": 8, "patch_size": 3}}, "patch_size 3 does not divide"),
        ({"model": {"depth": "2"}}, "depth must be a whole number"),
    ],
)
def test_nonsense_is_refused_in_a_sentence(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError) as caught:
        Recipe.from_dict({**SETTINGS, **change})
    assert says in str(caught.value) and "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("values", [None, 3, "text", [], ["name"], {}, {"name": "a"}])
def test_what_is_no_recipe_is_refused(values: Any) -> None:
    with pytest.raises(ValueError, match="recipe"):
        Recipe.from_dict(values)


def test_settings_are_read_from_a_recipe_or_a_run(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(SETTINGS))
    assert read_settings(file) == (debug(), 0)
    file.write_text(json.dumps({"recipe": SETTINGS, "seed": 7, "class_names": []}))
    assert read_settings(file) == (debug(), 7)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        json.dumps(SETTINGS).encode()[:-9],
        b"\xff\x00\x80",
        b"[" * 100_000,
        b"__import__('os').system('true')",
        json.dumps({"recipe": SETTINGS, "seed": -1}).encode(),
        json.dumps({"recipe": SETTINGS, "seed": True}).encode(),
        json.dumps({"recipe": SETTINGS, "seed": 2**32}).encode(),
        json.dumps({"recipe": [SETTINGS]}).encode(),
        b'{"name": "a", "model": {"depth": 1e999}}',
    ],
)
def test_damaged_settings_are_refused_and_named(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "settings.json"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"settings\.json cannot be"):
        read_settings(file)
    with pytest.raises(SystemExit) as end:
        train.main([str(file), "--out", str(tmp_path / "run")])
    said = capsys.readouterr().err.splitlines()
    assert end.value.code == 2 and f"error: {file}" in said[-1].replace("The settings in ", "")
    assert not (tmp_path / "run").exists()
