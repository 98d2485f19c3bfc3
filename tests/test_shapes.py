"""The table of shapes against the model, PyTorch's own counter and the source on disk."""

from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from vit import VisionTransformer, ViTConfig, record
from vit.analysis.shapes import HAPPENED, LEGEND, PUBLISHED, trace_config, trace_shapes
from vit.hooks import HookPoint
from vit.model import count_parameters
from vit.recipes import system_b, system_c

ROOT = Path(__file__).resolve().parents[1]
SMALL = ViTConfig(12, 3, 2, 7, embed_dim=24, depth=2, num_heads=3, mlp_ratio=2.5)
CONFIGS = [
    SMALL,
    ViTConfig(depth=1),
    system_b().model,
    ViTConfig(8, 2, 1, 2, embed_dim=16, depth=3, num_heads=4, qkv_bias=False),
    ViTConfig(16, 1, 3, 5, embed_dim=8, depth=2, num_heads=1),
    ViTConfig(16, 16, 3, 5, embed_dim=8, depth=2, num_heads=8),
]


def build(config):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return VisionTransformer(config).eval().requires_grad_(False)


def pictures(config, batch=1):
    return torch.zeros(batch, config.in_chans, config.image_size, config.image_size)


def test_the_walk_of_system_c():
    trace = trace_config(system_c().model, batch=5)
    seen = [(step.label, step.symbols, step.shape) for step in trace.before + trace.after]
    assert seen == [
        ("images", ("B", "C", "S", "S"), (5, 3, 32, 32)),
        ("patch_embed.patches", ("B", "n", "C", "P", "P"), (5, 64, 3, 4, 4)),
        ("patch_embed.flattened", ("B", "n", "C·P·P"), (5, 64, 48)),
        ("patch_embed.projected", ("B", "n", "D"), (5, 64, 128)),
        ("cls_prepended", ("B", "N", "D"), (5, 65, 128)),
        ("pos_added", ("B", "N", "D"), (5, 65, 128)),
        ("normalized", ("B", "N", "D"), (5, 65, 128)),
        ("cls_out", ("B", "D"), (5, 128)),
        ("logits", ("B", "K"), (5, 10)),
    ]
    # The published sums of system C: patch embedding, each block, final norm and head.
    assert sum(step.parameters for step in trace.before) == 14_720
    assert [sum(s.parameters for s in trace.block(i)) for i in range(6)] == 6 * [198_272]
    assert sum(step.parameters for step in trace.after) == 1_546
    assert {step.block for step in trace.steps} == {None, *range(6)}


@pytest.mark.parametrize("config", CONFIGS)
def test_every_shape_is_that_of_a_pass_that_really_ran(config):
    model = build(config)
    with record() as recorded:
        model(pictures(config, 2))
    traced = {name: s.shape for s in trace_config(config, 2).steps[1:] for name in s.names}
    norms = {f"blocks.{i}.{norm}" for i in range(config.depth) for norm in ("norm1", "norm2")}
    assert traced.keys() - norms == recorded.keys()
    assert {name: traced[name] for name in recorded} == {
        name: tuple(value.shape) for name, value in recorded.items()
    }


@pytest.mark.parametrize("config", CONFIGS)
def test_multiply_adds_are_half_of_pytorchs_floating_point_operations(config):
    model, images = build(config), pictures(config, 3)
    trace = trace_shapes(model, images)
    with FlopCounterMode(display=False) as plain:
        model(images)
    with FlopCounterMode(display=False) as recorded, record():
        model(images)
    assert trace.multiply_adds * 2 == recorded.get_total_flops()
    assert trace.multiply_adds_unrecorded * 2 == plain.get_total_flops()
    assert trace.skipped > 0


@pytest.mark.parametrize("config", CONFIGS)
def test_parameters_add_up_to_the_models(config):
    assert trace_config(config).parameters == count_parameters(build(config))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("ViT-Ti/16", 5_717_416), ("ViT-S/16", 22_050_664), ("ViT-B/16", 86_567_656)],
)
def test_published_sizes(name, parameters):
    assert trace_config(PUBLISHED[name]).parameters == parameters


def test_a_model_that_exists_and_one_that_does_not_trace_alike():
    live = trace_shapes(build(SMALL), pictures(SMALL))
    assert live == trace_config(SMALL)
    assert live.for_batch(9) == trace_config(SMALL, 9)


def test_one_token_per_pixel_costs_nothing_to_ask():
    trace = trace_config(ViTConfig(224, 1, 3, 1000, embed_dim=192, depth=2, num_heads=3))
    scores = next(step for step in trace.block(1) if step.label == "attn.attn_scores")
    assert scores.shape == (1, 3, 50_177, 50_177)
    assert scores.multiply_adds == 192 * 50_177**2


def test_the_shape_turns_three_times():
    turns = trace_config(ViTConfig()).turns
    assert [(t.step.label, t.what, t.before, t.after) for t in turns] == [
        ("patch_embed.projected", "numbers per token", 48, 128),
        ("cls_prepended", "tokens", 64, 65),
        ("cls_out", "tokens", 65, 1),
    ]
    # 48 numbers in, 48 out: still the step where they are mixed.
    square = trace_config(ViTConfig(embed_dim=48)).turns
    assert [(t.before, t.after) for t in square] == [(48, 48), (64, 65), (65, 1)]


def test_each_line_stands_in_the_file_and_does_what_the_step_says():
    trace = trace_config(ViTConfig())
    for step in trace.steps:
        lines = (ROOT / step.line.file).read_text("utf-8").splitlines()
        on_disk = " ".join(lines[step.line.number - 1].split("  #")[0].split())
        assert step.line.text.startswith(on_disk)
    where = {step.label: step.line.text for step in trace.steps}
    for label, code in {
        "patch_embed.patches": "cut_patches(images, self.patch_size)",
        "patch_embed.projected": "F.linear(flattened, self.proj.weight.flatten(1), self.proj.bias)",
        "cls_prepended": "torch.cat([cls, patches], dim=1)",
        "pos_added": "x + self.pos_embed",
        "norm1": "self.norm1(x)",
        "attn.q, attn.k, attn.v": "self.qkv(x)",
        "attn.attn_scores": "q * self.scale @ k.mT",
        "attn.pattern": "scores.softmax(dim=-1)",
        "attn.z": "pattern @ v",
        "attn_out": "self.proj(",
        "mlp.hidden": "F.gelu(self.fc1(x))",
        "mlp_out": "self.fc2(",
        "resid_post": "x + self.mlp_out(",
        "cls_out": "[:, 0]",
        "logits": "self.head(cls_out)",
    }.items():
        assert code in where[label], label


def test_every_step_is_explained_and_every_hook_is_a_step():
    trace = trace_config(ViTConfig(depth=2))
    assert {step.label for step in trace.steps} == HAPPENED.keys()
    with torch.device("meta"):
        modules = VisionTransformer(ViTConfig(depth=2)).named_modules()
    hooks = {name for name, module in modules if isinstance(module, HookPoint)}
    assert hooks <= {name for step in trace.steps for name in step.names}
    letters = {letter for step in trace.steps for s in step.symbols for letter in s.split("·")}
    assert letters == LEGEND.keys()
