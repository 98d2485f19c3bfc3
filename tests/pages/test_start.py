"""The start page and the frame around every page: what is printed is what the package computes."""

import base64
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import streamlit as st
import torch
from streamlit.testing.v1 import AppTest

from tests.pages import made
from tests.pages.made import HOSTILE, ROOT, html, own_walk, words
from tests.small_data import NAMES, png, write_parquet
from ui import frame, pictures, replay, resources, sidebar
from ui.pictures import About
from ui.resources import Record
from vit import runs
from vit.analysis.jigsaw import shuffle_patches


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Uploads, runs and data of this test alone; nothing remembered from another."""
    monkeypatch.setenv("VIT_UPLOADS_DIR", str(tmp_path / "uploads"))
    monkeypatch.setenv("VIT_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("VIT_DATA_DIR", str(tmp_path / "data"))
    st.cache_resource.clear()
    st.cache_data.clear()
    yield tmp_path


def opened(**query: str) -> AppTest:
    app = AppTest.from_file(ROOT / "app.py", default_timeout=60)
    for name, value in query.items():
        app.query_params[name] = value
    return calm(app.run())


def calm(app: AppTest) -> AppTest:
    assert not app.exception and not app.error, [e.value for e in (*app.exception, *app.error)]
    return app


def address(app: AppTest) -> dict[str, str]:
    return {k: v if isinstance(v, str) else v[-1] for k, v in app.query_params.items()}


def component(app: AppTest, name: str) -> dict[str, Any]:
    """What was sent to a component."""
    found = [c.proto.json for c in app.get("bidi_component") if c.proto.component_name == name]
    return json.loads(found[0])[0]


def tour(app: AppTest) -> dict[str, Any]:
    return component(app, "sixty_five_tokens_tour")


def floats(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f4")


def notes(app: AppTest) -> list[str]:
    return [warning.value for warning in app.main.warning]


def upload(app: AppTest, name: str, content: bytes) -> AppTest:
    app.sidebar.file_uploader[0].set_value((name, content, "image/png"))
    return calm(app.run())


def picture(seed: int) -> bytes:
    return png(np.random.default_rng(seed).integers(0, 256, (32, 32, 3), np.uint8))


# ---- the start page ---------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["cifar10", "digits", "runs/shallow", "runs/many"])
def test_every_number_of_the_pipeline_is_the_packages(run: str, folders: Path) -> None:
    made.make_runs(folders / "runs")
    path = folders / run if "/" in run else ROOT / "checkpoints" / run
    own, app = own_walk(path), opened(run=run)
    sent, config = tour(app), own.run.model_config

    assert floats(sent["numbers"]) == pytest.approx(
        own.trace["patch_embed.flattened"].numpy().ravel()
    )
    pattern = own.trace["blocks.0.attn.pattern"][0, 0].numpy()
    assert floats(sent["attention"]) == pytest.approx(pattern.ravel(), abs=1e-6)
    probabilities = own.logits.softmax(-1).numpy()
    order = np.argsort(-probabilities)[:10]
    assert [bar["value"] for bar in sent["answer"]] == pytest.approx(probabilities[order].tolist())
    assert [bar["name"] for bar in sent["answer"]] == [own.run.class_names[i] for i in order]

    for name, matrix in {
        "tokens": own.trace["pos_added"][0],
        "listener": torch.stack(
            [own.trace["pos_added"][0, 0]]
            + [own.trace[f"blocks.{i}.resid_post"][0, 0] for i in range(config.depth)]
        ),
    }.items():
        values = matrix.numpy()
        if name == "listener":
            values = values / np.abs(values).max(1, keepdims=True)
        steps = np.frombuffer(base64.b64decode(sent[name]["bytes"]), np.int8)
        shown = steps.reshape(values.shape) / 127 * sent[name]["top"]
        inside = np.abs(values) <= sent[name]["top"]
        assert inside.mean() >= 0.95
        assert shown[inside] == pytest.approx(values[inside], abs=sent[name]["top"] / 250)

    last = own.trace[f"blocks.{config.depth - 1}.attn.pattern"][0, :, 0, 1:].mean(0)
    assert sent["focus"] == 1 + int(last.argmax())
    shapes = " ".join(stage["shape"] for stage in sent["stages"])
    assert f"patch_embed.flattened · {config.num_patches} × {config.patch_dim}" in shapes
    assert f"pos_added · {config.num_tokens} × {config.embed_dim}" in shapes


def test_word_and_square_show_this_pictures_numbers() -> None:
    own, app = own_walk(ROOT / "checkpoints" / "cifar10"), opened(token="20")
    text = re.sub(r"<[^>]*>", " ", html(app))

    def listed(values: torch.Tensor) -> str:
        return ", ".join(f"{v:+.2f}".replace("-", "−") for v in values[:5].tolist()) + ", …"

    answer = int(own.logits.argmax())
    assert listed(own.run.model.head.weight[answer]) in text
    assert listed(own.trace["patch_embed.flattened"][0, 19]) in text
    assert listed(own.trace["patch_embed.projected"][0, 19]) in text
    assert f"row {answer} of a table, 10 × 128" in text
    assert "256 48 , about 10 115" in text
    assert 10**115 <= 256**48 < 10**116


def test_the_jigsaw_is_hidden_until_guessed_and_again_for_another_picture() -> None:
    own, app = own_walk(ROOT / "checkpoints" / "cifar10"), opened()
    assert "random orders it says" not in words(app)
    guess = next(button for button in app.main.button if button.label == "No")
    calm(guess.click().run())
    shuffled = torch.cat([shuffle_patches(own.x, 4, seed) for seed in range(100)])
    with torch.inference_mode():
        probabilities = own.run.model(shuffled).softmax(-1)
    answer = int(own.logits.argmax())
    still = int((probabilities.argmax(1) == answer).sum())
    mean = 100 * probabilities[:, answer].mean().item()
    assert "You said: No." in words(app)
    assert f"In 100 random orders it says {NAMES[answer]} **{still} times**" in words(app)
    assert f"is {mean:.1f} % on average" in words(app)

    app.query_params["img"] = "frog"
    calm(app.run())
    assert "random orders it says" not in words(app)


def test_shuffled_patches_are_the_same_patches() -> None:
    images = torch.arange(2 * 3 * 8 * 8.0).reshape(2, 3, 8, 8)
    shuffled = shuffle_patches(images, 4, seed=1)
    assert not torch.equal(shuffled, images)
    for before, after in zip(images, shuffled, strict=True):

        def corners(image: torch.Tensor) -> set[float]:
            return {image[0, y, x].item() for y in (0, 4) for x in (0, 4)}

        assert corners(before) == corners(after)
    assert torch.equal(shuffle_patches(images, 8), images)


# ---- the frame --------------------------------------------------------------------------------


def test_the_links_carry_the_view_and_mark_the_page() -> None:
    app = opened(img="frog", layer="2", token="9")
    links = {link.proto.label: link.proto for link in app.main.get("page_link")}
    row = list(frame.PAGES)[1:]
    assert list(links)[: len(row)] == row
    for label in row:
        assert links[label].query_string == "img=frog&layer=2&token=9"
    assert '<span class="here" aria-current="page">Start</span>' in html(app)
    hrefs = {stage["page"]: stage["href"] for stage in tour(app)["stages"]}
    assert hrefs["[CLS] readout"] == "./CLS_readout?img=frog&layer=2&token=9"


def test_the_first_three_answers_in_words() -> None:
    own, app = own_walk(ROOT / "checkpoints" / "cifar10"), opened()
    probabilities = own.logits.softmax(-1)
    bars = re.findall(r"<th scope=\"row\">(\w+)</th>.*?<td>([\d.]+) %</td>", html(app))
    expected = [
        (NAMES[i], f"{100 * probabilities[i].item():.1f}")
        for i in probabilities.argsort(descending=True)[:3].tolist()
    ]
    assert bars == expected


def test_names_of_a_users_own_classes_are_only_ever_text(folders: Path) -> None:
    made.make_runs(folders / "runs")
    app = opened(run="runs/shallow")
    assert HOSTILE not in html(app)
    assert "&lt;b&gt;$x$ [a](b)&lt;/b&gt; `*" in html(app)
    assert HOSTILE in [bar["name"] for bar in tour(app)["answer"]]  # drawn as text in the browser


@pytest.mark.parametrize(
    ("query", "note"),
    [
        ({"img": "no-such"}, "There is no picture of that name here"),
        ({"img": "0" * 64}, "no longer kept"),
        ({"img": "test-5"}, "CIFAR-10 is not on this machine"),
        ({"run": "no-such"}, "The model of this link is not on this machine"),
        ({"run": "![](https://example.org)"}, "The model of this link is not on this machine"),
        ({"epoch": "777"}, "no snapshot of that epoch"),
    ],
)
def test_a_link_that_leads_nowhere_still_opens(query: dict[str, str], note: str) -> None:
    app = opened(**query)
    assert len(notes(app)) == 1 and note in notes(app)[0]
    assert "example.org" not in words(app)
    sent = tour(app)
    cat = own_walk(ROOT / "checkpoints" / "cifar10").logits.softmax(-1).max().item()
    assert sent["answer"][0]["value"] == pytest.approx(cat, abs=1e-6)


def test_a_damaged_model_is_named_and_replaced(folders: Path) -> None:
    made.make_runs(folders / "runs")
    (folders / "runs" / "many" / runs.MODEL).write_bytes(b"damaged")
    app = opened(run="runs/many")
    assert len(notes(app)) == 1 and "are damaged or not complete" in notes(app)[0]
    assert str(folders) not in notes(app)[0]
    assert app.sidebar.selectbox(key="run").value == "cifar10"


def test_without_any_model_there_is_a_way_to_get_one(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "available_runs", dict)
    app = opened()
    assert "python -m vit.train digits" in notes(app)[0]
    assert app.title[0].value == "What is a token, when the input is a picture?"
    assert app.get("page_link")


def test_what_goes_wrong_on_a_page_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret: /a/path")

    monkeypatch.setattr("ui.tour.tour", fail)
    app = AppTest.from_file(ROOT / "app.py", default_timeout=60).run()
    assert not app.exception
    assert [e.value for e in app.error] == [frame.WENT_WRONG]
    assert "secret: /a/path" in caplog.text
    assert app.sidebar.selectbox(key="run").value == "cifar10"  # the frame still works


def test_the_frame_imports_nothing_heavy() -> None:
    """A cold start is torch and Streamlit, and little more."""
    code = (
        "import sys\n"
        "from streamlit.testing.v1 import AppTest\n"
        "app = AppTest.from_file('app.py', default_timeout=60).run()\n"
        "assert not app.exception and not app.error\n"
        "print(*sorted({'pandas', 'pyarrow', 'sklearn', 'torchvision'} & {*sys.modules}))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip() == ""


# ---- the picture ------------------------------------------------------------------------------


def test_an_upload_becomes_the_picture_once() -> None:
    app, content = opened(token="3"), picture(1)
    upload(app, "<img src=x onerror=alert(1)>.png", content)
    name = sha256(content).hexdigest()
    assert address(app) == {"img": name, "token": "3"}
    assert component(app, "sixty_five_tokens_thumbs")["current"] == name
    assert "onerror" not in words(app) + html(app)

    kept = pictures.uploads_dir() / name
    written = kept.stat().st_mtime_ns
    calm(app.run())
    assert kept.stat().st_mtime_ns == written  # a rerun stores nothing again
    app.query_params["img"] = "frog"
    calm(app.run())
    assert component(app, "sixty_five_tokens_thumbs")["current"] == "frog"
    listed = [item["name"] for item in component(app, "sixty_five_tokens_thumbs")["items"]]
    assert listed == [*pictures.samples(), name]  # still there to go back to


def test_a_rejected_file_says_why_and_changes_nothing() -> None:
    app = opened(img="frog")
    upload(app, "holiday.jpg", b"these are words, not a picture")
    assert address(app) == {"img": "frog"}
    assert len(app.sidebar.warning) == 1
    assert app.sidebar.warning[0].value.startswith("This file is text")
    upload(app, "fine.png", picture(2))
    assert len(app.sidebar.warning) == 0


def test_two_visitors_never_see_each_others_picture() -> None:
    one, two = opened(), opened()
    upload(one, "same.png", picture(3))
    upload(two, "same.png", picture(4))
    calm(one.run())
    names = [sha256(picture(seed)).hexdigest() for seed in (3, 4)]
    for app, own, other in ((one, *names), (two, *names[::-1])):
        assert address(app) == {"img": own}
        sent = component(app, "sixty_five_tokens_thumbs")
        assert sent["current"] == own
        assert other not in json.dumps(sent)
    assert tour(one)["pixels"] != tour(two)["pixels"]
    assert tour(one)["pixels"] == tour(opened(img=names[0]))["pixels"]


def test_an_own_picture_deleted_meanwhile_leaves_the_list() -> None:
    app = opened()
    upload(app, "mine.png", picture(5))
    app.query_params["img"] = "frog"
    calm(app.run())
    (pictures.uploads_dir() / sha256(picture(5)).hexdigest()).unlink()
    st.cache_resource.clear()
    st.cache_data.clear()
    calm(app.run())
    items = component(app, "sixty_five_tokens_thumbs")["items"]
    assert [item["name"] for item in items] == list(pictures.samples())


def test_test_pictures_are_offered_where_the_data_is(folders: Path) -> None:
    assert len(opened().sidebar.number_input) == 0
    images, labels = write_parquet(folders / "data", "test", count=20)
    app = opened()
    calm(app.sidebar.number_input(key="held-out").set_value(7).run())
    assert address(app) == {"img": "test-7"}
    source = tour(app)["pixels"]
    assert source == resources.data_uri(images[7].transpose(1, 2, 0))
    assert f"It is labelled {NAMES[labels[7]]}: " in words(app)
    calm(app.sidebar.button(key="another").click().run())
    assert re.fullmatch(r"test-1?\d", address(app)["img"])


def test_framing_goes_to_the_address_and_to_the_model() -> None:
    content = png(np.random.default_rng(6).integers(0, 256, (60, 100, 3), np.uint8))
    app = opened()
    upload(app, "wide.png", content)
    crop = tour(app)["pixels"]
    calm(app.sidebar.segmented_control(key="framing").set_value("fit").run())
    assert address(app)["framing"] == "fit"
    fit = tour(app)["pixels"]
    calm(app.sidebar.segmented_control(key="framing").set_value("move").run())
    assert address(app)["framing"] == "0.5,0.5,1"
    assert tour(app)["pixels"] == crop != fit
    calm(app.sidebar.slider(key="framing-zoom").set_value(2.0).run())
    calm(app.sidebar.slider(key="framing-x").set_value(30).run())
    assert address(app)["framing"] == "0.3,0.5,0.5"
    assert tour(app)["pixels"] not in (crop, fit)


# ---- the model --------------------------------------------------------------------------------


def test_another_model_starts_with_its_kept_weights() -> None:
    app = opened(epoch="1")
    assert app.sidebar.select_slider(key="view-epoch").value == 1
    calm(app.sidebar.selectbox(key="run").set_value("digits").run())
    assert address(app) == {"run": "digits"}
    assert app.sidebar.select_slider(key="view-epoch").value == replay.KEPT


def test_an_epoch_is_the_model_as_it_was_then() -> None:
    path = ROOT / "checkpoints" / "digits"
    first = runs.list_epochs(path)[0]
    app = opened(run="digits")
    kept = tour(app)["answer"]
    calm(app.sidebar.select_slider(key="view-epoch").set_value(first).run())
    assert address(app) == {"run": "digits", "epoch": str(first)}
    untrained = np.frombuffer(base64.b64decode(tour(app)["listener"]["bytes"]), np.int8)
    assert (untrained.reshape(5, -1)[0] == 0).all()  # [CLS] starts as nothing at all
    now = tour(app)["answer"]
    assert now != kept
    own = runs.load_run(path, first).model(made.own_walk(path).x)[0].softmax(-1)
    assert now[0]["value"] == pytest.approx(own.max().item(), abs=1e-5)


def test_a_models_record_is_counted_from_its_predictions(folders: Path) -> None:
    made.make_runs(folders / "runs")
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]], np.float32)
    path = folders / "runs" / "shallow"
    assert resources.held_out_record(path) is None
    runs.write_predictions(path, np.array([0, 1, 1, 1]), probabilities, "")
    record = resources.held_out_record(path)
    assert record is not None
    assert record.accuracy == 0.75
    assert record.top.tolist() == pytest.approx([0.6, 0.7, 0.8, 0.9])
    assert [record.share_as_unsure(p) for p in (0.5, 0.65, 0.75, 1)] == [0, 0.25, 0.5, 1]
    app = opened(run="runs/shallow")
    assert "right on 75.0 % of 4 test pictures" in words(app)


def test_a_low_answer_is_flagged_by_what_test_pictures_got() -> None:
    record = Record(0.5, np.linspace(0.2, 1, 1001))
    assert "**Probably none of the 10, or hard to tell:** none of 1,001" in sidebar.doubt(
        0.19, 10, record
    )
    # 11 of 1,001 lie at or below 0.208: 1 in 91.
    assert "only 1 in 91 test pictures got so low" in sidebar.doubt(0.2081, 10, record)
    sure = sidebar.doubt(0.6001, 10, record)
    assert "Probably none" not in sure and sure.startswith("50 % of the test pictures")
    assert "no test record" in sidebar.doubt(0.99, 10, None)
    for record_or_none in (record, None):
        assert "a high one proves nothing" in sidebar.doubt(0.99, 10, record_or_none)


@pytest.mark.parametrize(
    ("about", "said"),
    [
        (About("", "cat", "photo"), "It is labelled cat: right."),
        (About("", "dog", "drawing"), "It is labelled dog: wrong."),
        (About("", None, "photo"), "so every answer is wrong"),
        (About("", "3", "held-out"), "so every answer is wrong"),
        (About("", None, "upload"), "Only you know"),
    ],
)
def test_whether_it_is_right_is_said_where_that_is_known(about: About, said: str) -> None:
    assert said in sidebar.verdict(about, NAMES, NAMES.index("cat"))
