"""The traced shapes as a table, and models side by side."""

from collections.abc import Iterable, Mapping
from html import escape

import streamlit as st

from ui.amounts import rounded
from vit.analysis.shapes import LEGEND, ShapeTrace, Step, Turn

# The colours --ink, --line, … are the frame's.
_STYLE = """
.shapes { overflow-x: auto; font-variant-numeric: tabular-nums; color: var(--ink); }
.shapes table { border-collapse: collapse; width: 100%; font-size: 13.5px; border: 0; }
.shapes :is(td, th) { border: 0; text-align: left; vertical-align: baseline; }
.shapes :is(td, th) + :is(td, th) { padding-left: 18px; }
.shapes thead th {
  font-weight: 400; font-size: 12px; color: var(--muted); padding-bottom: 7px; white-space: nowrap;
}
.shapes tbody td, .shapes tbody th { border-top: 1px solid var(--line); padding-block: 8px 7px; }
.shapes .number { text-align: right; white-space: nowrap; }
.shapes .nothing { color: var(--muted); }
.shapes .mono { font-family: "Source Code Pro", monospace; font-size: 12.5px; white-space: nowrap; }
.shapes .step { font-weight: 500; padding-right: 0; }
.shapes .symbols { color: var(--muted); }
.shapes .happened { min-width: 330px; line-height: 1.4; }
.shapes .line {
  display: block; font-family: "Source Code Pro", monospace; font-size: 11px; line-height: 1.45;
  color: var(--muted); margin-top: 3px; overflow-wrap: anywhere;
}
.shapes .line b { font-weight: 500; color: var(--ink); }
.shapes .turn {
  display: block; font-size: 12.5px; font-weight: 600; color: var(--query); margin-top: 2px;
}
.shapes tr.turning > :first-child { box-shadow: inset 3px 0 var(--query); padding-left: 11px; }
.shapes th:first-child { position: sticky; left: 0; background: var(--ground); }
.shapes .inside > :first-child { padding-left: 22px; }
.shapes tbody .inside > * { border-top-style: dotted; }
.shapes .folded > * { background: var(--panel); }
.shapes .folded > :first-child { padding-left: 11px; background: var(--panel); }
.shapes .folded > :last-child { padding-right: 0; }
.shapes tfoot td, .shapes tfoot th { border-top: 2px solid var(--muted); padding-top: 9px; }
.shapes tfoot { font-weight: 600; }
.shapes .models :is(td, th) { white-space: nowrap; }
.shapes .models .this > * { background: var(--panel); font-weight: 600; }
.shapes .models .this > :first-child { padding-left: 10px; background: var(--panel); }
"""


def style() -> None:
    """The look of everything below; once on a page, before it."""
    st.html(f"<style>{_STYLE}</style>")


def _show(table: str, label: str) -> None:
    st.html(f'<div class="shapes" role="region" tabindex="0" aria-label="{label}">{table}</div>')


def steps(trace: ShapeTrace, opened: int | None, label: str) -> None:
    """Every step, the blocks folded into one row but for the ``opened`` one."""
    turns = {turn.step.names: turn for turn in trace.turns}
    rows = [_row(step, turns.get(step.names)) for step in trace.before]
    rows += _blocks(trace, opened)
    rows += [_row(step, turns.get(step.names)) for step in trace.after]
    heads = ["step", "symbols", "this model", "what happens, and where"]
    _show(
        f"<table><thead><tr>{''.join(f'<th scope=col>{head}</th>' for head in heads)}"
        '<th scope="col" class="number">parameters</th>'
        '<th scope="col" class="number">multiply-adds</th></tr></thead>'
        f'<tbody>{"".join(rows)}</tbody><tfoot><tr><th scope="row" colspan="4">In all</th>'
        f"{_number(trace.parameters)}{_number(trace.multiply_adds)}</tr></tfoot></table>",
        label,
    )


def _blocks(trace: ShapeTrace, opened: int | None) -> Iterable[str]:
    """A row that stands for all blocks, and the steps of one of them."""
    depth, block = trace.config.depth, trace.block(0)
    first, last = block[0], block[-1]
    inside = [step for i in range(depth) for step in trace.block(i)]
    shape = f'<td class="mono symbols">{_tuple(last.symbols)}</td>'
    shape += f'<td class="mono">{_tuple(last.shape)}</td>'
    same = "the same shape in and out" if first.shape == last.shape else "another shape out"
    yield (
        f'<tr class="folded"><th scope="row" class="mono step">{depth} × block</th>{shape}'
        f'<td class="happened">Attention, then MLP, each added to what came in: {same}.</td>'
        f"{_number(sum(s.parameters for s in inside))}"
        f"{_number(sum(s.multiply_adds for s in inside))}</tr>"
    )
    if opened is not None:
        for step in trace.block(opened):
            yield _row(step, None, f"blocks.{opened}.")


def _row(step: Step, turn: Turn | None, prefix: str = "") -> str:
    kind = "inside" if prefix else "turning" if turn else ""
    mark = ""
    if turn:
        mark = f'<span class="turn">{turn.before:,} → {turn.after:,} {turn.what}</span>'
    line = step.line
    return (
        f'<tr class="{kind}"><th scope="row" class="mono step" title="{escape(prefix)}'
        f'{escape(step.label)}">{"<br>".join(map(escape, step.label.split(", ")))}</th>'
        f'<td class="mono symbols">{_tuple(step.symbols)}</td>'
        f'<td class="mono">{_tuple(step.shape)}</td>'
        f'<td class="happened">{escape(step.happened)}{mark}<span class="line">'
        f"<b>{escape(line.file)}:{line.number}</b> {escape(line.text)}</span></td>"
        f"{_number(step.parameters)}{_number(step.multiply_adds)}</tr>"
    )


def _tuple(parts: Iterable[object]) -> str:
    words = (f"{part:,}" if isinstance(part, int) else str(part) for part in parts)
    return f"({escape(' '.join(words)).replace(' ', ', ')})"


def _number(value: int) -> str:
    return f'<td class="number{"" if value else " nothing"}">{f"{value:,}" if value else "–"}</td>'


def legend() -> str:
    """What the letters stand for, in one line of Markdown."""
    return " · ".join(f"**{letter}** {meaning}" for letter, meaning in LEGEND.items())


def models(traces: Mapping[str, ShapeTrace], current: str) -> None:
    """Models by name, one a row, for one picture each; the ``current`` one stands out."""
    rows = []
    for name, trace in traces.items():
        config = trace.config
        block = sum(step.parameters for step in trace.block(0))
        rows.append(
            f'<tr class="{"this" if name == current else ""}"><th scope="row">{escape(name)}</th>'
            f"<td>{config.image_size} px, {config.in_chans} ch.</td>"
            f"<td>{config.patch_size} × {config.patch_size}</td>"
            f'<td class="number">{config.num_tokens:,}</td>'
            f'<td class="number">{config.embed_dim:,}</td><td class="number">{config.depth}</td>'
            f'<td class="number">{config.num_heads} × {config.head_dim}</td>'
            f"<td>{'yes' if config.qkv_bias else 'no'}</td>{_number(block)}"
            f"{_number(trace.parameters)}"
            f'<td class="number" title="{trace.multiply_adds:,}">'
            f"{rounded(trace.multiply_adds)}</td></tr>"
        )
    left = ("model", "picture", "patch")
    right = ("tokens", "width", "blocks", "heads")
    heads = "".join(f'<th scope="col">{head}</th>' for head in left)
    heads += "".join(f'<th scope="col" class="number">{head}</th>' for head in right)
    heads += '<th scope="col">q, k, v bias</th>'
    heads += "".join(
        f'<th scope="col" class="number">{head}</th>'
        for head in ("parameters a block", "parameters", "multiply-adds")
    )
    _show(
        f'<table class="models"><thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody>'
        "</table>",
        "Models side by side",
    )
