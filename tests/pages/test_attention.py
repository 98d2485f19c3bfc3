"""The Attention page: what it prints is what the package computes from the same picture."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.pages import made
from tests.pages.made import ROOT, array, figures, html, open_page, own_walk, words
from vit.analysis import attention
from vit.analysis.rollout import rollout

FILE = "3_Attention.py"
FOCUS = {"token": "3", "layer": "0", "head": "1"}


@pytest.fixture(autouse=True)
def own_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VIT_RUNS_DIR", str(tmp_path))
    made.make_runs(tmp_path)
    return tmp_path


def folder(run: str, own_runs: Path) -> Path:
    return own_runs / run.removeprefix("runs/") if "/" in run else ROOT / "checkpoints" / run


@pytest.mark.parametrize("run", ["cifar10", "digits", "runs/shallow", "runs/many"])
def test_every_number_is_the_packages(run: str, own_runs: Path) -> None:
    app = open_page(FILE, run=run, **FOCUS)
    own = own_walk(folder(run, own_runs))
    grid, text = own.run.model_config.grid_size, words(app)
    maps = attention.patterns(own.trace)
    key = int(maps[0, 1, 3].argmax())
    weight = attention.open_weight(own.trace, 0, 1, 3, key)

    def minus(value: str) -> str:
        return value.replace("-", "−")

    assert f"= **{minus(f'{weight.dot:.3f}')}**" in text
    root = own.run.model_config.head_dim
    assert f"√{root} =" in text
    assert f"/ {root**0.5:.3f} = **{minus(f'{weight.score:.3f}')}**" in text
    divided = f"{weight.exps[key].item():.4f} / {weight.total:.4f} = **{weight.weight:.4f}**"
    assert divided in text
    listed = re.findall(r"^\| .* \| (?:\*\*)?([\d.]+)(?:\*\*)? \|$", text, re.MULTILINE)
    by_weight = maps[0, 1, 3].sort(descending=True).values[:4]
    assert [float(w) for w in listed[:4]] == pytest.approx(by_weight.tolist(), abs=6e-5)
    assert float(listed[-1]) == 1
    assert sum(float(w) for w in listed[:-1]) == pytest.approx(1, abs=4e-4)

    figure = figures(app)[0]["data"][0]
    assert array(figure["y"]) == pytest.approx(weight.products.numpy(), rel=1e-5, abs=1e-6)
    z, weighted, v = array(figures(app)[1]["data"][0]["z"])
    recorded = own.trace["blocks.0.attn.z"][0, 1, 3].numpy()
    assert z == pytest.approx(recorded, rel=1e-4, abs=1e-4)
    assert weighted == pytest.approx(weight.weight * v, rel=1e-4, abs=1e-6)

    error = attention.by_hand_error(own.run.model, own.trace, 0, 1)
    assert f"`by_hand.attention_head` by at most {error:.1e}" in text
    assert error < 1e-5 and weight.row_error < 1e-5
    assert f"differs from these steps by at most {weight.row_error:.1e}" in text

    rolled = rollout(maps)[-1]
    for token in (0, 3):
        others = np.delete(rolled[token].numpy(), token).max()
        line = f"from itself {rolled[token, token].item():.4f}; most from another {others:.4f}"
        assert line in html(app)
    far = attention.mean_distance(maps, grid)
    dots = array(figures(app)[2]["data"][0]["y"])
    assert dots == pytest.approx(far.flatten().numpy(), rel=1e-5)
    here = far[0, 1].item()
    pixels = here * own.run.model_config.patch_size
    assert f"**{here:.2f} patches** far, or {pixels:.1f} pixels" in text


def test_a_typed_query_goes_to_the_url_and_to_the_page() -> None:
    app = open_page(FILE, run="digits")
    app.number_input(key="view-token").set_value(7).run()
    app.number_input(key="view-layer").set_value(2).run()
    app.number_input(key="view-head").set_value(3).run()
    assert [app.query_params[k] for k in ("token", "layer", "head")] == ["7", "2", "3"]
    own = own_walk(ROOT / "checkpoints" / "digits")
    row = own.trace["blocks.2.attn.pattern"][0, 3, 7]
    assert "patch 7 (row 1, column 2)</b> fetch from" in html(app)
    assert f"= **{row.max().item():.4f}**" in words(app)


def test_the_question_is_answered_only_on_demand_and_right() -> None:
    app = open_page(FILE, run="digits", **FOCUS)
    row = own_walk(ROOT / "checkpoints" / "digits").trace["blocks.0.attn.pattern"][0, 1, 3]
    heaviest = sorted(row.tolist(), reverse=True)
    needed = next(n for n in range(1, 18) if sum(heaviest[:n]) >= 0.5)
    answer = f"**{needed}** of 17. Spread evenly it would take 9."
    assert answer not in words(app)
    guess = next(button for button in app.button if button.label.startswith("up to"))
    guess.click().run()
    assert answer in words(app)


def test_by_hand_can_be_left_out() -> None:
    app = open_page(FILE, run="digits")
    app.toggle(key="by-hand").set_value(False).run()
    assert "by_hand.attention_head` by at most" not in words(app)


def test_a_first_picture_comes_within_sixty_words() -> None:
    assert len(open_page(FILE).markdown[0].value.split()) <= 60
