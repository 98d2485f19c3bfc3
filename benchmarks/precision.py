"""In what arithmetic the candidates are timed; each is compared only within its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from vit.products import has_bfloat16_units


@dataclass(frozen=True)
class Precision:
    """``matmul`` is what torch.set_float32_matmul_precision is set to; ``autocast`` moves matrix
    products to bfloat16."""

    name: str
    matmul: str = "highest"
    autocast: bool = False

    @contextmanager
    def products(self) -> Iterator[None]:
        """Multiply float32 matrices in this precision for a while, backward passes included."""
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(self.matmul)
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)

    def forward(self, device: torch.device) -> torch.autocast:
        """What a forward pass runs under."""
        return torch.autocast(device.type, torch.bfloat16, enabled=self.autocast)


FLOAT32 = Precision("float32")
# It allows bfloat16 inside. A CPU without matrix tiles for that computes in float32 all the same,
# but by oneDNN instead of MKL, which on some CPUs is twice as fast.
MEDIUM = Precision('float32 set to "medium"', matmul="medium")
BFLOAT16 = Precision("bfloat16 (autocast)", autocast=True)


def available(device: torch.device) -> list[Precision]:
    """Those worth timing on a device: bfloat16 only where there are units for it."""
    return [FLOAT32, MEDIUM, *([BFLOAT16] if has_bfloat16_units(device) else [])]
