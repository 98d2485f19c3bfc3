"""The Confusion matrix page: what it prints is what scikit-learn makes of the predictions."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics
from streamlit.testing.v1 import AppTest

from tests.loopback_hub import LoopbackHub, loopback_hub
from tests.pages.made import ROOT, array, figures, html, open_page, words
from tests.small_data import NAMES, noise, parquet_bytes, write_parquet
from tests.small_runs import predictions_of, probabilities_of, write_run
from ui.errors import change_words, parse_cell
from ui.heldout import Outcome, sixteen
from vit import download, runs
from vit.data import DataError, load_split
from vit.evaluate import load_test_split
from vit.published import C_CONFUSION
from vit.runs import load_run, read_predictions, write_predictions

FILE = "5_Confusion_matrix.py"
DIGITS = ROOT / "checkpoints" / "digits"


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VIT_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("VIT_DATA_DIR", str(tmp_path / "data"))
    return tmp_path


def component(app: AppTest, key: str) -> dict[str, Any]:
    """What a component was sent."""
    for element in app.get("bidi_component"):
        if element.proto.id.endswith(f"-{key}"):
            return json.loads(element.proto.json)
    raise AssertionError(f"there is no component {key}")


def digits_with(folder: Path, **metadata: str) -> Path:
    """A copy of the shipped digits among the visitor's own, its weights with other metadata, and
    nothing measured on changed pictures."""
    ignored = shutil.ignore_patterns(runs.ROBUSTNESS)
    run = Path(shutil.copytree(DIGITS, folder / "runs" / "own", ignore=ignored))
    weights, kept = runs.load_weights(run / runs.MODEL)
    runs.write_weights(run / runs.MODEL, weights, {"epoch": kept["epoch"], **metadata})
    return run


def expected_error(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """The expected calibration error over ten bins, written out."""
    sure, right = probabilities.max(1), probabilities.argmax(1) == labels
    bins = np.minimum((sure * 10).astype(int), 9)
    return sum(
        (bins == b).mean() * abs(sure[bins == b].mean() - right[bins == b].mean())
        for b in np.unique(bins)
    )


def test_digits_as_scikit_learn_counts_them() -> None:
    app = open_page(FILE, run="digits")
    stored = read_predictions(DIGITS)
    labels, said = stored["labels"], stored["probabilities"].argmax(1)
    matrix = metrics.confusion_matrix(labels, said)
    shown = component(app, "matrix")
    assert shown["names"] == list("0123456789")
    assert [table["counts"] for table in shown["tables"]] == [matrix.tolist()]
    text = words(app)
    assert f"{len(labels)} pictures" in text
    assert f"**{100 * metrics.accuracy_score(labels, said):.2f} %**" in text

    recall = 100 * np.sort(metrics.recall_score(labels, said, average=None))
    assert array(figures(app)[0]["data"][0]["x"]) == pytest.approx(recall[::-1], rel=1e-5)

    wrong = matrix - np.diag(matrix.diagonal())
    row, column = np.unravel_index(wrong.argmax(), wrong.shape)
    assert shown["cell"] == [row, column], "the commonest mistake is open at first"
    pictures = "1 picture" if wrong.max() == 1 else f"{wrong.max()} pictures"
    assert f"True class {row}, predicted {column}: {pictures}" in text
    tiles = component(app, "cell-pictures")["tiles"]
    assert len(tiles) == wrong.max()
    assert all(tile["said"].startswith(f"{column} ") and not tile["right"] for tile in tiles)
    assert all(tile["note"] == f"shows {row}" for tile in tiles)
    inside = np.flatnonzero((labels == row) & (said == column))
    numbers = [int(re.search(r"img=digit-(\d+)", tile["href"])[1]) for tile in tiles]
    assert set(numbers) == set(inside)
    assert all("run=digits" in tile["href"] for tile in tiles)


def test_a_mistake_chosen_in_words_opens_its_cell() -> None:
    app = open_page(FILE, run="digits")
    buttons = [b for b in app.button if b.key.startswith("confusion-")]
    counts = [int(b.label.strip("*").split()[-2]) for b in buttons if "times" in b.label]
    assert counts == sorted(counts, reverse=True)
    chosen = buttons[1]
    row, column = map(int, chosen.key.split("-")[1:])
    assert chosen.label.startswith(f"{row} → {column}, ")
    chosen.click().run()
    assert app.query_params["cell"] == f"{row},{column}"
    assert component(app, "matrix")["cell"] == [row, column]
    assert f"True class {row}, predicted {column}:" in words(app)


@pytest.mark.parametrize("text", ["", "3", "3,", "10,0", "a,b", "-1,2", "²,1", "1,2,3", "1,9999"])
def test_what_is_no_cell_is_none(text: str) -> None:
    assert parse_cell(text, 10) is None
    assert parse_cell("3,9", 10) == (3, 9)


def test_a_cell_on_the_diagonal_shows_what_is_right() -> None:
    app = open_page(FILE, run="digits", cell="2,2")
    tiles = component(app, "cell-pictures")["tiles"]
    assert all(tile["right"] for tile in tiles)
    sure = [float(tile["said"].split()[1]) for tile in tiles]
    assert sure == sorted(sure, reverse=True)


def test_calibration_is_said_in_words() -> None:
    text = words(open_page(FILE, run="digits"))
    stored = read_predictions(DIGITS)
    sure, labels = stored["probabilities"].max(1), stored["labels"]
    right = stored["probabilities"].argmax(1) == labels
    error = expected_error(stored["probabilities"], labels)
    assert f"**{100 * error:.1f} percentage points** apart" in text
    assert f"(expected calibration error {error:.3f})" in text
    assert f"{100 * sure.mean():.1f} % sure, {100 * right.mean():.1f} % right" in text


@pytest.mark.parametrize(("factor", "helped"), [(1, False), (3, True)])
def test_a_temperature_is_named_with_what_it_did(
    folders: Path, factor: float, helped: bool
) -> None:
    """Scores that are honest as they are, or thrice too large, are divided by 3."""
    run, temperature = digits_with(folders, temperature="3.0", calibrated_on="1234"), 3.0
    random = np.random.default_rng(0)
    honest = random.normal(0, 2, (4000, 10))
    labels = (honest + random.gumbel(size=honest.shape)).argmax(1)  # drawn by softmax(honest)
    plain, tempered = (
        torch.from_numpy(factor * honest / t).softmax(1).numpy() for t in (1, temperature)
    )
    write_predictions(run, labels, tempered, "f")
    text = words(open_page(FILE, run="runs/own"))
    without, now = expected_error(plain, labels), expected_error(tempered, labels)
    assert (now < without) == helped
    assert f"temperature **{temperature:.3f}**, fitted on 1,234 other pictures" in text
    assert (
        f"Without it, the expected calibration error would be {without:.3f} instead of {now:.3f}."
        if helped
        else f"On these pictures that did not help: without it, the error would be {without:.3f}."
    ) in text
    assert "changes no answer" in text


def test_what_no_temperature_was_fitted_to_is_said_to_be_so(folders: Path) -> None:
    digits_with(folders)
    text = words(open_page(FILE, run="runs/own"))
    assert "no temperature was fitted to these weights" in text
    assert "were divided by" not in text


def test_a_snapshot_does_not_borrow_the_kept_weights_temperature(folders: Path) -> None:
    run = digits_with(folders, temperature="1.5", calibrated_on="1234")
    own = load_run(run, 9)
    app = open_page(FILE, run="runs/own", epoch="9")
    assert "as it was kept" in words(app)
    assert "temperature **1.500**, fitted on 1,234" in words(app)
    app.button(key="test").click().run()
    assert not app.exception and "is not tested yet" not in words(app)
    assert f"temperature **{own.temperature:.3f}**, fitted on {own.calibrated_on}" in words(app)
    assert "1,234" not in words(app) and own.calibrated_on > 0


def test_how_far_the_accuracy_can_be_trusted_and_the_scores_of_each_class() -> None:
    app = open_page(FILE, run="digits")
    text, table = words(app), html(app)
    stored = read_predictions(DIGITS)
    labels, said = stored["labels"], stored["probabilities"].argmax(1)
    right, n, z = (said == labels).sum(), len(labels), 1.959964
    middle, half = (  # Wilson 1927
        (right + z * z / 2) / (n + z * z),
        z * np.sqrt(right * (n - right) / n + z * z / 4) / (n + z * z),
    )
    assert f"(95 % interval {100 * (middle - half):.1f}–{100 * (middle + half):.1f} %)" in text
    for name in range(10):
        tp = ((said == name) & (labels == name)).sum()
        called, count = (said == name).sum(), (labels == name).sum()
        shares = [tp / called, tp / count, 2 * tp / (called + count)]
        row = [str(count), *(f"{100 * share:.1f}" for share in shares)]
        cells = "".join(f"<td>{cell}</td>" for cell in row)
        assert f"<th scope=row>{name}</th>{cells}</tr>" in table
    macro = metrics.f1_score(labels, said, average="macro")
    assert f"harmonic mean, {100 * macro:.1f} % on average" in text


def test_an_unusual_picture_is_spoken_of_where_that_was_measured(folders: Path) -> None:
    run = digits_with(folders)
    app = open_page(FILE, run="runs/own")
    title = "How far to trust an unusual picture"
    assert title not in [e.value for e in app.subheader]
    without = len(figures(app))
    fingerprint = read_predictions(run)["fingerprint"]
    changes = {
        "none": {"accuracy": 0.9694, "confidence": 0.882},
        "blur": {"accuracy": 0.1671, "confidence": 0.8259},
        "rotation": {"accuracy": 0.3, "confidence": 0.31},
    }
    runs.write_robustness(run, load_run(run).epoch, changes, fingerprint)
    app = open_page(FILE, run="runs/own")
    assert title in [e.value for e in app.subheader]
    assert len(figures(app)) == without + 1
    bars, strokes = figures(app)[-1]["data"]
    assert array(bars["x"]) == pytest.approx([96.94, 16.71, 30], rel=1e-5)
    assert array(strokes["x"]) == pytest.approx([88.2, 82.59, 31], rel=1e-5)
    assert (
        "Hardest for it is to see them blurred (a Gaussian, σ = 1 pixel): it names **16.7 %** of "
        "them rightly instead of 96.9 %, and is still 82.6 % sure on average"
    ) in words(app)
    for epoch, of in ((1, fingerprint), (load_run(run).epoch, "another split")):
        runs.write_robustness(run, epoch, changes, of)
        assert title not in [e.value for e in open_page(FILE, run="runs/own").subheader]
    (run / runs.ROBUSTNESS).write_text("{")
    assert title not in [e.value for e in open_page(FILE, run="runs/own").subheader]


def test_what_is_said_of_changes_follows_from_the_numbers() -> None:
    def after(accuracy: float, confidence: float) -> str:
        return change_words(
            {
                "none": {"accuracy": 0.9, "confidence": 0.9},
                "grey": {"accuracy": 0.895, "confidence": 0.9},
                "jpeg": {"accuracy": accuracy, "confidence": confidence},
            }
        )

    assert "None of the changes costs it a point: even in grey" in after(0.92, 0.9)
    assert "instead of 90.0 %, and is 45.0 % sure on average: it notices" in after(0.4, 0.45)
    assert "**40.0 %**" in after(0.4, 0.45)
    assert "and is still 80.0 % sure on average" in after(0.4, 0.8)


def test_sixteen_and_another_sixteen() -> None:
    app = open_page(FILE, run="digits")
    split, stored = load_split("digits", "test"), read_predictions(DIGITS)
    said = stored["probabilities"].argmax(1)

    def check(seed: int) -> list[str]:
        shown = component(app, "sixteen-pictures")
        assert shown["columns"] == 4
        indices = sixteen(len(said), seed)
        for tile, index in zip(shown["tiles"], indices, strict=True):
            assert tile["said"] == f"{said[index]} {stored['probabilities'][index].max():.2f}"
            assert tile["note"] == f"shows {split.labels[index]}"
            assert tile["right"] == (said[index] == split.labels[index])
        right = sum(tile["right"] for tile in shown["tiles"])
        assert f"{right} of these 16 are named rightly" in words(app)
        return [tile["href"] for tile in shown["tiles"]]

    first = check(0)
    app.button(key="another-sixteen").click().run()
    assert app.query_params["sixteen"] == "1"
    assert check(1) != first


def test_system_c_is_set_beside_only_over_the_same_pictures(folders: Path) -> None:
    run = write_run(folders / "runs" / "own", "cifar10", list(NAMES))
    labels, probabilities = predictions_of(C_CONFUSION)
    write_predictions(run, labels, probabilities, "f")
    app = open_page(FILE, run="runs/own")
    ours, theirs, difference = component(app, "matrix")["tables"]
    assert ours["counts"] == theirs["counts"] == C_CONFUSION.tolist()
    assert theirs["title"] == "System C, as published"
    assert difference["difference"] == [0, 1]
    assert "Vision Transformer, part 4" in words(app)
    assert [b.label for b in app.button if b.key == "confusion-3-5"] == ["**cat → dog, 164 times**"]

    write_predictions(run, labels[:100], probabilities[:100], "f")
    app = open_page(FILE, run="runs/own")
    assert len(component(app, "matrix")["tables"]) == 1


def test_another_epoch_is_said_plainly_and_can_be_tested(folders: Path) -> None:
    write_parquet(folders / "data", "test", 40)
    path = write_run(folders / "runs" / "own", "cifar10", list(NAMES))
    split = load_test_split(load_run(path))
    sure = np.full(40, 0.9)
    stored = probabilities_of(split.labels, 10, sure)
    write_predictions(path, split.labels, stored, split.fingerprint)
    app = open_page(FILE, run="runs/own", epoch="0")
    assert "as it was kept, after epoch 2. **Epoch 0 is not tested yet.**" in words(app)
    assert "**100.00 %**" in words(app)
    app.button(key="test").click().run()
    assert not app.exception and "as it was after epoch 0." in words(app)
    assert "is not tested yet" not in words(app)
    run = load_run(path, 0)
    mean, std = (np.array(values)[:, None, None] for values in (run.mean, run.std))
    x = torch.from_numpy((split.images / 255 - mean) / std).float()
    said = run.model(x).argmax(1).numpy()
    expected = metrics.confusion_matrix(split.labels, said, labels=range(10))
    assert component(app, "matrix")["tables"][0]["counts"] == expected.tolist()
    assert "own, epoch 0" in component(app, "matrix")["tables"][0]["title"]


def test_pictures_are_fetched_by_one_button(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_run(folders / "runs" / "own", "cifar10", list(NAMES))
    name = "plain_text/test-00000-of-00001.parquet"
    hub = LoopbackHub(files={name: parquet_bytes(*noise(30))})
    with loopback_hub(hub):
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        app = open_page(FILE, run="runs/own")
        assert "not been tested" in app.info[0].value
        app.button(key="fetch").click().run()
    assert not app.exception and not app.error
    app.button(key="test").click().run()
    assert sum(map(sum, component(app, "matrix")["tables"][0]["counts"])) == 30
    assert load_test_split(load_run(path)).labels.tolist() == noise(30)[1].tolist()


def test_a_fetch_that_fails_says_why(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise DataError("the network is down")

    monkeypatch.setattr(download, "_from_hub", fail)
    monkeypatch.setattr(download, "_from_torchvision", fail)
    write_run(folders / "runs" / "own", "cifar10", list(NAMES))
    app = open_page(FILE, run="runs/own")
    app.button(key="fetch").click().run()
    assert "could not be downloaded" in app.error[0].value
    assert "the network is down" in app.error[0].value
    assert "To work offline" in app.error[0].value


def test_a_public_demo_fetches_nothing(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIT_TRAINING", "off")
    write_run(folders / "runs" / "own", "cifar10", list(NAMES))
    app = open_page(FILE, run="runs/own")
    assert "fetch" not in [button.key for button in app.button]
    assert "not on this machine" in app.info[1].value


def test_pictures_that_are_not_those_are_not_shown(folders: Path) -> None:
    write_parquet(folders / "data", "test", 40)
    path = write_run(folders / "runs" / "own", "cifar10", list(NAMES))
    labels, probabilities = predictions_of(np.full((10, 10), 2))
    write_predictions(path, labels, probabilities, "other pictures")
    app = open_page(FILE, run="runs/own")
    assert "not those that the model was tested on" in app.info[0].value
    with pytest.raises(AssertionError, match="no component"):
        component(app, "cell-pictures")


def test_two_classes_of_a_visitors_own_with_hostile_names(folders: Path) -> None:
    names = ["<img src=x onerror=alert(1)>", "*b* $x$ [y](z)"]
    path = write_run(folders / "runs" / "own", "somewhere", names)
    labels, probabilities = predictions_of(np.array([[7, 3], [1, 9]]))
    write_predictions(path, labels, probabilities, "f")
    app = open_page(FILE, run="runs/own")
    assert component(app, "matrix")["names"] == names
    assert component(app, "matrix")["tables"][0]["counts"] == [[7, 3], [1, 9]]
    assert "<th scope=row>&lt;img src=x onerror=alert(1)&gt;</th>" in html(app)
    assert "<img src=x" not in html(app)
    for text in [words(app), *(b.label for b in app.button if b.key.startswith("confusion"))]:
        assert not re.search(r"(?<!\\)<img|(?<!\\)\$x|(?<!\\)\]\(z", text)


def test_the_question_about_ones_own_picture() -> None:
    app = open_page(FILE, run="digits")
    asked = next(e.value for e in app.markdown if "Predict, then reveal" in e.value)
    name = re.search(r"calls your picture \*\*(\d)\*\*", asked)[1]
    next(b for b in app.button if b.label == "half to 80 %").click().run()
    stored = read_predictions(DIGITS)
    called = stored["probabilities"].argmax(1) == int(name)
    right = (stored["labels"][called] == int(name)).sum()
    assert f"{right} of {called.sum()}, which is **{100 * right / called.sum():.1f} %**" in words(
        app
    )


def test_the_surest_mistakes_come_first() -> None:
    labels = np.array([0, 0, 1, 0])
    said, sure = np.array([1, 1, 1, 0]), np.array([0.6, 0.9, 0.8, 0.7])
    found = Outcome(1, labels, probabilities_of(said, 2, sure), "")
    assert found.in_cell(0, 1).tolist() == [1, 0]
    assert found.in_cell(1, 0).tolist() == []
    assert found.right.tolist() == [False, False, True, True]


def test_sixteen_are_drawn_without_repeats() -> None:
    assert len(set(sixteen(10_000, 5))) == 16
    assert sixteen(10_000, 5).tolist() == sixteen(10_000, 5).tolist()
    assert sorted(sixteen(3, 0)) == [0, 1, 2]
