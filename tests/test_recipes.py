"""Runs from a file of settings, on a share of the pictures, and by the known-bad recipe."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from vit import runs, train
from vit.data import load_split, validation_split
from vit.recipes import debug, too_fast
from vit.runs import RunError
from vit.settings import read_settings

# ---- a file as a recipe, and a share of the pictures ---------------------------------------------


def test_a_run_is_repeated_from_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIT_RUNS_DIR", str(tmp_path / "runs"))
    recipe = replace(debug(), name="mine", epochs=1, share=0.2, batch_size=32)
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps(recipe.to_dict()))
    data = ["--data-dir", str(tmp_path)]
    assert train.main([str(file), "--seed", "5", *data]) == 0
    out, again = tmp_path / "runs" / "mine", tmp_path / "again"
    assert read_settings(out / runs.CONFIG) == (recipe, 5)
    assert train.main([str(out / runs.CONFIG), "--out", str(again), *data]) == 0
    ours, theirs = (runs.load_weights(run / runs.MODEL) for run in (out, again))
    assert ours[1] == theirs[1] and ours[0].keys() == theirs[0].keys()
    assert all(torch.equal(ours[0][key], theirs[0][key]) for key in ours[0])


def test_a_share_keeps_the_classes_balance_and_leaves_validation_alone(tmp_path: Path) -> None:
    device = torch.device("cpu")
    training = load_split("digits", "train", tmp_path)
    chosen, held_out = validation_split(len(training.labels), 144, training.labels)
    seen: set[bytes] = set()
    for share in (0.05, 0.25, 1.0):
        parts = train.load_parts(replace(debug(), share=share), tmp_path, device)
        wanted = np.bincount(training.labels[chosen]) * share
        assert np.abs(np.bincount(parts.train.labels.numpy()) - wanted).max() <= 0.5
        assert (parts.val.labels.numpy() == training.labels[held_out]).all()
        pictures = {picture.numpy().tobytes() for picture in parts.train.images}
        assert seen <= pictures, "a smaller share is a part of a larger one"
        seen = pictures
        again = train.load_parts(replace(debug(), share=share), tmp_path, device)
        assert torch.equal(parts.train.images, again.train.images)
    assert len(parts.train.labels) == len(chosen)


@pytest.mark.parametrize(
    "model", [{"image_size": 16}, {"in_chans": 3}, {"num_classes": 7}, {"num_classes": 12}]
)
def test_a_model_for_other_pictures_is_refused(model: dict[str, int], tmp_path: Path) -> None:
    recipe = replace(debug(), model=replace(debug().model, **model))
    with pytest.raises(RunError, match="digits has 10 classes and pictures of 1 × 8 × 8"):
        train.train(recipe, tmp_path / "run", data_dir=tmp_path)
    assert not (tmp_path / "run" / runs.CONFIG).exists()


def test_a_run_from_before_a_setting_was_there_can_be_resumed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    train.train(replace(debug(), epochs=1), out, data_dir=tmp_path)
    config = json.loads((out / runs.CONFIG).read_text())
    del config["recipe"]["share"]
    runs.write_json(out / runs.CONFIG, config)
    before = (out / runs.MODEL).read_bytes()
    train.train(replace(debug(), epochs=1), out, data_dir=tmp_path, resume=True)
    assert (out / runs.MODEL).read_bytes() == before
    with pytest.raises(RunError, match="another recipe"):
        train.train(replace(debug(), epochs=1, share=0.5), out, data_dir=tmp_path, resume=True)


# ---- the known-bad recipe ------------------------------------------------------------------------


def test_a_rate_30_times_too_high_is_what_stops_it_from_learning(tmp_path: Path) -> None:
    """After three epochs: guessing costs ln 10, and it is no better; at a thirtieth it is."""
    losses = {}
    for times in (1, 30):
        recipe = replace(too_fast(), epochs=3, learning_rate=too_fast().learning_rate * times / 30)
        train.train(recipe, tmp_path / str(times), data_dir=tmp_path)
        losses[times] = [row["train_loss"] for row in runs.read_metrics(tmp_path / str(times))]
    assert losses[30][0] > np.log(10) + 0.05 and min(losses[30]) > np.log(10)
    assert losses[1][-1] < np.log(10) - 0.15
    assert runs.read_status(tmp_path / "30")["state"] == "finished"
    assert runs.load_run(tmp_path / "30").class_names[9] == "9", "a run as any other, to be opened"
