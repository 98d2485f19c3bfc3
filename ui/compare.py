"""Runs side by side: what they reached, how they got there, and in what they differ."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from html import escape
from typing import Any, Literal

import numpy as np
import streamlit as st

from figures.compare import Series, overlaid, style
from ui import frame
from ui.learning import LABELS, _value, column
from ui.opened import QUIET
from ui.run_facts import Facts
from vit.recipes import Recipe

LETTERS = "ABCDEFGH"
MOST = len(LETTERS)  # runs at once; more lines than that are not told apart
Over = Literal["by epoch", "by time"]

_STYLE = """
.compared { overflow-x: auto; margin-bottom: 0.5rem; }
.compared table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
.compared :is(th, td) { border: 0; text-align: right; font-weight: 400; padding: 6px 0 6px 26px; vertical-align: top; }
.compared tbody :is(th, td) { border-top: 1px solid var(--line); }
.compared :is(th, td):first-child { text-align: left; padding-left: 0; color: var(--muted); min-width: 9.5em; max-width: 17em; position: sticky; left: 0; background: var(--ground); }
.compared td:not(:first-child) { white-space: nowrap; }
.compared caption { text-align: left; font-weight: 600; padding: 0.2rem 0; }
.compared thead b { font-weight: 650; }
.compared thead th { min-width: 7.5em; max-width: 14em; vertical-align: bottom; }
.compared thead span { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 3; overflow: hidden; overflow-wrap: anywhere; }
.compared thead i { display: block; width: 48px; height: 2.5px; margin: 0 0 7px auto; }
.compared small { display: block; color: var(--muted); font-size: 12px; }
@media (max-width: 640px) { .compared :is(th, td) { padding-left: 14px; } .compared :is(th, td):first-child { min-width: 6.5em; } }
"""  # noqa: E501
# figures.compare's dashes as a line in a table: whether it is drawn, from and to which pixel.
_STROKES = {
    "solid": [(True, 0, 48)],
    "dash": [(True, 0, 7), (False, 7, 12)],
    "dot": [(True, 0, 3), (False, 3, 6)],
    "dashdot": [(True, 0, 8), (False, 8, 11), (True, 11, 14), (False, 14, 17)],
    "longdash": [(True, 0, 12), (False, 12, 18)],
    "longdashdot": [(True, 0, 14), (False, 14, 18), (True, 18, 21), (False, 21, 25)],
}


@dataclass(frozen=True)
class Compared:
    """A run to be compared: its name, a stranger's text, and what is known of it."""

    name: str
    facts: Facts


def show(compared: Sequence[Compared]) -> None:
    """Two runs or more: final figures, curves over each other, and the settings that differ."""
    st.html(f"<style>{_STYLE}</style>{_table('', _heads(compared), _results(compared))}")
    over: Over = st.segmented_control(
        "Over",
        ["by epoch", "by time"],
        default="by epoch",
        required=True,
        key="compare-over",
        label_visibility="collapsed",
    )
    palette = frame.palette()
    charts = (
        ("Validation accuracy", "val_accuracy", 100, "named rightly, %", 1),
        ("Training loss", "train_loss", 1, "cross-entropy, nats", 3),
    )
    for place, (title, key, factor, unit, decimals) in zip(
        st.columns(2, gap="large"), charts, strict=True
    ):
        place.markdown(f"**{title}**")
        lines = [
            Series(
                number,
                LETTERS[number],
                each.name,
                _over(each.facts, over),
                factor * column(each.facts.rows, key),
            )
            for number, each in enumerate(compared)
        ]
        words = "epoch" if over == "by epoch" else "seconds of training"
        figure = overlaid(lines, words, unit, palette, decimals=decimals)
        place.plotly_chart(figure, key=f"compare-{key}", config=QUIET)
    if differing := differences([each.facts for each in compared]):
        st.html(_table("What differs", _heads(compared), differing))
    else:
        st.caption("They have the same settings and the same seed.")


def _over(facts: Facts, over: Over) -> np.ndarray:
    """(n,) epochs, or seconds of training since the start, at each row."""
    if over == "by epoch":
        return column(facts.rows, "epoch")
    return np.cumsum(column(facts.rows, "seconds"))


def differences(found: Sequence[Facts]) -> list[tuple[str, list[str]]]:
    """The settings in which runs differ, by their plain names, and each run's value as text."""
    settings = [_settings(each) for each in found]
    return [
        (LABELS.get(key, key), [_value(each[key]) for each in settings])
        for key in settings[0]
        if any(each[key] != settings[0][key] for each in settings)
    ]


def _settings(facts: Facts) -> dict[str, Any]:
    values = {f.name: getattr(facts.recipe, f.name) for f in fields(Recipe)}
    named = {"recipe": values.pop("name")}
    model = values.pop("model").to_dict()
    del values["summary"]
    listed = {key: list(v) if isinstance(v, tuple) else v for key, v in (values | model).items()}
    short = {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in listed.items()}
    return named | short | {"seed": facts.seed}


def _results(compared: Sequence[Compared]) -> list[tuple[str, list[str]]]:
    rows: list[tuple[str, Callable[[Facts], str]]] = [
        ("test accuracy", _test),
        ("best validation accuracy", lambda facts: _row(facts, best=True)),
        ("last validation accuracy", lambda facts: _row(facts, best=False)),
        ("parameters", lambda facts: f"{facts.parameters:,}"),
        ("time in training", lambda facts: duration(facts.seconds) if facts.rows else "–"),
        ("training pictures a second", _speed),
    ]
    return [(title, [text(each.facts) for each in compared]) for title, text in rows]


def _test(facts: Facts) -> str:
    if facts.test is None:
        return "–"
    if facts.test_interval is None:
        return _percent(facts.test)
    low, high = (100 * share for share in facts.test_interval)
    return f"{_percent(facts.test)}\n{low:.1f} to {high:.1f}\nof {facts.tested:,} pictures"


def _row(facts: Facts, *, best: bool) -> str:
    if not facts.rows:
        return "–"
    row = max(facts.rows, key=lambda row: row["val_accuracy"]) if best else facts.rows[-1]
    return f"{_percent(row['val_accuracy'])}\nafter epoch {row['epoch']}"


def _speed(facts: Facts) -> str:
    speeds = column(facts.rows, "images_per_second")
    return f"{np.median(speeds):,.0f}" if len(speeds) else "–"


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def duration(seconds: float) -> str:
    """A length of time in its two largest units."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes_left} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


# ---- tables --------------------------------------------------------------------------------------


def _heads(compared: Sequence[Compared]) -> list[str]:
    """The runs as a table's heads, each with the line that is its own in the charts."""
    heads = []
    for number, each in enumerate(compared):
        colour, dash = style(number, frame.palette())
        stops = ", ".join(
            f"{colour if drawn else 'transparent'} {start}px {end}px"
            for drawn, start, end in _STROKES[dash]
        )
        line = f'<i style="background: repeating-linear-gradient(90deg, {stops})"></i>'
        heads.append(f"{line}<span><b>{LETTERS[number]}</b> {escape(each.name)}</span>")
    return heads


def _table(caption: str, heads: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    """A table of plain texts; what follows a line's end is small."""

    def cell(text: str) -> str:
        large, *small = map(escape, text.split("\n"))
        return f"<td>{large}{''.join(f'<small>{line}</small>' for line in small)}</td>"

    head = "".join(f'<th scope="col">{each}</th>' for each in heads)
    body = "".join(
        f'<tr><th scope="row">{escape(title)}</th>{"".join(map(cell, cells))}</tr>'
        for title, cells in rows
    )
    titled = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="compared" tabindex="0"><table>{titled}<thead><tr><td></td>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
