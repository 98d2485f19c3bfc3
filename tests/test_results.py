"""What README and docs say of results is what the kept runs say."""

import json
from pathlib import Path

import pytest

from benchmarks import ingredients
from tests.app_server import ROOT
from vit import load_run, runs
from vit.recipes import RECIPES

README = (ROOT / "README.md").read_text()
RECIPE = (ROOT / "docs" / "recipe.md").read_text()
KEPT = ("sixty_five", "sixty_five_short", "system_a_flat")


def stored_recipe(path: Path) -> dict:
    return json.loads((path / runs.CONFIG).read_text())["recipe"]


@pytest.mark.parametrize("name", KEPT)
def test_kept_runs_are_whole_and_of_the_recipe_of_their_name(name):
    path = ROOT / "docs" / "runs" / name
    recipe = json.loads(json.dumps(RECIPES[name]().to_dict()))
    assert stored_recipe(path).items() <= recipe.items()
    assert len(runs.read_metrics(path)) == recipe["epochs"] <= 50


@pytest.mark.parametrize("name", KEPT[:2])
def test_our_recipes_read_the_test_split_once_and_the_docs_say_what_it_said(name):
    rows = runs.read_metrics(ROOT / "docs" / "runs" / name)
    assert [row["epoch"] for row in rows if row["test_accuracy"] is not None] == [len(rows)]
    said = f"{100 * rows[-1]['test_accuracy']:.2f} %"
    assert said in README and said in RECIPE


@pytest.mark.parametrize("name", ["cifar10", "digits"])
def test_the_readme_says_what_the_shipped_models_reach(name):
    path = ROOT / "checkpoints" / name
    predictions = runs.read_predictions(path)
    right = (predictions["probabilities"].argmax(1) == predictions["labels"]).mean()
    assert f"**{100 * right:.2f} %**" in README
    rows = {row["epoch"]: row for row in runs.read_metrics(path)}
    run = load_run(path)
    assert rows[run.epoch]["test_accuracy"] == pytest.approx(right)
    assert run.calibrated_on > 0


def test_the_shipped_model_is_the_long_run():
    path = ROOT / "checkpoints" / "cifar10"
    kept = ROOT / "docs" / "runs" / "sixty_five"
    for file in (runs.CONFIG, runs.METRICS):
        assert (path / file).read_bytes() == (kept / file).read_bytes()
    assert len(runs.list_epochs(path)) == 12


def test_the_checkpoints_stay_small():
    files = (ROOT / "checkpoints").rglob("*")
    assert sum(file.stat().st_size for file in files if file.is_file()) < 40e6


@pytest.mark.parametrize("name", list(ingredients.CHANGES))
def test_kept_ingredient_runs_are_of_the_settings_that_the_table_names(name):
    path = ingredients.KEPT / name
    recipe = json.loads(json.dumps(ingredients.recipe(name).to_dict()))
    assert stored_recipe(path).items() <= recipe.items()
    rows = runs.read_metrics(path)
    assert len(rows) == recipe["epochs"]
    assert all(row["test_accuracy"] is None for row in rows)


def test_the_docs_have_the_table_of_ingredients():
    assert ingredients.table() in RECIPE
