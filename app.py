"""The start page: what a token is when the input is a picture."""

import streamlit as st

from ui import frame

with frame.page("Start", "What is a token, when the input is a picture?") as visit:
    st.image(visit.walk.square, width=256)
