"""Our curves beside the published points, in one picture: ``python -m docs.learning_curves``.

Reads the runs kept in docs/runs/ and writes docs/images/learning-curves.png. Lines are ours, rings
are what the public write-ups report for the same recipe on the same test pictures.
"""

from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

from figures.curves import Line, curves
from figures.theme import LIGHT
from tests.browser.conftest import BROWSER_ARGS, find_chromium
from vit import published
from vit.runs import read_metrics

DOCS = Path(__file__).resolve().parent
SIZE = {"width": 1100, "height": 520}
# A kept run, the split whose accuracy is drawn, the published run to set beside it, and a colour.
# Ours read the test split once, at the end, so its line is that of the pictures set aside.
DRAWN = (
    ("sixty_five", "val", None, 2),
    ("sixty_five_short", "val", None, 3),
    ("system_a_flat", "test", published.A_FLAT, 0),
    (None, None, published.A_COSINE, 1),
    (None, None, published.C, 4),
)


def lines() -> list[Line]:
    """Accuracies in percent over the epochs, ours and theirs."""
    found = []
    for name, split, theirs, colour in DRAWN:
        if name:
            rows = read_metrics(DOCS / "runs" / name)
            epochs = np.array([row["epoch"] for row in rows])
            values = np.array([100 * row[f"{split}_accuracy"] for row in rows])
            found.append(Line(f"ours: {name}", epochs, values, colour))
        if theirs:
            epochs = np.array(list(theirs.test_accuracy))
            values = 100 * np.array(list(theirs.test_accuracy.values()))
            found.append(Line(f"published: {theirs.name}", epochs, values, colour, published=True))
    return found


def main() -> None:
    """Draw the figure in a browser, as the app would, and keep a picture of it."""
    figure = curves(lines(), "accuracy (%)", LIGHT, marks={}, decimals=1, height=SIZE["height"])
    figure.update_layout(width=SIZE["width"])
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=find_chromium(), args=BROWSER_ARGS) as browser,
    ):
        page = browser.new_page(viewport=SIZE)
        page.set_content(figure.to_html(config={"displayModeBar": False}))
        page.wait_for_selector(".legend")
        page.screenshot(path=DOCS / "images" / "learning-curves.png")


if __name__ == "__main__":
    main()
