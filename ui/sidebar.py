"""The sidebar: the picture and its framing, the model and its epoch, and what it thinks."""

from dataclasses import replace

import streamlit as st

from ui import pictures, resources, state
from ui.pictures import NoPicture
from ui.resources import Walk
from ui.state import View
from vit.images import MAX_BYTES, PictureError
from vit.runs import RunError, list_epochs


def show(view: View) -> tuple[View, Walk]:
    """Draw the sidebar; returns the view fitted to what is there, and its recorded walk."""
    with st.sidebar:
        names = list(pictures.samples())
        st.selectbox("Picture", names, **state.bound("img", view.img if view.img in names else names[0]))
        available = resources.available_runs()
        view = replace(view, run=view.run if view.run in available else next(iter(available)))
        st.selectbox("Model", list(available), **state.bound("run", view.run))
        run = resources.open_run(available[view.run], view.epoch)
        walk = resources.walk(view.img, view.framing, run)
        st.image(walk.pixels, width=160)
        for index in walk.probabilities.argsort()[::-1][:3]:
            st.write(f"{run.class_names[index]} {walk.probabilities[index]:.3f}")
    return view.fitted(run.model_config), walk
