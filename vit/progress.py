"""What a run's curves say: is the model still learning, done, or learning by heart?

The two signs are how far training accuracy lies above the held-out one at the end, and whether
the held-out one was still rising. Train and held-out moving together while both rise is
underfitting: train for longer. A gap that opens is overfitting. One run can pass through both.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

GAP = 0.05  # of accuracy; a smaller distance between the curves says nothing
RISE = 0.01  # of accuracy, over the last quarter of the run

Kind = Literal["short", "underfitting", "settled", "overfitting"]


@dataclass(frozen=True)
class Verdict:
    """What the curves say.

    Attributes:
        kind: ``short`` (too few points), ``underfitting`` (together and rising), ``settled``
            (together and level) or ``overfitting`` (apart).
        gap: training − held-out accuracy at the end.
        rise: of held-out accuracy over the last quarter of the epochs measured.
        apart_from: the epoch since which the gap has been above ``GAP``, if it is at the end.
    """

    kind: Kind
    gap: float
    rise: float
    apart_from: int | None


def verdict(epochs: np.ndarray, training: np.ndarray, held_out: np.ndarray) -> Verdict:
    """Judge accuracies (n,), 0 … 1, after ``epochs`` (n,), ascending; NaN where not measured."""
    measured = ~np.isnan(held_out)
    both = np.flatnonzero(measured & ~np.isnan(training))
    if measured.sum() < 2 or not len(both):
        return Verdict("short", np.nan, np.nan, None)
    seen = epochs[measured]
    quarter = seen[-1] - (seen[-1] - seen[0]) / 4
    rise = held_out[measured][-1] - np.interp(quarter, seen, held_out[measured])
    gaps = training[both] - held_out[both]
    if gaps[-1] > GAP:
        close = np.flatnonzero(gaps <= GAP)
        since = both[close[-1] + 1] if len(close) else both[0]
        return Verdict("overfitting", float(gaps[-1]), float(rise), int(epochs[since]))
    kind: Kind = "underfitting" if rise > RISE else "settled"
    return Verdict(kind, float(gaps[-1]), float(rise), None)


def sentence(judged: Verdict) -> str:
    """The verdict in words."""
    gap, rise = 100 * judged.gap, 100 * judged.rise
    signed_rise = f"{rise:+.1f}".replace("-", "−")
    if judged.kind == "short":
        return "Too few epochs are measured yet to say where this is going."
    if judged.kind == "overfitting":
        return (
            f"Training accuracy ends {gap:.1f} points above the held-out accuracy, and has been "
            f"more than {100 * GAP:.0f} above since epoch {judged.apart_from}: the model is "
            f"learning some of its training pictures by heart (overfitting)."
        )
    where = (
        f"ends {gap:.1f} points above the held-out accuracy"
        if gap > 0
        else f"ends {-gap:.1f} points below the held-out accuracy"
    )
    if judged.kind == "underfitting":
        return (
            f"Training accuracy {where}, so the two move together, and the held-out one was still "
            f"rising, by {rise:.1f} points over the last quarter: there is more to learn "
            f"(underfitting). Train for longer."
        )
    return (
        f"Training accuracy {where}, so the two move together, and the held-out one has levelled "
        f"off: {signed_rise} points over the last quarter. At this schedule there is little left "
        f"to learn."
    )
