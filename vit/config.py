"""The numbers that decide a Vision Transformer's shape, and nothing else."""

from dataclasses import asdict, dataclass
from typing import Any


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _listed(values: list[int]) -> str:
    return ", ".join(map(str, values))


@dataclass(frozen=True)
class ViTConfig:
    """Everything needed to build a :class:`~vit.model.VisionTransformer` of the same shape again.

    The defaults are the 1,205,898-parameter model for CIFAR-10 (32 × 32 pictures, 4 × 4 patches).
    Names follow timm; sizes are in pixels, channels or features.

    Raises:
        ValueError: when the numbers do not fit together; the message names values that would.
    """

    image_size: int = 32
    patch_size: int = 4
    in_chans: int = 3
    num_classes: int = 10
    embed_dim: int = 128
    depth: int = 6
    num_heads: int = 4
    mlp_ratio: float = 4.0
    qkv_bias: bool = True
    norm_eps: float = 1e-6

    def __post_init__(self) -> None:
        for name in (
            "image_size",
            "patch_size",
            "in_chans",
            "num_classes",
            "embed_dim",
            "depth",
            "num_heads",
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}.")
        if not isinstance(self.qkv_bias, bool):
            raise ValueError(f"qkv_bias must be true or false, not {self.qkv_bias!r}.")
        for name in ("mlp_ratio", "norm_eps"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
                raise ValueError(f"{name} must be a number above 0, not {value!r}.")
        if self.image_size % self.patch_size:
            raise ValueError(
                f"patch_size {self.patch_size} does not divide image_size {self.image_size}: "
                f"patches would be cut off at the edge. Patch sizes that fit: "
                f"{_listed(_divisors(self.image_size))}."
            )
        if self.embed_dim % self.num_heads:
            raise ValueError(
                f"num_heads {self.num_heads} does not divide embed_dim {self.embed_dim}: "
                f"every head needs the same width. Head counts that fit: "
                f"{_listed(_divisors(self.embed_dim))}."
            )
        if self.mlp_dim < 1:
            raise ValueError(
                f"mlp_ratio {self.mlp_ratio} leaves the MLP no hidden feature at embed_dim "
                f"{self.embed_dim}. Use at least {1 / self.embed_dim:.4g}."
            )

    @property
    def grid_size(self) -> int:
        """Patches along one side of the picture."""
        return self.image_size // self.patch_size

    @property
    def num_patches(self) -> int:
        return self.grid_size**2

    @property
    def num_tokens(self) -> int:
        """Patches and [CLS]."""
        return self.num_patches + 1

    @property
    def patch_dim(self) -> int:
        """Numbers in one flattened patch: channels × patch_size²."""
        return self.in_chans * self.patch_size**2

    @property
    def head_dim(self) -> int:
        return self.embed_dim // self.num_heads

    @property
    def mlp_dim(self) -> int:
        """Hidden features of the MLP; truncated to a whole number as in timm."""
        return int(self.embed_dim * self.mlp_ratio)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "ViTConfig":
        """The reverse of :meth:`to_dict`.

        Raises:
            ValueError: for a setting of an unknown name, or one that does not fit.
        """
        unknown = set(values) - set(cls.__dataclass_fields__)
        if unknown:
            raise ValueError(
                f"Unknown model settings: {', '.join(sorted(map(str, unknown)))}. "
                f"Known are: {', '.join(cls.__dataclass_fields__)}."
            )
        return cls(**values)
