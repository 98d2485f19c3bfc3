"""The files around the code: pins, settings, colours."""

import re
import subprocess
import tomllib
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest
from streamlit import config as streamlit_config

from figures.theme import DARK, LIGHT, Palette
from tests.test_structure import OWN, TREES, imports
from vit.images import MAX_BYTES

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
SETTINGS = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text("utf-8"))
APP = [
    line.split("#")[0].strip()
    for line in (ROOT / "requirements.txt").read_text("utf-8").splitlines()
    if line.split("#")[0].strip()
]
DEV = PROJECT["project"]["optional-dependencies"]["dev"]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(requirements: list[str]) -> dict[str, str]:
    """Package → version; a requirement that is not an exact pin stops here."""
    return dict(requirement.split("==") for requirement in requirements)


@pytest.mark.parametrize("requirements", [APP, DEV], ids=["app", "dev"])
def test_what_is_pinned_is_what_is_tested(requirements: list[str]) -> None:
    pinned = pins(requirements)
    # A build for one kind of hardware adds its mark after a plus: 2.14.1+cpu is still 2.14.1.
    assert pinned == {name: version(name).split("+")[0] for name in pinned}


def test_every_package_imported_is_one_asked_for() -> None:
    """Nothing works only because something else happened to bring it."""
    asked = {
        "app": {canonical(name) for name in pins(APP)},
        "dev": {canonical(name) for name in pins(APP + DEV)},
    }
    homes = packages_distributions()
    wrong = []
    for path, tree in TREES.items():
        allowed = asked["app" if path.parts[0] in OWN | {"app.py"} else "dev"]
        for top in {name.partition(".")[0] for name in imports(path, tree)}:
            names = {canonical(name) for name in homes.get(top, ()) if top not in OWN}
            if names and not names & allowed:
                wrong.append(f"{path} imports {top} ({', '.join(names)})")
    assert not wrong, "\n".join(wrong)


def test_every_requirement_says_what_it_earns() -> None:
    text = (ROOT / "requirements.txt").read_text("utf-8")
    bare = [line for line in text.splitlines() if "==" in line and "#" not in line]
    assert bare == []


def test_streamlit_knows_every_setting_and_takes_it() -> None:
    """A misspelt setting is only warned about; here it raises."""

    def flatten(table: dict[str, object], prefix: str = "") -> dict[str, object]:
        flat: dict[str, object] = {}
        for key, value in table.items():
            flat |= (
                flatten(value, f"{prefix}{key}.")
                if isinstance(value, dict)
                else {prefix + key: value}
            )
        return flat

    known = streamlit_config.get_config_options()
    assert {key for key in flatten(SETTINGS) if key not in known} == set()


def test_a_fresh_start_is_safe() -> None:
    assert SETTINGS["server"]["address"] == "127.0.0.1"
    assert SETTINGS["client"]["showErrorDetails"] == "none"
    assert SETTINGS["client"]["showSidebarNavigation"] is False
    assert SETTINGS["browser"]["gatherUsageStats"] is False
    # What the reader of pictures refuses does not reach it in the first place.
    assert SETTINGS["server"]["maxUploadSize"] * 2**20 == MAX_BYTES


@pytest.mark.parametrize(("name", "palette"), [("light", LIGHT), ("dark", DARK)])
def test_the_app_wears_the_figures_colours(name: str, palette: Palette) -> None:
    worn = dict(SETTINGS["theme"][name])
    primary = worn.pop("primaryColor")
    assert worn == {
        "backgroundColor": palette.ground,
        "secondaryBackgroundColor": palette.panel,
        "textColor": palette.ink,
        "borderColor": palette.line,
        "linkColor": palette.query,
        "codeTextColor": palette.ink,
        "codeBackgroundColor": palette.panel,
        "grayTextColor": palette.muted,
        "greenTextColor": palette.right,
        "redTextColor": palette.wrong,
        "chartCategoricalColors": list(palette.series),
    }
    assert contrast(primary, "#ffffff") >= 4.2, "a button's white label"
    assert contrast(primary, palette.ground) >= 4.2, "a slider's number"


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("role", ["ink", "muted", "query", "key", "right", "wrong"])
def test_text_colours_can_be_read(palette: Palette, role: str) -> None:
    """WCAG 2.2, level AA for text of any size: 4.5 to 1, on either background."""
    assert contrast(getattr(palette, role), palette.ground) >= 4.5
    assert contrast(getattr(palette, role), palette.panel) >= 4.5


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours, 1 to 21, as WCAG 2.2 defines it."""

    def luminance(colour: str) -> float:
        channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (
            value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
            for value in channels
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_make_needs_nothing_but_python() -> None:
    """What ``make test`` would do from nothing starts with a .venv and ends with the tests."""
    plan = subprocess.run(
        ["make", "-n", "-B", "--no-print-directory", "test"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    parts = ("-m venv", "-m pip", "ruff check", "-m mypy", "install_browser", "-m pytest")
    steps = [next(i for i, line in enumerate(plan) if part in line) for part in parts]
    assert steps == sorted(steps), "\n".join(plan)
    assert steps[-1] == len(plan) - 1, "the tests' summary is not the last thing to be read"
