import pytest
import torch

from vit.muon import Muon, orthogonalize


@pytest.mark.parametrize("shape", [(16, 16), (64, 16), (16, 64)])
def test_steps_equal_torchs_muon_up_to_its_bfloat16(shape):
    torch.manual_seed(0)
    start = torch.randn(shape)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    settings = dict(lr=0.02, momentum=0.95, weight_decay=0.1)
    optimizers = [Muon([ours], **settings), torch.optim.Muon([theirs], **settings)]
    for _ in range(5):
        gradient = torch.randn(shape)
        for weight, optimizer in zip((ours, theirs), optimizers, strict=True):
            weight.grad = gradient.clone()
            optimizer.step()
    moved = (theirs - start).norm()
    assert (ours - theirs).norm() / moved < 0.02  # bfloat16 keeps 8 bits
    assert moved > 0.1


def test_orthogonalize_keeps_directions_and_levels_their_strengths():
    torch.manual_seed(1)
    matrix = torch.randn(3, 32, 8)
    u, _, vh = torch.linalg.svd(matrix, full_matrices=False)
    got_u, strengths, got_vh = torch.linalg.svd(orthogonalize(matrix), full_matrices=False)
    assert strengths.min() > 0.6 and strengths.max() < 1.3
    aligned = u.mT @ orthogonalize(matrix) @ vh.mT  # diagonal if the directions are the same
    off = aligned - torch.diag_embed(aligned.diagonal(dim1=-2, dim2=-1))
    assert off.abs().max() < 1e-4
    assert got_u.shape == u.shape and got_vh.shape == vh.shape


def test_stacked_matrices_are_treated_apart():
    torch.manual_seed(2)
    parts = [torch.randn(8, 8) * scale for scale in (0.01, 1, 100)]
    gradients = [torch.randn(8, 8) for _ in parts]
    joined = torch.nn.Parameter(torch.cat(parts))
    joined.grad = torch.cat(gradients)
    Muon([{"params": [joined], "stacked": 3}], lr=0.1).step()
    for part, gradient, got in zip(parts, gradients, joined.chunk(3), strict=True):
        alone = torch.nn.Parameter(part)
        alone.grad = gradient
        Muon([alone], lr=0.1).step()
        torch.testing.assert_close(got, alone)
