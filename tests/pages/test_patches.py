"""The Patches page: what it prints is what numpy makes of the same picture and weights."""

import base64
import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.pages import made
from tests.pages.made import PICTURE, ROOT, Own, array, figures, html, open_page, own_walk, words
from vit import images

FILE = "1_Patches.py"
RUNS = ["cifar10", "digits", "runs/shallow", "runs/many"]


@pytest.fixture(autouse=True)
def own_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VIT_RUNS_DIR", str(tmp_path))
    made.make_runs(tmp_path)
    return tmp_path


def own(run: str, own_runs: Path) -> Own:
    path = own_runs / run.removeprefix("runs/") if "/" in run else ROOT / "checkpoints" / run
    return own_walk(path)


def number(text: str) -> float:
    return float(text.replace("−", "-").replace(",", ""))


def square(values: np.ndarray, side: int, patch: int) -> np.ndarray:
    """Patch number ``patch``, from 0, of (C, S, S)."""
    row, column = divmod(patch, values.shape[-1] // side)
    return values[:, row * side : (row + 1) * side, column * side : (column + 1) * side]


@pytest.mark.parametrize("run", RUNS)
def test_the_numbers_are_those_of_the_patch(run: str, own_runs: Path) -> None:
    walk, app = own(run, own_runs), open_page(FILE, run=run, token="3")
    config = walk.run.model_config
    framed = images.frame_picture(images.open_picture(PICTURE.read_bytes()), "crop")
    pixels = images.resize_to_model(framed, config.image_size, config.in_chans).transpose(2, 0, 1)
    raw = square(pixels, config.patch_size, 2)
    normalised = square(walk.x[0].numpy(), config.patch_size, 2)

    text = html(app)
    table = text[text.index('class="in-order"') :].split("</table>")[0]
    rows = re.findall(r'<tr class="(\w+)">.*?</th>(.*?)</tr>', table)
    shown: dict[str, list[float]] = {"index": [], "raw": [], "normalised": []}
    for kind, cells in rows:
        shown[kind] += [number(cell) for cell in re.findall(r">([^<]+)</td>", cells)]
    assert shown["index"] == list(range(config.patch_dim))
    assert shown["raw"] == raw.ravel().tolist()
    assert shown["normalised"] == pytest.approx(normalised.ravel().tolist(), abs=0.00501)

    titles = re.findall(r'<div title="row (\d+), column (\d+): ([^"]*)"', text)
    for row, column, values in titles:
        printed = [int(value) for value in re.findall(r"\d+", values)]
        assert printed == raw[:, int(row), int(column)].tolist()
    assert len(titles) == config.patch_size**2


@pytest.mark.parametrize(("run", "dimension"), [*((run, 0) for run in RUNS), ("cifar10", 97)])
def test_one_number_of_the_token_adds_up(run: str, dimension: int, own_runs: Path) -> None:
    walk, app = own(run, own_runs), open_page(FILE, run=run, token="3")
    config, layer = walk.run.model_config, walk.run.model.patch_embed.proj
    if dimension:
        app.number_input(key=f"dimension-{config.embed_dim}").set_value(dimension).run()
    inputs = square(walk.x[0].numpy(), config.patch_size, 2).ravel().astype(np.float64)
    weights = layer.weight[dimension].numpy().ravel().astype(np.float64)
    bias = float(layer.bias[dimension])

    token = array(figures(app)[0]["data"][0]["y"])
    expected = layer.weight.flatten(1).numpy() @ inputs + layer.bias.numpy()
    assert token == pytest.approx(expected, abs=1e-4)

    text = html(app)
    table = text[text.index('class="largest"') :].split("</table>")[0]
    rows = [re.findall(r"<td>([^<]*)</td>", row) for row in table.split("<tr>")[2:]]
    *listed, products, plus_bias, total = rows
    order = np.argsort(-np.abs(inputs * weights), kind="stable")
    for (name, value, weight, product), index in zip(listed, order[:8], strict=False):
        at = int(name.split(":")[0])
        assert abs(inputs[at] * weights[at]) == pytest.approx(abs((inputs * weights)[index]))
        assert number(value) == pytest.approx(inputs[at], abs=6e-4)
        assert number(weight) == pytest.approx(weights[at], abs=6e-4)
        assert number(product) == pytest.approx(inputs[at] * weights[at], abs=6e-4)
    assert sum(number(row[3]) for row in listed) == pytest.approx(number(products[3]), abs=6e-3)
    assert number(products[3]) == pytest.approx(float(inputs @ weights), abs=6e-4)
    assert number(plus_bias[3]) == pytest.approx(bias, abs=6e-4)
    assert number(total[3]) == pytest.approx(float(inputs @ weights) + bias, abs=6e-4)
    recorded = re.search(r"recorded (\S+) as `patch_embed\.projected\[0, 2, (\d+)]`", words(app))
    assert recorded is not None and int(recorded[2]) == dimension
    assert number(recorded[1]) == pytest.approx(float(inputs @ weights) + bias, abs=1e-5)


@pytest.mark.parametrize("run", RUNS)
def test_linear_and_convolution_agree_and_say_by_how_much(run: str, own_runs: Path) -> None:
    walk, app = own(run, own_runs), open_page(FILE, run=run, token="3")
    convolved = walk.run.model.patch_embed.proj(walk.x)[0].flatten(1).T
    difference = float((convolved - walk.trace["patch_embed.projected"][0]).abs().max())
    printed = re.search(r"largest difference is \*\*(\S+)\*\*", words(app))
    assert printed is not None
    assert float(printed[1]) == pytest.approx(difference, rel=0.06)
    assert difference < 1e-5
    first = ", ".join(f"{value:.4f}" for value in convolved[2, :4].tolist()).replace("-", "−")
    assert [first in block.value for block in app.code[:2]] == [True, True]


@pytest.mark.parametrize("run", RUNS)
def test_all_filters_are_there_in_their_own_colours(run: str, own_runs: Path) -> None:
    walk, app = own(run, own_runs), open_page(FILE, run=run, token="3")
    uri = re.search(r'class="filters"><img src="data:image/png;base64,([^"]+)"', html(app))
    assert uri is not None
    sheet = np.asarray(Image.open(io.BytesIO(base64.b64decode(uri[1]))).convert("RGB"))
    weight = walk.run.model.patch_embed.proj.weight.numpy()
    side = weight.shape[-1]
    step = side + max(1, side // 4)
    for index in (0, 5, len(weight) - 1):
        top, left = divmod(index, 16)
        shown = sheet[top * step : top * step + side, left * step : left * step + side]
        expected = 127.5 * (1 + weight[index] / np.abs(weight[index]).max())
        assert np.abs(shown.transpose(2, 0, 1) - expected).max() <= 1


def test_the_nearest_place_is_named(own_runs: Path) -> None:
    app, places = open_page(FILE, token="19"), own("cifar10", own_runs).run.model.pos_embed[0, 1:]
    for centred in (True, False):
        if not centred:
            app.toggle(key="centred").set_value(False).run()
        vectors = (places - places.mean(0) if centred else places).double().numpy()
        vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
        cosine = vectors @ vectors[18]
        cosine[18] = -2
        name = f"**patch {cosine.argmax() + 1} ("
        said = re.search(r"Likest to \*\*patch 19 .*?, with a cosine of (\S+)\.", words(app))
        assert said is not None and name in said[0]
        assert number(said[1]) == pytest.approx(cosine.max(), abs=6e-4)


def test_cls_has_no_pixels_but_a_vector(own_runs: Path) -> None:
    app, walk = open_page(FILE), own("cifar10", own_runs)
    assert "[CLS] has no pixels" in words(app)
    vector = walk.run.model.cls_token[0, 0].numpy()
    assert array(figures(app)[0]["data"][0]["y"]) == pytest.approx(vector, abs=1e-6)
    busiest = int(walk.trace["patch_embed.flattened"][0].std(-1).argmax())
    assert f"`patch_embed.flattened[0, {busiest}]`" in words(app)


def test_tokens_cost_what_they_cost() -> None:
    app = open_page(FILE)
    text = words(app)
    assert "1,024 patches of one pixel" in text
    assert "**50,176**" in text and "**2.5 billion pairs**" in text
    assert "**65 tokens** of 48 numbers each; N² = **4,225 pairs**" in text
    app.select_slider(key="cost-image-32").set_value(224).run()
    app.select_slider(key="cost-patch-224-4").set_value(1).run()
    assert "**50,177 tokens** of 3 numbers each; N² = **2,517,731,329 pairs**" in words(app)
    assert "| **1 × 1** | **50,176** | **50,177** | **2.5 billion** |" in words(app)
    tokens = array(figures(app)[-1]["data"][2]["y"])
    assert tokens.tolist() == [(224 // s) ** 2 + 1 for s in range(1, 225) if 224 % s == 0]


def test_the_longest_token_is_revealed(own_runs: Path) -> None:
    app = open_page(FILE)
    lengths = np.linalg.norm(own("cifar10", own_runs).trace["patch_embed.projected"][0], axis=-1)
    answer = f"**patch {lengths.argmax() + 1} ("
    assert answer not in words(app)
    next(button for button in app.button if button.label == "Reveal").click().run()
    assert f"of length {lengths.max():.2f}" in words(app)
    assert answer in words(app)
