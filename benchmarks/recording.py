"""What recording everything costs: ``python -m benchmarks.recording``.

One picture goes through the model plainly and under ``record()``, taking turns, so that both meet
the same machine. The plain pass skips what nothing reads in the last block; the recorded one does
not. Aim: at most 2×.
"""

import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for python benchmarks/recording.py

import torch

from benchmarks.timing import interleaved
from vit import VisionTransformer, ViTConfig, record

ROUNDS = 300


@torch.inference_mode()
def main(rounds: int = ROUNDS) -> None:
    """Measure and print."""
    model = VisionTransformer(ViTConfig()).eval()
    picture = torch.randn(1, 3, 32, 32)

    def plain() -> None:
        model(picture)

    def recorded() -> None:
        with record():
            model(picture)

    interleaved({"plain": plain, "recorded": recorded}, rounds // 10)  # warms up
    times = interleaved({"plain": plain, "recorded": recorded}, rounds)
    plain_ms, recorded_ms = (1e3 * median(column) for column in times.values())
    print(f"plain forward     {plain_ms:7.2f} ms (median of {rounds})")
    print(f"recorded forward  {recorded_ms:7.2f} ms")
    print(f"ratio             {recorded_ms / plain_ms:7.2f}  (aim: at most 2)")


if __name__ == "__main__":
    main()
