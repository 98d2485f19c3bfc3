"""Weights in and out under timm's names, as safetensors.

Our parameters carry the names of timm's ``VisionTransformer`` (class token, learned positions, no
pre-norm, no layer scale), so moving them is reading or writing a file and checking that it fits.
"""

from pathlib import Path

from torch import Tensor

from vit.model import VisionTransformer
from vit.runs import RunError, load_weights, write_weights


def load_timm(model: VisionTransformer, file: str | Path) -> None:
    """Fill ``model`` with the weights of a safetensors file that timm or :func:`save_timm` wrote.

    Raises:
        RunError: if the file is damaged, or its tensors are not those of this model; the message
            names those that differ.
    """
    weights, _ = load_weights(Path(file))
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    problems = [f"{name} is missing" for name in wanted.keys() - found.keys()]
    problems += [f"{name} is unknown" for name in found.keys() - wanted.keys()]
    problems += [
        f"{name} is {found[name]}, not {wanted[name]}"
        for name in wanted.keys() & found.keys()
        if found[name] != wanted[name]
    ]
    if problems:
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise RunError(
            f"{file} does not fit this model: {'; '.join(sorted(problems)[:3])}{more}. "
            f"Build the model from the ViTConfig that the weights were made with."
        )
    model.load_state_dict(weights)


def save_timm(model: VisionTransformer, file: str | Path) -> None:
    """Write the model's weights so that timm's ``VisionTransformer`` loads them as they are."""
    weights: dict[str, Tensor] = model.state_dict()
    write_weights(Path(file), weights, {})
