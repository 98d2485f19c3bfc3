"""A run as one zip: packed to be taken along, and unpacked from anybody.

A zip holds one folder: the files of the run directory that say what was learned and how (see
vit/runs.py), the curves as CSV, and figures where the caller gives some. What is of use only where
the run was trained stays there: resume state, lock, log, status.

Unpacking believes nothing. No entry of a zip names a place on the disk: what has the name of one
of a run's files, and a size that such a file may have, is checked and then written under that name;
everything else is left alone. It all happens in a hidden folder, whose content becomes a run of
the runs directory in one step at the end, or goes.
"""

import csv
import io
import json
import math
import os
import re
import shutil
import struct
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeGuard

import numpy as np
import psutil
import torch
from safetensors import SafetensorError, safe_open

from vit import archive, jobs, robustness, runs
from vit.config import ViTConfig
from vit.model import VisionTransformer, count_parameters
from vit.runs import RunError
from vit.settings import Recipe

MAX_UNPACKED = 4 * 2**30  # bytes, all files of a run together
# Bytes that a file may have. Weights have those of their model's numbers, and a header.
LIMITS = {
    runs.CONFIG: 4 * 2**20,
    runs.REQUEST: 2**20,
    runs.METRICS: 8 * 2**20,
    runs.STEPS: 64 * 2**20,
    runs.PREDICTIONS: 256 * 2**20,
    runs.ROBUSTNESS: 2**20,
}
HEADER = 2**20
PREDICTED = 256 * 2**20  # bytes of all predictions; they are a zip within the zip
LINE = 2_000  # characters of a row; ours have about 350
DRAFT = ".import-"  # what the name of a hidden folder starts with …
DRAFT_LIVES = 86_400.0  # … and after how many seconds it is one that a killed process left

_DAMAGED = (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError)
# Classes, channels and side of the built-in data sets' pictures; those of a folder have 3 channels.
_SHAPES = {"cifar10": (10, 3, 32), "digits": (10, 1, 8), "random_pixels": (10, 3, 32)}
_IMPORTED = " (imported)"
# Names of a row's numbers, and from and to which value they may go.
_AMOUNT, _SHARE = (0.0, 1e30), (0.0, 1.0)
_ROW = {
    f"{split}_{what}": bounds
    for split in ("train", "val", "test")
    for what, bounds in (("loss", _AMOUNT), ("accuracy", _SHARE))
} | dict.fromkeys(("learning_rate", "grad_norm", "images_per_second", "seconds"), _AMOUNT)
_STEP = {"epoch": _AMOUNT, "loss": _AMOUNT, "accuracy": _SHARE} | dict.fromkeys(
    ("grad_norm", "learning_rate", "images_per_second"), _AMOUNT
)
# How an array's file starts (NumPy's NEP 1, version 1.0): of numbers or text, nothing else.
_ARRAY = re.compile(
    rb"\x93NUMPY\x01\x00(?P<rest>..)\{'descr': '[<|](?P<kind>[iufU])(?P<size>[0-9]{1,5})', "
    rb"'fortran_order': (?:False|True), "
    rb"'shape': \((?P<shape>(?:[0-9]{1,12}(?:, [0-9]{1,12})*,?)?)\), \} *\n",
    re.DOTALL,
)
_MAY_BE_NONE = ("test_loss", "test_accuracy")  # where the test split is read once


# ---- packing -------------------------------------------------------------------------------------


def pack(path: Path, file: IO[bytes], extras: Mapping[str, bytes] | None = None) -> None:
    """Write a run into ``file`` as a zip.

    Args:
        extras: further files of the zip by their names in it, such as figures.

    Raises:
        RunError: if the run has no weights yet, or its files cannot be read.
        OSError: if ``file`` cannot be written.
    """
    if not runs.is_run(path):
        raise RunError("This run has no weights to take along yet. Wait for its first epoch.")
    job = jobs.look(path)
    request = {"format": 1, "name": job.name, "tags": job.tags}
    contents = {runs.REQUEST: (json.dumps(request, ensure_ascii=False) + "\n").encode()}
    epochs = runs.list_epochs(path)
    names = [*LIMITS, runs.MODEL, *(_snapshot_name(epoch) for epoch in epochs)]
    try:
        for name in names:
            if name not in contents and (path / name).is_file():
                contents[name] = (path / name).read_bytes()
    except OSError as error:
        raise RunError(
            f"A file of this run cannot be read ({error.strerror or error}). Try again."
        ) from error
    for name, source in (("epochs.csv", runs.METRICS), ("steps.csv", runs.STEPS)):
        if rows := list(_rows(contents.get(source, b""))):
            contents[name] = _csv(rows)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, content in (contents | dict(extras or {})).items():
            stored = name.endswith(".safetensors")  # weights hardly shrink
            kind = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
            zipped.writestr(f"{path.name}/{name}", content, kind)


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _rows(content: bytes) -> Iterator[dict[str, Any]]:
    """What JSON lines hold; a line that is no row, such as a half-written last one, is left out."""
    for line in content.decode(errors="replace").split("\n"):
        try:
            row = json.loads(line) if len(line) <= LINE else None
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row


def _snapshot_name(epoch: int) -> str:
    return runs.snapshot_path(Path(), epoch).as_posix()


# ---- unpacking -----------------------------------------------------------------------------------


def unpack(file: Path | IO[bytes], runs_dir: Path) -> Path:
    """Make a run of the runs directory from a zip such as :func:`pack` writes; returns its
    directory. It counts as finished, for what it would need to train on is not in the zip.

    Raises:
        RunError: if the zip holds no whole run that can be opened here, or anything that looks
            like an attack; if there is no room; or where training is off.
    """
    if jobs.training_is_off():
        raise RunError("Runs cannot be imported here (VIT_TRAINING=off). Run the app yourself.")
    if isinstance(file, Path) and not file.is_file():
        raise RunError("There is no such file. Give the path of a zip on this machine.")
    try:
        zipped = zipfile.ZipFile(file)
    except _DAMAGED as error:
        raise RunError(
            "This file is no zip, or a damaged one. Download the run again, and import that."
        ) from error
    with zipped:
        entries = _entries(zipped)
        config, recipe = _settings(_json(zipped, entries, runs.CONFIG))
        _refuse_wrong_sizes(entries, recipe)
        request = _json(zipped, entries, runs.REQUEST) if runs.REQUEST in entries else {}
        try:
            with _draft(runs_dir, sum(entry.file_size for entry in entries.values())) as draft:
                _fill(draft, zipped, entries, config, recipe)
                return _settle(draft, runs_dir, request, recipe)
        except OSError as error:
            raise RunError(
                f"The run cannot be written to {runs_dir} ({error.strerror or error}). Free some "
                f"space there, then import it again."
            ) from error


def _refused(reason: str) -> RunError:
    return RunError(f"This zip is refused: {reason}")


def _entries(zipped: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The zip's entries that are files of a run, by their names in its directory."""
    found = zipped.infolist()
    if len(found) > archive.MAX_ENTRIES:
        raise _refused(f"it holds {len(found):,} files, where a run has a few dozen.")
    for entry in found:
        if reason := archive.attack(entry):
            raise _refused(f"its entry {entry.orig_filename[:80]!r} {reason}.")
    names = [entry.filename for entry in found]
    tops = {name.removesuffix(runs.CONFIG) for name in names if _is_config(name)}
    if len(tops) != 1:
        raise _refused(
            "it holds several runs. Zip the folder of one."
            if tops
            else f"it holds no run, for it has no {runs.CONFIG}. Choose a zip that was downloaded "
            f"here."
        )
    top = tops.pop()
    entries: dict[str, zipfile.ZipInfo] = {}
    for entry in found:
        name = entry.filename.removeprefix(top)
        if top + name != entry.filename or not (_is_weights(name) or name in LIMITS):
            continue
        if name in entries:
            raise _refused(f"it holds {name} twice.")
        entries[name] = entry
    if runs.MODEL not in entries:
        raise _refused(f"it has no {runs.MODEL}, so there are no weights to open.")
    return entries


def _is_config(name: str) -> bool:
    return name.rpartition("/")[2] == runs.CONFIG and name.count("/") <= 1


def _is_weights(name: str) -> bool:
    return name == runs.MODEL or _epoch_of(name) is not None


def _epoch_of(name: str) -> int | None:
    """Which epoch's snapshot has this name, if any has."""
    found = re.fullmatch(r"snapshots/epoch-([0-9]{4,5})\.safetensors", name)
    return int(found[1]) if found and name == _snapshot_name(int(found[1])) else None


def _json(zipped: zipfile.ZipFile, entries: Mapping[str, zipfile.ZipInfo], name: str) -> Any:
    """The content of a JSON file of the zip."""
    if entries[name].file_size > LIMITS[name]:
        raise _refused(f"its {name} is too large.")
    content = _read(zipped, entries[name])
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _refused(f"its {name} is damaged.") from error


def _chunks(zipped: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[bytes]:
    try:
        with zipped.open(entry) as source:
            while chunk := source.read(2**20):
                yield chunk
    except (*_DAMAGED, struct.error) as error:
        raise _refused(
            f"its {entry.filename[:80]!r} is damaged. Download the run again, and import that."
        ) from error


def _read(zipped: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    return b"".join(_chunks(zipped, entry))


# ---- what is believed ----------------------------------------------------------------------------


def _settings(values: Any) -> tuple[dict[str, Any], Recipe]:
    """A run's ``config.json`` written anew with what is known and makes sense, and its recipe.

    A data set that lay in a folder is named, but its path is not kept: nothing of this machine is
    read because a zip says so.
    """
    try:
        if not isinstance(values, dict) or values.get("format") != 1:
            raise ValueError("they are not those of a run, or of a later version of this app.")
        recipe = Recipe.from_dict(values.get("recipe"))
        if values.get("model") != recipe.model.to_dict():
            raise ValueError("model and the recipe's model differ.")
        classes, channels = recipe.model.num_classes, recipe.model.in_chans
        shape = classes, channels, recipe.model.image_size
        if shape != _SHAPES.get(recipe.dataset, (classes, 3, shape[2])):
            raise ValueError("its model is not made for the pictures of its data set.")
        names = values.get("class_names")
        if not _is_list(names, classes, str) or not all(0 < len(name) <= 200 for name in names):
            raise ValueError(f"class_names must be {classes} names of at most 200 characters.")
        for key, low in (("mean", -100.0), ("std", 1e-6)):
            given = values.get(key)
            if not _is_list(given, channels, float) or not all(low <= x <= 100 for x in given):
                raise ValueError(f"{key} must be {channels} numbers from {low} to 100.")
        seed = values.get("seed")
        if type(seed) is not int or not 0 <= seed < 2**32:
            raise ValueError(f"seed must be a whole number from 0 to {2**32 - 1}.")
        notes = {key: values.get(key, {}) for key in ("fingerprints", "versions")}
        if not all(_is_notes(each) for each in notes.values()):
            raise ValueError("fingerprints and versions must be texts by name.")
    except ValueError as error:
        raise _refused(f"the settings in its {runs.CONFIG} cannot be used: {error}") from error
    _refuse_if_too_large(recipe.model)
    config = {
        "format": 1,
        "recipe": values["recipe"] | {"dataset": _without_path(recipe.dataset)},
        "model": recipe.model.to_dict(),
        "class_names": names,
        "mean": values["mean"],
        "std": values["std"],
        "seed": seed,
        "parameters": _parameters(recipe.model),
        **notes,
    }
    if (products := values.get("matrix_products")) in ("bfloat16", "float32"):
        config["matrix_products"] = products
    return config, recipe


def _is_list(value: Any, count: int, kind: type) -> TypeGuard[list[Any]]:
    kinds = (int, float) if kind is float else (kind,)
    return isinstance(value, list) and len(value) == count and all(type(x) in kinds for x in value)


def _is_notes(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and len(value) <= 20
        and all(isinstance(note, str) and len(name + note) <= 200 for name, note in value.items())
    )


def _without_path(dataset: str) -> str:
    if dataset in _SHAPES:
        return dataset
    last = re.split(r"[/\\~]", dataset.rstrip("/"))[-1].removesuffix(_IMPORTED)
    return f"{last[:80] or 'folder'}{_IMPORTED}"


def _parameters(config: ViTConfig) -> int:
    """How many numbers a model has, without making one."""
    with torch.device("meta"):
        return count_parameters(VisionTransformer(config))


def _refuse_if_too_large(config: ViTConfig) -> None:
    """A rough lower bound of what opening a model takes, float32: its weights, and one picture
    gone through it with everything recorded."""
    tokens, width = config.num_tokens, config.embed_dim
    recorded = tokens * (14 * width + 2 * config.mlp_dim) + 2 * config.num_heads * tokens**2
    needed = 4 * (_parameters(config) + config.depth * recorded)
    memory = psutil.virtual_memory().total
    if needed > memory / 4:
        raise _refused(
            f"to open its model would take about {needed / 1e9:,.0f} GB of memory, and there are "
            f"{memory / 1e9:,.0f} for everything."
        )


def _refuse_wrong_sizes(entries: Mapping[str, zipfile.ZipInfo], recipe: Recipe) -> None:
    parameters = _parameters(recipe.model)
    for name, entry in entries.items():
        if _is_weights(name):
            least = parameters * (4 if name == runs.MODEL else 2)
            if not least < entry.file_size <= least + HEADER:
                raise _refused(
                    f"its {name} has {entry.file_size:,} bytes, and the weights of the model in "
                    f"its {runs.CONFIG} have {least:,}."
                )
        elif entry.file_size > LIMITS[name]:
            raise _refused(f"its {name} is too large.")
    if sum(entry.file_size for entry in entries.values()) > MAX_UNPACKED:
        raise _refused(f"it unpacks to more than {MAX_UNPACKED // 2**30} GiB.")


@contextmanager
def _draft(runs_dir: Path, size: int) -> Iterator[Path]:
    """A place in a hidden folder of the runs directory, which goes at the end."""
    runs_dir.mkdir(parents=True, exist_ok=True)
    for old in runs_dir.glob(f"{DRAFT}*"):
        with suppress(FileNotFoundError):  # another import that ends
            if time.time() - old.stat().st_mtime > DRAFT_LIVES:
                shutil.rmtree(old, ignore_errors=True)
    if shutil.disk_usage(runs_dir).free < size + jobs.FULL:
        raise RunError(
            f"There is no room for this run: it needs {size / 1e6:,.0f} MB. Free some space, then "
            f"import it again."
        )
    folder = Path(tempfile.mkdtemp(prefix=DRAFT, dir=runs_dir))
    try:
        yield folder / "run"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fill(
    draft: Path,
    zipped: zipfile.ZipFile,
    entries: Mapping[str, zipfile.ZipInfo],
    config: Mapping[str, Any],
    recipe: Recipe,
) -> None:
    """Write what the zip holds, as far as it makes sense; what does not is refused."""
    runs.write_json(draft / runs.CONFIG, config)
    (draft / "snapshots").mkdir()
    for name, entry in entries.items():
        if _is_weights(name):
            with open(draft / name, "wb") as file:
                for chunk in _chunks(zipped, entry):
                    file.write(chunk)
            _check_weights(draft, name, recipe)
    content = {name: _read(zipped, entry) for name, entry in entries.items() if name in LIMITS}
    rows = _metrics(content.get(runs.METRICS, b""), recipe)
    runs.write_metrics(draft, rows)
    if steps := _steps(content.get(runs.STEPS, b"")):
        (draft / runs.STEPS).write_text("".join(json.dumps(row) + "\n" for row in steps))
    if runs.PREDICTIONS in content:
        _write_predictions(draft, content[runs.PREDICTIONS], recipe.model.num_classes)
    if runs.ROBUSTNESS in content:
        _write_robustness(draft, content[runs.ROBUSTNESS], recipe)
    done = rows[-1]["step"] if rows else 0
    status = {"state": "finished", "step": done, "total": done, "error": None}
    runs.write_json(draft / runs.STATUS, status)


def _check_weights(draft: Path, name: str, recipe: Recipe) -> None:
    """Whether a file holds the numbers of the recipe's model, all finite, in the usual precision,
    of an epoch that its name fits."""
    epoch = _epoch_of(name)
    try:
        with safe_open(draft / name, "pt") as stored:
            kinds = {stored.get_slice(key).get_dtype() for key in stored.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise _refused(f"its {name} is damaged.") from error
    if kinds != {"F32" if name == runs.MODEL else "F16"}:
        raise _refused(f"its {name} holds numbers of another precision than a run's.")
    try:
        stated = runs.load_run(draft, epoch).epoch
    except RunError as error:
        raise _refused(str(error).replace(f"{draft}/", "its ")) from error
    if not 0 <= stated <= recipe.epochs or epoch not in (None, stated):
        raise _refused(f"its {name} says that it is of epoch {stated}.")


def _metrics(content: bytes, recipe: Recipe) -> list[dict[str, Any]]:
    """The rows of all epochs, checked."""
    found = list(_rows(content))
    rows = [_numbers(row, ("epoch", "step"), _ROW) for row in found]
    kept = [row for row in rows if row is not None]
    lines = sum(bool(line.strip()) for line in content.split(b"\n"))
    steps = [row["step"] for row in kept]
    if (
        not len(kept) == lines <= recipe.epochs
        or [row["epoch"] for row in kept] != list(range(1, lines + 1))
        or steps != sorted(set(steps))
    ):
        raise _refused(f"its {runs.METRICS} is damaged: it does not tell of one epoch a line.")
    return kept


def _steps(content: bytes) -> list[dict[str, Any]]:
    """What was recorded within epochs; a line that says nothing is left out, as its reader does."""
    rows = (_numbers(row, ("step",), _STEP) for row in _rows(content))
    return [row for row in rows if row is not None]


def _numbers(
    row: Mapping[str, Any], counts: Sequence[str], amounts: Mapping[str, tuple[float, float]]
) -> dict[str, Any] | None:
    """The known values of a row; None if one is missing or makes no sense."""
    known: dict[str, Any] = {}
    for key in counts:
        if type(row.get(key)) is not int or not 1 <= row[key] <= 2**53:
            return None
        known[key] = row[key]
    for key, (low, high) in amounts.items():
        value = row.get(key)
        if value is None and key in _MAY_BE_NONE:
            known[key] = None
        elif isinstance(value, int | float) and low <= value <= high:  # NaN is neither
            known[key] = float(value)
        else:
            return None
    return known


def _write_predictions(draft: Path, content: bytes, classes: int) -> None:
    damaged = _refused(f"its {runs.PREDICTIONS} is damaged.")
    try:
        _check_arrays(content)
    except (*_DAMAGED, struct.error) as error:
        raise damaged from error
    (draft / runs.PREDICTIONS).write_bytes(content)
    try:
        stored = runs.read_predictions(draft)
    except RunError as error:
        raise damaged from error
    probabilities = stored["probabilities"]
    if (
        probabilities.shape[1] != classes
        or probabilities.min() < 0
        or np.abs(probabilities.sum(1) - 1).max() > 0.01
        or len(stored["fingerprint"]) > 200
    ):
        raise damaged
    runs.write_predictions(draft, **stored)


def _check_arrays(content: bytes) -> None:
    """Whether a file of arrays holds the three of a run, each as large as it says: NumPy sets
    aside what an array says before it reads it.

    Raises:
        ValueError, or what zipfile raises: if not.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as zipped:
        found = zipped.infolist()
        names = sorted(entry.filename for entry in found)
        if names != ["fingerprint.npy", "labels.npy", "probabilities.npy"]:
            raise ValueError("it holds other arrays.")
        if sum(entry.file_size for entry in found) > PREDICTED:
            raise ValueError("it is too large.")
        for entry in found:
            with zipped.open(entry) as file:
                header = _ARRAY.match(file.read(256))
            if header is None or int.from_bytes(header["rest"], "little") != header.end() - 10:
                raise ValueError("an array is of another kind.")
            each = int(header["size"]) * (4 if header["kind"] == b"U" else 1)
            count = math.prod(map(int, re.findall(rb"[0-9]+", header["shape"])))
            if header.end() + count * each != entry.file_size:
                raise ValueError("an array is not as large as it says.")


def _write_robustness(draft: Path, content: bytes, recipe: Recipe) -> None:
    (draft / runs.ROBUSTNESS).write_bytes(content)
    try:
        stored = runs.read_robustness(draft)
    except RunError as error:
        raise _refused(f"its {runs.ROBUSTNESS} is damaged.") from error
    known = robustness.changes(recipe.model.in_chans, recipe.model.patch_size)
    if stored is None or stored["changes"].keys() != {"none", *known}:
        (draft / runs.ROBUSTNESS).unlink()  # it is of other weights, so it says nothing here
        return
    written = {key: stored[key] for key in ("epoch", "changes", "fingerprint")}
    runs.write_robustness(draft, **written)


def _settle(draft: Path, runs_dir: Path, request: Any, recipe: Recipe) -> Path:
    """Make a run of the draft, under the name and tags that it had."""
    values = request if isinstance(request, dict) else {}
    name, tags = values.get("name"), values.get("tags")
    name = name if isinstance(name, str) and name.strip() else recipe.name
    tags = [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []
    jobs.label(draft, name, tags)
    path = jobs.new_folder(runs_dir, name)
    try:
        os.rename(draft, path)
    except OSError:
        path.rmdir()
        raise
    return path
