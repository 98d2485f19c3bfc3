"""What stands around every page: the row of links, the sidebar, and the visitor's current walk."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import streamlit as st

from ui import resources, sidebar, state
from ui.resources import Walk
from ui.state import View

# In the order of the pipeline; the file name gives the address.
PAGES = {
    "Start": "app.py",
    "Patches": "pages/1_Patches.py",
    "Token shapes": "pages/2_Token_shapes.py",
    "Attention": "pages/3_Attention.py",
    "[CLS] readout": "pages/4_CLS_readout.py",
    "Confusion matrix": "pages/5_Confusion_matrix.py",
    "Training": "pages/6_Training.py",
}


@dataclass(frozen=True)
class Visit:
    """What one visitor looks at on one rerun: the view from the URL, fitted to the model, and the
    recorded walk of their picture through it."""

    view: View
    walk: Walk


@contextmanager
def page(name: str, question: str) -> Iterator[Visit]:
    """Lay out the page called ``name`` (a key of PAGES) under a question as its title.

        with frame.page("Attention", "Who looks at whom?") as visit:
            ...
    """
    st.set_page_config(
        page_title=f"{name} · Sixty-five tokens", layout="wide", page_icon=":material/grid_view:"
    )
    view = state.read()
    with st.container(horizontal=True, key="pipeline"):
        for label, file in PAGES.items():
            st.page_link(file, label=label, query_params=view.to_query(), disabled=label == name)
    st.title(question)
    view, walk = sidebar.show(view)
    yield Visit(view, walk)
