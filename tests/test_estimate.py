"""What a run will take, against what runs take."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from vit import estimate, jobs, runs, train
from vit.model import VisionTransformer
from vit.recipes import debug, digits, sixty_five, system_c
from vit.runs import RunError

CPU = torch.device("cpu")
LEARNED = 1_293  # digits, less those for testing and validation


class Clock:
    """A machine on which a step takes as long as we say."""

    def __init__(self, fixed: float, each: float) -> None:
        self.now, self.sizes = 0.0, list[int]()
        self.fixed, self.each = fixed, each

    def perf_counter(self) -> float:
        return self.now

    def step(self, size: int) -> None:
        self.sizes.append(size)
        self.now += self.fixed + self.each * size


@pytest.mark.parametrize(
    ("fixed", "each"), [(0.001, 0.0), (0.001, 1e-5), (0.01, 0.001), (0.1, 0.05), (0.0, 1.0), (9, 1)]
)
@pytest.mark.parametrize("size", [1, 2, 3, 128, 5_000])
def test_a_step_is_timed_or_continued_from_smaller_ones(
    fixed: float, each: float, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(fixed, each)
    monkeypatch.setattr(estimate, "time", clock)
    assert estimate.time_step(clock.step, size, 2.0) == pytest.approx(fixed + each * size)
    assert max(clock.sizes) <= size
    two = fixed + 2 * each  # no less can be tried
    assert clock.now < max(6.0, 10 * two)


def test_a_disturbed_time_is_not_continued_beyond_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(0.0, 1.0)
    monkeypatch.setattr(estimate, "time", clock)

    def disturbed(size: int) -> None:
        clock.step(size)
        clock.now += 50 if size == 2 else 0

    assert estimate.time_step(disturbed, 100, 2.0) == pytest.approx(100 * 52 / 2)

    def the_other_way(size: int) -> None:
        clock.step(size)
        clock.now += 50 if size == 1 else 0

    assert estimate.time_step(the_other_way, 100, 2.0) == pytest.approx(2)


def test_the_whole_is_put_together_from_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    kept_by_phase: list[list[int | None]] = []
    sizes: list[int] = []
    took = iter([3.0, 1.0])

    def timed(step: Callable[[int], None], size: int, seconds: float) -> float:
        kept_by_phase.append([])
        sizes.append(size)
        step(4)
        assert seconds == 1.0
        return next(took)

    def step(*given: Any) -> tuple[Tensor, Tensor]:
        kept = given[6]
        kept_by_phase[-1].append(None if kept is None else kept.shape[1])
        return torch.zeros(4, 10), torch.zeros(())

    monkeypatch.setattr(estimate, "time_step", timed)
    monkeypatch.setattr(train, "take_step", step)
    monkeypatch.setattr(estimate, "_time", lambda *given: 0.5)
    found = estimate.estimate(sixty_five(), 49_000, device=CPU)
    assert (found.parameters, found.tokens, found.steps) == (1_205_898, 65, 50 * 382)
    assert kept_by_phase == [[None], [32]] and sizes == [128, 128]
    assert found.seconds_per_step == pytest.approx(0.35 * 3 + 0.65 * 1)
    # 50 pictures in half a second: 1,000 for validation after each epoch, and for the temperature
    # of the kept weights and of 12 snapshots; a fifth of all for testing, once.
    looks = (50 + 13) * 1_000 + 49_000 / 5
    assert found.seconds == pytest.approx(50 * 382 * 1.7 + looks / 100)

    took = iter([2.0])
    monkeypatch.setattr(estimate, "time_step", lambda *given: next(took))
    found = estimate.estimate(system_c(), 45_000, device=CPU)
    assert found.seconds_per_step == 2.0  # no patches are left out, so it is measured once
    looks = (50 + 13) * 5_000 + 51 * 45_000 / 5  # this one is tested after each epoch
    assert found.seconds == pytest.approx(50 * 351 * 2.0 + looks / 100)


def test_digits_take_about_as_long_as_was_said(tmp_path: Path) -> None:
    recipe = replace(digits(), epochs=4)
    before = estimate.estimate(recipe, LEARNED)
    train.train(recipe, tmp_path / "run", data_dir=tmp_path, device=CPU)
    after = estimate.estimate(recipe, LEARNED)
    rows = runs.read_metrics(tmp_path / "run")
    assert before.steps == rows[-1]["step"]
    took = sum(row["seconds"] for row in rows)
    said = [found.steps * found.seconds_per_step for found in (before, after)]
    assert min(said) / 2 < took < 2 * max(said)
    assert all(found.seconds > found.steps * found.seconds_per_step for found in (before, after))


def test_measuring_leaves_the_weights_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is learned from noise, at whatever rate, must not make numbers overflow."""
    built: list[tuple[VisionTransformer, Any]] = []
    build = train.build
    monkeypatch.setattr(train, "build", lambda *given: built.append(build(*given)) or built[-1])
    estimate.estimate(replace(debug(), learning_rate=100.0), LEARNED, 0.01, CPU)
    fresh, _ = build(debug(), 0, CPU)
    for ours, theirs in zip(built[0][0].parameters(), fresh.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_memory_is_roughly_what_the_backward_pass_keeps() -> None:
    recipe = replace(system_c(), batch_size=8)
    model = VisionTransformer(recipe.model)
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logits = model(torch.zeros(8, 3, 32, 32))
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    activations = sum(size for place, size in kept.items() if place not in weights)
    assert logits.requires_grad and activations > 10**7
    parameters = sum(parameter.numel() for parameter in model.parameters())
    said = estimate.memory_bytes(recipe) - 16 * parameters
    assert activations / 2 < said < 2 * activations
    assert estimate.memory_bytes(recipe, 1_000) - estimate.memory_bytes(recipe) == 1_000 * 3 * 32**2


# ---- as a process of its own ---------------------------------------------------------------------


def settings(folder: Path, content: str = "") -> Path:
    file = folder / "settings.json"
    file.write_text(content or json.dumps(debug().to_dict()))
    return file


def test_the_command_line_prints_one_object(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    arguments = [str(settings(tmp_path)), "--pictures", str(LEARNED), "--seconds", "0.01"]
    assert estimate.main(arguments) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert found.keys() == asdict(estimate.Estimate(0, 0, 0, 0, 0, 0)).keys() and not said.err
    assert (found["tokens"], found["steps"]) == (5, 40) and found["seconds"] > 0


@pytest.mark.parametrize(
    ("content", "pictures", "says"),
    [
        ("{", 1_000, "cannot be read as JSON"),
        ('{"name": "a", "model": {"depth": 0}}', 1_000, "cannot be used: depth must be"),
        ("", 63, "A batch of 64 cannot be cut from 63 pictures"),
        ("", -5, "A batch of 64 cannot be cut from -5 pictures"),
    ],
)
def test_mistakes_are_one_sentence(
    tmp_path: Path, content: str, pictures: int, says: str, capsys: pytest.CaptureFixture
) -> None:
    assert estimate.main([str(settings(tmp_path, content)), f"--pictures={pictures}"]) == 2
    said = capsys.readouterr()
    assert says in said.err and said.err.startswith("error: ")
    assert len(said.err.splitlines()) == 1 and not said.out


def test_a_lack_of_memory_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def full(*given: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(train, "build", full)
    assert estimate.main([str(settings(tmp_path)), "--pictures=1000"]) == 2
    assert capsys.readouterr().err.startswith("error: There is not enough memory")


def test_the_app_asks_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VIT_TRAINING", raising=False)
    found = jobs.estimate(debug(), LEARNED)
    assert (found.tokens, found.steps) == (5, 40) and 0 < found.seconds < 60
    with pytest.raises(RunError, match="could not be measured: A batch of 64 cannot be cut from 9"):
        jobs.estimate(debug(), 9)
    with pytest.raises(RunError, match="epochs must be from 1"):
        jobs.estimate(replace(debug(), epochs=0), LEARNED)
    with pytest.raises(RunError, match="took too long"):
        jobs.estimate(debug(), LEARNED, timeout=0.01)
    monkeypatch.setattr(jobs.sys, "executable", "/nowhere/python")
    with pytest.raises(RunError, match="could not be measured"):
        jobs.estimate(debug(), LEARNED)


def test_it_runs_as_trainers_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VIT_TRAINING", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(jobs.torch, "get_num_threads", lambda: 8)
    program = tmp_path / "python"
    said = json.dumps(asdict(estimate.Estimate(1, 2, 3, 4.0, 5.0, 6)))
    program.write_text(f"#!/bin/sh\necho $OMP_NUM_THREADS $@ > {tmp_path}/said\necho '{said}'\n")
    program.chmod(0o755)
    monkeypatch.setattr(jobs.sys, "executable", str(program))
    assert jobs.estimate(debug(), LEARNED) == estimate.Estimate(1, 2, 3, 4.0, 5.0, 6)
    words = (tmp_path / "said").read_text().split()
    assert words == ["7", "-m", "vit.estimate", "/dev/stdin", "--pictures", "1293"]


def test_it_goes_behind_the_pages(tmp_path: Path) -> None:
    code = (
        "import os, runpy, sys\n"
        f"sys.argv = ['estimate', {str(settings(tmp_path, '{'))!r}, '--pictures=9']\n"
        "try: runpy.run_module('vit.estimate', run_name='__main__')\n"
        "except SystemExit: print(os.nice(0))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=True
    )
    assert done.stdout == "10\n"
