"""The New run view: it says what training would do, and starts what was asked for."""

import html as html_module
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from tests import small_data
from tests.loopback_hub import LoopbackHub, loopback_hub
from tests.pages.made import HOSTILE, array, figures, html, words
from tests.small_data import noise, parquet_bytes
from tests.test_folder import make_zip
from ui import new_run
from ui import own_data as chooser
from ui.first_batch import first_batch
from vit import augment, data, jobs, own_data, runs, train
from vit.model import VisionTransformer, count_parameters
from vit.recipes import RECIPES, digits, sixty_five
from vit.settings import Recipe
from vit.train import learning_rate_factor, load_parts

FILES = small_data.folder_files({"cat": 30, "dog": 20, "eel": 10})


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Own folders for runs and data, and no worker that would train."""
    monkeypatch.setenv("VIT_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("VIT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("VIT_TRAINING", raising=False)
    monkeypatch.setattr(jobs, "keep_going", lambda runs_dir: None)
    return tmp_path


def view() -> AppTest:
    """The form as a new visitor finds it."""

    def script() -> None:
        import streamlit as st

        from ui import new_run

        if wanted := st.session_state.pop("test-prefill", None):
            new_run.prefill(*wanted)
        new_run.show()

    app = AppTest.from_function(script, default_timeout=180)
    return ran(app)


def ran(what: Any) -> AppTest:
    """The page after a run, of itself or of a widget that was changed."""
    app: AppTest = what.run()
    assert not app.exception and not app.error, [e.value for e in (*app.exception, *app.error)]
    return app


def choose(app: AppTest, kind: str, recipe: str | None = None) -> AppTest:
    ran(app.radio(key="new-data").set_value(kind))
    return ran(app.radio(key="new-recipe").set_value(recipe)) if recipe else app


def change(app: AppTest, **fields: float) -> AppTest:
    for field, value in fields.items():
        app.number_input(key=f"new-{field}").set_value(value)
    return ran(app)


def numbers(app: AppTest) -> dict[str, str]:
    """What the panel says, without its notes."""
    found = re.findall(r"<dt>(.*?)</dt><dd>(.*?)<small>", html(app))
    return {name: html_module.unescape(value) for name, value in found}


def captions(app: AppTest) -> list[str]:
    """The labels of the pictures of the batch, one string each."""
    found = re.findall(r"<figcaption>(.*?)</figcaption>", html(app), re.DOTALL)
    return [html_module.unescape(re.sub(r"<[^>]+>", "|", text)).strip("|") for text in found]


def start(app: AppTest) -> tuple[Path, Recipe, int]:
    """Press the button; the run that it made, its recipe and its seed."""
    ran(app.button(key="new-start").click())
    path = jobs.find(Path(new_run.resources.runs_dir()), app.query_params["job"])
    assert app.query_params["show"] == "watch"
    return path, *jobs.settings(path)


def send(app: AppTest, content: bytes, name: str = "pets.zip") -> AppTest:
    return ran(app.file_uploader(key="own-zip").set_value((name, content, "application/zip")))


def refused(app: AppTest) -> str:
    """Why nothing can be started."""
    assert app.button(key="new-start").disabled
    (said,) = (text for text in map(str, (c.value for c in app.caption)) if "cannot be st" in text)
    return said.replace("\\", "")


# ---- recipes and numbers -------------------------------------------------------------------------


def test_a_new_visitor_can_start_the_digits_at_once() -> None:
    app = view()
    path, recipe, seed = start(app)
    assert (recipe, seed) == (digits(), 0)
    assert jobs.look(path).state == "queued"


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "debug"])
def test_every_recipe_is_offered_for_its_data_with_its_numbers(name: str) -> None:
    recipe = RECIPES[name]()
    app = choose(view(), recipe.dataset, name)
    listed = app.radio(key="new-recipe")
    said = dict(zip(listed.options, listed.proto.captions, strict=True))
    assert said[new_run.NAMES[name]].replace("\\", "") == recipe.summary
    model = VisionTransformer(recipe.model)
    shown = numbers(app)
    assert shown["Parameters"] == f"{count_parameters(model):,}"
    assert shown["Tokens"] == f"{recipe.model.num_tokens:,}"
    counts = {"cifar10": [5_000] * 10}.get(recipe.dataset)
    if counts is None:
        counts = np.bincount(data.load_split(recipe.dataset, "train").labels).tolist()
    labels = np.repeat(np.arange(10), counts)
    learned = len(data.validation_split(len(labels), recipe.validation, labels)[0])
    steps = recipe.epochs * (learned // recipe.batch_size)
    assert shown["Steps"] == f"{steps:,}"
    assert shown["Learns from"] == f"{learned:,} pictures"
    assert start(app)[1] == recipe


@pytest.mark.parametrize("name", ["digits", "system_a_flat", "sixty_five"])
def test_the_schedule_is_the_one_that_training_follows(name: str) -> None:
    recipe = RECIPES[name]()
    app = choose(view(), recipe.dataset, name)
    (figure,) = figures(app)
    steps = int(numbers(app)["Steps"].replace(",", "")) // recipe.epochs
    peaks = [recipe.learning_rate]
    if recipe.optimizer == "muon":
        peaks = [recipe.muon_learning_rate, recipe.learning_rate]
    assert len(figure["data"]) == len(peaks)
    for line, peak in zip(figure["data"], peaks, strict=True):
        at = np.round(array(line["x"]) * steps).astype(int)
        expected = [peak * learning_rate_factor(recipe, int(step), steps) for step in at]
        assert array(line["y"]) == pytest.approx(expected)
        assert at[0] == 0 and at[-1] == recipe.epochs * steps - 1
        assert array(line["y"]).max() == pytest.approx(peak)
    ends = {
        "digits": [("warm-up", 1)],
        "system_a_flat": [],
        "sixty_five": [
            ("warm-up", 0.5),
            ("50 % of the patches", 32.5),
            ("CutMix, 50 % of the pictures", 44),
        ],
    }[name]
    drawn = figure["layout"]
    texts = [note["text"] for note in drawn.get("annotations", [])]
    spans = [(shape["x0"], shape["x1"]) for shape in drawn.get("shapes", [])]
    assert list(zip(texts, spans, strict=True)) == [(text, (0, end)) for text, end in ends]


@pytest.mark.parametrize("share", [1.0, 0.37, 0.01])
def test_the_pictures_counted_are_those_that_training_takes(share: float) -> None:
    recipe = replace(digits(), share=share)
    parts = load_parts(recipe, None, torch.device("cpu"))
    counts = tuple(np.bincount(data.load_split("digits", "train").labels).tolist())
    learned, aside = new_run.pictures(counts, recipe.validation, share)
    assert (learned, aside) == (len(parts.train.labels), len(parts.val.labels))


def test_a_change_marks_what_differs_and_is_what_is_started() -> None:
    app = choose(view(), "digits", "digits")
    change(app, depth=2, embed_dim=32, learning_rate=5e-4, share=50.0, epochs=3, seed=7)
    text = words(app)
    assert "Differs from **Our small one** in: " in text
    for part in (
        "width 32 (there 64)",
        "blocks 2 (there 4)",
        "epochs 3 (there 30)",
        "adamw rate 0.0005 (there 0.001)",
        "data used 50 % (there 100 %)",
    ):
        assert part in text.lower(), part
    model = replace(digits().model, depth=2, embed_dim=32)
    assert numbers(app)["Parameters"] == f"{count_parameters(VisionTransformer(model)):,}"
    app.text_input(key="new-name").set_value("Shallow <b>")
    app.text_input(key="new-tags").set_value(" small,  , first tries, small")
    path, recipe, seed = start(ran(app))
    assert seed == 7
    wanted = replace(digits(), model=model, learning_rate=5e-4, share=0.5, epochs=3)
    assert recipe == replace(wanted, summary=recipe.summary)
    assert (
        recipe.summary.startswith("Like digits, but: ") and "blocks 2 (there 4)" in recipe.summary
    )
    job = jobs.look(path)
    assert (job.name, job.tags) == ("Shallow <b>", ("small", "first tries"))


def test_another_recipe_fills_the_form_with_its_own_numbers() -> None:
    app = change(choose(view(), "cifar10", "system_c"), depth=3)
    assert app.number_input(key="new-depth").value == 3
    choose(app, "cifar10", "system_a_flat")
    assert app.number_input(key="new-depth").value == 4
    assert "Differs" not in words(app)
    choose(app, "digits")
    assert app.number_input(key="new-embed_dim").value == 64
    assert "new-muon_learning_rate" in {field.key for field in app.number_input}
    choose(app, "cifar10", "system_c")
    assert "new-muon_learning_rate" not in {field.key for field in app.number_input}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"patch_size": 3}, "Patch sizes that fit: 1, 2, 4, 8"),
        ({"num_heads": 5}, "Head counts that fit: 1, 2, 4, 8, 16, 32, 64"),
        ({"embed_dim": 66}, "Head counts that fit: 1, 2, 3, 6, 11, 22, 33, 66"),
        ({"depth": 4_000}, "depth must be from 1 to 128"),
        ({"epochs": 10**9}, "epochs must be from 1 to 10,000"),
        ({"learning_rate": 0.0}, "learning_rate must be from 1e-09 to 100"),
        ({"batch_size": 2_000}, "A batch of 2,000 cannot be cut from 1,295 pictures"),
        ({"share": 0.1}, "A batch of 64 cannot be cut from 10 pictures"),
    ],
)
def test_what_does_not_fit_is_said_at_once_and_cannot_be_started(
    fields: dict[str, float], message: str
) -> None:
    app = change(view(), **fields)
    assert message in refused(app)
    beside = "".join(warning.value for warning in app.warning).replace("\\", "")
    assert message in beside or "batch" in message
    assert figures(app) == []
    good = {field: new_run._shown(digits(), field) for field in fields}
    assert not change(app, **good).button(key="new-start").disabled


def test_more_memory_than_there_is_is_refused_and_nothing_is_lost() -> None:
    app = change(view(), embed_dim=8_192, depth=128)
    app.text_input(key="new-name").set_value("huge")
    ran(app.button(key="new-start").click())
    assert "GB of memory" in app.warning[0].value
    assert app.number_input(key="new-depth").value == 128
    assert app.text_input(key="new-name").value == "huge"
    assert "show" not in app.query_params


def test_the_time_is_measured_when_asked_for_and_kept_by_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[Recipe, int]] = []

    def estimate(recipe: Recipe, pictures: int) -> jobs.Estimate:
        asked.append((recipe, pictures))
        return jobs.Estimate(1, 1, 600, 0.02, 725.0, 1)

    monkeypatch.setattr(jobs, "estimate", estimate)
    new_run._measured().clear()
    app = view()
    assert numbers(app)["Time"] == "not measured yet" and asked == []
    ran(app.button(key="new-measure").click())
    assert asked == [(digits(), 1_295)]
    assert numbers(app)["Time"] == "about 12 min" and "20 ms a step, measured here<" in html(app)
    assert numbers(change(app, depth=2))["Time"] == "not measured yet"
    app.text_input(key="new-name").set_value("another name")
    assert numbers(change(app, depth=4, seed=9))["Time"] == "about 12 min"
    assert len(asked) == 1

    start(app)
    monkeypatch.setattr(new_run, "_others", lambda *states: 1)
    ran(change(app, depth=3).button(key="new-measure").click())
    assert "while another run trained: alone it is quicker" in html(app)


def test_a_time_that_cannot_be_measured_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def estimate(recipe: Recipe, pictures: int) -> jobs.Estimate:
        raise runs.RunError("How long it takes could not be measured: no reason. Try again.")

    monkeypatch.setattr(jobs, "estimate", estimate)
    new_run._measured().clear()
    app = ran(view().button(key="new-measure").click())
    assert "could not be measured" in app.warning[0].value
    assert numbers(app)["Time"] == "not measured yet"
    assert not app.button(key="new-start").disabled


def test_measuring_really_measures() -> None:
    new_run._measured().clear()
    app = change(view(), depth=1, embed_dim=16, epochs=1)
    ran(app.button(key="new-measure").click())
    assert not app.warning and numbers(app)["Time"].startswith(("a few", "about"))


def test_runs_before_it_are_counted() -> None:
    app = view()
    assert "One run trains at a time" not in words(app)
    start(app)
    app = view()
    assert "it starts once the 1 before it is done" in words(app)


# ---- CIFAR-10 ------------------------------------------------------------------------------------


def test_cifar10_can_be_fetched_now_or_by_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    app = choose(view(), "cifar10", "system_c")
    said = app.radio(key="new-data").proto.captions[1]
    assert "Not here yet: about 140 MB are fetched first" in said
    assert "CIFAR-10 is not here yet" in words(app) and captions(app) == []
    assert not app.button(key="new-start").disabled
    names = [f"plain_text/{part}-00000-of-00001.parquet" for part in ("train", "test")]
    hub = LoopbackHub(files={name: parquet_bytes(*noise(300)) for name in names})
    with loopback_hub(hub):
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        ran(app.button(key="new-fetch").click())
    assert not app.warning
    assert "Not here" not in app.radio(key="new-data").proto.captions[1]
    assert len(captions(app)) == 16


def test_a_fetch_that_fails_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise data.DataError("no answer")

    monkeypatch.setattr(new_run.data, "load_split", fail)
    monkeypatch.setattr(new_run, "_counts", lambda kind: (100,) * 10)
    app = choose(view(), "cifar10")
    ran(app.button(key="new-fetch").click())
    assert app.warning[0].value == "no answer"


# ---- one's own pictures --------------------------------------------------------------------------


def test_a_folder_is_described_shown_and_trained_on(tmp_path: Path) -> None:
    folder = small_data.write_files(tmp_path / "pets", FILES | {"cat/bad.png": b"no"})
    before = sorted(tmp_path.joinpath("pets").rglob("*"))
    app = choose(view(), "own")
    assert "Choose a folder or a zip" in refused(app)
    ran(app.text_input(key="own-path").set_value(f" {folder}/ "))
    text = words(app).replace("\\", "")
    learned, tested = (len(data.load_split(str(folder), part).labels) for part in own_data.PARTS)
    assert learned + tested == len(FILES)
    said = f"{learned} pictures to train on and {tested} to test with"
    assert f"has 3 classes (cat, dog, eel), {said}" in text
    assert "1 more could not be read" in text and "cat/bad.png: " in text
    assert "3 classes, colour, 32 × 32 pixels" in text and "central square" in text
    choose(app, "own", "system_c")
    change(app, image_size=16, patch_size=4, batch_size=16, epochs=2)
    assert set(captions(app)) <= {"cat", "dog", "eel"} and len(captions(app)) == 16
    _, recipe, _ = start(app)
    model = recipe.model
    assert (model.num_classes, model.in_chans, model.image_size) == (3, 3, 16)
    assert (recipe.dataset, recipe.crop_padding) == (str(folder), 2)
    parts = load_parts(recipe, None, torch.device("cpu"))
    assert numbers(app)["Learns from"] == f"{len(parts.train.labels)} pictures"
    assert sorted(tmp_path.joinpath("pets").rglob("*")) == before


def test_a_zip_is_kept_and_the_run_reads_it_from_there(tmp_path: Path) -> None:
    content = make_zip(tmp_path / "x.zip", FILES).read_bytes()
    app = send(choose(view(), "own"), content, f"{HOSTILE}.zip")
    text = words(app)
    assert "has 3 classes" in text and "All of them could be read" in text
    assert HOSTILE not in text, "Markdown in a file's name is shown, not done"
    _, recipe, _ = start(change(app, batch_size=8))
    kept = Path(recipe.dataset)
    assert kept.parent == own_data.kept_dir() and kept.read_bytes() == content
    assert own_data.title(recipe.dataset) == f"{HOSTILE}.zip"
    later = choose(view(), "own")
    ran(later.selectbox(key="own-kept").set_value(kept))
    assert "has 3 classes" in words(later)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (small_data.folder_files({"cat": 4}), "only the class 'cat'; a model needs two classes"),
        (FILES | {"../x.png": b""}, "points outside of the zip"),
        (FILES | {"cat/x.bmp": bytes(3 * 2**20)}, "unpacks to more than 200 times"),
        ({"cat/1.png": b"", "cat/2.png": b"", **small_data.folder_files({"dog": 4})}, "'cat'"),
    ],
)
def test_a_bad_zip_is_one_sentence(tmp_path: Path, files: dict[str, bytes], message: str) -> None:
    content = make_zip(tmp_path / "x.zip", files).read_bytes()
    app = send(choose(view(), "own"), content)
    said = app.warning[0].value.replace("\\", "")
    assert message in said and said.startswith("pets.zip ") and str(tmp_path) not in said
    assert "Choose a folder or a zip" in refused(app)


@pytest.mark.parametrize("text", ["/no/such/folder", "a\0b", "/dev/null", "~nobody-here/x"])
def test_a_path_that_leads_nowhere_is_one_sentence(text: str) -> None:
    app = choose(view(), "own")
    ran(app.text_input(key="own-path").set_value(text))
    assert "There is no folder and no zip of that name" in app.warning[0].value.replace("\\", "")
    ran(app.text_input(key="own-path").set_value(""))
    assert not app.warning


def test_many_pictures_are_read_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chooser, "AT_ONCE", 10)
    folder = small_data.write_files(tmp_path / "pets", FILES | {"cat/bad.png": b"no"})
    app = choose(view(), "own")
    ran(app.text_input(key="own-path").set_value(str(folder)))
    text = words(app)
    assert "They have not been opened yet" in text and "could not be read" not in text
    ran(app.button(key="own-read").click())
    assert "1 more could not be read" in words(app)
    assert not [button for button in app.button if button.key == "own-read"]


def test_pictures_that_would_not_fit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small_data.write_files(tmp_path / "pets", FILES)
    app = choose(view(), "own")
    ran(app.text_input(key="own-path").set_value(str(folder)))
    change(app, batch_size=8)
    monkeypatch.setattr(new_run, "MAX_DECODED", 3 * 32 * 32 * 48 - 1)
    assert "Choose a smaller picture side" in refused(ran(app))


@pytest.mark.parametrize("name", sorted(new_run.FOR_OWN))
def test_every_recipe_fits_ones_own_pictures(tmp_path: Path, name: str) -> None:
    folder = small_data.write_files(tmp_path / "pets", FILES)
    app = choose(view(), "own", name)
    ran(app.text_input(key="own-path").set_value(str(folder)))
    _, recipe, _ = start(change(app, batch_size=8))
    assert recipe.model == own_data.adapt(RECIPES[name](), "x", 3, 32).model
    train.build(recipe, 0, torch.device("cpu"))
    load_parts(recipe, None, torch.device("cpu"))


# ---- filled in from another run ------------------------------------------------------------------


def test_another_runs_settings_are_taken_whole() -> None:
    odd = replace(
        digits(),
        **{"weight_decay": 0.3, "epochs": 5, "share": 1, "learning_rate": 1},
        model=replace(digits().model, depth=3),
    )
    app = view()
    app.session_state["test-prefill"] = (odd, 11, "mine <b>")
    ran(app)
    choice = app.radio(key="new-recipe")
    assert choice.value == new_run.LIKE and "mine" in choice.options[0]
    assert app.number_input(key="new-depth").value == 3
    assert app.number_input(key="new-seed").value == 11
    assert app.text_input(key="new-name").value == "mine <b>"
    _, recipe, seed = start(app)
    assert (recipe, seed) == (odd, 11)
    change(app, epochs=6)
    assert "epochs 6 (there 5)" in words(app)
    choose(app, "digits", "digits")
    assert app.number_input(key="new-depth").value == 4


def test_a_run_on_ones_own_pictures_finds_them_again_or_says_that_they_are_gone(
    tmp_path: Path,
) -> None:
    folder = small_data.write_files(tmp_path / "pets", FILES)
    own = own_data.adapt(replace(digits(), batch_size=8), str(folder), 3, 24)
    app = view()
    app.session_state["test-prefill"] = (own, 1, "pets")
    ran(app)
    assert app.number_input(key="new-image_size").value == 24
    assert start(app)[1] == own
    app.session_state["test-prefill"] = (replace(own, dataset=str(tmp_path / "gone")), 1, "pets")
    ran(app)
    assert "There is no folder and no zip of that name" in app.warning[0].value.replace("\\", "")
    assert app.button(key="new-start").disabled


# ---- the batch -----------------------------------------------------------------------------------


class Seen(Exception):
    """A batch reached the model."""


def fed(
    recipe: Recipe, out: Path, epoch: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """What training really feeds the model first in ``epoch``: normalised pictures, the patches
    that are kept, and targets."""
    seeds: list[int] = []  # of the generators that shuffled, in order
    caught: list[Any] = []
    cross_entropy, randperm = train.F.cross_entropy, torch.randperm

    def shuffle(n: int, generator: torch.Generator, **options: Any) -> torch.Tensor:
        seeds.append(generator.initial_seed())
        return randperm(n, generator=generator, **options)

    forward = VisionTransformer.forward

    def watching(self: VisionTransformer, x: torch.Tensor, kept: torch.Tensor | None = None) -> Any:
        if self.training and seeds[-1] == 5 * 1_000_003 + epoch and not caught:
            caught.extend((x.clone(), kept))
        return forward(self, x, kept)

    def loss(logits: torch.Tensor, targets: torch.Tensor, **options: Any) -> torch.Tensor:
        if caught and targets.ndim == 2:
            caught.append(targets.clone())
            raise Seen
        return cross_entropy(logits, targets, **options)

    with monkeypatch.context() as patch:
        patch.setattr(train.torch, "randperm", shuffle)
        patch.setattr(VisionTransformer, "forward", watching)
        patch.setattr(train.F, "cross_entropy", loss)
        with pytest.raises(Seen):
            train.train(recipe, out, 5, device=torch.device("cpu"))
    return caught[0], caught[1], caught[2]


@pytest.mark.parametrize(
    ("epoch", "mixed", "dropped"), [(1, True, True), (2, True, False), (3, False, False)]
)
def test_the_batch_shown_is_the_one_that_training_begins_its_epoch_with(
    tmp_path: Path, epoch: int, mixed: bool, dropped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(
        sixty_five(),
        dataset="digits",
        model=digits().model,
        crop_padding=2,
        epochs=3,
        share=0.2,
        batch_size=64,
        cutmix_until=0.5,
        kept_patches_until=0.3,
        warmup_epochs=0,
    )
    x, kept, targets = fed(recipe, tmp_path / "run", epoch, monkeypatch)
    training = data.load_split("digits", "train")
    batch = first_batch(recipe, training, 5, epoch)
    mean, std = data.channel_stats(training.images)
    torch.testing.assert_close(augment.normalize(batch.pictures, mean, std), x)
    torch.testing.assert_close(batch.targets, targets)
    assert (batch.targets.max(1).values < 1).any() == mixed
    assert (batch.kept is not None) == (kept is not None) == dropped
    if kept is not None and batch.kept is not None:
        assert [set(row.nonzero()[:, 0].tolist()) for row in batch.kept] == [
            set(row.tolist()) for row in kept
        ]
    assert batch.originals.dtype == torch.uint8


def test_another_batch_is_another_epochs() -> None:
    app = view()
    training = data.load_split("digits", "train")

    def labels(epoch: int) -> list[str]:
        batch = first_batch(digits(), training, 0, epoch)
        return [training.class_names[label] for label in batch.labels[:16].tolist()]

    assert captions(app) == labels(1)
    ran(next(b for b in app.button if b.label == "Another batch").click())
    assert captions(app) == labels(2) != labels(1)
    ran(app.slider(key="batch-epoch").set_value(30))
    assert captions(app) == labels(30)
    ran(next(b for b in app.button if b.label == "Another batch").click())
    assert captions(app) == labels(1)
    change(app, epochs=1)
    assert captions(app) == labels(1), "one epoch has one first batch"


def test_mixed_pictures_carry_both_labels(tmp_path: Path) -> None:
    small_data.write_parquet(tmp_path / "data", "train", 400)
    small_data.write_parquet(tmp_path / "data", "test", 40)
    app = choose(view(), "cifar10", "sixty_five")
    batch = first_batch(sixty_five(), data.load_split("cifar10", "train"), 0, 1)
    names = data.load_split("cifar10", "train").class_names
    for text, shares in zip(captions(app), batch.targets.numpy(), strict=False):
        parts = [f"{100 * share:.0f} % {names[c]}" for c, share in enumerate(shares) if share > 0]
        if len(parts) == 1:
            parts = [part.partition("% ")[2] for part in parts]
        assert set(text.split("||")) == set(parts)
    assert any("||" in text for text in captions(app))
    legend = words(app)
    assert "gets 50 % of all" in legend and "brightness" in legend and "box of another" in legend


def test_class_names_in_the_batch_are_shown_to_the_letter(tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)> $x$"
    folder = small_data.write_files(
        tmp_path / "pets", small_data.folder_files({name: 20, "dog": 20})
    )
    app = choose(view(), "own")
    ran(app.text_input(key="own-path").set_value(str(folder)))
    change(app, batch_size=16)
    assert "<img src=x" not in html(app) and "\\<img src=x" in words(app)
    assert name in captions(app)


def test_settings_of_a_started_run_can_be_read_back(tmp_path: Path) -> None:
    path, recipe, _ = start(change(view(), depth=2))
    request = json.loads((path / runs.REQUEST).read_text())
    assert Recipe.from_dict(request["recipe"]) == recipe
