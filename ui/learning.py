"""The parts of the Training page: curves, settings, snapshots, and one picture through them all."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np
import streamlit as st
import torch

from figures.curves import Line, curves
from ui import frame, heldout
from ui.frame import Visit
from ui.opened import QUIET
from ui.resources import Walk
from ui.words import to_the_letter
from vit import own_data, published, runs
from vit.model import VisionTransformer
from vit.progress import sentence, verdict
from vit.recipes import RECIPES, Recipe
from vit.runs import Run, RunError

Rows = Sequence[Mapping[str, Any]]
# Name, key in the rows' names, and colour (an index into the theme's series).
SPLITS = (("training", "train", 2), ("validation", "val", 3), ("test", "test", 4))
OWN_LABEL = "own label came first, %"  # of training pictures, as they were changed
LABELS = {
    "dataset": "dataset",
    "validation": "training pictures set aside for validation",
    "test_every_epoch": "test split read after every epoch",
    "epochs": "epochs",
    "batch_size": "pictures in a batch",
    "optimizer": "optimizer",
    "learning_rate": "peak learning rate",
    "muon_learning_rate": "peak learning rate of Muon, for the matrices in the blocks",
    "muon_weight_decay": "weight decay of Muon's matrices",
    "betas": "AdamW betas",
    "weight_decay": "weight decay, on matrices",
    "schedule": "learning rate schedule",
    "warmup_epochs": "epochs of warm-up",
    "label_smoothing": "label smoothing",
    "clip_norm": "gradients clipped to a norm of",
    "init": "first weights",
    "crop_padding": "random crops, padded by (pixels)",
    "padding_mode": "padding",
    "flip": "mirror images",
    "jitter": "brightness, contrast, saturation changed by up to",
    "cutmix": "share of pictures with a box of another (CutMix)",
    "cutmix_until": "CutMix ends at this share of all steps",
    "kept_patches": "share of patches kept in early training",
    "kept_patches_until": "early training ends at this share of all steps",
    "bfloat16": "matrix products in bfloat16, where there are units for it",
    "share": "share of the training pictures that is used",
    "keep": "the epoch whose weights are kept",
    "image_size": "picture side (pixels)",
    "patch_size": "patch side (pixels)",
    "in_chans": "channels",
    "num_classes": "classes",
    "embed_dim": "width",
    "depth": "blocks",
    "num_heads": "heads in a block",
    "mlp_ratio": "MLP width ÷ width",
    "qkv_bias": "query, key and value have a bias",
    "norm_eps": "LayerNorm epsilon",
}
_STYLE = """
.settings { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 330px), 1fr)); gap: 0 48px; align-items: start; }
.settings table { border-collapse: collapse; width: 100%; font-size: 0.9rem; font-variant-numeric: tabular-nums; margin-bottom: 1rem; }
.settings caption { text-align: left; font-weight: 600; padding: 0.3rem 0; }
.settings :is(th, td) { border: 0; border-top: 1px solid var(--line); padding: 0.3rem 0; text-align: left; vertical-align: top; font-weight: 400; }
.settings th { color: var(--muted); padding-right: 1rem; }
.settings td { text-align: right; min-width: 6.5em; overflow-wrap: break-word; }
.st-key-snapshots a { border: 1px solid var(--line); padding: 0.2rem 0.6rem; }
"""  # noqa: E501


# ---- curves --------------------------------------------------------------------------------------


def rows_of(run: Run) -> Rows:
    """The run's epochs; if there are none to show, the page says why."""
    try:
        rows = runs.read_metrics(run.path)
    except RunError:
        st.warning(
            "The record of this run's epochs is damaged, so there are no curves. Restore its "
            "metrics.jsonl, or train it again."
        )
        return []
    if not rows:
        st.info("This run has not finished its first epoch yet, so it has no curves.")
    return rows


def column(rows: Rows, key: str) -> np.ndarray:
    """A value of every row, (n,) float64; NaN where it was not measured."""
    return np.array([np.nan if row[key] is None else row[key] for row in rows], np.float64)


def measured(rows: Rows, what: str, factor: float) -> list[Line]:
    """The run's own lines of ``what`` (loss or accuracy), those of the splits that were read."""
    epochs = column(rows, "epoch")
    lines = [
        Line(name, epochs, factor * column(rows, f"{split}_{what}"), colour)
        for name, split, colour in SPLITS
    ]
    return [line for line in lines if not np.isnan(line.values).all()]


def published_lines() -> list[Line]:
    """Test accuracies (%) that systems A and C report."""
    return [
        Line(
            name=run.name,
            epochs=np.array(list(run.test_accuracy)),
            values=100 * np.array(list(run.test_accuracy.values())),
            colour=colour,
            published=True,
        )
        for run, colour in zip(published.CURVES, (0, 1, 4), strict=True)
    ]


def turning_points(recipe: Mapping[str, Any]) -> dict[float, str]:
    """At which shares of a run's steps its training pictures change, and to what."""
    points: dict[float, str] = {}
    if _hides_patches(recipe) and recipe["kept_patches_until"] < 1:
        points[recipe["kept_patches_until"]] = "all patches"
    if _mixes(recipe) and (until := recipe["cutmix_until"]) < 1:
        points[until] = ", ".join([*([points[until]] if until in points else []), "no CutMix"])
    return points


def jumps(recipe: Mapping[str, Any]) -> str:
    """Why the training curves jump, in words; empty if the training pictures never change."""
    parts = []

    def until(share: float) -> str:
        if share >= 1:
            return "To the end"
        return f"Up to epoch {share * recipe['epochs']:g} ({100 * share:.0f} % of the steps)"

    if _hides_patches(recipe):
        parts.append(
            f"{until(recipe['kept_patches_until'])} the model is shown "
            f"{100 * recipe['kept_patches']:.0f} % of each training picture's patches, drawn anew "
            f"each time."
        )
    if _mixes(recipe):
        parts.append(
            f"{until(recipe['cutmix_until'])}, {100 * recipe['cutmix']:.0f} % of the training "
            f"pictures get a box of another one pasted in (CutMix), and the label is shared out by "
            f"area. There a part of the picture shows another class, so no model could put its own "
            f"label first every time."
        )
    if not parts:
        return ""
    if turning_points(recipe):
        parts.append(
            "At the marks the training curves jump: what is asked changes there, not the model. "
            "Validation and test pictures are always whole."
        )
    return " ".join(parts)


def _hides_patches(recipe: Mapping[str, Any]) -> bool:
    return recipe.get("kept_patches", 1) < 1 and recipe.get("kept_patches_until", 0) > 0


def _mixes(recipe: Mapping[str, Any]) -> bool:
    return recipe.get("cutmix", 0) > 0 and recipe.get("cutmix_until", 0) > 0


def judge(rows: Rows) -> str:
    """What the curves say, from training and validation accuracy."""
    return sentence(
        verdict(column(rows, "epoch"), column(rows, "train_accuracy"), column(rows, "val_accuracy"))
    )


def show_curves(visit: Visit, rows: Rows) -> None:
    """Accuracy and loss side by side, learning rate and speed below; the kept epoch is marked, and
    where the training pictures change, with the reason beneath."""
    run = visit.walk.run
    recipe = run.config["recipe"]
    kept = heldout.kept_epoch(run.path)
    marks: dict[float, str] = {
        share * recipe["epochs"]: text for share, text in turning_points(recipe).items()
    }
    for epoch, text in ((kept, "kept"), (run.epoch, "you are here" if run.epoch != kept else "")):
        marks[epoch] = ", ".join(filter(None, (marks.get(epoch), text)))
    palette = frame.palette()
    accuracy = measured(rows, "accuracy", 100)
    if run.class_names == published.CLASS_NAMES and st.toggle(
        "Beside it, what systems A and C report for their test accuracy", key="published"
    ):
        accuracy += published_lines()
        sources = "; ".join(dict.fromkeys(line.source for line in published.CURVES))
        st.caption(f"Dotted, with rings: {sources}.")
    epochs = column(rows, "epoch")
    rate = [Line("learning rate", epochs, column(rows, "learning_rate"), 2)]
    speed = [Line("speed", epochs, column(rows, "images_per_second"), 2)]
    charts = [
        ("Accuracy", accuracy, OWN_LABEL, 1, 360),
        ("Loss", measured(rows, "loss", 1), "cross-entropy, nats", 3, 360),
        ("Learning rate at each epoch's end", rate, "learning rate", 6, 220),
        ("Speed", speed, "training pictures a second", 0, 220),
    ]
    for pair in (charts[:2], charts[2:]):
        for place, (title, lines, unit, decimals, height) in zip(
            st.columns(2, gap="large"), pair, strict=True
        ):
            place.markdown(f"**{title}**")
            place.plotly_chart(
                curves(lines, unit, palette, marks=marks, decimals=decimals, height=height),
                key=title,
                config=QUIET,
            )
    if said := jumps(recipe):
        st.markdown(said)


# ---- settings ------------------------------------------------------------------------------------


def repeat_command(config: Mapping[str, Any]) -> tuple[str, bool]:
    """The command that trains this run again, and whether the recipe of that name still says what
    it said then."""
    recipe = config["recipe"]
    command = f"python -m vit.train {recipe['name']} --seed {config['seed']}"
    if recipe["name"] not in RECIPES:
        return command, False
    today, defaults = (
        json.loads(json.dumps(r.to_dict())) for r in (RECIPES[recipe["name"]](), Recipe("", ""))
    )
    if recipe["epochs"] != today["epochs"]:
        command += f" --epochs {recipe['epochs']}"
    # A setting that the run was made without has the value that leaves things as they were.
    return command, today | {"epochs": recipe["epochs"]} == defaults | recipe


def show_settings(config: Mapping[str, Any]) -> None:
    """How the run was made: its recipe and model as tables, and how to make it again."""
    recipe = config["recipe"]
    training = {k: v for k, v in recipe.items() if k not in ("name", "summary", "model")}
    training["dataset"] = own_data.title(recipe["dataset"])
    model = config["model"] | {"parameters": config["parameters"]}
    st.html(
        f'<style>{_STYLE}</style><div class="settings">'
        f"{_table('Training', training)}{_table('Model', model)}</div>"
    )
    command, same = repeat_command(config)
    st.markdown("Train it again:")
    st.code(command, language="bash")
    if not same:
        st.caption(
            "The recipe of that name has changed since, or is not part of this package: the "
            "settings above are those that this run was made with."
        )
    versions = ", ".join(f"{name} {version}" for name, version in config["versions"].items())
    st.caption(to_the_letter(f"Made with {versions}."))


def _table(caption: str, values: Mapping[str, Any]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(LABELS.get(key, key))}</th>'
        f"<td>{escape(_value(value))}</td></tr>"
        for key, value in values.items()
    )
    return f"<table><caption>{caption}</caption><tbody>{rows}</tbody></table>"


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_value, value))
    return f"{value:,}" if isinstance(value, int) else str(value)


# ---- snapshots -----------------------------------------------------------------------------------


def show_snapshots(visit: Visit, epochs: Sequence[int], rows: Rows) -> None:
    """The kept epochs as links that open Attention there."""
    accuracy = {row["epoch"]: row["val_accuracy"] for row in rows}
    with st.container(horizontal=True, key="snapshots"):
        for epoch in epochs:
            label = "untrained" if epoch == 0 else f"epoch {epoch}"
            if epoch in accuracy:
                label += f" · {100 * accuracy[epoch]:.1f} %"
            query = replace(visit.view, epoch=epoch).to_query()
            st.page_link(frame.PAGES["Attention"], label=label, query_params=query)


@st.cache_resource(max_entries=2, show_spinner=False)
def _snapshots(path: str, epochs: tuple[int, ...], stamp: int) -> list[VisionTransformer]:
    return [runs.load_run(path, epoch).model for epoch in epochs]


def through_training(walk: Walk, epochs: Sequence[int]) -> np.ndarray:
    """Probabilities (epochs, classes) that each snapshot gives the walk's picture."""
    path = walk.run.path
    stamp = runs.snapshot_path(path, epochs[-1]).stat().st_mtime_ns
    with torch.inference_mode():
        models = _snapshots(str(path), tuple(epochs), stamp)
        return np.stack([model(walk.x)[0].softmax(0).numpy() for model in models])


def settled_at(answers: np.ndarray) -> int:
    """The index from which on all ``answers`` (n,) equal the last one."""
    others = np.flatnonzero(answers != answers[-1])
    return int(others[-1]) + 1 if len(others) else 0


def reveal_settling(visit: Visit, epochs: Sequence[int]) -> None:
    """Ask when the model made up its mind about this picture, then show how."""

    def answer() -> None:
        probabilities = through_training(visit.walk, epochs)
        answers = probabilities.argmax(1)
        at = settled_at(answers)
        names = visit.walk.run.class_names
        when = "before it was trained at all" if epochs[at] == 0 else f"from epoch {epochs[at]} on"
        first = to_the_letter(names[answers[0]])
        st.markdown(
            f"It says **{to_the_letter(names[answers[-1]])}** {when}"
            + ("." if at == 0 else f"; untrained, it said {first}.")
        )
        followed = dict.fromkeys([*probabilities[-1].argsort()[::-1][:3], *answers[::-1]])
        lines = [
            Line(names[c], np.array(epochs), 100 * probabilities[:, c], colour)
            for colour, c in zip((2, 3, 4, 0, 1), followed, strict=False)
        ]
        figure = curves(lines, "probability, %", frame.palette(), marks={}, decimals=1, height=300)
        st.plotly_chart(figure, key="through-training", config=QUIET)

    frame.reveal(
        "settled",
        f"The {len(epochs)} snapshots were all asked about your picture. From which epoch on did "
        f"the model give its last answer, and stick to it?",
        answer,
        [str(epoch) for epoch in epochs],
    )


def opening_words(run: Run, rows: Rows) -> str:
    """How long the run took, how far it is, and what the kept weights reached."""
    asked, done = run.config["recipe"]["epochs"], len(rows)
    minutes = sum(row["seconds"] for row in rows) / 60
    took = f"{minutes:.0f} minutes" if minutes >= 2 else f"{60 * minutes:.0f} seconds"
    of = f" of {asked}" if done < asked else ""
    text = f"From random weights, through {done}{of} rounds of all training pictures, in {took}."
    kept = heldout.kept_epoch(run.path)
    if row := next((row for row in rows if row["epoch"] == kept), None):
        last = run.config["recipe"].get("keep") == "last"
        why = "was the last" if last else "was best on validation"
        text += f" Epoch {kept} {why}, so its weights are kept: "
        text += f"**{100 * row['val_accuracy']:.2f} %** there"
        if row["test_accuracy"] is not None:
            text += f", **{100 * row['test_accuracy']:.2f} %** on the test pictures"
        text += "."
    return text
