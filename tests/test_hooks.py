from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from vit import VisionTransformer, ViTConfig, record

CONFIG = ViTConfig(image_size=8, patch_size=2, embed_dim=16, depth=3, num_heads=2)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(1)
    return VisionTransformer(CONFIG).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def images():
    return torch.randn(2, 3, 8, 8)


def test_recording_changes_no_logit_and_shows_all_attention(model, images):
    plain = model(images)
    with record() as trace:
        recorded = model(images)
    torch.testing.assert_close(recorded, plain, rtol=1e-6, atol=1e-6)
    assert torch.equal(trace["logits"], recorded)
    for layer in range(CONFIG.depth):
        pattern = trace[f"blocks.{layer}.attn.pattern"]
        assert pattern.shape == (2, 2, 17, 17)
        torch.testing.assert_close(pattern.sum(-1), torch.ones(2, 2, 17))


def test_the_residual_stream_adds_up(model, images):
    with record() as trace:
        model(images)
    for layer in range(CONFIG.depth):
        pre, mid, post, attn_out, mlp_out = (
            trace[f"blocks.{layer}.{name}"]
            for name in ("resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out")
        )
        assert torch.equal(mid, pre + attn_out)
        assert torch.equal(post, mid + mlp_out)
        q, k, scores = (trace[f"blocks.{layer}.attn.{name}"] for name in ("q", "k", "attn_scores"))
        torch.testing.assert_close(scores, q @ k.mT / 8**0.5)


def test_recording_adds_no_parameters_and_leaves_nothing_behind(model, images):
    before = list(model.state_dict())
    with record():
        model(images)
    assert list(model.state_dict()) == before
    assert not any("pattern" in name or "resid" in name for name in before)
    with record() as first:
        model(images)
    kept = first["cls_out"]
    model(images + 1)
    assert first["cls_out"] is kept


def test_an_edit_goes_on_and_is_what_the_trace_holds(model, images):
    def only_self(pattern):
        return torch.eye(pattern.shape[-1]).expand_as(pattern)

    with record(edits={"blocks.1.attn.pattern": only_self}) as trace:
        edited = model(images)
    assert torch.equal(trace["blocks.1.attn.pattern"][0, 0], torch.eye(17))
    torch.testing.assert_close(trace["blocks.1.attn.z"], trace["blocks.1.attn.v"])
    assert not torch.allclose(edited, model(images))


def test_silencing_the_last_heads_is_the_same_as_zeroing_their_projection(model, images):
    with record(edits={"blocks.2.attn.z": torch.zeros_like}) as trace:
        model(images)
    bias = model.blocks[2].attn.proj.bias
    torch.testing.assert_close(trace["blocks.2.attn_out"], bias.expand(2, 17, 16))


def test_mistakes_are_named(model, images):
    with pytest.raises(RuntimeError, match="run the model inside"), record():
        pass
    with pytest.raises(KeyError, match="blocks.9"), record(edits={"blocks.9.attn.z": lambda z: z}):
        model(images)
    with pytest.raises(ValueError, match="must keep"), record(edits={"pos_added": lambda x: x[:1]}):
        model(images)
    with record() as trace:
        model(images)
    with pytest.raises(KeyError, match="Recorded: patch_embed.patches"):
        trace["pattern"]


def test_an_error_inside_leaves_no_recorder_open(model, images):
    with pytest.raises(ZeroDivisionError), record():
        raise ZeroDivisionError
    with record() as trace:
        model(images)
    assert len(trace) > 10


def test_many_threads_share_one_model_and_never_each_others_tensors(model):
    inputs = [torch.randn(1, 3, 8, 8) for _ in range(40)]

    def recorded(x):
        with record() as trace:
            model(x)
        return trace

    def edited(x):
        with record(edits={"blocks.0.attn.pattern": lambda p: p * 0}) as trace:
            model(x)
        return trace

    jobs = [(recorded if i % 2 else edited, x) for i, x in enumerate(inputs)]
    alone = [job(x) for job, x in jobs]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda pair: pair[0](pair[1]), jobs * 5))
    for index, trace in enumerate(together):
        for name, value in alone[index % 40].items():
            assert torch.equal(trace[name], value), name
