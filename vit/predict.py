"""What a model makes of pictures: ``python -m vit.predict IMAGE…``.

Each picture is cut to its largest centred square, as the app does by default. One that cannot be
opened is named on stderr and the others are still printed; the exit code then is 2.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from vit.images import MAX_BYTES, PictureError, frame_picture, open_picture, to_model_input
from vit.runs import Run, RunError, load_run

DEFAULT_RUN = Path(__file__).resolve().parent.parent / "checkpoints" / "cifar10"


@torch.inference_mode()
def predict(run: Run, data: bytes) -> dict[str, float]:
    """Probability of each class for a picture file's bytes, the most likely class first.

    Raises:
        PictureError: if the bytes are no picture that can be opened.
    """
    config = run.model_config
    square = frame_picture(open_picture(data), "crop", max(512, config.image_size))
    x = to_model_input(square, config.image_size, config.in_chans, run.mean, run.std)
    probabilities = run.model(torch.from_numpy(x)[None])[0].softmax(0).tolist()
    pairs = zip(run.class_names, probabilities, strict=True)
    return dict(sorted(pairs, key=lambda pair: -pair[1]))


def read_picture(path: Path) -> bytes:
    """A file's bytes, no more than are needed to see that there are too many."""
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        "python -m vit.predict", description="Say what pictures show, by a trained model."
    )
    parser.add_argument("images", metavar="IMAGE", nargs="+", type=Path)
    parser.add_argument(
        "--run", metavar="RUN_DIR", type=Path, default=DEFAULT_RUN, help="default: %(default)s"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    given = parser.parse_args(arguments)
    try:
        run = load_run(given.run)
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    answers = []
    for path in given.images:
        try:
            answers.append({"image": str(path), "probabilities": predict(run, read_picture(path))})
        except PictureError as error:
            print(f"error: {path}: {error}", file=sys.stderr)
        except OSError as error:
            print(f"error: {path} cannot be read: {error.strerror}.", file=sys.stderr)
    if given.json:
        print(json.dumps(answers))
    else:
        print("\n\n".join(map(_table, answers)))
    return 0 if len(answers) == len(given.images) else 2


def _table(answer: dict[str, Any]) -> str:
    lines = [f"{100 * p:6.2f} %  {name}" for name, p in answer["probabilities"].items()]
    return "\n".join([answer["image"], *lines])


if __name__ == "__main__":
    sys.exit(main())
