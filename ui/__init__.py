"""Streamlit code that the pages share."""
