"""Figures: numpy arrays in, Plotly figures out."""
