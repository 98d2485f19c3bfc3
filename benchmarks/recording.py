"""What recording everything costs: ``python -m benchmarks.recording``.

One picture goes through the model plainly and under ``record()``, taking turns, so that both meet
the same machine. The plain pass skips what nothing reads in the last block; the recorded one does
not. Aim: at most 2×.
"""

import time
from collections.abc import Callable
from statistics import median

import torch

from vit import VisionTransformer, ViTConfig, record

ROUNDS = 300


def seconds(run: Callable[[], object]) -> float:
    """How long a call takes."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


@torch.inference_mode()
def main() -> None:
    """Measure and print."""
    model = VisionTransformer(ViTConfig()).eval()
    picture = torch.randn(1, 3, 32, 32)

    def plain() -> None:
        model(picture)

    def recorded() -> None:
        with record():
            model(picture)

    for _ in range(30):
        plain(), recorded()
    times = [(seconds(plain), seconds(recorded)) for _ in range(ROUNDS)]
    plain_ms, recorded_ms = (1e3 * median(column) for column in zip(*times, strict=True))
    print(f"plain forward     {plain_ms:7.2f} ms (median of {ROUNDS})")
    print(f"recorded forward  {recorded_ms:7.2f} ms")
    print(f"ratio             {recorded_ms / plain_ms:7.2f}  (aim: at most 2)")


if __name__ == "__main__":
    main()
