"""A model that might be: a form for its numbers, presets to start from, and what it would cost."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import streamlit as st

from ui import frame, shape_table
from ui.amounts import in_bytes, rounded
from vit.analysis import shapes
from vit.config import ViTConfig

THIS = "This model"
FIELDS = {  # the form's numbers: label, and a limit that no counter overflows below
    "image_size": ("Picture side", 1024),
    "patch_size": ("Patch side", 1024),
    "in_chans": ("Channels", 1024),
    "embed_dim": ("Width", 16_384),
    "depth": ("Blocks", 64),
    "num_heads": ("Heads", 1024),
    "num_classes": ("Classes", 100_000),
}
_PRESET, _FILLED = "what-if-preset", "what-if-filled"


@st.fragment
def section(presets: Mapping[str, ViTConfig], batch: int) -> None:
    """The form, the models side by side, and all steps of the one described, for ``batch``
    pictures. ``presets`` holds THIS, the model on the page, to start from."""
    with frame.calm():
        _section(presets, batch)


def _section(presets: Mapping[str, ViTConfig], batch: int) -> None:
    wanted = _form(presets)
    traces = {name: shapes.trace_config(preset) for name, preset in presets.items()}
    if isinstance(wanted, ValueError):
        st.warning(str(wanted))
        shape_table.models(traces, "")
        return
    traces["What if"] = trace = shapes.trace_config(wanted)
    pattern = next(step for step in trace.block(0) if step.label == "attn.pattern")
    st.markdown(
        f"**{wanted.num_tokens:,} tokens, {trace.parameters:,} parameters, "
        f"{rounded(trace.multiply_adds)} multiply-adds** for a picture. Its attention weights take "
        f"{in_bytes(4 * prod(pattern.shape))} in each block."
    )
    shape_table.models(traces, "What if")
    with st.expander("What if, step by step"):
        shape_table.steps(trace.for_batch(batch), 0, "What if, step by step")


def _form(presets: Mapping[str, ViTConfig]) -> ViTConfig | ValueError:
    """The model that the form describes, or why there can be none."""
    st.session_state.setdefault(_PRESET, THIS if _FILLED not in st.session_state else None)
    _fill(presets)
    st.pills(
        "Start from",
        list(presets),
        key=_PRESET,
        on_change=_fill,
        args=(presets,),
        persist_state="session",
    )
    with st.container(horizontal=True):
        numbers = {
            field: st.number_input(
                label,
                1,
                limit,
                step=1,
                key=f"what-if-{field}",
                on_change=_leave_preset,
                persist_state="session",
                width=136,
            )
            for field, (label, limit) in FIELDS.items()
        }
    bias = st.checkbox(
        "q, k and v have a bias",
        key="what-if-qkv_bias",
        on_change=_leave_preset,
        persist_state="session",
    )
    try:
        return replace(st.session_state[_FILLED], **numbers, qkv_bias=bias)
    except ValueError as error:
        return error


def _fill(presets: Mapping[str, ViTConfig]) -> None:
    """Write the chosen preset into the form, unless it is there already."""
    config = presets.get(st.session_state[_PRESET] or "")
    if config is None or st.session_state.get(_FILLED) == config:
        return
    st.session_state[_FILLED] = config
    for field in (*FIELDS, "qkv_bias"):
        st.session_state[f"what-if-{field}"] = getattr(config, field)


def _leave_preset() -> None:
    st.session_state[_PRESET] = None
