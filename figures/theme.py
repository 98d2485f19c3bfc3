"""The one owner of colours and colour scales, in light and in dark.

Query is teal and key is pink wherever either appears: on the picture, on the matrix, in prose.
Attention runs on one sequential scale that starts at the page's own ground, so that zero is
empty; signed values run on a diverging scale whose middle is that same ground. Both scales
grow steadily in lightness, so they survive a grey print and red–green blindness.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Palette:
    """Colours of one appearance, as ``#rrggbb``; scales are evenly spaced stops."""

    ground: str
    panel: str
    ink: str
    muted: str
    line: str
    query: str
    key: str
    right: str
    wrong: str
    sequential: tuple[str, ...]
    diverging: tuple[str, ...]
    series: tuple[str, ...]


LIGHT = Palette(
    ground="#ffffff",
    panel="#f6f6f3",
    ink="#1c1b1a",
    muted="#62605b",
    line="#dcdad4",
    query="#0f766e",
    key="#be185d",
    right="#15803d",
    wrong="#b91c1c",
    sequential=("#ffffff", "#fde3b4", "#f8ab6b", "#e0604c", "#a32a5b", "#5a1657", "#210c38"),
    diverging=("#1d4e9e", "#5b93d4", "#b9d3ee", "#ffffff", "#f6cfa6", "#dd8a3c", "#a14a06"),
    series=("#0f766e", "#be185d", "#4f46e5", "#a16207", "#475569"),
)

DARK = Palette(
    ground="#131417",
    panel="#1c1e22",
    ink="#eceae4",
    muted="#a3a19a",
    line="#34373d",
    query="#2dd4bf",
    key="#f472b6",
    right="#4ade80",
    wrong="#f87171",
    sequential=("#131417", "#3a1450", "#7f2062", "#c03d55", "#ec7a4b", "#f9bc77", "#fff3d6"),
    diverging=("#8fc1ff", "#4a86cf", "#274a78", "#131417", "#6f4213", "#c0762c", "#ffc27a"),
    series=("#2dd4bf", "#f472b6", "#a5b4fc", "#facc15", "#94a3b8"),
)
