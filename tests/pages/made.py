"""Pages opened without a browser, and what the package makes of the same picture on its own."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from streamlit.testing.v1 import AppTest
from torch import Tensor

from vit import VisionTransformer, ViTConfig, images, load_run, record, runs
from vit.hooks import Trace
from vit.runs import Run

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "samples" / "cat-photo.jpg"  # the one that a fresh visitor meets

ODD = {
    "shallow": ViTConfig(6, 3, 1, 2, 8, 1, 2),
    "many": ViTConfig(12, 3, 3, 100, 12, 2, 3, qkv_bias=False),
}
HOSTILE = "<b>$x$ [a](b)</b> `*"  # a class name that is Markdown, TeX and HTML at once


@dataclass(frozen=True)
class Own:
    """The package's own walk of the sample picture through a run."""

    run: Run
    x: Tensor
    trace: Trace
    logits: Tensor


def make_runs(folder: Path) -> None:
    """Untrained runs of unusual shape; their first class has a hostile name."""
    for seed, (name, config) in enumerate(ODD.items()):
        torch.manual_seed(seed)
        model = VisionTransformer(config)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        settings: dict[str, Any] = {
            "format": 1,
            "recipe": {"name": name, "summary": "", "dataset": "folder"},
            "model": config.to_dict(),
            "class_names": [HOSTILE, *(f"class {i}" for i in range(1, config.num_classes))],
            "mean": [0.5] * config.in_chans,
            "std": [0.25] * config.in_chans,
            "seed": seed,
        }
        runs.write_json(folder / name / runs.CONFIG, settings)
        runs.write_weights(folder / name / runs.MODEL, model.state_dict(), {"epoch": "0"})


def own_walk(path: Path, epoch: int | None = None) -> Own:
    """Read, frame, resize and run the sample picture, by the package alone."""
    run = load_run(path, epoch)
    config = run.model_config
    square = images.frame_picture(images.open_picture(PICTURE.read_bytes()), "crop")
    values = images.to_model_input(square, config.image_size, config.in_chans, run.mean, run.std)
    x = torch.from_numpy(values)[None]
    with torch.inference_mode(), record() as trace:
        logits = run.model(x)[0]
    return Own(run, x, trace, logits)


def open_page(file: str, **query: str) -> AppTest:
    """The page ``file`` opened by its own link."""
    app = AppTest.from_file(ROOT / "app.py", default_timeout=60)
    for name, value in query.items():
        app.query_params[name] = value
    app.switch_page(str(ROOT / "pages" / file))
    app.run()
    assert not app.exception and not app.error, [e.value for e in (*app.exception, *app.error)]
    return app


def words(app: AppTest) -> str:
    """All the text of a page's Markdown and captions, one a paragraph."""
    return "\n\n".join(element.value for element in (*app.markdown, *app.caption))


def html(app: AppTest) -> str:
    return "\n\n".join(element.proto.body for element in app.get("html"))


def figures(app: AppTest) -> list[dict[str, Any]]:
    """The Plotly figures of a page, in order."""
    return [json.loads(element.proto.spec) for element in app.get("plotly_chart")]


def array(values: Any) -> np.ndarray:
    """An array as Plotly sends it: a list, or its bytes in base64."""
    if not isinstance(values, dict):
        return np.array(values)
    flat = np.frombuffer(base64.b64decode(values["bdata"]), values["dtype"])
    return flat.reshape([int(n) for n in str(values.get("shape", len(flat))).split(",")])
