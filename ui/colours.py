"""The theme's colours as CSS, for components: each is right in light and in dark by itself."""

from figures.theme import DARK, LIGHT


def roles(*names: str) -> dict[str, str]:
    """Single colours of the theme by name."""
    return {name: _either(getattr(LIGHT, name), getattr(DARK, name)) for name in names}


def scale(name: str) -> dict[str, str]:
    """The stops of a scale of the theme, as ``name-0``, ``name-1``, …"""
    stops = zip(getattr(LIGHT, name), getattr(DARK, name), strict=True)
    return {f"{name}-{number}": _either(*pair) for number, pair in enumerate(stops)}


def _either(light: str, dark: str) -> str:
    return f"light-dark({light}, {dark})"
