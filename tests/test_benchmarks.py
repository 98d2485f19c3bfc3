"""The benchmarks compare like with like, and end as they should."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import (
    arithmetic,
    inference,
    memory,
    peers,
    pipeline,
    recording,
    tables,
    time_to_accuracy,
    timing,
    training,
)
from tests.app_server import ROOT
from tests.small_data import write_parquet
from vit import VisionTransformer, ViTConfig, augment, runs

CPU = torch.device("cpu")
SMALL = ViTConfig(image_size=8, patch_size=4, embed_dim=16, depth=2, num_heads=2)


def test_the_peers_are_the_same_function() -> None:
    """Weights of the size of trained ones, so that a wrong one would show."""
    torch.manual_seed(1)
    ours = VisionTransformer(SMALL)
    for parameter in ours.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    models = {
        "ours": ours,
        "timm": peers.timm_twin(ours),
        "unfused": peers.timm_twin(ours, fused=False),
        "torchvision": peers.torchvision_twin(ours),
    }
    images, labels = torch.randn(6, 3, 8, 8), torch.randint(10, (6,))
    gaps = peers.differences(models, images, labels)
    assert gaps.keys() == {"timm", "unfused", "torchvision"}
    assert 0 < max(gaps.values()) < peers.SAME
    assert max(peers.logit_differences(models, images).values()) < peers.SAME
    assert [m.blocks[0].attn.fused_attn for m in (models["timm"], models["unfused"])] == [
        True,
        False,
    ]


@pytest.mark.parametrize("name", ["blocks.1.mlp.fc2.bias", "blocks.0.attn.qkv.weight", "pos_embed"])
def test_a_peer_that_differs_in_one_number_is_found(name: str) -> None:
    torch.manual_seed(2)
    ours = VisionTransformer(SMALL)
    twin = peers.timm_twin(ours)
    with torch.no_grad():
        twin.get_parameter(name).flatten()[3] += 0.05
    images, labels = torch.randn(6, 3, 8, 8), torch.randint(10, (6,))
    assert peers.differences({"ours": ours, "twin": twin}, images, labels)["twin"] > peers.SAME
    assert peers.logit_differences({"ours": ours, "twin": twin}, images)["twin"] > peers.SAME


def test_every_parameter_has_a_counterpart_in_torchvision() -> None:
    ours = VisionTransformer(ViTConfig())
    theirs = peers.torchvision_twin(ours)
    assert {peers.our_name(name): tuple(p.shape) for name, p in theirs.named_parameters()} == {
        name: tuple(p.shape) for name, p in ours.named_parameters()
    }
    relative = peers.vit_pytorch_relative(ViTConfig())
    without = 6 * 3 * 128  # q, k and v have no bias …
    more = 2 * 48 + 2 * 128  # … but there are two more norms
    assert sum(p.numel() for p in relative.parameters()) == 1_205_898 - without + more


def test_candidates_take_turns_and_the_first_turn_rotates() -> None:
    calls: list[str] = []
    candidates = {name: lambda name=name: calls.append(name) for name in "abc"}
    times = timing.interleaved(candidates, rounds=4)
    assert "".join(calls) == "abc" + "abc" + "bca" + "cab" + "abc"  # once untimed, then in turns
    assert {name: len(measured) for name, measured in times.items()} == {"a": 4, "b": 4, "c": 4}


def test_ratios_are_of_the_same_round() -> None:
    base = [1.0, 10.0, 1.0, 1.0]  # the machine was busy in the second round
    assert timing.paired_ratio([2.0, 20.0, 2.0, 2.2], base) == 2.0


@pytest.mark.parametrize(
    "config", [ViTConfig(), SMALL, ViTConfig(16, 2, 1, 7, 24, 3, 3, 2.0, qkv_bias=False)], ids=str
)
def test_counted_arithmetic_equals_the_formula(config: ViTConfig) -> None:
    assert arithmetic.counted_step(config, 5) == arithmetic.step_by_formula(config, 5)


def test_the_formula_of_one_product() -> None:
    """No block to speak of: patches (one product back), and a head (two back)."""
    config = ViTConfig(embed_dim=4, depth=1, num_heads=1, mlp_ratio=0.25)
    one_block = 2 * 3 * (4 * 4 + 65 * 4 * 8 + 2 * 65 * 4 + 4 * 4 + 2 * 4 * 1)
    assert arithmetic.step_by_formula(config, 1) == one_block + 2 * (2 * 64 * 48 * 4 + 3 * 4 * 10)


def test_precision_is_told_by_the_result() -> None:
    assert arithmetic.relative_error(torch.float32, CPU) < arithmetic.ALLOWED
    assert arithmetic.relative_error(torch.bfloat16, CPU) > 100 * arithmetic.ALLOWED


def test_both_pipelines_cut_and_mirror_alike_and_every_way_equally_often() -> None:
    """Every pixel has a number of its own, so a crop tells how it was drawn: 81 places × 2 sides.
    Chi-squared with 161 degrees of freedom passes 230 once in 3,000 tries; the seed is fixed."""
    size, count = 5, 16_200
    marks = torch.arange(1, 1 + size * size, dtype=torch.uint8).reshape(1, 1, size, size)
    pictures = marks.expand(count, 3, size, size)

    torch.manual_seed(5)
    data = pipeline.Pictures(pictures.permute(0, 2, 3, 1).numpy(), size)
    theirs = torch.stack([data[index][0] for index in range(count)])
    drawn = augment.draw(
        torch.arange(count), 1, pipeline.PADDING, "random", torch.Generator().manual_seed(5), 0
    )
    cut = augment.crop_and_flip(pictures, drawn, pipeline.PADDING, "constant")
    ours = augment.normalize(cut, pipeline.MEAN, pipeline.STD)

    mean, std = torch.tensor(pipeline.MEAN), torch.tensor(pipeline.STD)
    back = (torch.cat([ours, theirs]) * std[:, None, None] + mean[:, None, None]) * 255
    kinds, index = back.round().flatten(1).unique(dim=0, return_inverse=True)
    assert len(kinds) == 162  # the same ones in both
    for part in index.split(count):
        counts = part.bincount(minlength=162)
        assert ((counts - 100) ** 2 / 100).sum() < 230


def test_both_pipelines_see_every_picture_once() -> None:
    images = torch.randint(256, (50, 3, 32, 32), dtype=torch.uint8)
    data = pipeline.Pictures(images.permute(0, 2, 3, 1).numpy(), 32)
    loader = torch.utils.data.DataLoader(data, 8)
    assert pipeline.ours_epoch(images, 8, torch.Generator()) == 50
    assert pipeline.torchvision_epoch(loader, CPU) == 50


def test_epochs_count_only_if_the_target_was_reached(tmp_path: Path) -> None:
    assert "is not there" in str(time_to_accuracy.epochs_needed(tmp_path))
    rows = [{"epoch": epoch, "test_accuracy": None} for epoch in range(1, 5)]
    runs.write_metrics(tmp_path, [*rows, {"epoch": 5, "test_accuracy": 0.8124}])
    assert "81.24 %" in str(time_to_accuracy.epochs_needed(tmp_path))
    runs.write_metrics(tmp_path, [*rows, {"epoch": 5, "test_accuracy": 0.8125}])
    assert time_to_accuracy.epochs_needed(tmp_path) == 5


def test_a_table_aligns_its_columns_and_keeps_its_numbers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    columns = {"model": "{}", "a step": "{:.1f} ms"}
    table = tables.Table("Steps", columns, [("ours", 9.75), ("timm", None)], ["A note."])
    assert str(table).splitlines() == [
        "Steps",
        "  model  a step",
        "  ours   9.8 ms",
        "  timm        –",
        "  A note.",
    ]
    tables.show([table], as_json=True)
    rows = [{"model": "ours", "a step": 9.75}, {"model": "timm", "a step": None}]
    assert json.loads(capsys.readouterr().out) == {"Steps": {"rows": rows, "notes": ["A note."]}}


def test_training_runs_as_a_script_and_prints_its_tables(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, ROOT / "benchmarks/training.py", "--quick", f"--runs={tmp_path}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    parts = ended.stdout.strip().split("\n\n")
    named = {part.split()[0] for part in parts}
    assert named >= {"torch", "Loss", "One", "Matrix", "Arithmetic", "Data", "Time"}
    step = next(part for part in parts if "step of 8 pictures in float32," in part)
    assert [line.split()[0] for line in step.splitlines()[2:]] == [
        "ours",
        "timm",
        "timm,",
        "torchvision",
        "vit-pytorch",
        "ours,",
    ]
    assert "1,205,898" in step
    assert "sixty_five/metrics.jsonl is not there" in parts[-1]


def test_inference_compares_logits_and_starts_the_evaluation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_parquet(tmp_path, "test", 50)
    assert inference.main(["--quick", "--json", f"--data-dir={tmp_path}"]) == 0
    found = json.loads(capsys.readouterr().out)
    logits = found["Logits against ours (allowed: 1e-05)"]["rows"]
    assert {row["model"] for row in logits} == {"timm", "timm, attention not fused", "torchvision"}
    assert all(row["largest difference"] < 1e-5 for row in logits)
    recorded = found["Attention in a recorded pass"]["rows"]
    assert [row["found"] for row in recorded] == ["(50, 4, 65, 65)"] * 6
    (in_float32,) = (
        part for title, part in found.items() if "pictures of CIFAR-10 in float32," in title
    )
    (ours,) = (row for row in in_float32["rows"] if row["model"] == "ours")
    assert [ours[f"in {batch}s, ÷ ours"] for batch in inference.BATCHES] == [1.0, 1.0]
    assert ours["÷ vit.evaluate"] > 0
    (command,) = next(part for title, part in found.items() if "vit.evaluate" in title)["rows"]
    assert command["pictures"] == 50
    assert command["whole command"] > command["its own passes"]


@pytest.mark.parametrize("program", [training, inference])
def test_a_peer_that_computes_something_else_ends_the_program(
    program, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    honest = peers.timm_twin

    def other(model: VisionTransformer, fused: bool = True) -> torch.nn.Module:
        twin = honest(model, fused)
        with torch.no_grad():
            twin.blocks[3].norm1.bias += 0.1
        return twin

    monkeypatch.setattr(peers, "timm_twin", other)
    assert program.main(["--quick"]) == 1
    out, err = capsys.readouterr()
    assert err == "error: a peer does not compute what ours does; nothing was timed.\n"
    assert "largest difference" in out
    assert "÷ ours" not in out


def test_recording_prints_its_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    recording.main(rounds=10)
    assert capsys.readouterr().out.splitlines()[-1].startswith("ratio")


def test_the_peak_of_memory_is_seen_although_it_is_given_back() -> None:
    program = (
        "import time\n"
        "number = 200_000_000\n"
        "large = b'x' * number\n"
        "time.sleep(0.3)\n"
        "del large\n"
        "print('small again', flush=True)\n"
        "input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        with memory.watched(process.pid) as peak:
            process.stdout.readline()
            held = peak.look(memory.psutil.Process(process.pid))
        process.communicate("\n")
    assert held < 100
    assert 200 < peak.megabytes < 300
