"""The arithmetic chosen is the one meant, and as exact as it says."""

import torch
import torch.nn.functional as F

from vit.products import fast_products


def test_fast_products_lose_nothing_and_leave_the_setting_as_it_was() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(2, 700, 256)
    exact = a.double() @ b.double().mT
    before = torch.get_float32_matmul_precision()
    with fast_products(torch.device("cpu")):
        fast = F.linear(a, b)
    assert torch.get_float32_matmul_precision() == before
    # bfloat16 would be off by about 0.1 here.
    torch.testing.assert_close(fast.double(), exact, atol=1e-4, rtol=0)
