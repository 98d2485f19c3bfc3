"""``python -m vit.predict``: values against the model itself, refusals, and what it prints."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.small_data import noise, png
from vit.predict import DEFAULT_RUN, main, predict
from vit.runs import load_run

ROOT = Path(__file__).resolve().parents[1]
CAT = ROOT / "samples" / "cat-photo.jpg"
FROG = ROOT / "samples" / "frog.png"
DIGITS = ROOT / "checkpoints" / "digits"


def test_probabilities_are_the_models_most_likely_first() -> None:
    """A 32 × 32 picture needs no resizing, so the model's input can be written down here."""
    run = load_run(DEFAULT_RUN)
    picture = noise(1)[0][0]
    pixels = picture.astype(np.float32) / 255
    mean, std = (np.array(values, np.float32)[:, None, None] for values in (run.mean, run.std))
    x = torch.from_numpy((pixels - mean) / std)[None]
    expected = run.model(x)[0].softmax(0)
    answer = predict(run, png(picture.transpose(1, 2, 0)))
    assert list(answer) == [run.class_names[i] for i in expected.argsort(descending=True)]
    for name, value in answer.items():
        assert value == pytest.approx(expected[run.class_names.index(name)].item(), abs=1e-5)
    assert sum(answer.values()) == pytest.approx(1, abs=1e-5)


def test_a_refused_picture_is_named_and_the_others_are_printed_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, gone = tmp_path / "notes.png", tmp_path / "gone.png"
    text.write_text("no picture")
    code = main([str(FROG), str(text), str(gone), str(CAT), "--json"])
    out, err = capsys.readouterr()
    answers = json.loads(out)
    assert code == 2
    assert [answer["image"] for answer in answers] == [str(FROG), str(CAT)]
    run = load_run(DEFAULT_RUN)
    for answer, path in zip(answers, (FROG, CAT), strict=True):
        assert answer["probabilities"] == predict(run, path.read_bytes())
        assert list(answer["probabilities"].values()) == sorted(
            answer["probabilities"].values(), reverse=True
        )
    lines = err.splitlines()
    assert len(lines) == 2
    assert str(text) in lines[0]
    assert "text" in lines[0]
    assert str(gone) in lines[1]
    assert "cannot be read" in lines[1]


def test_the_table_shows_what_json_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(CAT), "--run", str(DIGITS)]) == 0
    lines = capsys.readouterr().out.splitlines()
    expected = predict(load_run(DIGITS), CAT.read_bytes())
    assert lines[0] == str(CAT)
    assert [line.split() for line in lines[1:]] == [
        [f"{100 * value:.2f}", "%", name] for name, value in expected.items()
    ]


def test_no_run_there_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(CAT), "--run", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "is not a run" in err


def test_it_runs_from_anywhere_and_stays_light(tmp_path: Path) -> None:
    """The default run is found from the repository; nothing heavy is loaded."""
    script = (
        "import sys; from vit.predict import main; code = main(sys.argv[1:]);"
        "heavy = {'torchvision', 'streamlit', 'timm', 'plotly', 'sklearn'};"
        "print(sorted(heavy & set(sys.modules)));"
        "sys.exit(code)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, str(FROG), "--json"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    answers, loaded = result.stdout.splitlines()
    assert list(json.loads(answers)[0]["probabilities"]) == list(
        predict(load_run(DEFAULT_RUN), FROG.read_bytes())
    )
    assert loaded == "[]"
