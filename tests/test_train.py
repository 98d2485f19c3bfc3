"""Training on digits: exact resuming, honest bookkeeping, and clear ends."""

import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from vit import VisionTransformer, ViTConfig, load_run, runs, train
from vit.calibration import unscaled
from vit.data import load_split, validation_split
from vit.evaluate import evaluate, predict_logits, predict_probabilities
from vit.recipes import RECIPES, Recipe, debug, digits, system_a_cosine, system_a_flat
from vit.runs import RunError

TIMES = {"images_per_second", "seconds"}
TINY = replace(debug(), epochs=4)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "tiny"
    train.train(TINY, out, seed=3, data_dir=data)
    return out


def rows_without_times(out: Path) -> list[dict]:
    return [{k: v for k, v in row.items() if k not in TIMES} for row in runs.read_metrics(out)]


class Stop(Exception):
    pass


@pytest.mark.parametrize("cut_at", [5, 45, 79])
def test_a_resumed_run_equals_an_uninterrupted_one(finished, data, tmp_path, monkeypatch, cut_at):
    steps = 0
    real = torch.optim.AdamW.step

    def step(self, *args):
        nonlocal steps
        steps += 1
        if steps == cut_at:
            raise Stop("cut off")
        return real(self, *args)

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    with pytest.raises(Stop):
        train.train(TINY, tmp_path / "run", seed=3, data_dir=data)
    assert runs.read_status(tmp_path / "run")["state"] == "failed"
    steps = -10_000
    train.train(TINY, tmp_path / "run", seed=3, data_dir=data, resume=True)
    assert rows_without_times(tmp_path / "run") == rows_without_times(finished)
    ours, theirs = runs.read_steps(tmp_path / "run"), runs.read_steps(finished)
    assert all((ours[key] == theirs[key]).all() for key in ours.keys() - TIMES)
    for name in ("model.safetensors", "resume.safetensors", "snapshots/epoch-0004.safetensors"):
        ours, theirs = load_file(tmp_path / "run" / name), load_file(finished / name)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_another_seed_gives_another_model(finished, data, tmp_path):
    train.train(replace(TINY, epochs=1), tmp_path / "run", seed=4, data_dir=data)
    ours = load_file(tmp_path / "run/snapshots/epoch-0000.safetensors")
    theirs = load_file(finished / "snapshots/epoch-0000.safetensors")
    assert not torch.equal(ours["blocks.0.attn.qkv.weight"], theirs["blocks.0.attn.qkv.weight"])


def test_the_kept_weights_are_those_of_the_best_validation_epoch(finished, data):
    rows = runs.read_metrics(finished)
    best = max(rows, key=lambda row: (row["val_accuracy"], -row["val_loss"]))
    run = load_run(finished)
    assert run.epoch == best["epoch"]
    training = load_split("digits", "train", data)
    _, chosen = validation_split(len(training.labels), TINY.validation, training.labels)
    images = torch.from_numpy(np.array(training.images[chosen]))
    probabilities = predict_probabilities(run.model, images, run.mean, run.std)
    accuracy = (probabilities.argmax(1) == training.labels[chosen]).mean()
    assert accuracy == pytest.approx(best["val_accuracy"])


def test_metrics_predictions_and_evaluation_agree(finished, data):
    rows = runs.read_metrics(finished)
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4]
    assert rows[-1]["step"] == runs.read_status(finished)["total"]
    predictions = runs.read_predictions(finished)
    test = load_split("digits", "test", data)
    assert predictions["fingerprint"] == test.fingerprint
    assert (predictions["labels"] == test.labels).all()
    chosen = predictions["probabilities"].argmax(1)
    kept = rows[load_run(finished).epoch - 1]
    assert kept["test_accuracy"] == pytest.approx((chosen == test.labels).mean())
    trained = unscaled(predictions["probabilities"], load_run(finished).temperature)
    right = trained[np.arange(len(chosen)), test.labels]
    assert kept["test_loss"] == pytest.approx(-np.log(right).mean(), rel=1e-4)
    report = evaluate(finished, data, torch.device("cpu"))
    assert report["accuracy"] == kept["test_accuracy"]
    assert np.sum(report["confusion"]) == len(test.labels)


def test_the_live_record_adds_up_to_the_epochs(finished):
    steps, rows = runs.read_steps(finished), runs.read_metrics(finished)
    assert steps["step"].tolist() == list(range(10, 81, 10))
    assert steps["epoch"].tolist() == [step / 20 for step in range(10, 81, 10)]
    assert (steps["images_per_second"] > 0).all()
    for ours, theirs in (("loss", "train_loss"), ("accuracy", "train_accuracy")):
        means = steps[ours].reshape(4, 2).mean(axis=1)
        assert means == pytest.approx([row[theirs] for row in rows], rel=1e-12)
    means = steps["grad_norm"].reshape(4, 2).mean(axis=1)
    assert means == pytest.approx([row["grad_norm"] for row in rows], rel=1e-12)
    rates = [row["learning_rate"] for row in rows]
    assert steps["learning_rate"].reshape(4, 2)[:, 1].tolist() == rates


@pytest.mark.parametrize("batch_size", [100, 400])
def test_the_live_record_has_a_line_for_an_epochs_end(data, tmp_path, batch_size):
    train.train(replace(TINY, epochs=3, batch_size=batch_size), tmp_path / "run", data_dir=data)
    each = 1293 // batch_size  # steps in an epoch
    ends = [step for step in range(1, 3 * each + 1) if step % each in (0, *range(10, each, 10))]
    assert runs.read_steps(tmp_path / "run")["step"].tolist() == ends


def test_the_temperature_is_fitted_on_the_validation_pictures(finished, data):
    run = load_run(finished)
    training = load_split("digits", "train", data)
    _, held_out = validation_split(len(training.labels), TINY.validation, training.labels)
    labels = torch.from_numpy(np.array(training.labels[held_out]))
    images = torch.from_numpy(np.array(training.images[held_out]))
    assert run.calibrated_on == len(labels) and run.temperature != 1
    logits = predict_logits(run.model, images, run.mean, run.std)
    losses = [torch.nn.functional.cross_entropy(logits / t, labels) for t in (0.97, 1, 1.03)]
    assert losses[1] < min(losses[0], losses[2])
    (row,) = [row for row in runs.read_metrics(finished) if row["epoch"] == run.epoch]
    trained = torch.nn.functional.cross_entropy(logits * run.temperature, labels)
    assert row["val_loss"] == pytest.approx(trained.item(), rel=1e-5)


def test_ending_twice_changes_nothing(finished, data, tmp_path):
    copy = shutil.copytree(finished, tmp_path / "copy")
    train.train(TINY, copy, seed=3, data_dir=data, resume=True)
    for name in ("model.safetensors", "metrics.jsonl"):
        assert (copy / name).read_bytes() == (finished / name).read_bytes()


def test_a_recipe_may_keep_its_last_weights(data, tmp_path):
    recipe = replace(TINY, epochs=3, keep="last", optimizer="adamw", learning_rate=0.0)
    train.train(recipe, tmp_path / "run", seed=3, data_dir=data)
    assert load_run(tmp_path / "run").epoch == 3  # all are alike, so "best" would keep the first


def test_bfloat16_learns_the_same_where_there_are_units_for_it(data, tmp_path, monkeypatch):
    """The units are not needed to be right, so this runs on any CPU, slowly or not."""
    monkeypatch.setattr(train, "has_bfloat16_units", lambda device: True)
    rows = []
    for low in (False, True):
        out = tmp_path / str(low)
        train.train(replace(TINY, epochs=2, bfloat16=low), out, seed=3, data_dir=data)
        says = json.loads((out / "config.json").read_text())["matrix_products"]
        assert says == ("bfloat16" if low else "float32")
        rows.append(runs.read_metrics(out)[-1])
    assert rows[0]["train_loss"] != rows[1]["train_loss"]
    assert rows[0]["train_loss"] == pytest.approx(rows[1]["train_loss"], rel=0.02)


def test_bfloat16_is_used_only_where_the_processor_says_it_has_units(monkeypatch):
    for able, expected in (({"avx2": True}, False), ({"avx512_bf16": True}, True)):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda able=able: able)
        assert train.has_bfloat16_units(torch.device("cpu")) is expected
    assert train.has_bfloat16_units(torch.device("cuda"))


def test_the_run_directory_says_how_to_build_the_model_again(finished):
    config = json.loads((finished / "config.json").read_text())
    assert config["recipe"]["name"] == "debug" and config["seed"] == 3
    assert config["class_names"] == [str(n) for n in range(10)]
    assert config["parameters"] == sum(p.numel() for p in load_run(finished).model.parameters())
    assert runs.list_epochs(finished) == [0, 1, 2, 3, 4]
    snapshot = load_file(finished / "snapshots/epoch-0002.safetensors")
    assert {tensor.dtype for tensor in snapshot.values()} == {torch.float16}
    assert load_run(finished, epoch=2).epoch == 2


def test_a_diverging_run_stops_and_says_so(data, tmp_path):
    wild = replace(TINY, optimizer="adamw", learning_rate=1e30, warmup_epochs=0, clip_norm=None)
    with pytest.raises(train.NonFiniteLoss, match="Lower the learning rate"):
        train.train(wild, tmp_path / "run", data_dir=data)
    status = runs.read_status(tmp_path / "run")
    assert status["state"] == "failed" and "Lower the learning rate" in status["error"]
    assert 0 < status["step"] < status["total"]


def test_runs_are_never_mixed(finished, data, tmp_path):
    with pytest.raises(RunError, match="already holds a run"):
        train.train(TINY, finished, seed=3, data_dir=data)
    with pytest.raises(RunError, match="another seed"):
        train.train(TINY, finished, seed=5, data_dir=data, resume=True)
    with pytest.raises(RunError, match="another recipe"):
        train.train(replace(TINY, epochs=9), finished, seed=3, data_dir=data, resume=True)
    with pytest.raises(RunError, match="no run in"):
        train.train(TINY, tmp_path / "none", data_dir=data, resume=True)
    with pytest.raises(RunError, match="smaller batch"):
        train.train(replace(TINY, batch_size=5_000), tmp_path / "big", data_dir=data)


def test_a_run_that_lost_its_resume_state_is_not_overwritten(finished, data, tmp_path):
    copy = shutil.copytree(finished, tmp_path / "copy")
    (copy / runs.RESUME).unlink()
    before = (copy / runs.MODEL).read_bytes()
    with pytest.raises(RunError, match="has lost its resume"):
        train.train(TINY, copy, seed=3, data_dir=data, resume=True)
    assert (copy / runs.MODEL).read_bytes() == before


def test_a_damaged_resume_state_is_refused(finished, data, tmp_path):
    copy = shutil.copytree(finished, tmp_path / "copy")
    whole = load_file(copy / runs.RESUME)
    for tensors, metadata in (
        (whole, {}),
        ({**whole, "model/cls_token": torch.zeros(3)}, {"epoch": "2"}),
        ({**whole, "optimizer/x/0/mean": torch.zeros(3)}, {"epoch": "2"}),
    ):
        save_file(tensors, copy / runs.RESUME, metadata)
        with pytest.raises(RunError, match="is damaged"):
            train.train(TINY, copy, seed=3, data_dir=data, resume=True)


def test_decay_pulls_on_matrices_only():
    model = VisionTransformer(ViTConfig())
    (adamw,) = train.make_optimizers(model, Recipe("a", "", optimizer="adamw"))
    decayed, free = adamw.param_groups
    assert {p.ndim for p in decayed["params"]} == {2, 4} and decayed["weight_decay"] == 0.05
    assert free["weight_decay"] == 0
    assert any(p is model.pos_embed for p in free["params"])
    assert any(p is model.cls_token for p in free["params"])
    total = sum(p.numel() for group in adamw.param_groups for p in group["params"])
    assert total == 1_205_898
    muon, adamw = train.make_optimizers(model, Recipe("m", "", optimizer="muon"))
    hidden = [p for group in muon.param_groups for p in group["params"]]
    assert len(hidden) == 4 * 6 and all(p.ndim == 2 for p in hidden)
    both = hidden + [p for group in adamw.param_groups for p in group["params"]]
    assert len({id(p) for p in both}) == len(list(model.parameters())) == len(both)


def test_learning_rates_warm_up_and_fall_as_a_cosine():
    recipe = system_a_cosine()
    factors = [train.learning_rate_factor(recipe, step, 100) for step in range(4_000)]
    assert 0 < factors[0] < 0.01 and factors[299] < 1 and factors[300] == 1
    assert all(np.diff(factors[:301]) > 0) and all(np.diff(factors[300:]) < 0)
    assert factors[300 + 1850] == pytest.approx(0.5)
    assert factors[-1] < 1e-5
    assert train.learning_rate_factor(system_a_flat(), 999, 100) == 1


def test_snapshots_are_about_twelve_and_denser_at_the_start():
    assert train.snapshot_epochs(8) == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert train.snapshot_epochs(50) == [0, 1, 2, 4, 7, 10, 15, 20, 26, 33, 41, 50]
    for epochs in (1, 2, 7, 30, 50, 200):
        chosen = train.snapshot_epochs(epochs)
        assert chosen[0] == 0 and chosen[-1] == epochs and len(chosen) <= 13
    assert list(np.diff(train.snapshot_epochs(50))) == sorted(np.diff(train.snapshot_epochs(50)))


def test_recipes_are_those_of_the_reference_systems():
    counts = {name: recipe().model.depth for name, recipe in RECIPES.items()}
    assert counts["system_a_flat"] == counts["system_a_cosine"] == counts["system_b"] == 4
    assert counts["system_c"] == counts["sixty_five"] == 6
    c = RECIPES["system_c"]()
    assert (c.learning_rate, c.weight_decay, c.label_smoothing) == (3e-4, 0.05, 0.1)
    assert (c.clip_norm, c.batch_size, c.epochs) == (1.0, 128, 50)
    for name, recipe in RECIPES.items():
        assert recipe().name == name


def test_system_b_learns_nothing_from_noise(tmp_path, data):
    recipe = replace(RECIPES["system_b"](), model=ViTConfig(embed_dim=16, depth=1, num_heads=2))
    train.train(recipe, tmp_path / "b", data_dir=data)
    (row,) = runs.read_metrics(tmp_path / "b")
    assert row["step"] == 200
    assert abs(row["test_loss"] - math.log(10)) < 0.1


def test_digits_recipe_is_small_and_whole():
    recipe = digits()
    assert recipe.model.num_tokens == 17 and recipe.model.in_chans == 1


def command(*arguments: str, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | env,
        timeout=110,
    )


def test_command_line_trains_resumes_and_refuses_clearly(tmp_path, data, finished):
    arguments = ["vit.train", "debug", "--epochs", "1", "--data-dir", str(data)]
    done = command(*arguments, VIT_RUNS_DIR=str(tmp_path))
    assert done.returncode == 0 and "epoch 1/1" in done.stderr
    assert runs.read_status(tmp_path / "debug")["state"] == "finished"
    again = command(*arguments, VIT_RUNS_DIR=str(tmp_path))
    assert again.returncode == 2 and again.stderr.startswith("error: ")
    assert "--resume" in again.stderr and len(again.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonsense"], "no recipe 'nonsense'"),
        (["debug", "--epochs", "0"], "--epochs must be at least 1"),
        (["debug", "--device", "warp"], "no device 'warp'"),
        (["debug", "--device", "meta"], "no device 'meta'"),
        (["debug", "--seed", "-1"], "--seed must be a whole number from 0"),
        (["debug", "--seed", "100000000000000"], "--seed must be a whole number from 0"),
    ],
)
def test_mistakes_on_the_command_line_are_one_clear_line(arguments, says, tmp_path, capsys):
    try:
        code = train.main([*arguments, "--out", str(tmp_path / "run")])
    except SystemExit as end:
        code = end.code
    assert code == 2 and says in capsys.readouterr().err


def test_two_processes_learn_as_one(finished, data, tmp_path):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"),
            *("--standalone", "-m", "vit.train", "debug", "--epochs", "4", "--seed", "3"),
            *("--data-dir", str(data), "--out", str(tmp_path / "run")),
        ],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    for ours, theirs in zip(
        runs.read_metrics(tmp_path / "run"), runs.read_metrics(finished), strict=True
    ):
        assert ours["train_loss"] == pytest.approx(theirs["train_loss"], abs=1e-4)
        assert ours["val_loss"] == pytest.approx(theirs["val_loss"], abs=1e-4)
    ours, theirs = runs.read_steps(tmp_path / "run"), runs.read_steps(finished)
    for key in ours.keys() - TIMES:
        assert ours[key] == pytest.approx(theirs[key], abs=1e-4)
