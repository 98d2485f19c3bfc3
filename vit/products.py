"""Which arithmetic a device multiplies matrices in fastest."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def has_bfloat16_units(device: torch.device) -> bool:
    """Whether a device multiplies matrices in bfloat16 faster than in float32. A CPU without
    units for it is many times slower."""
    if device.type != "cpu":
        return device.type == "cuda"
    able = torch.cpu.get_capabilities()
    return any(able.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))


@contextmanager
def fast_products(device: torch.device) -> Iterator[None]:
    """Multiply float32 matrices on a CPU by oneDNN instead of MKL, which on some CPUs takes twice
    as long for the same precision.

    PyTorch has no setting for that alone: it chooses oneDNN where products may round their inputs
    to bfloat16. x86 processors without matrix tiles (AMX) do not round; all others are left alone.
    The setting holds for the whole process, for as long as this is open.
    """
    before, able = torch.get_float32_matmul_precision(), torch.cpu.get_capabilities()
    if device.type == "cpu" and able["architecture"] == "x86_64" and not able["amx_bf16"]:
        torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
