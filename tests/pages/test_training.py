"""The Training page: curves, words and settings are those of the run's own files."""

import json
import re
import shutil
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.pages.made import ROOT, array, figures, html, open_page, words
from tests.small_data import NAMES
from tests.small_runs import write_run
from ui.learning import repeat_command, settled_at
from vit import published
from vit.images import frame_picture, open_picture, to_model_input
from vit.recipes import RECIPES, digits
from vit.runs import list_epochs, load_run, read_config, read_metrics, write_metrics

FILE = "6_Training.py"
DIGITS = ROOT / "checkpoints" / "digits"


@pytest.fixture(autouse=True)
def own_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VIT_RUNS_DIR", str(tmp_path))
    return tmp_path


def row(epoch: int, train: float, val: float, test: float | None = None) -> dict[str, float | None]:
    return {
        "epoch": epoch,
        "step": 10 * epoch,
        "train_loss": 2 - train,
        "train_accuracy": train,
        "val_loss": 2 - val,
        "val_accuracy": val,
        "test_loss": None if test is None else 2 - test,
        "test_accuracy": test,
        "learning_rate": 0.001 / epoch,
        "grad_norm": 1.0,
        "images_per_second": 100.0 * epoch,
        "seconds": 30.0,
    }


def test_the_curves_are_the_rows() -> None:
    app = open_page(FILE, run="digits")
    rows = read_metrics(DIGITS)
    accuracy, loss, rate, speed = (figure["data"] for figure in figures(app))
    for lines, what, factor in ((accuracy, "accuracy", 100), (loss, "loss", 1)):
        assert [line["name"] for line in lines] == ["training", "validation", "test"]
        for line, split in zip(lines, ("train", "val", "test"), strict=True):
            read = [row for row in rows if row[f"{split}_{what}"] is not None]
            assert array(line["x"]).tolist() == [row["epoch"] for row in read]
            expected = [factor * row[f"{split}_{what}"] for row in read]
            assert array(line["y"]) == pytest.approx(expected, rel=1e-5)
    assert array(rate[0]["y"]) == pytest.approx([row["learning_rate"] for row in rows], rel=1e-5)
    assert array(speed[0]["y"]) == pytest.approx(
        [row["images_per_second"] for row in rows], rel=1e-5
    )

    kept = load_run(DIGITS).epoch
    shapes = figures(app)[0]["layout"]["shapes"]
    assert [shape["x0"] for shape in shapes] == [kept]
    best = next(row for row in rows if row["epoch"] == kept)
    text = words(app)
    assert f"Epoch {kept} was best" in text
    assert f"**{100 * best['val_accuracy']:.2f} %** there" in text
    assert f"**{100 * best['test_accuracy']:.2f} %** on the test" in text
    gap = 100 * (rows[-1]["train_accuracy"] - rows[-1]["val_accuracy"])
    assert f"{abs(gap):.1f} points" in text
    assert not app.toggle, "nothing published is about digits"


def test_published_points_come_with_a_toggle_and_their_sources(own_runs: Path) -> None:
    path = write_run(own_runs / "own", "cifar10", list(NAMES))
    write_metrics(path, [row(1, 0.3, 0.4), row(2, 0.5, 0.6, 0.58), row(3, 0.6, 0.59)])
    app = open_page(FILE, run="runs/own")
    accuracy = figures(app)[0]["data"]
    assert [line["name"] for line in accuracy] == ["training", "validation", "test"]
    assert array(accuracy[2]["x"]).tolist() == [2], "only the kept epoch was tested"
    assert array(accuracy[2]["y"]) == pytest.approx([58])

    app.toggle(key="published").set_value(True).run()
    added = figures(app)[0]["data"][3:]
    assert [line["name"] for line in added] == [run.name for run in published.CURVES]
    for line, run in zip(added, published.CURVES, strict=True):
        assert dict(zip(array(line["x"]), array(line["y"]), strict=True)) == pytest.approx(
            {epoch: 100 * share for epoch, share in run.test_accuracy.items()}
        )
        assert run.source in words(app)


def test_the_chosen_epoch_is_marked_beside_the_kept_one(own_runs: Path) -> None:
    path = write_run(own_runs / "own", "cifar10", list(NAMES))
    write_metrics(path, [row(1, 0.3, 0.4), row(2, 0.5, 0.6)])
    app = open_page(FILE, run="runs/own", epoch="0")
    notes = figures(app)[0]["layout"]["annotations"]
    assert {note["text"]: note["x"] for note in notes} == {"kept": 2, "you are here": 0}


def test_a_run_in_its_first_epoch_has_no_curves_but_all_the_rest(own_runs: Path) -> None:
    write_run(own_runs / "own", "cifar10", list(NAMES))
    app = open_page(FILE, run="runs/own")
    assert "first epoch" in app.info[0].value
    assert figures(app) == []
    assert [link.proto.label for link in app.get("page_link") if "epoch" in link.proto.query_string]
    assert "python -m vit.train debug --seed 3" in app.code[0].value


def test_every_setting_of_the_recipe_and_the_model_is_listed() -> None:
    app = open_page(FILE, run="digits")
    config = read_config(DIGITS)
    table = html(app).partition('<div class="settings">')[2].partition("</div>")[0]
    cells = [unescape(cell) for cell in re.findall(r"<td>(.*?)</td>", table)]
    recipe = {k: v for k, v in config["recipe"].items() if k not in ("name", "summary", "model")}
    assert len(cells) == len(recipe) + len(config["model"]) + 1
    heads = re.findall(r'<th scope="row">(.*?)</th>', table)
    listed = dict(zip(map(unescape, heads), cells, strict=True))
    assert listed["peak learning rate"] == str(recipe["learning_rate"])
    assert listed["width"] == str(config["model"]["embed_dim"])
    assert listed["gradients clipped to a norm of"] == "none"
    assert listed["parameters"] == f"{config['parameters']:,}"
    assert not [head for head in listed if "_" in head], "every setting has a plain name"
    assert app.code[0].value == "python -m vit.train digits --seed 0"


def test_the_command_is_the_runs_own() -> None:
    config = {"recipe": json.loads(json.dumps(digits().to_dict())), "seed": 7}
    assert repeat_command(read_config(DIGITS)) == ("python -m vit.train digits --seed 0", True)
    assert repeat_command(config) == ("python -m vit.train digits --seed 7", True)
    config["recipe"]["epochs"] = 3
    assert repeat_command(config) == ("python -m vit.train digits --seed 7 --epochs 3", True)
    config["recipe"]["learning_rate"] *= 2
    assert repeat_command(config)[1] is False
    config["recipe"]["name"] = "gone"
    assert "gone" not in RECIPES
    assert repeat_command(config) == ("python -m vit.train gone --seed 7", False)


def test_snapshots_lead_to_attention_at_their_epoch() -> None:
    app = open_page(FILE, run="digits")
    accuracy = {row["epoch"]: row["val_accuracy"] for row in read_metrics(DIGITS)}
    links = [
        (link.proto.label, link.proto.query_string)
        for link in app.get("page_link")
        if link.proto.page == "Attention" and "epoch=" in link.proto.query_string
    ]
    epochs = list_epochs(DIGITS)
    assert [int(re.search(r"epoch=(\d+)", query)[1]) for _, query in links] == epochs
    for (label, _), epoch in zip(links, epochs, strict=True):
        assert label == (
            "untrained" if epoch == 0 else f"epoch {epoch} · {100 * accuracy[epoch]:.1f} %"
        )


def test_when_it_made_up_its_mind_about_ones_own_picture() -> None:
    app = open_page(FILE, run="digits")
    epochs = list_epochs(DIGITS)
    next(b for b in app.button if b.label == "0").click().run()
    picture = frame_picture(open_picture((ROOT / "samples" / "cat-photo.jpg").read_bytes()))
    said = []
    for epoch in epochs:
        run = load_run(DIGITS, epoch)
        x = to_model_input(picture, 8, 1, run.mean, run.std)
        said.append(run.class_names[int(run.model(torch.from_numpy(x)[None]).argmax())])
    at = next(i for i in range(len(said)) if len(set(said[i:])) == 1)
    when = "before it was trained at all" if at == 0 else f"from epoch {epochs[at]} on"
    assert f"It says **{said[-1]}** {when}" in words(app)
    assert figures(app)[-1]["data"][0]["name"] == said[-1]


@pytest.mark.parametrize(
    ("answers", "at"), [([3], 0), ([1, 1, 1], 0), ([1, 2, 2], 1), ([2, 1, 2], 2), ([0, 1, 2], 2)]
)
def test_settled_at(answers: list[int], at: int) -> None:
    assert settled_at(np.array(answers)) == at


def test_damaged_metrics_are_one_sentence(own_runs: Path) -> None:
    shutil.copytree(DIGITS, own_runs / "own")
    (own_runs / "own" / "metrics.jsonl").write_text('{"epoch": 1')
    app = open_page(FILE, run="runs/own")
    assert "is damaged" in app.warning[0].value
    assert figures(app) == []
    assert app.code[0].value == "python -m vit.train digits --seed 0"
