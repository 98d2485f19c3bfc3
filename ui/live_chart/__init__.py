"""Charts of a run that is being trained, drawn by the browser: new points change nothing else.

Streamlit 1.67 redraws its own charts with every change of the data, and their zoom is gone: plotly
is mounted anew, ECharts gets its options with ``notMerge``, and Vega-Lite has the selections bound
to its scales cleared. Here the steps zoomed to, the smoothing and the scale stay in the browser,
are the same on all charts, and work by mouse, touch and keyboard. Python hears which steps are
zoomed to and sends more of the points among them: never more than ``MOST`` in all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from ui.colours import roles, scale

MOST = 500  # points sent at once, those of all lines of all charts together
DOTS = 40  # of a line of single measurements, such as one an epoch
SMALL = 45  # of a line of a small chart
UNKNOWN = 100  # steps on the axis of a run that has not said yet how many it will take
AROUND = 0.1  # the share of a line's points that a zoom leaves to each side of what is in sight
_HERE = Path(__file__).parent
_component = st.components.v2.component(
    "sixty_five_tokens_live_chart",
    html=(_HERE / "live_chart.html").read_text(encoding="utf-8"),
    css=(_HERE / "live_chart.css").read_text(encoding="utf-8"),
    js=(_HERE / "live_chart.js").read_text(encoding="utf-8"),
)
_COLOURS = roles("ink", "muted", "line", "ground", "query") | scale("series")


@dataclass(frozen=True)
class Line:
    """Measured ``values`` (n,) over training ``steps`` (n,), both without NaN. ``colour`` is an
    index into the theme's series. Dots are single measurements and not smoothed; a line that is not
    ``smooth`` is drawn as it is, and has no noise to average away."""

    name: str
    steps: np.ndarray
    values: np.ndarray
    colour: int
    dots: bool = False
    smooth: bool = True


@dataclass(frozen=True)
class Chart:
    """Lines on common axes.

    Attributes:
        unit: what the values are, beside the title.
        decimals, digits: after the point, or if given the significant ones, when a value is read.
        sign: written behind a value.
        small: takes a third of the width instead of a half, and is lower.
        log: follows the switch to a logarithmic scale.
        top: where the axis ends while nothing is zoomed to; by the values if None.
        level: a value to compare with, and what it is.
    """

    title: str
    unit: str
    lines: Sequence[Line]
    decimals: int = 0
    digits: int | None = None
    sign: str = ""
    small: bool = False
    log: bool = False
    top: float | None = None
    level: tuple[float, str] | None = None


def live_chart(
    charts: Sequence[Chart],
    *,
    key: str,
    run: str,
    total: int,
    steps_per_epoch: float,
    marks: Mapping[float, str],
    note: str,
) -> None:
    """Draw the charts of a run of ``total`` steps.

    Args:
        run: tells one run's zoom from another's.
        marks: steps to mark by a vertical line, and what to write at it.
        note: stands under the charts.
    """
    last = max(
        (float(line.steps[-1]) for c in charts for line in c.lines if len(line.steps)), default=0
    )
    data = {
        "run": run,
        "end": axis_end(last, total),
        "last": last,
        "steps_per_epoch": steps_per_epoch,
        "range": zoomed(key),
        "marks": [{"step": step, "text": text} for step, text in marks.items()],
        "note": note,
        "colours": _COLOURS,
        "charts": payload(charts, zoomed(key)),
    }
    # In a list: Streamlit searches a dict for data frames, and imports pandas to know one.
    _component(key=key, data=[data], on_range_change=_nothing)


def _nothing() -> None:
    """Streamlit keeps a value only if it has a callback."""


def zoomed(key: str) -> tuple[float, float] | None:
    """From and to which step the visitor has zoomed; None while all are in sight."""
    asked = (st.session_state.get(key) or {}).get("range")
    if not (isinstance(asked, list) and len(asked) == 2):
        return None
    first, last = (float(step) if isinstance(step, int | float) else np.nan for step in asked)
    return (first, last) if first < last else None


def axis_end(last: float, total: int) -> float:
    """Where the axis of steps ends while the run is at step ``last``: at the least of the run's
    halves, quarters, eighths … that leaves room, so that it moves seldom."""
    end = float(max(total, last) or UNKNOWN)
    while end / 2 > max(last, 10):
        end /= 2
    return end


def payload(charts: Sequence[Chart], window: tuple[float, float] | None) -> list[dict[str, Any]]:
    """What the browser gets of the charts: at most ``MOST`` points, most of them in ``window``."""
    lines = [(chart, line) for chart in charts for line in chart.lines]
    room = {
        id(line): DOTS if line.dots else SMALL for chart, line in lines if line.dots or chart.small
    }
    taken = sum(min(len(line.steps), room[id(line)]) for _, line in lines if id(line) in room)
    large = [line for _, line in lines if id(line) not in room]
    room |= {id(line): (MOST - taken) // len(large) for line in large}
    return [
        {
            "title": chart.title,
            "unit": chart.unit,
            "decimals": chart.decimals,
            "sign": chart.sign,
            "small": chart.small,
            "log": chart.log,
            "lines": [_thinned(line, room[id(line)], window) for line in chart.lines],
        }
        | ({} if chart.digits is None else {"digits": chart.digits})
        | ({} if chart.top is None else {"top": chart.top})
        | (
            {}
            if chart.level is None
            else {"level": dict(zip(("value", "text"), chart.level, strict=True))}
        )
        for chart in charts
    ]


def _thinned(line: Line, most: int, window: tuple[float, float] | None) -> dict[str, Any]:
    steps, values, counts = thin(line.steps, line.values, most, window)
    if not line.smooth:
        values = line.values[counts.cumsum() - 1]
    return {
        "name": line.name,
        "colour": f"series-{line.colour}",
        "dots": line.dots,
        "steps": steps.tolist(),
        "values": [float(f"{value:.5g}") for value in values],
        "noisy": line.smooth and not line.dots,
    }


def thin(
    steps: np.ndarray, values: np.ndarray, most: int, window: tuple[float, float] | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Average neighbours until at most ``most`` points are left, fewer outside of ``window``.

    Returns:
        The last step of each group, its mean value, and how many points it stands for; (m,) each.
    """
    ends = (0, len(steps)) if window is None else np.searchsorted(steps, window).tolist()
    around = 0 if window is None else int(AROUND * most)
    starts = np.concatenate(
        [
            np.arange(first, last, max(1, -(-(last - first) // room)))
            for first, last, room in (
                (0, ends[0], around),
                (ends[0], ends[1], most - 2 * around),
                (ends[1], len(steps), around),
            )
            if last > first
        ]
        or [np.arange(0)]
    )
    if not len(starts):
        return steps, values, np.zeros(0, int)
    counts = np.diff(np.append(starts, len(steps)))
    return steps[starts + counts - 1], np.add.reduceat(values, starts) / counts, counts
