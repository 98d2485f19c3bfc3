"""Large numbers and lengths of time in words."""

import pytest

from ui.amounts import in_bytes, in_time, rounded


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0"),
        (4_225, "4,225"),
        (999_949, "999,949"),
        (999_950, "1.0 million"),
        (83_561_216, "83.6 million"),
        (999_949_999, "999.9 million"),
        (999_950_000, "1.0 billion"),
        (2_517_731_329, "2.5 billion"),
        (3 * 10**15, "3,000.0 trillion"),
    ],
)
def test_counts(count: int, words: str) -> None:
    assert rounded(count) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [(16, "16 bytes"), (16_900, "16.9 kB"), (10_070_925_316, "10.1 GB"), (10**12, "1.0 TB")],
)
def test_bytes(count: int, words: str) -> None:
    assert in_bytes(count) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "a few seconds"),
        (4, "a few seconds"),
        (9.9, "a few seconds"),
        (38, "about 40 s"),
        (42, "about 40 s"),
        (89, "about 90 s"),
        (90, "about 2 min"),
        (100, "about 2 min"),
        (720, "about 12 min"),
        (3_000, "about 50 min"),
        (5_400, "about 1.5 h"),
        (9_000, "about 2.5 h"),
        (172_799, "about 48.0 h"),
        (172_800, "about 2 days"),
        (1e9, "about 11,574 days"),
    ],
)
def test_lengths_of_time(seconds: float, words: str) -> None:
    assert in_time(seconds) == words
