"""A run comes out of its zip as it went in; of any other zip nothing stays but a sentence."""

import csv
import io
import json
import os
import random
import resource
import shutil
import signal
import stat
import sys
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from tests.small_data import NAMES
from tests.small_runs import predictions_of, write_run
from tests.trainers import ended, process
from vit import bundle, jobs, runs
from vit.recipes import Recipe
from vit.runs import RunError

ROOT = Path(__file__).resolve().parents[1]
NAME = "<b>Ünï</b> $x$ **run** ../.."
SNAPSHOTS = ("snapshots/epoch-0000.safetensors", "snapshots/epoch-0002.safetensors")
Files = dict[str, bytes]


def row(epoch: int) -> dict[str, Any]:
    shares = {"train_accuracy": 0.1 * epoch, "val_accuracy": 0.09 * epoch, "test_accuracy": None}
    losses = {"train_loss": 2.0 / epoch, "val_loss": 2.25 / epoch, "test_loss": None}
    speed = {"learning_rate": 0.001, "grad_norm": 0.7, "images_per_second": 512.5, "seconds": 3.25}
    return {"epoch": epoch, "step": 20 * epoch, **losses, **shares, **speed}


def step(number: int) -> dict[str, Any]:
    shares = {"epoch": number / 20, "loss": 2.0, "accuracy": 0.25}
    return {
        "step": number,
        **shares,
        "grad_norm": 0.5,
        "learning_rate": 0.001,
        "images_per_second": 500.0,
    }


@pytest.fixture(scope="module")
def model_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with every file that a run can have."""
    path = write_run(tmp_path_factory.mktemp("trained") / "source", "cifar10", list(NAMES))
    runs.write_metrics(path, [row(1), row(2)])
    lines = [json.dumps(step(number)) + "\n" for number in (10, 20, 30, 40)]
    (path / runs.STEPS).write_text("".join(lines))
    labels, probabilities = predictions_of(np.full((10, 10), 2))
    runs.write_predictions(path, labels, probabilities, "f" * 64)
    names = ("none", "grey", "blur", "jpeg", "rotation", "shuffled_patches")
    changes = {name: {"accuracy": 0.1, "confidence": 0.75} for name in names}
    runs.write_robustness(path, 2, changes, "f" * 64)
    jobs.label(path, NAME, ["one", "<i>two</i>"])
    runs.write_json(path / runs.STATUS, {"state": "finished", "step": 40, "total": 40})
    (path / runs.LOCK).touch()
    (path / runs.LOG).write_text("said")
    (path / runs.RESUME).write_bytes(b"state")
    return path


@pytest.fixture(scope="module")
def packed(model_run: Path) -> bytes:
    return pack(model_run)


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def pack(path: Path, extras: Files | None = None) -> bytes:
    file = io.BytesIO()
    bundle.pack(path, file, extras)
    return file.getvalue()


def unzipped(content: bytes) -> Files:
    """The files of a zip, without the folder around them."""
    with zipfile.ZipFile(io.BytesIO(content)) as zipped:
        return {name.partition("/")[2]: zipped.read(name) for name in zipped.namelist()}


def zip_of(files: Files, top: str = "run/", kind: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind) as zipped:
        for name, content in files.items():
            zipped.writestr(top + name, content)
    return file.getvalue()


def left_in(folder: Path) -> list[str]:
    """What is in a runs directory, hidden things included, but for the lock of actions."""
    found = sorted(folder.rglob("*")) if folder.exists() else []
    return [str(path.relative_to(folder)) for path in found if path.name != jobs.ACTION_LOCK]


def refusal(content: bytes | Path, folder: Path) -> str:
    """The sentence with which a zip is refused; nothing of it stays."""
    before = left_in(folder)
    with pytest.raises(RunError) as caught:
        bundle.unpack(content if isinstance(content, Path) else io.BytesIO(content), folder)
    assert left_in(folder) == before
    text = str(caught.value)
    assert "\n" not in text and bundle.DRAFT not in text and text.endswith((".", ")"))
    return text


def assert_opens(path: Path) -> None:
    """What was let in is a whole run, to every reader."""
    run = runs.load_run(path)
    recipe = Recipe.from_dict(run.config["recipe"])
    assert recipe.model == run.model_config
    assert jobs.look(path).state == "finished"
    for epoch in runs.list_epochs(path):
        assert runs.load_run(path, epoch).epoch == epoch
    for number, each in enumerate(runs.read_metrics(path), start=1):
        assert each.keys() == row(1).keys() and each["epoch"] == number
    assert all(np.isfinite(column).all() for column in runs.read_steps(path).values())
    if (path / runs.PREDICTIONS).exists():
        found = runs.read_predictions(path)
        assert found["probabilities"].shape[1] == recipe.model.num_classes
    if (path / runs.ROBUSTNESS).exists():
        assert runs.read_robustness(path) is not None


# ---- out and in ----------------------------------------------------------------------------------


def test_a_run_comes_back_as_it_was(model_run: Path, packed: bytes, runs_dir: Path) -> None:
    path = bundle.unpack(io.BytesIO(packed), runs_dir)
    assert left_in(runs_dir)[0] == path.name and path.parent == runs_dir
    assert_opens(path)
    for name in (runs.MODEL, *SNAPSHOTS):
        assert (path / name).read_bytes() == (model_run / name).read_bytes()
    assert runs.read_config(path) == runs.read_config(model_run)
    assert runs.read_metrics(path) == runs.read_metrics(model_run)
    assert runs.read_robustness(path) == runs.read_robustness(model_run) is not None
    for ours, theirs in (
        (runs.read_predictions(path), runs.read_predictions(model_run)),
        (runs.read_steps(path), runs.read_steps(model_run)),
    ):
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(ours[key], theirs[key]) for key in ours)
    job = jobs.look(path)
    assert (job.name, job.tags, job.step, job.total) == (NAME, ("one", "<i>two</i>"), 40, 40)
    assert path.name == "b-uni-b-x-run"
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(model_run.stat().st_mode)


def test_only_what_was_learned_goes_into_the_zip(packed: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(packed)) as zipped:
        assert {name.partition("/")[0] for name in zipped.namelist()} == {"source"}
    assert unzipped(packed).keys() == {
        *(runs.CONFIG, runs.MODEL, runs.METRICS, runs.STEPS, runs.PREDICTIONS, runs.ROBUSTNESS),
        *(runs.REQUEST, *SNAPSHOTS, "epochs.csv", "steps.csv"),
    }


def test_the_curves_as_csv_hold_the_rows(model_run: Path, packed: bytes) -> None:
    files = unzipped(packed)
    for name, rows in (
        ("epochs.csv", [row(1), row(2)]),
        ("steps.csv", [step(n) for n in (10, 20, 30, 40)]),
    ):
        found = list(csv.DictReader(io.StringIO(files[name].decode(), newline="")))
        assert [{k: float(v) if v else None for k, v in each.items()} for each in found] == rows


def test_figures_go_along_and_stay_out(model_run: Path, runs_dir: Path) -> None:
    content = pack(model_run, {"figures/loss.html": b"<html>"})
    assert unzipped(content)["figures/loss.html"] == b"<html>"
    path = bundle.unpack(io.BytesIO(content), runs_dir)
    assert not (path / "figures").exists()


@pytest.mark.parametrize("name", ["digits", "cifar10"])
def test_shipped_runs_go_out_and_in(name: str, runs_dir: Path) -> None:
    shipped = ROOT / "checkpoints" / name
    path = bundle.unpack(io.BytesIO(pack(shipped)), runs_dir)
    assert_opens(path)
    for each in shipped.rglob("*"):
        if each.is_file() and each.name not in (runs.STATUS, runs.PREDICTIONS):
            ours = (path / each.relative_to(shipped)).read_bytes()
            if each.suffix == ".safetensors":
                assert ours == each.read_bytes()
            elif each.suffix == ".json":
                assert json.loads(ours) == json.loads(each.read_bytes())
    assert runs.read_metrics(path) == runs.read_metrics(shipped)
    theirs = runs.read_predictions(shipped)["probabilities"]
    assert np.array_equal(runs.read_predictions(path)["probabilities"], theirs)


def test_a_run_in_its_first_epochs_goes_along_as_far_as_it_is(
    model_run: Path, runs_dir: Path
) -> None:
    files = {name: unzipped(pack(model_run))[name] for name in (runs.CONFIG, runs.MODEL)}
    path = bundle.unpack(io.BytesIO(zip_of(files)), runs_dir)
    assert_opens(path)
    assert runs.read_metrics(path) == [] and runs.list_epochs(path) == []
    assert jobs.look(path).name == "debug", "the recipe's name, where none was given"
    with pytest.raises(RunError, match="finished"):
        jobs.resume(path)


def test_without_weights_there_is_nothing_to_pack(tmp_path: Path) -> None:
    runs.write_json(tmp_path / "queued" / runs.REQUEST, {"format": 1})
    with pytest.raises(RunError, match="no weights to take along yet"):
        bundle.pack(tmp_path / "queued", io.BytesIO())


@pytest.mark.parametrize("top", ["", "some folder/", "ünï/"])
def test_a_folder_zipped_by_hand_is_a_run_too(top: str, packed: bytes, runs_dir: Path) -> None:
    junk = {"train.log": b"", "resume.safetensors": b"x", "trainer.lock": b"", "stop": b""}
    junk |= {
        "figures/a.html": b"",
        ".DS_Store": b"",
        "snapshots/notes.txt": b"",
        "status.json": b"{",
    }
    content = zip_of(unzipped(packed) | junk, top, zipfile.ZIP_DEFLATED)
    file = io.BytesIO(content)
    with zipfile.ZipFile(file, "a") as zipped:
        zipped.writestr("__MACOSX/._config.json", b"")
        zipped.mkdir("empty")
    path = bundle.unpack(file, runs_dir)
    assert_opens(path)
    assert not {*junk} - {"status.json"} & {*left_in(path)}


def test_the_path_of_a_zip_will_do(packed: bytes, tmp_path: Path, runs_dir: Path) -> None:
    (tmp_path / "run.zip").write_bytes(packed)
    assert_opens(bundle.unpack(tmp_path / "run.zip", runs_dir))
    assert "no such file" in refusal(tmp_path / "none.zip", runs_dir)
    assert "no such file" in refusal(tmp_path, runs_dir)
    os.mkfifo(tmp_path / "pipe")
    assert "no such file" in refusal(tmp_path / "pipe", runs_dir)


def test_the_same_zip_many_times_at_once_gives_as_many_runs(packed: bytes, runs_dir: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: bundle.unpack(io.BytesIO(packed), runs_dir), range(8)))
    assert len({*paths}) == 8
    assert {job.path for job in jobs.list_jobs(runs_dir)} == {*paths}
    for path in paths:
        assert_opens(path)


def test_what_a_zip_says_of_its_state_is_not_believed(packed: bytes, runs_dir: Path) -> None:
    status = {"state": "queued", "order": 1, "step": 1, "total": 10**9, "pid": os.getpid()}
    files = unzipped(packed) | {runs.STATUS: json.dumps(status).encode()}
    path = bundle.unpack(io.BytesIO(zip_of(files)), runs_dir)
    job = jobs.look(path)
    assert (job.state, job.step, job.total, job.message) == ("finished", 40, 40, "")
    assert not jobs.waits(path)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("/home/ann/cats", "cats (imported)"),
        ("C:\\Users\\Ann\\cats.zip", "cats.zip (imported)"),
        ("~root", "root (imported)"),
        ("/", "folder (imported)"),
        ("cats (imported)", "cats (imported)"),
        ("/etc/cats (imported)", "cats (imported)"),
        ("..", ".. (imported)"),
    ],
)
def test_a_zip_names_no_folder_of_this_machine(
    given: str, kept: str, tmp_path: Path, runs_dir: Path
) -> None:
    path = write_run(tmp_path / "source", given, ["cat", "dog"])
    found = runs.read_config(bundle.unpack(io.BytesIO(pack(path)), runs_dir))
    assert found["recipe"]["dataset"] == kept


def test_training_off_refuses(
    packed: bytes, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIT_TRAINING", "off")
    assert "VIT_TRAINING=off" in refusal(packed, runs_dir)
    assert not runs_dir.exists()


# ---- what is refused -----------------------------------------------------------------------------


def with_json(name: str, change: Callable[[Any], None]) -> Callable[[Files], Files]:
    def spoil(files: Files) -> Files:
        values = json.loads(files[name])
        change(values)
        return files | {name: json.dumps(values).encode()}

    return spoil


def with_settings(**changes: Any) -> Callable[[Files], Files]:
    return with_json(runs.CONFIG, lambda values: values.update(changes))


def with_recipe(**changes: Any) -> Callable[[Files], Files]:
    return with_json(runs.CONFIG, lambda values: values["recipe"].update(changes))


def with_model(**changes: Any) -> Callable[[Files], Files]:
    def change(values: Any) -> None:
        values["model"].update(changes)
        values["recipe"]["model"].update(changes)

    return with_json(runs.CONFIG, change)


def with_file(name: str, content: bytes) -> Callable[[Files], Files]:
    return lambda files: files | {name: content}


def without(*names: str) -> Callable[[Files], Files]:
    return lambda files: {name: content for name, content in files.items() if name not in names}


def with_tensors(
    name: str, change: Callable[[dict[str, torch.Tensor]], Any], **metadata: str
) -> Callable[[Files], Files]:
    def spoil(files: Files) -> Files:
        tensors = load(files[name])
        change(tensors)
        epoch = "0" if "0000" in name else "2"
        return files | {name: save(tensors, {"epoch": epoch} | metadata)}

    return spoil


def with_rows(*rows: Any) -> Callable[[Files], Files]:
    text = "".join(json.dumps(each) + "\n" for each in rows)
    return with_file(runs.METRICS, text.encode())


def arrays(**changes: np.ndarray) -> bytes:
    labels, probabilities = predictions_of(np.full((10, 10), 2))
    file = io.BytesIO()
    whole = {"labels": labels, "probabilities": probabilities, "fingerprint": np.array("f")}
    np.savez_compressed(file, **(whole | changes))
    return file.getvalue()


def lying_array(shape: tuple[int, ...]) -> bytes:
    """Predictions with a header that promises more than there is."""
    file = io.BytesIO(arrays())
    with zipfile.ZipFile(file) as zipped:
        files = {name: zipped.read(name) for name in zipped.namelist()}
    header = io.BytesIO()
    description = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, description)
    return zip_of(files | {"probabilities.npy": header.getvalue() + bytes(400)}, top="")


def poisoned(tensors: dict[str, torch.Tensor]) -> None:
    tensors["head.bias"][3] = float("nan")


def renamed(tensors: dict[str, torch.Tensor]) -> None:
    tensors["head.size"] = tensors.pop("head.bias")


def reshaped(tensors: dict[str, torch.Tensor]) -> None:
    tensors["head.weight"] = tensors["head.weight"].T.contiguous()


def in_whole_numbers(tensors: dict[str, torch.Tensor]) -> None:
    for key in tensors:
        tensors[key] = tensors[key].view(torch.int32)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (without(runs.CONFIG), "it has no config.json"),
        (without(runs.MODEL), "no weights to open"),
        (with_file("config.json", b"{"), "its config.json is damaged"),
        (with_file("config.json", b"[" * 100_000), "its config.json is damaged"),
        (with_file("config.json", b"\xff"), "its config.json is damaged"),
        (with_file("config.json", b"[]"), "config.json cannot be used"),
        (with_file("config.json", bytes(2**22 + 1)), "config.json is too large"),
        (with_file("request.json", b"{"), "its request.json is damaged"),
        (with_settings(format=2), "a later version"),
        (with_settings(recipe=None), "recipe is a set of named settings"),
        (with_settings(seed=-1), "seed must be"),
        (with_settings(seed=1.5), "seed must be"),
        (with_settings(class_names=["one"]), "class_names must be 10 names"),
        (with_settings(class_names=[*"abcdefghi", ""]), "class_names must be 10 names"),
        (with_settings(class_names=[*"abcdefghi", "j" * 201]), "class_names must be 10 names"),
        (with_settings(class_names=[*"abcdefghi", 3]), "class_names must be 10 names"),
        (with_settings(mean=[0.5]), "mean must be 3 numbers"),
        (with_settings(mean=[0.5, 0.5, float("nan")]), "mean must be 3 numbers"),
        (with_settings(std=[0.5, 0.5, 0.0]), "std must be 3 numbers"),
        (with_settings(std=[0.5, 0.5, True]), "std must be 3 numbers"),
        (with_settings(versions={"python": 3}), "must be texts by name"),
        (with_settings(fingerprints=[]), "must be texts by name"),
        (with_recipe(epochs=0), "epochs must be"),
        (with_recipe(epochs=1), "says that it is of epoch 2"),
        (with_recipe(name="../up"), "name must be"),
        (with_recipe(surprise=1), "Unknown settings"),
        (with_recipe(dataset="digits"), "not made for the pictures of its data set"),
        (with_settings(model={"depth": 1}), "recipe's model differ"),
        (with_model(depth=0), "depth must be"),
        (with_model(num_heads=3), "num_heads 3 does not divide"),
        (with_model(depth=128, embed_dim=8192), "GB of memory"),
        (with_model(mlp_ratio=9e5), "GB of memory"),
        (with_model(patch_size=1, depth=128, num_heads=16), "GB of memory"),
        (with_model(depth=2), "weights of the model"),
        (with_file(runs.MODEL, b""), "weights of the model"),
        (with_file(runs.MODEL, bytes(10**7)), "weights of the model"),
        (with_file(SNAPSHOTS[0], bytes(100)), "weights of the model"),
        (lambda files: files | {runs.MODEL: bytes(len(files[runs.MODEL]))}, "is damaged"),
        (lambda files: files | {runs.MODEL: b"\xff" * len(files[runs.MODEL])}, "is damaged"),
        (lambda files: files | {SNAPSHOTS[0]: files[SNAPSHOTS[1]]}, "says that it is of epoch 2"),
        (with_tensors(runs.MODEL, poisoned), "not finite numbers"),
        (with_tensors(runs.MODEL, renamed), "not those of the model"),
        (with_tensors(runs.MODEL, reshaped), "not those of the model"),
        (with_tensors(runs.MODEL, in_whole_numbers), "another precision"),
        (with_tensors(runs.MODEL, lambda _: None, epoch="9"), "says that it is of epoch 9"),
        (with_tensors(runs.MODEL, lambda _: None, epoch="x"), "not those of the model"),
        (with_tensors(runs.MODEL, lambda _: None, temperature="nan"), "temperature"),
        (with_tensors(SNAPSHOTS[1], poisoned), "not finite numbers"),
        (with_tensors(SNAPSHOTS[1], reshaped), "not those of the model"),
        (with_rows(row(1), row(1)), "does not tell of one epoch a line"),
        (with_rows(row(2)), "does not tell of one epoch a line"),
        (with_rows(row(1), row(2), row(3)), "does not tell of one epoch a line"),
        (with_rows(row(1) | {"val_accuracy": None}), "does not tell of one epoch a line"),
        (with_rows(row(1) | {"val_accuracy": 1.5}), "does not tell of one epoch a line"),
        (with_rows(row(1) | {"train_loss": float("nan")}), "does not tell of one epoch a line"),
        (with_rows(row(1) | {"seconds": "3"}), "does not tell of one epoch a line"),
        (with_rows(row(1) | {"step": True}), "does not tell of one epoch a line"),
        (with_rows(row(1), row(2) | {"step": 20}), "does not tell of one epoch a line"),
        (with_file(runs.METRICS, b'{"epoch": 1'), "does not tell of one epoch a line"),
        (with_file(runs.METRICS, b"\xff\xfe"), "does not tell of one epoch a line"),
        (with_file(runs.METRICS, bytes(2**23 + 1)), "metrics.jsonl is too large"),
        (with_file(runs.PREDICTIONS, b""), "predictions.npz is damaged"),
        (with_file(runs.PREDICTIONS, arrays()[:-100]), "predictions.npz is damaged"),
        (with_file(runs.PREDICTIONS, lying_array((10**13, 10))), "predictions.npz is damaged"),
        (with_file(runs.PREDICTIONS, lying_array((-10, -10))), "predictions.npz is damaged"),
        (with_file(runs.PREDICTIONS, arrays(extra=np.zeros(1))), "predictions.npz is damaged"),
        (with_file(runs.PREDICTIONS, arrays(labels=np.zeros(3))), "predictions.npz is damaged"),
        (with_file(runs.PREDICTIONS, arrays(labels=np.full(200, None))), "predictions.npz is dam"),
        (
            with_file(runs.PREDICTIONS, arrays(probabilities=np.full((200, 9), 1 / 9))),
            "predictions.npz is damaged",
        ),
        (
            with_file(runs.PREDICTIONS, arrays(probabilities=np.full((200, 10), 0.2))),
            "predictions.npz is damaged",
        ),
        (
            with_file(runs.PREDICTIONS, arrays(fingerprint=np.array("f" * 10_000))),
            "predictions.npz is damaged",
        ),
        (with_file(runs.ROBUSTNESS, b"{}"), "robustness.json is damaged"),
    ],
)  # fmt: skip
def test_nonsense_is_refused(
    spoil: Callable[[Files], Files], says: str, packed: bytes, runs_dir: Path
) -> None:
    assert says in refusal(zip_of(spoil(unzipped(packed))), runs_dir)


# ---- what is no honest zip -----------------------------------------------------------------------


def entry(name: str, mode: int = 0) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        (entry("../config.json"), "points outside of the zip"),
        (entry("run/../../config.json"), "points outside of the zip"),
        (entry("/etc/passwd"), "points outside of the zip"),
        (entry("C:/run.ini"), "points outside of the zip"),
        (entry("run\\..\\up"), "is no path"),
        (entry("run/predictions.npz", stat.S_IFLNK | 0o777), "is a link"),
        (entry("run/snapshots", stat.S_IFLNK | 0o777), "is a link"),
        (entry("other/config.json"), "several runs"),
        (entry("run/metrics.jsonl"), "metrics.jsonl twice"),
    ],
    ids=lambda value: getattr(value, "filename", value),
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_attacks_are_refused(
    extra: zipfile.ZipInfo, says: str, packed: bytes, runs_dir: Path
) -> None:
    file = io.BytesIO(zip_of(unzipped(packed)))
    with zipfile.ZipFile(file, "a") as zipped:
        zipped.writestr(extra, "../../secret")
    assert says in refusal(file.getvalue(), runs_dir)
    assert not list(runs_dir.parent.glob("**/secret"))


def test_bombs_are_refused(packed: bytes, runs_dir: Path) -> None:
    files = unzipped(packed)
    bomb = zip_of(files | {runs.STEPS: bytes(10**7)}, kind=zipfile.ZIP_DEFLATED)
    assert "unpacks to more than 200 times its size" in refusal(bomb, runs_dir)
    inner = zip_of({f"{name}.npy": bytes(10**8) for name in "abc"}, "", zipfile.ZIP_DEFLATED)
    assert "predictions.npz is damaged" in refusal(
        zip_of(files | {runs.PREDICTIONS: inner}), runs_dir
    )
    many = zip_of(dict.fromkeys(map(str, range(200_001)), b""))
    assert "200,001 files" in refusal(many, runs_dir)


def test_a_file_that_unpacks_to_more_than_it_says_is_refused(packed: bytes, runs_dir: Path) -> None:
    """The size in the zip's directory decides; a file that goes on behind it does not go on."""
    content = zip_of(unzipped(packed), kind=zipfile.ZIP_DEFLATED)
    file = io.BytesIO(content)
    with zipfile.ZipFile(file) as zipped:
        size = zipped.getinfo(f"run/{runs.METRICS}").file_size
    at = content.rindex(f"run/{runs.METRICS}".encode()) - 46
    assert content[at : at + 4] == b"PK\1\2"
    shorter = content[: at + 24] + (size - 50).to_bytes(4, "little") + content[at + 28 :]
    assert "damaged" in refusal(shorter, runs_dir)


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\5\6" + bytes(18), b"hello" * 100], ids=repr)
def test_what_is_no_zip_of_a_run_is_refused(content: bytes, runs_dir: Path) -> None:
    assert refusal(content, runs_dir)


def damaged(content: bytes, draw: random.Random) -> bytes:
    """A zip with something done to it that a bad disk, a bad line or a bad person does."""
    kind = draw.randrange(6)
    at, other = sorted(draw.randrange(len(content)) for _ in range(2))
    if kind == 0:
        return content[:at]
    if kind == 1:
        return content[:at] + content[other:]
    if kind == 2:
        return content[:at] + bytes(other - at) + content[other:]
    if kind == 3:
        return content + content[at:other]
    flipped = bytearray(content)
    for _ in range(draw.choice([1, 1, 10, 1000])):
        flipped[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    if kind == 4:
        return bytes(flipped)
    directory = content.index(b"PK\1\2")  # the zip's own directory is where its readers stumble
    for _ in range(draw.choice([1, 3, 30])):
        content = (
            content[: (i := draw.randrange(directory, len(content)))]
            + draw.randbytes(1)
            + content[i + 1 :]
        )
    return content


def scrambled(files: Files, draw: random.Random) -> Files:
    """The files of a run with the content of one damaged, or of two swapped."""
    one, other = draw.sample(sorted(files), 2)
    if draw.random() < 0.3:
        return files | {one: files[other], other: files[one]}
    content = bytearray(files[one])
    for _ in range(draw.choice([1, 1, 2, 20])):
        content[draw.randrange(len(content))] = draw.randrange(256)
    return files | {
        one: bytes(content[: draw.choice([len(content), draw.randrange(len(content))])])
    }


NONSENSE = [
    *(None, True, -1, 0, 1, 3, 2**31, 2**64, 10**400, 0.5, -0.5, 1e308, float("nan"), float("inf")),
    *("", "x", "../..", "\0", "<script>", "9" * 5000, [], [1], [[]], {}, {"a": 1}, {"": None}),
]


def confused(values: Any, draw: random.Random) -> Any:
    """JSON with one value, at any depth, replaced, removed or added."""
    if isinstance(values, dict) and values and draw.random() < 0.9:
        key = draw.choice(sorted(values))
        changed = dict(values)
        if draw.random() < 0.1:
            del changed[key]
        elif draw.random() < 0.1:
            changed[draw.choice(["", "surprise", "__class__"])] = draw.choice(NONSENSE)
        else:
            changed[key] = confused(values[key], draw)
        return changed
    if isinstance(values, list) and values and draw.random() < 0.7:
        at = draw.randrange(len(values))
        return [*values[:at], confused(values[at], draw), *values[at + 1 :]]
    return draw.choice(NONSENSE)


def let_in_or_refused(content: bytes, folder: Path) -> bool:
    """Whether a zip is let in, whole; if not, it is refused with a sentence and leaves nothing."""
    try:
        path = bundle.unpack(io.BytesIO(content), folder)
    except RunError as error:
        assert str(error).endswith((".", ")"))
        assert left_in(folder) == []
        return False
    assert_opens(path)
    assert {found.partition("/")[0] for found in left_in(folder)} == {path.name}
    shutil.rmtree(path)
    return True


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_no_damage_to_a_zip_gets_by(packed: bytes, runs_dir: Path) -> None:
    draw, let_in = random.Random(65), 0
    whole = zip_of(unzipped(packed), kind=zipfile.ZIP_DEFLATED)
    for _ in range(400):
        let_in += let_in_or_refused(damaged(whole, draw), runs_dir)
    assert let_in < 100, "most damage is to what counts"


def test_no_damage_to_a_file_gets_by(packed: bytes, runs_dir: Path) -> None:
    draw, let_in = random.Random(66), 0
    for _ in range(300):
        let_in += let_in_or_refused(zip_of(scrambled(unzipped(packed), draw)), runs_dir)
    assert 0 < let_in < 250, "a flipped bit in a weight may pass, a damaged header may not"


@pytest.mark.parametrize(
    "name", [runs.CONFIG, runs.REQUEST, runs.ROBUSTNESS, runs.METRICS, runs.STEPS]
)
def test_no_nonsense_in_what_is_written_as_json_gets_by(
    name: str, packed: bytes, runs_dir: Path
) -> None:
    draw, files = random.Random(67), unzipped(packed)
    whole = files[name].decode()
    texts = whole.splitlines() if name.endswith("l") else [whole]
    for _ in range(100):
        at = draw.randrange(len(texts))
        texts_now = [
            *texts[:at],
            json.dumps(confused(json.loads(texts[at]), draw)),
            *texts[at + 1 :],
        ]
        let_in_or_refused(zip_of(files | {name: "\n".join(texts_now).encode()}), runs_dir)
    assert let_in_or_refused(zip_of(files), runs_dir), "and as it was it is let in"


# ---- where there is no room ----------------------------------------------------------------------


def unpack_in_little_room(zipped: Path, folder: Path, room: int) -> None:
    """Import where a file may have ``room`` bytes; ends with 7 after a sentence."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that writing too much is an error
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    try:
        bundle.unpack(zipped, folder)
    except RunError as error:
        sys.exit(7 if "Free some space" in str(error) else 8)


@pytest.mark.parametrize("room", [100, 2_000, 15_000])
def test_a_full_disk_is_a_sentence(
    room: int, packed: bytes, tmp_path: Path, runs_dir: Path
) -> None:
    (tmp_path / "run.zip").write_bytes(packed)
    with process(unpack_in_little_room, tmp_path / "run.zip", runs_dir, room) as child:
        assert ended(child) == 7
    assert left_in(runs_dir) == []


def test_room_is_asked_for_before_anything_is_written(
    packed: bytes, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(runs_dir.parent)._replace(free=jobs.FULL + 1000)
    monkeypatch.setattr(bundle.shutil, "disk_usage", lambda path: usage)
    assert "There is no room" in refusal(packed, runs_dir)


def test_what_a_killed_import_left_goes_with_a_later_one(packed: bytes, runs_dir: Path) -> None:
    for name, age in (("old", 2 * bundle.DRAFT_LIVES), ("new", 60)):
        (runs_dir / f"{bundle.DRAFT}{name}" / "run").mkdir(parents=True)
        when = time.time() - age
        os.utime(runs_dir / f"{bundle.DRAFT}{name}", (when, when))
    path = bundle.unpack(io.BytesIO(packed), runs_dir)
    assert [job.path for job in jobs.list_jobs(runs_dir)] == [path]
    assert {each.name for each in runs_dir.glob(f"{bundle.DRAFT}*")} == {f"{bundle.DRAFT}new"}
