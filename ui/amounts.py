"""Large numbers, and lengths of time, short enough to be read."""

_NAMES = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"))


def rounded(count: int) -> str:
    """``2.5 billion``, ``83.6 million``, ``4,225``."""
    for size, name in _NAMES:
        # What would round up to a thousand of this is one of the next.
        if count >= size * 0.99995:
            return f"{count / size:,.1f} {name}"
    return f"{count:,}"


def in_bytes(count: int) -> str:
    """A number of bytes in the largest unit that leaves at least one: ``10.1 GB``."""
    for size, name in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= size:
            return f"{count / size:,.1f} {name}"
    return f"{count:,} bytes"


def in_time(seconds: float) -> str:
    """A length of time as exactly as an estimate deserves: ``about 40 s``, ``about 12 min``."""
    if seconds < 10:
        return "a few seconds"
    if seconds < 90:
        return f"about {5 * round(seconds / 5)} s"
    if seconds < 90 * 60:
        return f"about {seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"about {seconds / 3600:.1f} h"
    return f"about {seconds / 86400:,.0f} days"
