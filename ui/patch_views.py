"""One patch in HTML: enlarged, as its numbers, and multiplied by a filter; and all filters."""

import base64
import io
from collections.abc import Sequence
from math import isqrt

import numpy as np
import streamlit as st
from numpy.typing import NDArray
from PIL import Image

from figures.patches import signed_colours
from figures.theme import Palette
from ui.resources import data_uri
from ui.words import plain, signed
from vit.analysis.patches import DotProduct, place_in_patch

LEGIBLE = 8  # up to this side an enlarged pixel has room for its numbers
LOSSLESS = 64_000  # bytes of pixels up to which the filters are sent as they are
LISTED = 8  # so many of the largest products are listed

# The colours --ink, --line, … are the frame's.
_STYLE = """
.patch { font-variant-numeric: tabular-nums; color: var(--ink); }
.patch .pixels {
  display: grid; aspect-ratio: 1; max-width: 440px; gap: 1px; line-height: 1.25;
  grid-template-columns: repeat(var(--side), 1fr); container-type: inline-size;
}
.patch .pixels div {
  display: flex; flex-direction: column; justify-content: center; align-items: center;
  font: 500 clamp(7px, calc(19cqi / var(--side)), 17px) / 1.25 "Source Code Pro", monospace;
  min-width: 0; overflow: hidden;
}
.patch .scroll { overflow-x: auto; padding-bottom: 6px; }
.patch table { border-collapse: collapse; font-size: 13px; border: 0; }
.patch td, .patch th { text-align: right; padding: 3px 7px; border: 0; white-space: nowrap; }
.patch th { font-weight: 400; color: var(--muted); text-align: left; padding-left: 0; }
.patch .in-order th {
  position: sticky; left: 0; background: var(--ground); padding-right: 14px; min-width: 88px;
}
.patch .in-order .index td { color: var(--muted); font-size: 11px; padding-top: 12px; }
.patch .in-order .normalised td { color: #000; }
.patch .equation {
  display: grid; gap: 8px 9px;
  grid-template-columns: auto 1fr auto 1fr auto 1fr; align-items: center;
  max-width: 560px;
}
.patch .equation .name {
  font-size: 12.5px; color: var(--muted); align-self: end; line-height: 1.3;
}
.patch .equation .sign { font-size: 16px; color: var(--muted); text-align: center; }
.patch .tile {
  display: grid; aspect-ratio: 1; grid-template-columns: repeat(var(--side), 1fr);
  background-size: 100% 100%; image-rendering: pixelated; box-shadow: 0 0 0 1px var(--line);
  container-type: inline-size; position: relative;
}
.patch .tile span {
  display: flex; justify-content: center; align-items: center; min-width: 0;
  font-size: clamp(6px, calc(34cqi / var(--side)), 14px);
}
.patch .bar { height: 8px; box-shadow: 0 0 0 1px var(--line); }
.patch .ends {
  display: flex; justify-content: space-between; font-size: 11px; color: var(--muted);
  margin-top: 3px;
}
.patch .largest { width: 100%; max-width: 520px; }
.patch .largest td, .patch .largest th { padding: 4px 0 4px 12px; }
.patch .largest th { text-align: right; font-size: 12px; vertical-align: bottom; }
.patch .largest :is(td, th):first-child { text-align: left; padding-left: 0; }
.patch .largest tbody tr { border-top: 1px solid var(--line); }
.patch .largest tfoot tr:first-child { border-top: 2px solid var(--muted); }
.patch .largest tfoot tr:last-child td { font-weight: 600; border-top: 1px solid var(--line); }
.patch .filters { position: relative; max-width: 760px; }
.patch .filters img { display: block; width: 100%; image-rendering: pixelated; }
.patch .filters i { position: absolute; outline: 2px solid var(--key); outline-offset: 1px; }
"""


def style() -> None:
    """The look of everything below; once on a page, before it."""
    st.html(f"<style>{_STYLE}</style>")


def _show(body: str, side: int) -> None:
    st.html(f'<div class="patch" style="--side: {side}">{body}</div>')


def channel_names(count: int) -> Sequence[str]:
    """What the channels are called: a picture has three colours or one grey."""
    return "RGB" if count == 3 else ("grey",)


def _on(red: int, green: int, blue: int) -> str:
    """Black or white, whichever reads better on a colour (relative luminance, WCAG 2.2)."""
    linear = ((value / 255) ** 2.2 for value in (red, green, blue))
    luminance = sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return "#000" if luminance > 0.179 else "#fff"


def enlarged(patch: NDArray[np.uint8]) -> None:
    """A patch (C, P, P) with the numbers of every pixel on it, where they have room."""
    side = patch.shape[1]
    names = channel_names(len(patch))
    cells = []
    for row in range(side):
        for column in range(side):
            values = patch[:, row, column].tolist()
            colour = values if len(values) == 3 else values * 3
            words = [
                f"{name} {value:3d}" if len(values) == 3 and side <= 4 else f"{value}"
                for name, value in zip(names, values, strict=True)
            ]
            lines = "".join(f"<span>{word}</span>" for word in words) if side <= LEGIBLE else ""
            title = f"row {row}, column {column}: {', '.join(words)}"
            cells.append(
                f'<div title="{title}" style="background: rgb({",".join(map(str, colour))}); '
                f'color: {_on(*colour)}">{lines}</div>'
            )
    _show(f'<div class="pixels">{"".join(cells)}</div>', side)


def in_order(raw: NDArray[np.uint8], normalised: np.ndarray, palette: Palette) -> None:
    """The numbers of a patch (C, P, P) as the model lays them out, raw above normalised."""
    channels, side = raw.shape[:2]
    limit = float(np.abs(normalised).max())
    colours = signed_colours(normalised, limit, palette)
    body = []
    for channel, name in enumerate(channel_names(channels)):
        cells: dict[str, list[str]] = {"index": [], "raw": [], "normalised": []}
        for place in range(side**2):
            row, column = divmod(place, side)
            colour = colours[channel, row, column].tolist()
            look = f"background:#{bytes(colour).hex()}"
            if (text := _on(*colour)) != "#000":
                look += f";color:{text}"
            value = signed(normalised[channel, row, column], 2)
            cells["index"].append(f"<td>{channel * side**2 + place}</td>")
            cells["raw"].append(f"<td>{raw[channel, row, column]}</td>")
            cells["normalised"].append(f'<td style="{look}">{value}</td>')
        heads = {"index": "number", "raw": f"{name}, 0–255", "normalised": "normalised"}
        body += [
            f'<tr class="{kind}"><th scope="row">{heads[kind]}</th>{"".join(tds)}</tr>'
            for kind, tds in cells.items()
        ]
    # A gap after each row of the patch; the cells are the children after the row's head.
    gap = f".patch .in-order td:nth-child({side}n + 1) {{ border-right: 6px solid var(--ground) }}"
    _show(
        f'<style>{gap}</style><div class="scroll" tabindex="0"><table class="in-order">'
        f"{''.join(body)}</table></div>",
        side,
    )


def equation(opened: DotProduct, channels: int, dimension: int, palette: Palette) -> None:
    """Patch times filter is products, channel by channel, each column on its own scale."""
    side = isqrt(len(opened.inputs) // channels)
    shape = (channels, side, side)
    columns = [
        ("patch, normalised", opened.inputs.numpy().reshape(shape)),
        (f"filter {dimension}", opened.weights.numpy().reshape(shape)),
        ("products", opened.products.numpy().reshape(shape)),
    ]
    limits = [float(np.abs(values).max()) for _, values in columns]
    cells = _joined("", [f'<div class="name">{name}</div>' for name, _ in columns], "", "")
    for channel, name in enumerate(channel_names(channels)):
        tiles = [
            _tile(values[channel], limit, palette)
            for (_, values), limit in zip(columns, limits, strict=True)
        ]
        cells += _joined(name, tiles, "×", "=")
    gradient = ", ".join(palette.diverging)
    cells += _joined(
        "",
        [
            f'<div><div class="bar" style="background: linear-gradient(90deg, {gradient})"></div>'
            f'<div class="ends"><span>−{limit:.2g}</span><span>0</span><span>+{limit:.2g}</span>'
            "</div></div>"
            for limit in limits
        ],
        "",
        "",
    )
    _show(f'<div class="equation">{"".join(cells)}</div>', side)


def _joined(name: str, parts: list[str], times: str, equals: str) -> list[str]:
    a, b, c = parts
    name, times, equals = (f'<div class="sign">{word}</div>' for word in (name, times, equals))
    return [name, a, times, b, equals, c]


def _tile(values: np.ndarray, limit: float, palette: Palette) -> str:
    """(P, P) as coloured squares, with their numbers where there is room."""
    colours = signed_colours(values, limit, palette)
    side = len(values)
    numbers = ""
    if side <= 4:
        # Adding 0 turns the −0 that rounding may leave into 0.
        numbers = "".join(
            f'<span style="color: {_on(*colour)}">{plain(round(value, 2) + 0.0, 2)}</span>'
            for value, colour in zip(
                values.ravel().tolist(), colours.reshape(-1, 3).tolist(), strict=True
            )
        )
    return f'<div class="tile" style="background-image: url({data_uri(colours)})">{numbers}</div>'


def largest(opened: DotProduct, channels: int) -> None:
    """The products that weigh most, all others together, the bias, and what they add up to."""
    side = isqrt(len(opened.inputs) // channels)
    names = channel_names(channels)
    listed = opened.largest(LISTED)
    rows = []
    for index in listed:
        place = place_in_patch(index, side)
        rows.append(
            f"<tr><td>{index}: {names[place.channel]}, row {place.row}, column {place.column}</td>"
            f"<td>{signed(float(opened.inputs[index]))}</td>"
            f"<td>{signed(float(opened.weights[index]))}</td>"
            f"<td>{signed(float(opened.products[index]))}</td></tr>"
        )
    if others := len(opened.products) - len(listed):
        rest = float(opened.products.sum() - opened.products[listed].sum())
        rows.append(
            f"<tr><td>the other {others}, added up</td><td></td><td></td>"
            f"<td>{signed(rest)}</td></tr>"
        )
    _show(
        '<table class="largest"><thead><tr><th scope="col">number of the patch</th>'
        '<th scope="col">its value</th><th scope="col">× weight</th>'
        f'<th scope="col">= product</th></tr></thead><tbody>{"".join(rows)}</tbody><tfoot>'
        f"<tr><td>all {len(opened.products)} products</td><td></td><td></td>"
        f"<td>{signed(float(opened.products.sum()))}</td></tr>"
        f"<tr><td>+ bias</td><td></td><td></td><td>{signed(opened.bias)}</td></tr>"
        f"<tr><td>the token's number</td><td></td><td></td><td>{signed(opened.total)}</td></tr>"
        "</tfoot></table>",
        side,
    )


def filters(pictures: np.ndarray, chosen: int, palette: Palette) -> None:
    """All filters (D, P, P, C), 0 to 1, in reading order as one picture; the chosen one framed."""
    count, side = pictures.shape[:2]
    columns = 16 if count <= 256 else 32
    rows, gap = -(-count // columns), max(1, side // 4)
    step = side + gap
    ground = [int(palette.ground[i : i + 2], 16) for i in (1, 3, 5)]
    sheet = np.full((rows * step - gap, columns * step - gap, 3), ground, np.uint8)
    for index, picture in enumerate((pictures * 255).round().astype(np.uint8)):
        top, left = (step * place for place in divmod(index, columns))
        sheet[top : top + side, left : left + side] = picture
    height, width = sheet.shape[:2]
    top, left = (step * place for place in divmod(chosen, columns))
    frame = f"left: {100 * left / width:.3f}%; top: {100 * top / height:.3f}%; "
    frame += f"width: {100 * side / width:.3f}%; height: {100 * side / height:.3f}%"
    _show(
        f'<div class="filters"><img src="{_sheet_uri(sheet)}" alt="{count} learned filters of '
        f'{side} × {side} pixels, filter {chosen} framed"><i style="{frame}"></i></div>',
        side,
    )


def _sheet_uri(sheet: NDArray[np.uint8]) -> str:
    """Without loss while that is small; many large filters would be most of the page's bytes."""
    if sheet.nbytes <= LOSSLESS:
        return data_uri(sheet)
    file = io.BytesIO()
    Image.fromarray(sheet).save(file, "WEBP", quality=80)
    return "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()
