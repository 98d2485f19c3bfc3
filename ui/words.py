"""Names and numbers, written the same way on every page."""

import re

_MARKS = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:@&])")


def token_name(token: int, grid: int) -> str:
    """What a token is called, as on the board: [CLS], or a patch and its place, both from 0."""
    if token == 0:
        return "[CLS]"
    return f"patch {token} (row {(token - 1) // grid}, column {(token - 1) % grid})"


def to_the_letter(text: str) -> str:
    """Text from a visitor's own data, so that Markdown shows it and does nothing else with it."""
    return _MARKS.sub(r"\\\1", " ".join(text.split()))


def signed(value: float, decimals: int = 3) -> str:
    """A number with its sign, the minus as long as the plus."""
    return f"{value:+.{decimals}f}".replace("-", "−")


def plain(value: float, decimals: int = 3) -> str:
    """A number with a minus where there is one, and nothing where not."""
    return f"{value:.{decimals}f}".replace("-", "−")
