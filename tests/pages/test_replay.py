"""The model's epoch: the slider, the steps, and what play does and what ends it."""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from tests.pages import made
from tests.pages.made import ROOT, open_page
from tests.small_runs import write_run
from ui import replay
from vit import load_run, runs

DIGITS = runs.list_epochs(ROOT / "checkpoints" / "digits")
Wait = Callable[[int | None], object]  # what happens while play waits at an epoch


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("VIT_UPLOADS_DIR", str(tmp_path / "uploads"))
    monkeypatch.setenv("VIT_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("VIT_DATA_DIR", str(tmp_path / "data"))
    st.cache_resource.clear()
    st.cache_data.clear()
    yield tmp_path


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[Wait]:
    """Every wait of play is over at once, after what stands in this list was called with the epoch
    on show."""
    during: list[Wait] = []
    real = st.fragment

    def fragment(function: Any = None, *, run_every: float | None = None) -> Any:
        if function is not None or run_every is None:
            return real(function, run_every=run_every)
        assert run_every == replay.PACE

        def wrap(draw: Callable[[], None]) -> Callable[[], None]:
            def draw_and_wait() -> None:
                draw()
                epoch = st.query_params.get("epoch")
                for happens in during:
                    happens(None if epoch is None else int(epoch))
                draw()

            return draw_and_wait

        return wrap

    monkeypatch.setattr(st, "fragment", fragment)
    return during


def opened(file: str = "", **query: str) -> AppTest:
    if file:
        return open_page(file, **query)
    app = AppTest.from_file(ROOT / "app.py", default_timeout=60)
    for name, value in query.items():
        app.query_params[name] = value
    return calm(app.run())


def calm(app: AppTest) -> AppTest:
    assert not app.exception and not app.error, [e.value for e in (*app.exception, *app.error)]
    return app


def press(app: AppTest, key: str) -> AppTest:
    return calm(app.sidebar.button(key=key).click().run())


def query(app: AppTest, name: str) -> str | None:
    """A part of the address; AppTest gives some as lists."""
    value = app.query_params.get(name)
    return value[-1] if isinstance(value, list) else value


def epoch_of(app: AppTest) -> int | None:
    """What slider and address agree on."""
    shown = app.sidebar.select_slider(key="view-epoch").value
    stated = query(app, "epoch")
    epoch = None if shown == replay.KEPT else shown
    assert stated == (None if epoch is None else str(epoch))
    return epoch


def is_playing(app: AppTest) -> bool:
    label = app.sidebar.button(key="play").label
    assert label in ("Pause epochs", "Play epochs")
    return label == "Pause epochs"


@pytest.mark.parametrize("file", ["", "3_Attention.py", "6_Training.py"])
def test_play_shows_every_snapshot_in_order_and_ends_at_the_kept_weights(
    file: str, waits: list[Wait]
) -> None:
    app, seen = opened(file, run="digits", token="3"), []
    waits.append(seen.append)
    press(app, "play")
    assert seen == DIGITS and len(DIGITS) > 5
    assert epoch_of(app) is None and not is_playing(app)
    assert query(app, "token") == "3"


def test_play_goes_on_from_the_epoch_on_show(waits: list[Wait]) -> None:
    app, seen = opened(run="digits", epoch=str(DIGITS[-3])), []
    waits.append(seen.append)
    press(app, "play")
    assert seen == DIGITS[-3:]
    press(app, "play")
    assert seen == DIGITS[-3:] + DIGITS, "from the end it starts again"


def test_pressed_again_it_stops_where_it_is(waits: list[Wait]) -> None:
    app = opened(run="digits", epoch="4")
    waits.append(lambda epoch: st.stop() if epoch == 9 else None)
    press(app, "play")
    assert epoch_of(app) == 9 and is_playing(app)
    press(app, "play")
    assert epoch_of(app) == 9 and not is_playing(app)


def test_steps_lead_to_the_snapshots_beside(folders: Path) -> None:
    write_run(folders / "runs" / "own", "cifar10", [str(n) for n in range(10)])  # epochs 0 and 2
    app = opened(run="runs/own")
    for key, expected in (
        *(("step-Earlier", 2), ("step-Earlier", 0), ("step-Later", 2), ("step-Later", None)),
    ):
        press(app, key)
        assert epoch_of(app) == expected
        assert app.sidebar.button(key="step-Earlier").disabled == (expected == 0)
        assert app.sidebar.button(key="step-Later").disabled == (expected is None)


CHANGES: dict[str, Callable[[AppTest], object]] = {
    "the slider": lambda app: app.sidebar.select_slider(key="view-epoch").set_value(12),
    "a step": lambda app: app.sidebar.button(key="step-Later").click(),
    "the model": lambda app: app.sidebar.selectbox(key="run").set_value("cifar10"),
    "the framing": lambda app: app.sidebar.segmented_control(key="framing").set_value("fit"),
    "the picture, by a link": lambda app: app.query_params.update(img="frog"),
    "the page": lambda app: app.switch_page(str(ROOT / "pages" / "1_Patches.py")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_play_ends_when_something_else_is_chosen(change: str) -> None:
    app = opened(run="digits", epoch="4")
    press(app, "play")
    assert is_playing(app) and epoch_of(app) == 4
    CHANGES[change](app)
    calm(app.run())
    assert not is_playing(app)
    app.query_params.update({"img": "cat-photo", "framing": "crop", "run": "digits", "epoch": "4"})
    app.switch_page(str(ROOT / "app.py"))
    assert not is_playing(calm(app.run())), "it does not come back by itself"


def test_what_the_browser_has_not_drawn_yet_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a step, a click sent before the browser has the new slider says the old epoch with it;
    a moment later the same value is the visitor's own choice."""
    app = opened("3_Attention.py", run="digits", epoch="4")
    press(app, "step-Later")
    press(app, "step-Later")
    assert epoch_of(app) == 9
    for echo in (4, 6):
        app.sidebar.select_slider(key="view-epoch").set_value(echo)
        app.query_params["token"] = str(echo)
        calm(app.run())
        assert epoch_of(app) == 9 and query(app, "token") == str(echo)
    later = time.monotonic() + 2 * replay.ECHOES
    monkeypatch.setattr(replay.time, "monotonic", lambda: later)
    calm(app.sidebar.select_slider(key="view-epoch").set_value(6).run())
    assert epoch_of(app) == 6
    for own in (9, 6, 9):  # to and fro, as fast as one likes
        calm(app.sidebar.select_slider(key="view-epoch").set_value(own).run())
        assert epoch_of(app) == own


def test_a_choice_on_the_page_does_not_end_it() -> None:
    app = opened("3_Attention.py", run="digits", epoch="4")
    press(app, "play")
    app.query_params["token"] = "5"
    assert is_playing(calm(app.run()))


def test_two_visitors_play_each_on_their_own() -> None:
    one, two = opened(run="digits", epoch="4"), opened(run="digits", epoch="4")
    press(one, "play")
    assert is_playing(one)
    assert not is_playing(calm(two.run()))


def test_a_snapshot_made_meanwhile_is_played_and_offered(folders: Path, waits: list[Wait]) -> None:
    path = write_run(folders / "runs" / "own", "cifar10", [str(n) for n in range(10)])
    weights = load_run(path).model.state_dict()
    app, seen = opened(run="runs/own", epoch="0"), []

    def train_on(epoch: int | None) -> None:
        seen.append(epoch)
        if epoch == 2:
            runs.write_snapshot(path, 3, weights)

    waits.append(train_on)
    press(app, "play")
    assert seen == [0, 2, 3]
    assert app.sidebar.select_slider(key="view-epoch").options == ["0", "2", "3", "kept"]


@pytest.mark.parametrize(
    ("whole_run", "said"),
    [
        (False, "This model has no snapshot of that epoch that can be opened"),
        (True, "The model of this link is not on this machine, so another one is shown."),
    ],
)
def test_what_is_deleted_meanwhile_ends_play_with_a_sentence(
    folders: Path, waits: list[Wait], whole_run: bool, said: str
) -> None:
    path = write_run(folders / "runs" / "own", "cifar10", [str(n) for n in range(10)])
    app = opened(run="runs/own", epoch="0")

    def delete(epoch: int | None) -> None:
        if whole_run:
            shutil.rmtree(path, ignore_errors=True)
        else:
            runs.snapshot_path(path, 2).write_bytes(b"no longer one")

    waits.append(delete)
    press(app, "play")
    assert len(app.main.warning) == 1 and said in app.main.warning[0].value
    assert app.sidebar.selectbox(key="run").value == ("cifar10" if whole_run else "runs/own")
    assert app.sidebar.select_slider(key="view-epoch").value == replay.KEPT
    assert not is_playing(app)


def test_without_snapshots_there_is_nothing_to_play(folders: Path) -> None:
    made.make_runs(folders / "runs")
    app = opened(run="runs/shallow")
    assert app.sidebar.selectbox(key="run").value == "runs/shallow"
    assert len(app.sidebar.select_slider) == 0
    assert "play" not in [button.key for button in app.sidebar.button]


@pytest.mark.parametrize("epoch", [0, 9])
def test_a_snapshots_test_says_which_temperature_it_has(epoch: int) -> None:
    app = opened("5_Confusion_matrix.py", run="digits", epoch=str(epoch))
    calm(app.main.button(key="test").click().run())
    run = load_run(ROOT / "checkpoints" / "digits", epoch)
    assert run.calibrated_on == 143 and (run.temperature == 1) == (epoch == 0)
    assert (
        f"temperature **{run.temperature:.3f}**, fitted on 143 other pictures"
        if epoch
        else "as training left them: on 143 other pictures kept out of training, no temperature"
    ) in made.words(app)
