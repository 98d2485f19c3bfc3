"""``vit.evaluate``: the numbers against scikit-learn and PyTorch, and what it refuses."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn import metrics

from tests.small_data import NAMES, folder_files, write_files, write_parquet
from tests.small_runs import MEAN, STD, write_run
from vit import evaluate, robustness, runs
from vit.config import ViTConfig
from vit.data import DataError, Split, load_split
from vit.evaluate import (
    agreement,
    choose_device,
    load_test_split,
    main,
    measure,
    predict_logits,
    predict_probabilities,
    report,
    summary,
)
from vit.model import VisionTransformer
from vit.runs import RunError, load_run, read_predictions, write_predictions

ROOT = Path(__file__).resolve().parents[1]
DIGITS = ROOT / "checkpoints" / "digits"


@pytest.fixture(scope="module")
def model() -> VisionTransformer:
    torch.manual_seed(0)
    return VisionTransformer(ViTConfig(embed_dim=16, depth=1, num_heads=2)).eval()


@pytest.fixture(scope="module")
def pictures() -> torch.Tensor:
    return torch.randint(0, 256, (23, 3, 32, 32), generator=torch.Generator().manual_seed(1)).to(
        torch.uint8
    )


def test_batches_and_their_rest_give_what_one_batch_would(
    model: VisionTransformer, pictures: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    scaled = pictures.float() / 255
    mean, std = (torch.tensor(v)[None, :, None, None] for v in (MEAN, STD))
    with torch.inference_mode():
        expected = model((scaled - mean) / std)
    monkeypatch.setattr(evaluate, "BATCH", 10)
    seen: list[tuple[int, int]] = []
    got = predict_logits(model, pictures, MEAN, STD, lambda *done: seen.append(done))
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)
    assert seen == [(10, 23), (20, 23), (23, 23)]
    probabilities = predict_probabilities(model, pictures, MEAN, STD)
    np.testing.assert_allclose(probabilities, expected.softmax(1).numpy(), atol=1e-6)


def test_loss_and_accuracy_are_scikit_learns(
    model: VisionTransformer, pictures: torch.Tensor
) -> None:
    labels = torch.arange(23) % 10
    probabilities = predict_probabilities(model, pictures, MEAN, STD).astype(np.float64)
    probabilities /= probabilities.sum(1, keepdims=True)  # float32 leaves them 1e-7 off
    loss, accuracy = measure(model, pictures, labels, MEAN, STD)
    expected = metrics.log_loss(labels, probabilities, labels=range(10))
    assert loss == pytest.approx(expected, abs=1e-5)
    assert accuracy == pytest.approx(metrics.accuracy_score(labels, probabilities.argmax(1)))


def drawn(count: int, classes: int) -> tuple[torch.Tensor, np.ndarray]:
    """Logits (count, classes), surer than they are right, and labels (count,)."""
    random = np.random.default_rng(0)
    labels = random.integers(0, classes, count)
    logits = random.normal(0, 2, (count, classes))
    logits[np.arange(count), labels] += 2
    return torch.from_numpy(logits).float(), labels


def split_of(labels: np.ndarray, names: str) -> Split:
    pictures = np.zeros((len(labels), 1, 2, 2), np.uint8)
    return Split(pictures, labels, tuple(names), "f" * 64)


def test_the_report_is_scikit_learns() -> None:
    logits, labels = drawn(500, 4)
    result = report(logits, split_of(labels, "abcd"))
    probabilities = logits.double().softmax(1).numpy()
    said = probabilities.argmax(1)
    assert result["accuracy"] == pytest.approx(metrics.accuracy_score(labels, said))
    assert result["confusion"] == metrics.confusion_matrix(labels, said).tolist()
    assert result["loss"] == pytest.approx(metrics.log_loss(labels, probabilities), abs=1e-6)
    assert result["macro_f1"] == pytest.approx(metrics.f1_score(labels, said, average="macro"))
    recall = metrics.recall_score(labels, said, average=None)
    assert list(result["per_class"]) == list(result["classes"]) == ["a", "b", "c", "d"]
    np.testing.assert_allclose(list(result["per_class"].values()), recall)
    for name, score in (
        ("recall", metrics.recall_score),
        ("precision", metrics.precision_score),
        ("f1", metrics.f1_score),
    ):
        values = [row[name] for row in result["classes"].values()]
        np.testing.assert_allclose(values, score(labels, said, average=None))
    counts = [row["count"] for row in result["classes"].values()]
    assert counts == np.bincount(labels).tolist()
    assert result["count"] == 500
    assert result["fingerprint"] == "f" * 64
    low, high = result["confidence_interval"]
    assert low < result["accuracy"] < high
    assert result["temperature"] == {
        "value": 1.0,
        "fitted_on": 0,
        "calibration_error_without": result["calibration_error"],
    }


def test_without_its_temperature_the_report_is_that_of_the_undivided_logits() -> None:
    logits, labels = drawn(500, 4)
    split = split_of(labels, "abcd")
    plain = report(logits, split)
    tempered = report(logits / 1.8, split, temperature=1.8, fitted_on=77)
    assert tempered["temperature"]["value"] == 1.8
    assert tempered["temperature"]["fitted_on"] == 77
    without = tempered["temperature"]["calibration_error_without"]
    assert without == pytest.approx(plain["calibration_error"], abs=1e-6)
    assert tempered["calibration_error"] < without - 0.01
    for key in ("accuracy", "confusion", "classes", "macro_f1"):
        assert tempered[key] == plain[key], "no answer is another"
    assert tempered["loss"] != pytest.approx(plain["loss"], rel=0.01)


def test_a_class_without_pictures_has_no_accuracy() -> None:
    logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    split = Split(np.zeros((2, 1, 2, 2), np.uint8), np.array([0, 0]), ("here", "gone", "odd"), "")
    result = report(logits, split)
    assert result["per_class"] == {"here": 0.5, "gone": None, "odd": None}
    assert result["confusion"] == [[1, 1, 0], [0, 0, 0], [0, 0, 0]]
    assert result["classes"]["here"] == pytest.approx(
        {"precision": 1, "recall": 1 / 2, "f1": 2 / 3, "count": 2}
    )
    gone = {"precision": 0.0, "recall": None, "f1": 0.0, "count": 0}
    assert result["classes"]["gone"] == gone
    assert set(result["classes"]["odd"].values()) == {None, 0}
    assert result["macro_f1"] == pytest.approx(1 / 3)
    assert json.loads(json.dumps(result, allow_nan=False))["count"] == 2


def test_the_shipped_digits_do_what_their_predictions_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fresh pass over the held-out fifth gives the stored predictions, and at least 95 %."""
    monkeypatch.setenv("VIT_DATA_DIR", str(tmp_path))
    assert main([str(DIGITS), "--device", "cpu", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    stored = read_predictions(DIGITS)
    said = stored["probabilities"].argmax(1)
    assert result["accuracy"] == pytest.approx((said == stored["labels"]).mean())
    assert result["accuracy"] >= 0.95
    assert result["confusion"] == metrics.confusion_matrix(stored["labels"], said).tolist()
    assert result["fingerprint"] == stored["fingerprint"]
    assert result["fingerprint"] == load_split("digits", "test", tmp_path).fingerprint
    assert result["agreement"]["same_class"] == 1
    assert result["agreement"]["largest_difference"] < 1e-4
    run = load_run(DIGITS)
    assert result["epoch"] == run.epoch
    assert result["temperature"]["value"] == run.temperature
    assert result["temperature"]["fitted_on"] == run.calibrated_on


def test_agreement_says_what_differs(tmp_path: Path) -> None:
    split = split_of(np.array([0, 1, 1, 0]), "ab")
    probabilities = np.array([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3], [0.5, 0.5]], np.float32)
    assert agreement(probabilities, split, tmp_path) is None, "nothing is stored"
    stored = probabilities.copy()
    stored[1] = [0.55, 0.45]
    write_predictions(tmp_path, split.labels, stored, split.fingerprint)
    measured = agreement(probabilities, split, tmp_path)
    assert measured == pytest.approx({"same_class": 0.75, "largest_difference": 0.15})
    write_predictions(tmp_path, split.labels, stored, "another split")
    assert agreement(probabilities, split, tmp_path) is None
    write_predictions(tmp_path, split.labels, np.full((4, 3), 1 / 3), split.fingerprint)
    assert agreement(probabilities, split, tmp_path) is None


@pytest.fixture
def small_run(tmp_path: Path) -> Path:
    """An untrained run, with a temperature in its weights, beside a CIFAR-10 of 30 pictures."""
    write_parquet(tmp_path, "test", 30)
    run = write_run(tmp_path / "run", "cifar10", list(NAMES))
    weights, _ = runs.load_weights(run / runs.MODEL)
    metadata = {"epoch": "2", "temperature": "1.25", "calibrated_on": "1200"}
    runs.write_weights(run / runs.MODEL, weights, metadata)
    return run


def test_changed_pictures_are_tested_once_and_remembered(
    small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [str(small_run), "--data-dir", str(tmp_path), "--device", "cpu", "--json"]

    def changes_of(*more: str) -> dict[str, dict[str, float]] | None:
        assert main([*command, *more]) == 0
        return json.loads(capsys.readouterr().out)["changes"]

    assert changes_of() is None
    measured = changes_of("--changes")
    run, split = load_run(small_run), load_split("cifar10", "test", tmp_path)
    images = torch.from_numpy(np.array(split.images))
    made = {"none": lambda same: same, **robustness.changes(3, 4)}
    assert list(measured) == list(made)
    for name, change in made.items():
        probabilities = predict_probabilities(run.model, change(images), run.mean, run.std)
        assert measured[name] == pytest.approx(
            {
                "accuracy": metrics.accuracy_score(split.labels, probabilities.argmax(1)),
                "confidence": probabilities.max(1).mean(),
            },
            abs=1e-6,
        )
    assert changes_of() == measured, "the stored ones"
    runs.write_robustness(small_run, 1, measured, split.fingerprint)
    assert changes_of() is None, "they are of another epoch"
    runs.write_robustness(small_run, 2, measured, "another split")
    assert changes_of() is None
    (small_run / runs.ROBUSTNESS).write_text("{")
    assert changes_of() is None
    assert changes_of("--changes") == measured


def test_the_table_shows_the_same_numbers(
    small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [str(small_run), "--data-dir", str(tmp_path), "--device", "cpu"]
    assert main([*command, "--changes", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert main(command) == 0
    head, classes, confusion, changed = (
        part.splitlines() for part in capsys.readouterr().out.rstrip("\n").split("\n\n")
    )
    low, high = (100 * end for end in result["confidence_interval"])
    assert head == [
        f"accuracy {100 * result['accuracy']:.2f} % of 30 pictures "
        f"(95 % interval {low:.2f} to {high:.2f} %)",
        f"macro F1 {result['macro_f1']:.4f}, cross-entropy {result['loss']:.4f} nats",
        f"expected calibration error {result['calibration_error']:.4f}; without the temperature "
        f"1.2500, which was fitted on 1,200 pictures kept out of training, "
        f"{result['temperature']['calibration_error_without']:.4f}",
        "the run has no stored predictions for these pictures to compare with",
    ]
    for line, (name, row) in zip(classes[1:], result["classes"].items(), strict=True):
        shares = [row["precision"], row["recall"]]
        percent = ["–" if v is None else f"{100 * v:.1f}" for v in shares]
        cells = [name, str(row["count"]), *percent, f"{row['f1']:.4f}"]
        assert [word for word in line.split() if word != "%"] == cells
    table = [line.split() for line in confusion[1:]]
    assert [row[0] for row in table] == list(NAMES)
    assert [[int(n) for n in row[1:]] for row in table] == result["confusion"]
    assert [line.split() for line in changed[1:]] == [
        [name, f"{100 * row['accuracy']:.2f}", "%", f"{100 * row['confidence']:.2f}", "%"]
        for name, row in result["changes"].items()
    ]


def test_the_table_of_a_run_without_a_temperature() -> None:
    logits, labels = drawn(40, 4)
    result = report(logits, split_of(labels, "abcd"))
    agreed = {"same_class": 0.975, "largest_difference": 0.00123}
    lines = summary({**result, "agreement": agreed, "changes": None}).splitlines()
    assert lines[2].endswith("; no temperature was fitted")
    assert lines[3] == (
        "the stored predictions name the same class for 97.50 %; no probability differs by more "
        "than 0.0012"
    )
    assert not any("same pictures" in line for line in lines)


def test_a_run_that_cannot_be_written_to_says_so(
    small_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runs, "write_atomically", full)
    assert main([str(small_run), "--data-dir", str(tmp_path), "--changes"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "cannot be written (No space left on device). Make room there" in err


def test_nothing_is_imported_that_a_test_of_a_model_does_not_need(tmp_path: Path) -> None:
    """A cold start costs little beside the model; the decoded pictures spare it the decoder."""
    load_split("digits", "test", tmp_path)
    script = (
        "import sys; from vit.evaluate import main; main(sys.argv[1:]);"
        "heavy = {'torchvision', 'streamlit', 'timm', 'plotly', 'pyarrow.parquet'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    command = [sys.executable, "-c", script, str(DIGITS), "--data-dir", str(tmp_path), "--json"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.stdout.splitlines()[-1] == "[]", result.stderr


def test_an_image_folder_is_read_at_the_models_size(tmp_path: Path) -> None:
    files = {"a": 10, "b": 10}
    folder = write_files(tmp_path / "pictures", folder_files(files))
    run = load_run(write_run(tmp_path / "run", str(folder), ["a", "b"]))
    split = load_test_split(run, tmp_path)
    assert split.images.shape[1:] == (3, 32, 32)
    assert split.class_names == ("a", "b")


def test_pictures_of_other_classes_are_refused(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "pictures", folder_files({"a": 10, "b": 10}))
    run = load_run(write_run(tmp_path / "run", str(folder), ["a", "c"]))
    with pytest.raises(DataError, match="show a, b, but the run run learned a, c"):
        load_test_split(run, tmp_path)


def test_a_users_mistakes_are_one_line_and_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_run(tmp_path / "other", str(tmp_path / "nowhere"), ["a", "b"])
    damaged = tmp_path / "damaged"
    shutil.copytree(DIGITS, damaged)
    (damaged / runs.MODEL).write_bytes(b"nothing")
    for arguments in (
        [str(tmp_path / "no-run")],
        [str(other)],
        [str(damaged)],
        [str(DIGITS), "--device", "abacus"],
    ):
        assert main([*arguments, "--data-dir", str(tmp_path)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("error: ")
        assert err.count("\n") == 1


def test_devices() -> None:
    assert choose_device("cpu").type == "cpu"
    assert choose_device("auto").type in ("cpu", "cuda")
    with pytest.raises(RunError, match="no device 'abacus'"):
        choose_device("abacus")
