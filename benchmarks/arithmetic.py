"""How much a training step has to compute, and how fast this machine can compute it."""

from statistics import median

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.precision import Precision
from benchmarks.tables import Table
from benchmarks.timing import seconds
from vit import VisionTransformer, ViTConfig

ALLOWED = 1e-5  # relative error of a product in float32; bfloat16's is near 3e-3


def counted_step(config: ViTConfig, batch: int) -> int:
    """Floating-point operations of the matrix products in one training step, counted as they run:
    forward and backward, a multiplication and an addition each counting as one."""
    with torch.device("meta"):  # shapes alone, nothing is computed
        model = VisionTransformer(config)
        images = torch.empty(batch, config.in_chans, config.image_size, config.image_size)
        labels = torch.empty(batch, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        F.cross_entropy(model(images), labels).backward()
    return counter.get_total_flops()


def step_by_formula(config: ViTConfig, batch: int) -> int:
    """The same number on paper.

    A product of (a, b) and (b, c) takes 2·a·b·c operations, and its backward pass two products as
    large, one for each factor. Only the patches are no one's output, so theirs needs one.
    """
    tokens, width, hidden = config.num_tokens, config.embed_dim, config.mlp_dim

    def block(queries: int) -> int:
        """Multiplications for ``queries`` tokens, which attend to all."""
        projections = queries * width * width + tokens * width * 2 * width  # q; k and v
        attention = 2 * queries * tokens * width  # scores, and the mixture of values
        return projections + attention + queries * (width * width + 2 * width * hidden)

    patches = config.num_patches * config.patch_dim * width
    blocks = (config.depth - 1) * block(tokens) + block(1)  # the last one serves [CLS] alone
    head = width * config.num_classes
    return 2 * batch * (2 * patches + 3 * (blocks + head))


def products(config: ViTConfig, batch: int, square: int) -> dict[str, tuple[int, int, int]]:
    """The matrix products to measure, as (rows, inner, columns): a square one, and the forward
    pass's own."""
    tokens, width, hidden = batch * config.num_tokens, config.embed_dim, config.mlp_dim
    return {
        f"{square} × {square} × {square}": (square, square, square),
        "attn.qkv": (tokens, width, 3 * width),
        "attn.proj": (tokens, width, width),
        "mlp.fc1": (tokens, width, hidden),
        "mlp.fc2": (tokens, hidden, width),
    }


def peak(
    config: ViTConfig,
    batch: int,
    rounds: int,
    precisions: list[Precision],
    device: torch.device,
    square: int = 2048,
) -> tuple[Table, dict[Precision, float]]:
    """Measure matrix products.

    Returns:
        the table, and for each precision the fastest product, in operations per second, of all
        settings with the same accuracy: float32's or bfloat16's, as the results show.
    """
    shapes = products(config, batch, square)
    speeds: dict[Precision, list[float]] = {}
    errors: dict[Precision, float] = {}
    for precision in precisions:
        dtype = torch.bfloat16 if precision.autocast else torch.float32
        with precision.products():
            errors[precision] = relative_error(dtype, device)
            speeds[precision] = [speed(*shape, dtype, rounds, device) for shape in shapes.values()]
    table = Table(
        "Matrix products on this machine",
        {"product": "{}", **{precision.name: "{:.1f} GFLOP/s" for precision in precisions}},
        [
            (name, *(column[row] / 1e9 for column in speeds.values()))
            for row, name in enumerate(shapes)
        ],
        [
            "Relative error of a product: "
            + ", ".join(f"{precision.name} {error:.0e}" for precision, error in errors.items())
            + "."
        ],
    )
    fastest = {
        precision: max(
            max(column)
            for other, column in speeds.items()
            if (errors[other] < ALLOWED) == (errors[precision] < ALLOWED)
        )
        for precision in precisions
    }
    return table, fastest


def speed(
    rows: int, inner: int, columns: int, dtype: torch.dtype, rounds: int, device: torch.device
) -> float:
    """Operations per second of a (rows, inner) matrix times the transpose of a (columns, inner)
    one, which is how a linear layer multiplies."""
    a = torch.randn(rows, inner, device=device, dtype=dtype)
    b = torch.randn(columns, inner, device=device, dtype=dtype)

    def multiply() -> None:
        a @ b.mT

    multiply()
    return 2 * rows * inner * columns / median(seconds(multiply, device) for _ in range(rounds))


def relative_error(dtype: torch.dtype, device: torch.device) -> float:
    """‖product − exact‖ ÷ ‖exact‖ for random matrices of a type; ‖·‖ is the Frobenius norm."""
    a, b = (torch.randn(512, 512, dtype=dtype, device=device) for _ in range(2))
    exact = a.cpu().double() @ b.cpu().double()
    return float(((a @ b).cpu().double() - exact).norm() / exact.norm())
