"""The All runs view: what it says is what the files say, and what is clicked happens to them."""

import io
import json
import re
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from tests.pages.made import HOSTILE, ROOT, array, figures, html, words
from tests.small_data import NAMES
from tests.small_runs import write_run
from ui import compare, run_list
from ui.run_facts import facts
from ui.words import to_the_letter
from vit import bundle, claims, jobs, runs, tensorboard
from vit.jobs import Job, Task
from vit.recipes import Recipe, digits

DIGITS = ROOT / "checkpoints" / "digits"
SHIPPED = ["checkpoints/cifar10", "checkpoints/digits"]


@pytest.fixture(autouse=True)
def runs_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own runs directory, and no worker that would train."""
    monkeypatch.setenv("VIT_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.delenv("VIT_TRAINING", raising=False)
    monkeypatch.setattr(jobs, "keep_going", lambda runs_dir: None)
    return tmp_path / "runs"


def ran(what: Any) -> AppTest:
    app: AppTest = what.run()
    assert not app.exception and not app.error, [e.value for e in (*app.exception, *app.error)]
    return app


def view(**query: str | list[str]) -> AppTest:
    def script() -> None:
        from ui import run_list

        run_list.show()

    app = AppTest.from_function(script, default_timeout=60)
    for name, value in query.items():
        app.query_params[name] = value
    return ran(app)


def press(app: AppTest, label: str) -> AppTest:
    return ran(next(button for button in app.button if button.label == label).click())


def table(app: AppTest) -> dict[str, Any]:
    """What the table was sent."""
    return next(
        json.loads(element.proto.json)
        for element in app.get("bidi_component")
        if element.proto.id.endswith("-runs")
    )


def listed(app: AppTest) -> list[str]:
    return [row["id"] for row in table(app)["rows"]]


def buttons(app: AppTest) -> list[str]:
    found = [button.label for button in app.button if button.label != "Bring it in"]
    return found + [element.proto.label for element in app.get("download_button")]


def trained(runs_dir: Path, name: str, state: str, step: int = 600, **changes: Any) -> Path:
    """A copy of the shipped digits that got as far as ``step`` of 600."""
    path = Path(shutil.copytree(DIGITS, runs_dir / name))
    config = runs.read_config(path)
    recipe = replace(digits(), **{k: v for k, v in changes.items() if k != "seed"})
    config |= {"recipe": recipe.to_dict(), "seed": changes.get("seed", 0)}
    runs.write_json(path / runs.CONFIG, config)
    if step < 600:
        runs.write_metrics(path, runs.read_metrics(path)[: step // 20])
        (path / runs.PREDICTIONS).unlink()
        (path / runs.RESUME).touch()
    runs.write_json(path / runs.STATUS, {"state": state, "step": step, "total": 600})
    return path


@pytest.fixture
def held(runs_dir: Path) -> Iterator[Path]:
    """A run that this process seems to train."""
    path = trained(runs_dir, "training", "running", 200)
    lock = claims.take(path)
    yield path
    claims.os.close(lock)


# ---- the list ------------------------------------------------------------------------------------


def test_what_trains_comes_first_then_the_queue_then_the_rest(runs_dir: Path, held: Path) -> None:
    for name in ("b", "a"):
        jobs.start(runs_dir, digits(), 1, name)
    trained(runs_dir, "aa-done", "finished")
    app = view()
    assert listed(app) == ["training", "b", "a", "aa-done", *SHIPPED]
    states = [row["state"] for row in table(app)["rows"]]
    assert states == ["training · 33 %", "waits, next", "waits, number 2"] + ["finished"] * 3
    assert [row["share"] for row in table(app)["rows"]] == [200 / 600, None, None, None, None, None]
    assert [row["shipped"] for row in table(app)["rows"]] == [False] * 4 + [True] * 2
    assert table(app)["chosen"] == "training"
    assert view(job="aa-done").subheader[0].value == "aa\\-done"
    assert table(view(job="../up"))["chosen"] == "training"


def test_the_numbers_are_those_of_the_files(runs_dir: Path) -> None:
    trained(runs_dir, "best", "finished", seed=7, keep="best")
    trained(runs_dir, "last", "paused", 240, keep="last", epochs=50)
    rows = [json.loads(line) for line in (DIGITS / runs.METRICS).read_text().splitlines()]
    best = max(rows, key=lambda row: (row["val_accuracy"], -row["val_loss"]))
    with np.load(DIGITS / runs.PREDICTIONS) as stored:
        right = (stored["probabilities"].argmax(1) == stored["labels"]).mean()
    app = view()
    assert table(app)["columns"] == ["Validation", "Test", "Parameters", "Epochs", "Seed", "Data"]
    found = {row["id"]: row["numbers"] for row in table(app)["rows"]}
    percent = [f"{100 * best['val_accuracy']:.1f} %", f"{100 * right:.1f} %"]
    assert found["best"] == [*percent, "202,186", "30", "7", "digits"]
    test = rows[11]["test_accuracy"]
    percent = [
        f"{100 * rows[11]['val_accuracy']:.1f} %",
        "–" if test is None else f"{100 * test:.1f} %",
    ]
    assert found["last"] == [*percent, "202,186", "50", "0", "digits"]
    assert found["checkpoints/cifar10"][2:] == ["1,205,898", "50", "0", "CIFAR-10"]


def test_a_run_that_waits_has_only_its_settings(runs_dir: Path) -> None:
    recipe = replace(digits(), dataset="/home/ann/my cats", epochs=3)
    jobs.start(runs_dir, recipe, 5, "waiting")
    assert table(view())["rows"][0]["numbers"] == ["–", "–", "202,186", "3", "5", "my cats"]


def test_damaged_files_are_a_dash_each(runs_dir: Path) -> None:
    path = trained(runs_dir, "one", "finished")
    (path / runs.METRICS).write_text("{")
    (path / runs.PREDICTIONS).write_text("{")
    assert table(view())["rows"][0]["numbers"][:3] == ["–", "–", "202,186"]
    (path / runs.CONFIG).write_text("{")
    app = view()
    assert table(app)["rows"][0]["numbers"] == ["–"] * 6
    assert "Same again, new seed" not in buttons(app)


def job(state: Any, **changes: Any) -> Job:
    job = Job(Path("x"), "x", (), state, "", 250, 600, 0, "")
    return replace(job, **changes)


@pytest.mark.parametrize(
    ("each", "said"),
    [
        (job("running"), "training · 41 %"),
        (job("running", step=0, total=0), "training"),
        (job("running", wish="pause"), "pausing"),
        (job("running", wish="stop"), "stopping"),
        (job("running", task=Task("Fetching CIFAR-10", 30, 120)), "Fetching CIFAR-10 · 25 %"),
        (job("running", task=Task("Reading the pictures", 0, 0)), "Reading the pictures"),
        (job("queued", order=7), "waits, number 2"),
        (job("paused"), "paused at 41 %"),
        (job("interrupted"), "interrupted at 41 %"),
        (job("failed"), "failed at 41 %"),
        (job("failed", step=0, total=0), "failed"),
        (job("finished", step=600), "finished"),
        (job("finished"), "stopped early at 41 %"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_state_in_words(each: Job, said: str) -> None:
    others = [job("queued", order=3), job("running", order=0), job("queued", order=9)]
    assert run_list.state_words(each, [each, *others])[0] == said


def test_with_no_run_of_ones_own_it_says_what_will_be_here() -> None:
    app = view()
    assert listed(app) == SHIPPED
    assert "You have not trained anything yet" in words(app)
    assert press(app, "Train one").query_params["show"] == "new"


def test_only_the_runs_with_a_tag(runs_dir: Path) -> None:
    for name, tags in (("one", ["sweep"]), ("two", ["sweep", HOSTILE]), ("three", [])):
        jobs.label(trained(runs_dir, name, "finished"), name, tags)
    app = view(job="three")
    pills = app.button_group(key="runs-tag")
    assert pills.options == [to_the_letter(HOSTILE), "sweep"]
    ran(pills.set_value("sweep"))
    assert listed(app) == ["one", "two"] and table(app)["chosen"] == "one"


def test_names_and_tags_are_shown_to_the_letter(runs_dir: Path) -> None:
    jobs.label(trained(runs_dir, "one", "finished"), HOSTILE, [HOSTILE])
    app = view(compare=["one", "checkpoints/digits"])
    row = table(app)["rows"][0]
    assert (row["name"], row["tags"]) == (HOSTILE, [HOSTILE]), "the table sets texts, no HTML"
    assert app.subheader[0].value == to_the_letter(HOSTILE)
    assert "<b>$x$" not in html(app) and HOSTILE in unescape(html(app))
    press(app, "Delete")
    assert f"**Delete {to_the_letter(HOSTILE)}?**" in words(app)
    assert all("<b>$x$" not in line["name"] for figure in figures(app) for line in figure["data"])


# ---- what can be done ----------------------------------------------------------------------------

OWN = ["Same again, new seed", "Same again with …", "Name and tags", "Delete"]


@pytest.mark.parametrize(
    ("state", "step", "possible"),
    [
        ("paused", 200, ["Watch", "Open this model", "Resume", "Stop and keep", *OWN, "Download"]),
        ("failed", 200, ["Watch", "Open this model", "Resume", "Stop and keep", *OWN, "Download"]),
        (
            "interrupted",
            200,
            ["Watch", "Open this model", "Resume", "Stop and keep", *OWN, "Download"],
        ),
        ("finished", 200, ["Watch", "Open this model", "Train on", *OWN, "Download"]),
        ("finished", 600, ["Watch", "Open this model", *OWN, "Download"]),
        ("queued", 200, ["Watch", "Open this model", "Pause", "Stop and keep", *OWN, "Download"]),
    ],
)
def test_what_can_be_done_depends_on_the_state(
    state: str, step: int, possible: list[str], runs_dir: Path
) -> None:
    trained(runs_dir, "one", state, step)
    assert buttons(view()) == possible


def test_what_can_be_done_with_a_run_that_trains_waits_or_came_with_the_app(
    runs_dir: Path, held: Path
) -> None:
    jobs.start(runs_dir, digits(), 0, "new")
    moving = ["Watch", "Open this model", "Pause", "Stop and keep", *OWN[:3], "Download"]
    assert buttons(view()) == moving
    assert buttons(view(job="new")) == ["Watch", "Pause", *OWN]
    assert buttons(view(job="checkpoints/digits")) == ["Open this model", *OWN[:2], "Download"]
    (held / runs.PAUSE).touch()
    assert buttons(view())[2:4] == ["Resume", "Stop and keep"]


def test_pausing_resuming_and_stopping(runs_dir: Path, held: Path) -> None:
    app = press(view(), "Pause")
    assert (held / runs.PAUSE).exists() and table(app)["rows"][0]["state"] == "pausing"
    app = press(app, "Resume")
    assert not (held / runs.PAUSE).exists()
    app = press(app, "Stop and keep")
    assert (held / runs.STOP).exists() and table(app)["rows"][0]["state"] == "stopping"
    trained(runs_dir, "paused", "paused", 200)
    press(view(job="paused"), "Resume")
    assert jobs.look(runs_dir / "paused").state == "queued"


def test_same_again_takes_the_lowest_seed_that_no_run_of_that_name_has(runs_dir: Path) -> None:
    jobs.label(trained(runs_dir, "one", "finished", seed=1, epochs=5), "My run", ["tag"])
    jobs.label(trained(runs_dir, "two", "finished", seed=0), "My run (seed 0)", [])
    jobs.label(trained(runs_dir, "three", "finished", seed=2), "Another", [])
    app = press(view(job="one"), "Same again, new seed")
    new = jobs.look(runs_dir / app.query_params["job"])
    assert (new.name, new.tags, new.state) == ("My run (seed 2)", ("tag",), "queued")
    assert jobs.settings(new.path) == (jobs.settings(runs_dir / "one")[0], 2)
    app = press(app, "Same again, new seed")
    assert jobs.look(runs_dir / app.query_params["job"]).name == "My run (seed 3)"
    app = press(view(job="checkpoints/digits"), "Same again, new seed")
    assert jobs.look(runs_dir / app.query_params["job"]).name == "digits (seed 1)"


def test_same_again_with_fills_the_form(runs_dir: Path) -> None:
    path = trained(runs_dir, "one", "finished", seed=4, epochs=7)
    app = press(view(), "Same again with …")
    assert app.query_params["show"] == "new"
    assert app.session_state["new-seed"] == 4
    assert app.session_state["new-name"] == jobs.look(path).name


def test_watching_and_opening(runs_dir: Path) -> None:
    trained(runs_dir, "one", "finished")
    app = press(view(), "Watch")
    assert (app.query_params["show"], app.query_params["job"]) == ("watch", "one")
    app = press(view(epoch="3"), "Open this model")
    assert (app.query_params["show"], app.query_params["run"]) == ("model", "runs/one")
    assert "epoch" not in app.query_params
    app = press(view(job="checkpoints/digits"), "Open this model")
    assert app.query_params["run"] == "digits"


def test_a_new_name_and_other_tags(runs_dir: Path) -> None:
    path = trained(runs_dir, "one", "finished")
    jobs.label(path, "old", ["keep", "drop"])
    app = press(view(), "Name and tags")
    name, tags = app.text_input[:2]
    assert (name.value, tags.value) == ("old", "keep, drop")
    name.set_value(HOSTILE)
    tags.set_value(f"keep,  {HOSTILE},,")
    app = press(app, "Save")
    assert (jobs.look(path).name, jobs.look(path).tags) == (HOSTILE, ("keep", HOSTILE))
    assert table(app)["rows"][0]["name"] == HOSTILE and "Save" not in buttons(app)
    app = press(press(app, "Name and tags"), "Cancel")
    assert jobs.look(path).name == HOSTILE and "Save" not in buttons(app)


def test_deleting_asks_first_and_says_what_is_lost(runs_dir: Path) -> None:
    path = trained(runs_dir, "one", "finished")
    snapshots = len(list((path / "snapshots").iterdir()))
    app = press(view(run="runs/one"), "Delete")
    assert path.exists()
    assert f"{snapshots} snapshots and the record of 30 epochs are lost for good" in words(app)
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    assert f"{size / 1e6:.1f} MB" in words(app)
    app = press(app, "Keep it")
    assert path.exists() and "Delete for good" not in buttons(app)
    app = press(press(app, "Delete"), "Delete for good")
    assert not path.exists() and listed(app) == SHIPPED
    assert "run" not in app.query_params, "a model that is gone is open no more"


def test_what_a_run_in_the_queue_loses_is_little(runs_dir: Path) -> None:
    jobs.start(runs_dir, digits(), 0, "new")
    app = press(view(), "Delete")
    assert "only its settings are lost" in words(app)


def test_what_cannot_be_done_is_a_sentence_beside_the_run(
    runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = trained(runs_dir, "one", "paused", 200)
    app = press(view(), "Delete")
    lock = claims.take(path)
    app = press(app, "Delete for good")
    assert "is being trained" in app.warning[0].value and path.exists()
    claims.os.close(lock)
    app = press(ran(app), "Resume")
    assert not app.warning and jobs.look(path).state == "queued"
    monkeypatch.setenv("VIT_TRAINING", "off")
    for label in ("Pause", "Same again, new seed"):
        app = press(app, label)
        assert "Training is switched off here" in app.warning[0].value
    assert jobs.look(path).state == "queued" and len(jobs.list_jobs(runs_dir)) == 1
    monkeypatch.delenv("VIT_TRAINING")
    shutil.rmtree(path)
    app = press(app, "Pause")
    assert "There is no run in" in app.warning[0].value and listed(app) == SHIPPED


# ---- side by side --------------------------------------------------------------------------------


def compared_rows(app: AppTest, which: int) -> dict[str, list[str]]:
    """A table of those side by side: cells by the row's name."""
    part = re.findall(r'<div class="compared".*?</div>', html(app), re.DOTALL)[which]
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', part)
    return {unescape(name): re.findall(r"<td>(.*?)</td>", cells) for name, cells in rows}


def test_fewer_than_two_are_not_compared(runs_dir: Path) -> None:
    trained(runs_dir, "one", "finished")
    assert "Tick two runs or more" in words(view())
    app = view(compare=["one", "nonsense", "../.."])
    assert "Tick one more run" in words(app) and figures(app) == []
    assert table(app)["compared"] == ["one"]


def test_curves_over_each_other(runs_dir: Path) -> None:
    trained(runs_dir, "one", "paused", 240)
    app = view(compare=["checkpoints/digits", "one", "one"])
    assert table(app)["compared"] == ["checkpoints/digits", "one"]
    rows = runs.read_metrics(DIGITS)
    for seconds in (False, True):
        accuracy, loss = figures(app)
        for figure, key, factor in ((accuracy, "val_accuracy", 100), (loss, "train_loss", 1)):
            assert len(figure["data"]) == 2
            for line, count in zip(figure["data"], (30, 12), strict=True):
                here = rows[:count]
                x = np.cumsum([row["seconds"] for row in here]) if seconds else range(1, count + 1)
                assert array(line["x"]) == pytest.approx(list(x))
                assert array(line["y"]) == pytest.approx(
                    [factor * row[key] for row in here], rel=1e-5
                )
        ran(app.button_group(key="compare-over").set_value("by time"))


def test_final_figures_side_by_side(runs_dir: Path) -> None:
    trained(runs_dir, "one", "paused", 240)
    jobs.start(runs_dir, digits(), 9, "new")
    found = compared_rows(view(compare=["checkpoints/digits", "one", "new"]), 0)
    rows = runs.read_metrics(DIGITS)
    with np.load(DIGITS / runs.PREDICTIONS) as stored:
        right = int((stored["probabilities"].argmax(1) == stored["labels"]).sum())
    # The score interval solves |p − p̂| = z √(p (1 − p) / n) for p.
    n, z, share = 359, 1.959964, right / 359
    ends = np.roots([1 + z**2 / n, -(2 * share + z**2 / n), share**2])
    low, high = sorted(100 * ends.real)
    assert found["test accuracy"][0] == (
        f"{100 * share:.2f} %<small>{low:.1f} to {high:.1f}</small><small>of 359 pictures</small>"
    )
    best = max(rows, key=lambda row: row["val_accuracy"])
    assert found["best validation accuracy"][0] == (
        f"{100 * best['val_accuracy']:.2f} %<small>after epoch {best['epoch']}</small>"
    )
    last = f"{100 * rows[11]['val_accuracy']:.2f} %<small>after epoch 12</small>"
    assert found["last validation accuracy"][1] == last
    assert found["parameters"] == ["202,186"] * 3
    total = round(sum(row["seconds"] for row in rows))
    whole = f"{total // 60} min {total % 60} s" if total >= 60 else f"{total} s"
    assert found["time in training"][0] == whole
    speed = np.median([row["images_per_second"] for row in rows])
    assert found["training pictures a second"] == [
        f"{speed:,.0f}",
        f"{np.median([row['images_per_second'] for row in rows[:12]]):,.0f}",
        "–",
    ]
    assert [found[key][2] for key in found if key != "parameters"] == ["–"] * 5


def test_only_what_differs_is_listed(runs_dir: Path) -> None:
    trained(runs_dir, "one", "finished", seed=3)
    trained(runs_dir, "two", "finished", seed=3, learning_rate=0.0003 * 3, clip_norm=1.0)
    found = compared_rows(view(compare=["one", "two"]), 1)
    assert found == {
        "peak learning rate": ["0.001", "0.0009"],
        "gradients clipped to a norm of": ["none", "1.0"],
    }
    trained(runs_dir, "three", "finished", seed=3)
    assert "the same settings and the same seed" in words(view(compare=["one", "three"]))


def test_models_that_differ_are_told_by_the_models_own_words(runs_dir: Path) -> None:
    write_run(runs_dir / "small", "cifar10", list(NAMES))
    found = compared_rows(view(compare=["small", "checkpoints/cifar10"]), 1)
    assert found["width"] == ["16", "128"] and found["blocks"] == ["1", "6"]
    assert found["recipe"] == ["debug", "sixty_five"] and found["seed"] == ["3", "0"]
    assert not [name for name in found if "_" in name]


def test_no_more_than_eight_at_once(runs_dir: Path) -> None:
    for number in range(9):
        trained(runs_dir, f"run-{number}", "finished")
    app = view(compare=[f"run-{number}" for number in range(9)])
    assert len(table(app)["compared"]) == 8 == table(app)["most"]
    assert len(figures(app)[0]["data"]) == 8


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.6, "1 min 0 s"),
        (125, "2 min 5 s"),
        (3599.7, "1 h 0 min"),
        (9000, "2 h 30 min"),
    ],
)
def test_a_length_of_time(seconds: float, text: str) -> None:
    assert compare.duration(seconds) == text


def test_an_old_recipe_differs_only_in_what_it_says(runs_dir: Path) -> None:
    """A setting that was not there yet has the value that leaves things as they were."""
    path = trained(runs_dir, "one", "finished")
    config = runs.read_config(path)
    del config["recipe"]["share"], config["recipe"]["jitter"]
    runs.write_json(path / runs.CONFIG, config)
    trained(runs_dir, "two", "finished")
    found = [known for name in ("one", "two") if (known := facts(runs_dir / name))]
    assert compare.differences(found) == []
    assert found[0].recipe == Recipe.from_dict(config["recipe"])


# ---- out and in ----------------------------------------------------------------------------------


def test_what_is_downloaded_can_be_brought_in_and_has_its_figures(
    runs_dir: Path, tmp_path: Path
) -> None:
    content = run_list.zipped(DIGITS)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = archive.namelist()
        page = archive.read("digits/figures/loss.html").decode()
        script = archive.read("digits/figures/plotly.min.js")
    assert {"digits/epochs.csv", "digits/figures/accuracy.html"} <= {*names}
    assert 'src="plotly.min.js"' in page and "http" not in re.sub(r'"[^"]*plot\.ly[^"]*"', "", page)
    assert len(script) > 10**6
    assert "cross-entropy, nats" in page
    (tmp_path / "digits.zip").write_bytes(content)
    app = view()
    app.text_input(key="run-path").set_value(f"  {tmp_path / 'digits.zip'} ")
    app = press(ran(app), "Bring it in")
    assert table(app)["chosen"] == "digits" and listed(app)[0] == "digits"
    assert not app.warning and jobs.look(runs_dir / "digits").state == "finished"


def test_an_uploaded_zip_is_brought_in_once(runs_dir: Path) -> None:
    file = io.BytesIO()
    bundle.pack(DIGITS, file)
    app = view()
    ran(app.file_uploader(key="run-zip").upload("digits.zip", file.getvalue()))
    assert table(app)["chosen"] == "digits"
    ran(app)
    assert [each.path.name for each in jobs.list_jobs(runs_dir)] == ["digits"]


@pytest.mark.parametrize("content", [b"no zip", bundle.__doc__.encode()])
def test_what_cannot_be_brought_in_is_a_sentence(content: bytes, runs_dir: Path) -> None:
    app = view()
    ran(app.file_uploader(key="run-zip").upload("digits.zip", content))
    assert "no zip, or a damaged one" in app.warning[0].value
    assert listed(app) == SHIPPED and jobs.list_jobs(runs_dir) == []


def test_how_to_read_the_curves_in_tensorboard(
    runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = f"python -m vit.tensorboard {runs_dir}\ntensorboard --logdir {runs_dir}"
    assert [each.value for each in view().code] == [command]
    monkeypatch.setattr(tensorboard, "is_installed", lambda: False)
    assert [each.value for each in view().code] == ["pip install tensorboard", command]
