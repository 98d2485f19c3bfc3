"""Number inputs for what is in focus: the same choice as on the board, for typing."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ui import state
from ui.frame import Visit


def inputs(visit: Visit, *fields: str) -> DeltaGenerator:
    """One input for each of ``fields`` (token, layer, head), tied to the URL, side by side;
    returns the row, for what else belongs there."""
    config = visit.walk.run.model_config
    known = {
        "token": ("Query", config.num_tokens),
        "layer": ("Layer", config.depth),
        "head": ("Head", config.num_heads),
    }
    row = st.container(horizontal=True, key="focus")
    for field in fields:
        label, count = known[field]
        row.number_input(
            f"{label}, 0–{count - 1}",
            0,
            count - 1,
            step=1,
            width=104,
            help="Token 0 is [CLS], 1 the first patch." if field == "token" else None,
            **state.bound(field, getattr(visit.view, field)),
        )
    return row
