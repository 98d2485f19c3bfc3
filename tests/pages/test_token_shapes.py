"""The Token shapes page: the table it shows, read back, and what the form makes of it."""

import re
from html import unescape
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from tests.pages import made
from tests.pages.made import ROOT, html, open_page, own_walk, words
from vit import ViTConfig
from vit.model import count_parameters

FILE = "2_Token_shapes.py"


@pytest.fixture(autouse=True)
def own_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VIT_RUNS_DIR", str(tmp_path))
    made.make_runs(tmp_path)
    return tmp_path


def table(app: AppTest, label: str) -> list[list[str]]:
    """The rows of the table of that name, cell by cell, without marks."""
    text = html(app).split(f'aria-label="{label}"')[1].split("</table>")[0]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in text.split("<tr")[1:]]
    return [[unescape(re.sub(r"<[^>]+>", " ", cell)).strip() for cell in row] for row in rows]


def steps(app: AppTest, label: str = "The forward pass, step by step") -> dict[str, list[str]]:
    return {row[0]: row[1:] for row in table(app, label)}


def count(text: str) -> int:
    return int(text.replace(",", "").replace("–", "0"))


@pytest.mark.parametrize("run", ["cifar10", "digits", "runs/shallow", "runs/many"])
def test_the_table_is_this_models(run: str, own_runs: Path) -> None:
    path = own_runs / run.removeprefix("runs/") if "/" in run else ROOT / "checkpoints" / run
    walk, rows = own_walk(path), steps(open_page(FILE, run=run))
    config = walk.run.model_config
    for name, tensor in walk.trace.items():
        block = re.match(r"blocks\.(\d+)\.", name)
        if block is None or block[1] == "0":
            label = name.removeprefix("blocks.0.")
            label = "attn.q attn.k attn.v" if label[-2:] in (".q", ".k", ".v") else label
            assert rows[label][1] == "(" + ", ".join(map(str, tensor.shape)) + ")", name
    blocks = rows[f"{config.depth} × block"]
    outside = [
        row
        for name, row in rows.items()
        if "patch_embed" in name or name in ("cls_prepended", "pos_added", "normalized", "logits")
    ]
    total = count_parameters(walk.run.model)
    assert count(rows["In all"][0]) == total
    assert count(blocks[3]) + sum(count(row[3]) for row in outside) == total
    assert count(blocks[3]) == count_parameters(walk.run.model.blocks)
    assert rows["attn.attn_scores"][0] == "(B, H, N, N)"
    assert "vit/model.py:" in rows["logits"][2]


def test_more_pictures_change_one_length_and_the_work() -> None:
    app = open_page(FILE)
    one = steps(app)
    app.select_slider(key="batch").set_value(256).run()
    many = steps(app)
    assert many["pos_added"][1] == one["pos_added"][1].replace("(1,", "(256,")
    assert count(many["In all"][1]) == 256 * count(one["In all"][1])
    assert many["In all"][0] == one["In all"][0]


def test_blocks_fold_and_open() -> None:
    app = open_page(FILE, layer="2")
    assert 'title="blocks.2.attn.z"' in html(app)
    app.selectbox(key="open-cifar10").set_value("none").run()
    assert "attn.z" not in steps(app)


def test_three_turns_are_told_and_marked() -> None:
    app = open_page(FILE)
    assert "48 numbers become 128" in words(app) and "64 tokens become 65, once" in words(app)
    marked = re.findall(r'<span class="turn">(.*?)</span>', html(app))
    assert marked[:3] == ["48 → 128 numbers per token", "64 → 65 tokens", "65 → 1 tokens"]


def test_systems_stand_side_by_side() -> None:
    rows = {row[0]: row for row in table(open_page(FILE), "Models side by side")}
    assert [rows[f"System {name}"][9] for name in "ABC"] == ["809,354", "807,818", "1,205,898"]
    assert [rows[f"System {name}"][7] for name in "ABC"] == ["yes", "no", "yes"]
    published = ["5,717,416", "22,050,664", "86,567,656"]
    assert [rows[f"ViT-{size}/16"][9] for size in ("Ti", "S", "B")] == published


def test_what_if_follows_the_form_and_explains_what_cannot_be() -> None:
    app = open_page(FILE)
    app.number_input(key="what-if-num_heads").set_value(5).run()
    with pytest.raises(ValueError) as reason:
        ViTConfig(num_heads=5)
    assert [warning.value for warning in app.warning] == [str(reason.value)]
    app.number_input(key="what-if-num_heads").set_value(8).run()
    app.number_input(key="what-if-image_size").set_value(224).run()
    app.number_input(key="what-if-patch_size").set_value(1).run()
    assert not app.warning
    what_if = {row[0]: row for row in table(app, "Models side by side")}["What if"]
    assert what_if[3] == "50,177"
    assert steps(app, "What if, step by step")["attn.pattern"][1] == "(1, 8, 50,177, 50,177)"
    # Patches (C·P²·D and D), [CLS], places (N·D), blocks, norm, head.
    parameters = 3 * 128 + 128 + 128 + 50_177 * 128 + 6 * 198_272 + 256 + 1_290
    assert f"**50,177 tokens, {parameters:,} parameters" in words(app)


def test_a_preset_fills_the_form() -> None:
    app = open_page(FILE)
    app.button_group(key="what-if-preset").set_value("System B").run()
    assert app.number_input(key="what-if-depth").value == 4
    assert app.checkbox(key="what-if-qkv_bias").value is False
    assert "**65 tokens, 807,818 parameters" in words(app)
    # A number of one's own leaves the preset; the rest stays.
    app.number_input(key="what-if-depth").set_value(5).run()
    assert app.session_state["what-if-preset"] is None
    assert "**65 tokens, 1,005,706 parameters" in words(app)  # one more block of 197,888


def test_what_is_skipped_is_said() -> None:
    text = words(open_page(FILE))
    # In the last block 64 of 65 tokens do without query, projection and MLP (3·D² less 2·D² for
    # k and v, D², 8·D²) and without their rows of scores and mixture (2·N·D).
    full, saved = 83_561_216, 64 * (10 * 128**2 + 2 * 65 * 128)
    assert f"{(full - saved) / 1e6:.1f} million multiply-adds for a picture instead of" in text
    assert f"**{100 * saved / full:.1f} % saved**" in text


def test_pairs_against_mlp_is_revealed() -> None:
    app = open_page(FILE)
    next(button for button in app.button if button.label == "the pairs").click().run()
    said = words(app)
    assert f"**{8 * 65 * 128**2:,}**" in said and f"**{2 * 65**2 * 128:,}**" in said
    assert "N = 512." in said
