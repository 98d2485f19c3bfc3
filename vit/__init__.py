"""A Vision Transformer from scratch, and what is needed to train it and look inside."""

from vit.config import ViTConfig
from vit.hooks import record
from vit.model import VisionTransformer
from vit.runs import load_run

__all__ = ["ViTConfig", "VisionTransformer", "load_run", "record"]
