"""What a run's curves say: is the model still learning, done, or learning by heart? Or if nothing
moves, why?

The two signs of a run that learns are how far training accuracy lies above the held-out one, and
whether the held-out one is still rising. Train and held-out moving together while both rise is
underfitting: train for longer. A gap that opens is overfitting. One run can pass through both.

The sign of a run that does not learn is a loss that stays at ln(classes), the cross-entropy of
giving every class the same probability. How it came there tells a learning rate that is too high,
which throws the weights about, from one that is too low, at which next to nothing happens.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

GAP = 0.05  # of accuracy; a smaller distance between the curves says nothing
RISE = 0.01  # of accuracy, over the last quarter of the run
STEPS = 50  # after the warm-up, before it is asked why the loss does not fall
GUESSING = 0.95  # of ln(classes); a loss above it is next to guessing
JUMP = 1.02  # of ln(classes); a loss that rose above it was thrown there …
UNSTEADY = 3.0  # … if the gradient's norm has been so many times its median as well
DIVERGED = 2.0  # times ln(classes); a loss that high comes from steps that overshoot, always more
FALL = 2.0  # standard errors of the loss's slope; a steady fall is more than that …
HARDLY = 0.01  # … and of ln(classes): a fall by less is next to none

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
        lasting: whether it has been for more than the last of several measured epochs.
    """

    kind: Kind
    gap: float
    rise: float
    apart_from: int | None
    lasting: bool = False


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
        first = close[-1] + 1 if len(close) else 0
        lasting = len(both) - first >= min(2, len(both))
        since = int(epochs[both[first]])
        return Verdict("overfitting", float(gaps[-1]), float(rise), since, bool(lasting))
    kind: Kind = "underfitting" if rise > RISE else "settled"
    return Verdict(kind, float(gaps[-1]), float(rise), None)


def sentence(judged: Verdict, ended: bool = True) -> str:
    """The verdict in words, on a run that has ``ended`` or on one that still trains."""
    if not ended:
        return _so_far(judged)
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


# ---- while it trains -----------------------------------------------------------------------------

Trend = Literal["early", "diverged", "too high", "too low", "guessing", "moving"]


@dataclass(frozen=True)
class Course:
    """Where the training loss (nats) has gone.

    Attributes:
        trend: ``moving`` if it is clearly below what guessing costs, else why not: ``diverged`` or
            what the learning rate is, ``guessing`` if it is neither, ``early`` if it cannot be told
            yet.
        guess: ln(classes), the loss of giving every class the same probability.
        start, now, low, high: its first line, the mean of its last quarter, its extremes.
        norm, norm_high: the median and the largest norm of the gradient.
    """

    trend: Trend
    guess: float
    start: float
    now: float
    low: float
    high: float
    norm: float
    norm_high: float

    @property
    def fallen(self) -> float:
        """By how much the loss has come down; from guessing where it began higher than that."""
        return (self.start if self.start < JUMP * self.guess else self.guess) - self.now


def course(steps: Mapping[str, np.ndarray], classes: int, warmup: float) -> Course:
    """Judge the live record of a run (see :func:`vit.runs.read_steps`) whose learning rate warms up
    for ``warmup`` epochs."""
    guess, loss = math.log(classes), steps["loss"]
    if not len(loss):
        return Course("early", guess, *[math.nan] * 6)
    lately = max(1, len(loss) // 4)
    now = float(loss[-lately:].mean())
    low, high = float(loss.min()), float(loss.max())
    norm, norm_high = float(np.median(steps["grad_norm"])), float(steps["grad_norm"].max())
    said = guess, float(loss[0]), now, low, high, norm, norm_high
    if now < GUESSING * guess:
        return Course("moving", *said)
    if now > DIVERGED * guess:
        return Course("diverged", *said)
    warm = steps["step"][steps["epoch"] <= warmup]
    if steps["step"][-1] - (warm[-1] if len(warm) else 0) < STEPS:
        return Course("early", *said)
    thrown = high > JUMP * guess and norm_high > UNSTEADY * norm
    if thrown or loss[:-lately].min() < GUESSING * guess:
        return Course("too high", *said)
    steady = Course("guessing", *said)
    if steady.fallen > 0 and _falls(steps["step"], loss):
        trend: Trend = "too low" if steady.fallen < HARDLY * guess else "early"
        return replace(steady, trend=trend)
    return steady


def _falls(steps: np.ndarray, loss: np.ndarray) -> bool:
    """Whether a least-squares line through the loss falls by more than chance."""
    x = steps - steps.mean()
    slope = (x @ loss) / (x @ x)
    rest = loss - loss.mean() - slope * x
    error = math.sqrt(rest @ rest / max(len(x) - 2, 1) / (x @ x))
    return bool(slope < -FALL * error)


def happening(
    steps: Mapping[str, np.ndarray],
    epochs: np.ndarray,
    training: np.ndarray,
    held_out: np.ndarray,
    *,
    classes: int,
    warmup: float,
    ended: bool,
    failed: bool = False,
) -> str:
    """What happens in a run, in a sentence or two.

    Args:
        steps: its live record, see :func:`vit.runs.read_steps`.
        epochs, training, held_out: accuracies after each epoch, as for :func:`verdict`.
        classes, warmup: see :func:`course`.
        ended, failed: whether it trains no more, and whether an error was the reason.
    """
    judged = verdict(epochs, training, held_out)
    if not len(steps["loss"]):
        return (
            sentence(judged, ended and not failed)
            if judged.kind != "short"
            else _nothing_yet(classes, ended)
        )
    seen = course(steps, classes, warmup)
    if seen.trend != "moving":
        return _why_not(seen, steps, warmup, ended)
    if judged.kind == "short":
        return (
            f"It learns: the loss has come down from {seen.start:.2f} to {seen.now:.2f}; guessing "
            f"costs {_guess(seen)}. What that is worth on pictures it does not learn from, "
            f"validation says once two epochs are done."
        )
    return sentence(judged, ended and not failed)


def _so_far(judged: Verdict) -> str:
    gap, rise = 100 * judged.gap, 100 * judged.rise
    lately = "over the last quarter of the epochs so far"
    if judged.kind == "short":
        return "Too few epochs are measured yet to say where this is going."
    if judged.kind == "overfitting":
        above = f"training accuracy is {gap:.1f} points above validation accuracy"
        if not judged.lasting:
            return (
                f"In the last epoch {above}, after moving with it until then. Should that last, "
                f"the model is learning by heart (overfitting)."
            )
        above += f", more than {100 * GAP:.0f} since epoch {judged.apart_from}"
        if judged.rise > RISE:
            return (
                f"A gap is opening: {above}. The model begins to learn by heart (overfitting), but "
                f"validation accuracy still rises, by {rise:.1f} points {lately}."
            )
        return (
            f"A gap is open: {above}, which hardly rises any more. The model learns its training "
            f"pictures by heart (overfitting)."
        )
    together = (
        f"Training and validation move together, {abs(gap):.1f} points apart"
        if judged.gap >= -GAP
        else f"Validation stays ahead of training by {-gap:.1f} points, as it may where training "
        f"pictures are made harder"
    )
    if judged.kind == "underfitting":
        return (
            f"{together}, and validation accuracy has risen by {rise:.1f} points {lately}. It is "
            f"not finished learning."
        )
    return (
        f"{together}, but validation accuracy has changed by only "
        f"{f'{rise:+.1f}'.replace('-', '−')} points {lately}. Unless the learning rate is still to "
        f"fall, there is little left to learn."
    )


def _nothing_yet(classes: int, ended: bool) -> str:
    if ended:
        return "It ended before anything was measured."
    return (
        f"Nothing is measured yet; the first point comes after ten steps. Random weights guess, so "
        f"the loss will begin near ln {classes} ≈ {math.log(classes):.3f}."
    )


def _why_not(seen: Course, steps: Mapping[str, np.ndarray], warmup: float, ended: bool) -> str:
    """Why the loss is no lower than guessing."""
    remedy = "Lower the learning rate, or warm up for longer."
    if seen.trend == "diverged":
        return (
            f"The loss is {seen.now:.3g}, and guessing costs {_guess(seen)}: it diverged. Every "
            f"step overshot, and left more to make good than there was before. {remedy}"
        )
    stands = f"The loss is {seen.now:.3f}, no better than guessing ({_guess(seen)})"
    if seen.trend == "early":
        if ended:
            return f"{stands}; it ended before more could be told."
        if steps["epoch"][-1] <= warmup:
            why = f"the learning rate warms up until epoch {warmup:g}"
        elif seen.fallen > HARDLY * seen.guess:
            why = f"it has begun to fall, from {seen.start:.3f}"
        else:
            why = "it has just begun"
        return f"{stands}, and it is too early to say more: {why}."
    if seen.trend == "too high":
        what = (
            f"it had been down to {seen.low:.2f}"
            if seen.low < GUESSING * seen.guess
            else f"it was thrown up to {seen.high:.2f} on the way, by gradients of a norm up to "
            f"{seen.norm_high:.3g} where half are below {seen.norm:.3g}"
        )
        return f"{stands}, and {what}: the steps are too large to get anywhere. {remedy}"
    if seen.trend == "too low":
        return (
            f"{stands}. It does fall, steadily and without a jump, but only by "
            f"{seen.fallen:.4f} in {steps['step'][-1]:,.0f} steps: the steps are far too "
            f"small. Raise the learning rate."
        )
    return (
        f"{stands}, though the gradients are steady, as they would not be at a learning rate that "
        f"is too high, and without the steady fall of one that is too low. Perhaps the pictures do "
        f"not say what their labels are."
    )


def _guess(seen: Course) -> str:
    return f"ln {math.exp(seen.guess):.0f} ≈ {seen.guess:.3f}"
