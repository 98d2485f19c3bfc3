"""``vit.evaluate``: the numbers against scikit-learn and PyTorch, and what it refuses."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn import metrics

from tests.small_data import folder_files, write_files, write_parquet
from tests.small_runs import MEAN, STD, write_run
from vit import evaluate, runs
from vit.config import ViTConfig
from vit.data import DataError, Split, load_split
from vit.evaluate import (
    choose_device,
    load_test_split,
    main,
    measure,
    predict_logits,
    predict_probabilities,
    report,
)
from vit.model import VisionTransformer
from vit.runs import RunError, load_run, read_predictions

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


def test_the_report_is_scikit_learns() -> None:
    random = np.random.default_rng(0)
    labels = random.integers(0, 4, 500)
    probabilities = random.dirichlet(np.ones(4), 500)
    split = Split(np.zeros((500, 1, 2, 2), np.uint8), labels, ("a", "b", "c", "d"), "f" * 64)
    result = report(probabilities, split)
    said = probabilities.argmax(1)
    assert result["accuracy"] == pytest.approx(metrics.accuracy_score(labels, said))
    assert result["confusion"] == metrics.confusion_matrix(labels, said).tolist()
    recall = metrics.recall_score(labels, said, average=None)
    assert list(result["per_class"]) == ["a", "b", "c", "d"]
    np.testing.assert_allclose(list(result["per_class"].values()), recall)
    assert result["count"] == 500
    assert result["fingerprint"] == "f" * 64


def test_a_class_without_pictures_has_no_accuracy() -> None:
    split = Split(np.zeros((2, 1, 2, 2), np.uint8), np.array([0, 0]), ("here", "gone"), "")
    result = report(np.array([[0.9, 0.1], [0.2, 0.8]]), split)
    assert result["per_class"] == {"here": 0.5, "gone": None}
    assert result["confusion"] == [[1, 1], [0, 0]]


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


def test_the_table_shows_the_same_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_parquet(tmp_path, "test", 30)
    names = list(load_split("cifar10", "test", tmp_path).class_names)
    run = write_run(tmp_path / "run", "cifar10", names)
    command = [str(run), "--data-dir", str(tmp_path), "--device", "cpu"]
    assert main([*command, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"accuracy {100 * result['accuracy']:.2f} % of 30 pictures"
    rows = [line.split() for line in lines[3:]]
    assert [row[0] for row in rows] == names
    assert [[int(n) for n in row[3:]] for row in rows] == result["confusion"]


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
