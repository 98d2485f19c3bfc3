"""The [CLS] readout page: what it prints is what the package computes from the same picture."""

import re
from html import escape, unescape
from pathlib import Path

import numpy as np
import pytest

from tests.pages import made
from tests.pages.made import HOSTILE, ROOT, array, figures, html, open_page, own_walk, words
from vit.analysis import attention, readout

FILE = "4_CLS_readout.py"


@pytest.fixture(autouse=True)
def own_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VIT_RUNS_DIR", str(tmp_path))
    made.make_runs(tmp_path)
    return tmp_path


def folder(run: str, own_runs: Path) -> Path:
    return own_runs / run.removeprefix("runs/") if "/" in run else ROOT / "checkpoints" / run


def minus(value: str) -> str:
    return value.replace("-", "−")


@pytest.mark.parametrize("run", ["cifar10", "digits", "runs/shallow", "runs/many"])
def test_every_number_is_the_packages(run: str, own_runs: Path) -> None:
    app = open_page(FILE, run=run, layer="0", head="1")
    own = own_walk(folder(run, own_runs))
    names, text, drawn = own.run.class_names, words(app), html(app)
    from_cls = attention.patterns(own.trace)[:, :, 0]

    for rows in (from_cls.mean(1), from_cls[:, 1]):
        for layer, row in enumerate(rows):
            caption = f"max {row[1:].max().item():.4f}, itself {row[0].item():.4f}"
            assert f"<b>layer {layer}</b><br>{caption}" in drawn
        assert f"<span>{rows[:, 1:].max().item():.4f}</span>" in drawn  # one scale for all

    probabilities = readout.cls_by_layer(own.run.model, own.trace).softmax(-1).numpy()
    order = np.argsort(-probabilities[-1], kind="stable")
    shown = array(figures(app)[0]["data"][0]["z"])  # classes × stages
    assert shown.shape == (min(len(names), 10), own.run.model_config.depth + 1)
    assert shown[:, -1] == pytest.approx(np.sort(shown[:, -1])[::-1])
    assert shown[0] == pytest.approx(probabilities[:, order[0]], abs=6e-5)
    assert "the logits differ not at all." in text

    opinions = readout.patches_by_layer(own.run.model, own.trace).softmax(-1).numpy()
    for stage, title in ((0, "before anyone spoke"), (1, "after layer 0")):
        tops, chances = opinions[stage].argmax(-1), opinions[stage, :, order[0]]
        note = (
            f"{(tops == order[0]).sum()} of {len(tops)} say {names[order[0]]}; "
            f"the highest probability is {chances.max():.4f}"
        )
        assert f"<b>{title}</b><br>{escape(note)}" in drawn
        for patch, top in enumerate(tops):
            said = f"patch {patch + 1}: {names[top]} {opinions[stage, patch, top]:.4f}"
            assert f'title="{escape(said)}' in drawn

    cells = re.findall(r'<td title="([^"]*)">.*?</td><td>([^<]*)</td>.*?<b>([\d.]+)</b>', drawn)
    logits, chances = own.logits.numpy(), own.logits.softmax(0).numpy()
    assert [unescape(name) for name, *_ in cells] == [names[i] for i in order[:10]]
    assert [logit for _, logit, _ in cells] == [minus(f"{logits[i]:.3f}") for i in order[:10]]
    assert [p for *_, p in cells] == [f"{chances[i]:.4f}" for i in order[:10]]

    first, second = (readout.open_logit(own.run.model, own.trace, int(i)) for i in order[:2])
    assert f"= {minus(f'{first.dot:.3f}')}; and the class's bias" in text
    assert f"makes **{minus(f'{first.logit:.3f}')}**" in text
    assert array(figures(app)[1]["data"][0]["y"]) == pytest.approx(
        first.products.numpy(), rel=1e-5, abs=1e-6
    )
    odds = chances[order[0]] / chances[order[1]]
    assert float(re.search(r"\*\*([\d.]+) times\*\*", text)[1]) == pytest.approx(odds, abs=6e-3)


def test_a_class_can_be_chosen_for_the_patches() -> None:
    app = open_page(FILE, run="digits")
    own = own_walk(ROOT / "checkpoints" / "digits")
    app.selectbox(key="class-cat-photo-crop-digits-None").set_value(7).run()
    chances = readout.patches_by_layer(own.run.model, own.trace).softmax(-1)[1, :, 7]
    assert f"the highest probability is {chances.max().item():.4f}" in html(app)
    assert "probability of 7" in html(app)


def test_each_layer_may_have_its_own_scale() -> None:
    app = open_page(FILE, run="digits")
    assert "each map's maximum" not in html(app)
    app.segmented_control(key="scale").set_value("of each layer").run()
    assert html(app).count("each map's maximum") == 2


def test_the_vote_is_counted_only_on_demand_and_right() -> None:
    app = open_page(FILE, run="digits")
    own = own_walk(ROOT / "checkpoints" / "digits")
    votes = readout.patches_by_layer(own.run.model, own.trace)[-1].argmax(-1).tolist()
    elected, winner = max(set(votes), key=votes.count), int(own.logits.argmax())
    answer = f"{votes.count(elected)} of 16 say"
    assert answer not in words(app)
    next(button for button in app.button if button.label == "Yes").click().run()
    assert f"{answer} **{elected}**, and {votes.count(winner)} side with [CLS]" in words(app)


def test_a_hostile_class_name_is_shown_to_the_letter_and_nothing_else() -> None:
    app = open_page(FILE, run="runs/shallow")
    assert HOSTILE not in html(app)
    assert HOSTILE not in words(app)
    assert escape(HOSTILE) in html(app)
    assert r"\<b\>\$x\$ \[a\]\(b\)\</b\> \`\*" in words(app)


def test_a_first_picture_comes_within_sixty_words() -> None:
    first, second = (element.value for element in open_page(FILE).markdown[:2])
    assert len(f"{first} {second}".split()) <= 60
