"""Classes with their scores, the likeliest first."""

from collections.abc import Sequence
from html import escape

import numpy as np
import streamlit as st

from ui.words import plain

_STYLE = """
.ranking { overflow-x: auto; max-width: 620px; }
.ranking table {
  border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums;
}
.ranking th {
  font-weight: 400; color: var(--muted); font-size: 12.5px; text-align: right;
  padding: 0 0 6px 16px; white-space: nowrap;
}
.ranking td { padding: 5px 0 5px 16px; text-align: right; border-top: 1px solid var(--line); }
.ranking th:first-child, .ranking td:first-child { text-align: left; padding-left: 0; }
.ranking td:first-child {
  max-width: 180px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap;
}
.ranking td:last-child { width: 40%; }
.ranking i {
  display: block; height: 10px; min-width: 1px; border-radius: 1px; background: var(--query);
}
.ranking tr:first-child b { font-weight: 600; }
"""


def show(
    names: Sequence[str],
    logits: np.ndarray,
    probabilities: np.ndarray,
    count: int = 10,
) -> None:
    """A table of the ``count`` likeliest of (classes,), and what the others have together; names
    are shown to the letter."""
    order = np.argsort(-probabilities, kind="stable")
    largest = logits.max()
    rows = [
        f'<tr><td title="{escape(names[i])}">{escape(names[i])}</td><td>{plain(logits[i])}</td>'
        f"<td>{np.exp(logits[i] - largest):.4f}</td><td><b>{probabilities[i]:.4f}</b></td>"
        f'<td><i style="width: {100 * probabilities[i]:.2f}%"></i></td></tr>'
        for i in order[:count]
    ]
    if others := order[count:].tolist():
        rows.append(
            f"<tr><td>the other {len(others)}</td><td></td>"
            f"<td>{np.exp(logits[others] - largest).sum():.4f}</td>"
            f"<td>{probabilities[others].sum():.4f}</td><td></td></tr>"
        )
    st.html(
        f'<div class="ranking"><style>{_STYLE}</style><table><thead><tr>'
        "<th>class</th><th>logit</th><th>exp(logit − largest)</th><th>probability</th><th></th>"
        f"</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
