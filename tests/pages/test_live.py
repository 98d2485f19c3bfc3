"""The Watch view: what it shows is what the run's files say, and what it sends is little."""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from tests.pages.made import HOSTILE, ROOT, figures, html, open_page, words
from tests.small_data import NAMES
from tests.small_runs import write_run
from ui import live
from ui.learning import jumps, turning_points
from ui.live_chart import MOST, axis_end, payload, thin
from ui.words import to_the_letter
from vit import claims, jobs, runs
from vit.recipes import RECIPES, digits, sixty_five
from vit.settings import Recipe

FILE = "6_Training.py"
PER_EPOCH = 20  # steps
Make = Callable[..., Path]


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Own folders, and no worker that would train."""
    monkeypatch.setenv("VIT_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("VIT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("VIT_TRAINING", raising=False)
    monkeypatch.setattr(jobs, "keep_going", lambda runs_dir: None)
    return tmp_path / "runs"


@pytest.fixture
def held() -> Iterator[ExitStack]:
    """The runs that this process holds, as a trainer would."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def made(places: Path, held: ExitStack) -> Make:
    """``made(state, epochs, recipe)``: a run that has come to a state after some of its epochs."""

    def make(state: str = "running", epochs: float = 4.5, recipe: Recipe | None = None) -> Path:
        recipe = recipe or digits()
        path = jobs.start(places, recipe, 0, "A run", ["one"])
        runs.write_json(path / runs.CONFIG, {"recipe": recipe.to_dict(), "seed": 0})
        total = recipe.epochs * PER_EPOCH
        record(path, int(epochs * PER_EPOCH) // 10)
        runs.write_metrics(path, [row(epoch, recipe) for epoch in range(1, int(epochs) + 1)])
        tell(path, state, step=int(epochs * PER_EPOCH), total=total)
        if state == "running":
            held.enter_context(claims.hold(path))
        return path

    return make


def tell(path: Path, state: str, **more: Any) -> None:
    runs.write_json(path / runs.STATUS, {"state": state, **more})


def lines(count: int) -> np.ndarray:
    """(count, columns) of a live record in which the loss comes down."""
    at = np.arange(1, count + 1)
    loss = 2.3 * np.exp(-at / 40) + 0.05 * np.cos(3 * at)
    speed = 500 + 10 * np.sin(at)
    return np.stack(
        [10 * at, 10 * at / PER_EPOCH, loss, 1 - loss / 3, 1 + 1 / at, 0.01 / at, speed], axis=1
    )


def record(path: Path, count: int) -> None:
    text = (
        json.dumps(dict(zip(runs.STEP_COLUMNS, line, strict=True)))
        for line in lines(count).tolist()
    )
    (path / runs.STEPS).write_text("".join(f"{line}\n" for line in text))


def row(epoch: int, recipe: Recipe) -> dict[str, Any]:
    tested = recipe.test_every_epoch or epoch == recipe.epochs
    return {
        "epoch": epoch,
        "step": epoch * PER_EPOCH,
        "train_loss": 2 / epoch,
        "train_accuracy": 1 - 0.9 / epoch,
        "val_loss": 2.1 / epoch,
        "val_accuracy": 1 - 0.92 / epoch,
        "test_loss": 2.2 / epoch if tested else None,
        "test_accuracy": 1 - 0.94 / epoch if tested else None,
        "learning_rate": 0.01 / epoch,
        "grad_norm": 1.0,
        "images_per_second": 500.0,
        "seconds": 2.0,
    }


def watch(path: Path) -> AppTest:
    return open_page(FILE, show="watch", job=path.name)


def sent(app: AppTest) -> dict[str, Any]:
    """What the charts were sent."""
    for element in app.get("bidi_component"):
        if element.proto.id.endswith(f"-{live.KEY}"):
            return json.loads(element.proto.json)[0]
    raise AssertionError("there are no charts")


def curve(app: AppTest, title: str, name: str = "") -> dict[str, Any]:
    chart = next(chart for chart in sent(app)["charts"] if chart["title"] == title)
    return next(line for line in chart["lines"] if line["name"] == name)


def numbers(app: AppTest) -> dict[str, str]:
    found = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", html(app))
    return {name: re.sub("<.*?>", "", value) for name, value in found}


def labels(app: AppTest) -> list[str]:
    keys = ("live-", "nothing")
    return [button.label for button in app.button if (button.key or "").startswith(keys)]


def says(app: AppTest) -> str:
    return unescape(re.search(r'run-happening"><b>.*?</b> (.*?)</p>', html(app))[1])


# ---- no run --------------------------------------------------------------------------------------


def test_without_a_run_it_teaches_and_one_click_trains_the_digits(places: Path) -> None:
    app = open_page(FILE, show="watch")
    assert "ln 10 ≈ 2.303" in words(app)
    assert len(app.get("plotly_chart")) == 1
    app.button(key="live-first").click().run()
    assert not app.exception
    (path,) = (path for path in places.iterdir() if path.is_dir())
    recipe, seed = jobs.settings(path)
    assert (recipe, seed) == (RECIPES["digits"](), 0)
    assert jobs.look(path).state == "queued"
    assert app.query_params["job"] == path.name
    assert "Waits for its turn" in html(app)


def test_a_start_that_fails_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    app = open_page(FILE, show="watch")

    def refuse(*_: object) -> Path:
        raise runs.RunError("There is no room. Make some.")

    monkeypatch.setattr(jobs, "start", refuse)
    app.button(key="live-first").click().run()
    assert not app.exception
    assert app.warning[0].value == to_the_letter("There is no room. Make some.")


# ---- what is shown -------------------------------------------------------------------------------


def test_the_numbers_are_those_of_the_files(made: Make) -> None:
    app = watch(made())
    table = lines(9)
    assert numbers(app) == {
        "step": "90 of 600",
        "epoch": "4.5 of 30",
        # 510 steps of 64 pictures, at the median of the speeds.
        "time left": f"about {5 * round(510 * 64 / np.median(table[:, 6]) / 5)} s",
        "pictures a second": f"{np.median(table[:, 6]):.0f}",
        "gradient norm": f"{table[-1, 4]:.3g}",
        "learning rate": f"{table[-1, 5]:.3g}",
    }
    assert 'aria-valuenow="15"' in html(app)
    assert ">Training</span>" in html(app) and ">one</span>" in html(app)


def test_the_live_record_is_ahead_of_the_status_of_a_run_that_trains(made: Make) -> None:
    path = made()
    tell(path, "running", step=70, total=600)
    app = watch(path)
    assert numbers(app)["step"] == "90 of 600" and numbers(app)["epoch"] == "4.5 of 30"
    assert 'aria-valuenow="15"' in html(app)
    paused = made("paused")
    tell(paused, "paused", step=70, total=600)
    assert numbers(watch(paused))["step"] == "70 of 600"


def test_the_curves_are_those_of_the_files(made: Make) -> None:
    app = watch(made())
    table = lines(9)
    for title, name, column, factor in (
        ("Loss", "training", 2, 1),
        ("Accuracy", "training", 3, 100),
        ("Gradient norm", "", 4, 1),
        ("Learning rate", "", 5, 1),
        ("Pictures a second", "", 6, 1),
    ):
        line = curve(app, title, name)
        assert line["steps"] == table[:, 0].tolist()
        assert line["values"] == pytest.approx(factor * table[:, column], rel=1e-4)
    for title, key, factor in (("Loss", "val_loss", 1), ("Accuracy", "val_accuracy", 100)):
        line = curve(app, title, "validation")
        expected = [row(epoch, digits()) for epoch in range(1, 5)]
        assert line["steps"] == [each["step"] for each in expected]
        assert line["values"] == pytest.approx([factor * each[key] for each in expected], rel=1e-4)
        assert line["dots"] and not line["noisy"]
    assert [line["name"] for line in sent(app)["charts"][0]["lines"]] == ["training", "validation"]
    assert sent(app)["charts"][0]["level"]["value"] == pytest.approx(np.log(10))


def test_the_test_split_comes_once_at_the_end(made: Make) -> None:
    recipe = replace(digits(), epochs=4)
    app = watch(made("finished", 4, recipe))
    line = curve(app, "Loss", "test")
    assert (line["steps"], line["values"]) == ([4 * PER_EPOCH], [2.2 / 4])


def test_a_run_without_a_live_record_shows_its_epochs(made: Make) -> None:
    path = made("paused")
    (path / runs.STEPS).unlink()
    app = watch(path)
    assert curve(app, "Loss", "training")["values"] == pytest.approx([2, 1, 2 / 3, 0.5], rel=1e-4)
    assert numbers(app)["pictures a second"] == "–"


def test_where_the_training_pictures_change_is_marked(made: Make) -> None:
    path = made(recipe=replace(sixty_five(), epochs=100))
    app = watch(path)
    assert sent(app)["marks"] == [
        {"step": 65 * PER_EPOCH, "text": "all patches"},
        {"step": 88 * PER_EPOCH, "text": "no CutMix"},
    ]
    assert "Up to epoch 88 (88 % of the steps), 50 %" in words(app)


@pytest.mark.parametrize(
    ("task", "said", "share"),
    [
        (("Fetching CIFAR-10", 81_000_000, 170_500_000), "Fetching CIFAR-10: 81 of 170 MB", 48),
        (("Reading the pictures", 1_200, 50_000), "Reading the pictures: 1,200 of 50,000", 2),
        (("Testing what was learned", 0, 0), "Testing what was learned", 0),
    ],
)
def test_what_else_it_does_is_said(
    made: Make, task: tuple[str, int, int], said: str, share: int
) -> None:
    path = made()
    told = dict(zip(("what", "done", "total"), task, strict=True))
    tell(path, "running", step=0, total=0, task=told)
    app = watch(path)
    assert f">{said}</span>" in html(app)
    assert f'aria-valuenow="{share}"' in html(app)
    assert numbers(app)["time left"] == "not measured yet"


def test_strangers_text_is_shown_to_the_letter(places: Path, made: Make) -> None:
    path = made()
    jobs.label(path, HOSTILE, [HOSTILE])
    second = jobs.start(places, digits())
    app = watch(path)
    assert HOSTILE in unescape(html(app)) and HOSTILE not in html(app)
    assert to_the_letter(f"Before it: {HOSTILE}.") in words(watch(second))


def test_damaged_files_and_removed_runs_are_sentences(made: Make, held: ExitStack) -> None:
    path = made()
    for name in (runs.STEPS, runs.METRICS, runs.CONFIG):
        (path / name).write_text("{ nonsense")
        assert not watch(path).warning
    assert says(watch(path)).startswith("Its settings cannot be read")
    app = watch(path)
    other = made("paused")
    held.close()
    jobs.delete(path)
    app.run()
    assert not app.exception and not app.error
    assert "A run" in html(app) and other.exists()


# ---- what can be done ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "wish", "epoch_done", "expected"),
    [
        ("running", "", True, ["Pause", "Stop and keep"]),
        ("running", "pause", True, ["Train on", "Stop and keep"]),
        ("running", "stop", True, ["Train on", "Pause"]),
        ("queued", "", False, ["Pause"]),
        ("queued", "", True, ["Pause", "Stop and keep"]),
        ("paused", "", False, ["Resume"]),
        ("paused", "", True, ["Resume", "Stop and keep"]),
        ("interrupted", "", True, ["Resume", "Stop and keep"]),
        ("failed", "", False, ["Resume", "Same again, changed"]),
        ("finished", "", True, ["Resume", "Same again, changed"]),
    ],
)
def test_the_buttons_are_those_of_the_state(
    made: Make, state: str, wish: str, epoch_done: bool, expected: list[str]
) -> None:
    path = made(state)
    if wish:
        (path / wish).touch()
    if epoch_done:
        (path / runs.RESUME).touch()
    app = watch(path)
    assert labels(app) == expected
    assert to_the_letter(jobs.look(path).message) in words(app)


def test_a_finished_run_offers_no_more_training(made: Make) -> None:
    assert labels(watch(made("finished", 30))) == ["Same again, changed"]


def test_pause_and_resume_reach_the_run(made: Make) -> None:
    path = made()
    app = watch(path)
    app.button(key="live-Pause").click().run()
    assert (path / runs.PAUSE).exists()
    assert "about to pause" in words(app)
    app.button(key="live-Train on").click().run()
    assert not (path / runs.PAUSE).exists()
    assert labels(app) == ["Pause", "Stop and keep"]


def test_an_action_that_is_refused_says_why(made: Make, held: ExitStack) -> None:
    path = made("paused")
    app = watch(path)
    held.enter_context(claims.hold(path))
    tell(path, "finished", step=600, total=600)
    held.close()
    app.button(key="live-Resume").click().run()
    assert not app.exception
    assert "is finished" in app.warning[0].value


def test_open_this_model_leads_to_it_on_every_page(made: Make) -> None:
    path = made("finished", 30)
    write_run(path, "cifar10", list(NAMES))
    app = watch(path)
    assert "Open this model" in labels(app)
    (link,) = (link for link in app.get("page_link") if link.proto.label == "Its attention")
    assert f"run=runs%2F{path.name}" in link.proto.query_string
    app.button(key="live-open").click().run()
    assert app.query_params["run"] == f"runs/{path.name}"
    assert app.query_params["show"] == "model"


# ---- what happens, and how often it is looked ----------------------------------------------------


def test_what_happens_is_said_of_the_runs_own_curves(made: Make) -> None:
    text = says(watch(made()))
    gap = 100 * (0.92 - 0.9) / 4
    assert f"move together, {gap:.1f} points apart" in text
    rise = 100 * 0.75 * (0.92 / 3 - 0.92 / 4)  # over epochs 3.25 to 4, on the line from 3 to 4
    assert f"risen by {rise:.1f} points" in text


@pytest.mark.parametrize(
    ("state", "pace"),
    [("running", live.TICK), ("queued", live.SLOW_TICK)]
    + [(state, None) for state in ("paused", "interrupted", "failed", "finished")],
)
def test_it_looks_again_only_while_something_moves(
    made: Make, state: str, pace: float | None
) -> None:
    assert live._pace(made(state)) == pace


# ---- how much is sent ----------------------------------------------------------------------------


def long_run(made: Make) -> Path:
    """20,000 of 25,000 steps in 100 epochs, each validated and tested."""
    recipe = replace(digits(), epochs=125, test_every_epoch=True)
    path = made(recipe=recipe)
    record(path, 2_000)
    runs.write_metrics(
        path, [row(epoch, recipe) | {"step": 200 * epoch} for epoch in range(1, 101)]
    )
    tell(path, "running", step=20_000, total=25_000)
    return path


@pytest.mark.parametrize("window", [None, (0.0, 1_000.0), (9_000.0, 11_000.0), (1e9, 2e9)])
def test_a_tick_sends_at_most_500_points(made: Make, window: tuple[float, float] | None) -> None:
    charts = payload(live.charts(live.look(long_run(made))), window)
    sizes = [len(line["steps"]) for chart in charts for line in chart["lines"]]
    assert len(sizes) == 9 and sum(sizes) <= MOST == 500
    if window is None:
        assert sum(sizes) > 400
    for chart in charts:
        for line in chart["lines"]:
            assert len(line["values"]) == len(line["steps"])


def test_a_tick_costs_under_50_ms_of_server_time(
    places: Path, made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = long_run(made)
    app = watch(path)
    spent: list[float] = []
    tick = live._watch

    def timed(path: Path) -> None:
        started = time.thread_time()
        tick(path)
        spent.append(time.thread_time() - started)

    monkeypatch.setattr(live, "_watch", timed)
    for _ in range(5):
        app.run()
    assert len(spent) == 5 and min(spent) < 0.05, spent


def test_neighbours_are_averaged_and_a_zoom_gets_more_of_the_points() -> None:
    steps, values = np.arange(10.0, 1010, 10), np.arange(100.0)
    to, means, counts = thin(steps, values, 20, None)
    assert counts.tolist() == [5] * 20
    assert to.tolist() == list(range(50, 1001, 50))
    assert means == pytest.approx(np.arange(2, 100, 5))

    to, means, counts = thin(steps, values, 20, (400, 560))
    inside = (to >= 400) & (to <= 560)
    assert counts[inside].tolist() == [1] * 16
    assert len(to) <= 20 and counts.sum() == 100
    assert (means * counts).sum() == pytest.approx(values.sum())
    assert thin(steps[:0], values[:0], 20, None)[0].tolist() == []


def test_the_axis_grows_by_doubling_up_to_the_whole_run() -> None:
    ends = [axis_end(step, 1_600) for step in (0, 90, 150, 399, 401, 801, 1_600)]
    assert ends == [12.5, 100, 200, 400, 800, 1_600, 1_600]
    assert axis_end(250, 250) == 250 and axis_end(0, 0) == 12.5


# ---- where the training pictures change, also in the view of a finished model --------------------


def test_the_shipped_run_marks_where_its_training_pictures_change() -> None:
    app = open_page(FILE, run="cifar10")
    recipe = runs.read_config(ROOT / "checkpoints" / "cifar10")["recipe"]
    epochs, patches, cutmix = (
        recipe[key] for key in ("epochs", "kept_patches_until", "cutmix_until")
    )
    layout = figures(app)[0]["layout"]
    assert {note["x"]: note["text"] for note in layout["annotations"]} == {
        patches * epochs: "all patches",
        cutmix * epochs: "no CutMix",
        epochs: "kept",
    }
    assert layout["yaxis"]["title"]["text"] == "own label came first, %"
    assert (
        f"Up to epoch {patches * epochs:g} ({100 * patches:.0f} % of the steps) the model is shown "
        f"{100 * recipe['kept_patches']:.0f} % of each training picture's patches" in words(app)
    )
    assert (
        f"Up to epoch {cutmix * epochs:g} ({100 * cutmix:.0f} % of the steps), "
        f"{100 * recipe['cutmix']:.0f} % of the training pictures get a box" in words(app)
    )


def test_jumps_are_said_only_of_runs_that_have_them() -> None:
    plain = digits().to_dict()
    assert (turning_points(plain), jumps(plain)) == ({}, "")
    assert (turning_points({"name": "old"}), jumps({"name": "old"})) == ({}, "")
    both = plain | {"kept_patches": 0.5, "kept_patches_until": 0.5}
    both |= {"cutmix": 0.5, "cutmix_until": 0.5}
    assert turning_points(both) == {0.5: "all patches, no CutMix"}
    throughout = plain | {"cutmix": 0.5, "cutmix_until": 1.0}
    assert turning_points(throughout) == {}
    assert jumps(throughout).startswith("To the end, 50 % of the training pictures")
    assert "At the marks" not in jumps(throughout)
