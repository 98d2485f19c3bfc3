"""What the board sends to the browser: maps rounded to bytes, within a budget.

Plain numpy; board.js reads it back. A *map* is N × N, one per layer and head; a *line* is one row
of whatever block of numbers is sent.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Scale = Literal["sequential", "diverging"]
Bits = Literal[8, 16]

BUDGET = 350_000  # bytes of maps in one message
SMALL_BUDGET = 80_000  # of which at most this much for the coarse stand-ins
SCREEN_SIDE = 480  # pixels that a matrix takes on a screen: averages need not be finer
SMALL_SIDE = 24  # a coarse stand-in has at most this many rows and columns


@dataclass(frozen=True)
class Stats:
    """Exact statistics of a stack of maps, taken before they are rounded.

    ``maximum`` (layers, heads) is the largest absolute value. ``entropy`` (layers, heads) is the
    mean over the rows of the entropy in bits, at most log2 N; None unless every row is a
    distribution (at least 0, sum 1).
    """

    maximum: Floats
    entropy: Floats | None


@dataclass(frozen=True)
class Block:
    """A block of lines to send: which layers and heads, how many lines of how many values."""

    name: str
    layers: tuple[int, int]
    heads: tuple[int, int]
    lines: int
    size: int
    bits: Bits

    @property
    def cost(self) -> int:
        """Bytes: the values, and a float32 maximum for each line."""
        maps = (self.layers[1] - self.layers[0]) * (self.heads[1] - self.heads[0])
        return maps * self.lines * (self.size * self.bits // 8 + 4)


def statistics(maps: Floats) -> Stats:
    """Exact maximum and mean row entropy of ``maps`` (layers, heads, N, N)."""
    maximum = np.abs(maps).max(axis=(-2, -1))
    if maps.min() < 0 or not np.allclose(maps.sum(axis=-1), 1.0, atol=1e-3):
        return Stats(maximum, None)
    logs = np.log2(maps, out=np.zeros_like(maps), where=maps > 0)
    return Stats(maximum, -np.einsum("lhqk,lhqk->lhq", maps, logs).mean(axis=-1))


def decimals_for(tokens: int) -> int:
    """Decimals to print: with many tokens, weights near 1/N need a fifth."""
    return 4 if tokens <= 100 else 5


def pack(
    maps: Floats, scale: Scale = "sequential", bits: Bits = 16, decimals: int = 4
) -> tuple[bytes, Floats, Stats]:
    """Round every line of ``maps`` (layers, heads, N, N) to whole steps of its own maximum.

    Returns the steps as little-endian integers, the largest absolute value of each line (layers,
    heads, N) and the statistics. A value is ``step / full * line_maximum``, with ``full`` 65535
    or 255; on the diverging scale steps are signed and ``full`` is 32767 or 127. The error is at
    most half a step. With 16 bits it may be 1.5 steps, but then the value still prints the same
    as the original at ``decimals`` decimals (where a step is finer than the last decimal).
    """
    steps, line_max = _round(maps, scale, bits, decimals)
    return steps.tobytes(), line_max, statistics(maps)


def _round(
    lines: Floats, scale: Scale, bits: Bits, decimals: int
) -> tuple[NDArray[np.integer[Any]], Floats]:
    signed = scale == "diverging"
    full = 2 ** (bits - signed) - 1
    line_max = np.abs(lines).max(axis=-1).astype("<f4")
    exact = lines.astype(np.float64)
    step = line_max[..., None].astype(np.float64) / full
    steps = np.rint(exact / np.where(step > 0, step, 1.0))
    if bits == 16:
        # Rounding may carry a value over the edge between two printed numbers; one step back
        # towards the original lets the board print what the package computed.
        unit = 10.0**decimals
        strayed = np.rint(steps * step * unit) != np.rint(exact * unit)
        steps += strayed * np.sign(exact - steps * step)
        steps = steps.clip(-full if signed else 0, full)
    return steps.astype(f"<{'i' if signed else 'u'}{bits // 8}"), line_max


def plan(shape: tuple[int, int, int], layer: int, head: int, budget: int = BUDGET) -> list[Block]:
    """The blocks to send of ``shape`` = (layers, heads, tokens), within ``budget`` bytes.

    In order of preference: all maps in 16 bits, all in 8, the chosen layer in 16 or 8, the chosen
    map in 16 or 8, the chosen map averaged over neighbouring cells. When it is not all maps in 16
    bits, the chosen token's row and column go along in 16 bits, of all maps or of the chosen one;
    when maps are missing or averaged, a coarse stand-in of each goes along too.
    """
    layers, heads, tokens = shape
    everything = ((0, layers), (0, heads))
    here = ((layer, layer + 1), (head, head + 1))
    small = min(tokens, SMALL_SIDE, int((SMALL_BUDGET / (layers * heads)) ** 0.5))

    def ways() -> Iterator[Block]:
        for where in (everything, (here[0], everything[1]), here):
            for bits in (16, 8):
                yield Block("values", *where, tokens, tokens, bits)
        for share in count(max(2, -(-tokens // SCREEN_SIDE))):
            side = -(-tokens // share)
            yield Block("values", *here, side, side, 8)

    for values in ways():
        complete = (values.layers, values.heads) == everything and values.size == tokens
        if complete and values.bits == 16 and values.cost <= budget:
            return [values]
        stand_in = [] if complete else [Block("small", *everything, small, small, 8)]
        for where in (everything, here):
            lines = [Block(name, *where, 1, tokens, 16) for name in ("row", "column")]
            blocks = [values, *stand_in, *lines]
            if sum(block.cost for block in blocks) <= budget:
                return blocks
    raise AssertionError("an average over enough cells always fits")


def average(maps: Floats, side: int) -> Floats:
    """Means of ``maps`` (…, N, N) over cells, (…, side, side); cell i begins at ⌈i·N/side⌉."""
    tokens = maps.shape[-1]
    starts = -(-np.arange(side) * tokens // side)
    widths = np.diff(starts, append=tokens)
    sums = np.add.reduceat(np.add.reduceat(maps, starts, axis=-1), starts, axis=-2)
    return sums / np.outer(widths, widths).astype(np.float32)


class Message:
    """Blobs behind a JSON header: uint32 length of the header, the header, the blobs.

    Each blob begins at a multiple of 4 bytes, so that typed arrays can be laid over it.
    """

    def __init__(self) -> None:
        self._body = bytearray()
        self._blobs: dict[str, tuple[int, int]] = {}

    def add(self, name: str, blob: bytes) -> None:
        """Append a blob; the browser finds it by its name."""
        self._blobs[name] = (len(self._body), len(blob))
        self._body += blob + bytes(-len(blob) % 4)

    def add_maps(
        self, maps: Floats, scale: Scale, token: int, layer: int, head: int
    ) -> dict[str, Any]:
        """Append ``maps`` (layers, heads, N, N) as planned; returns what the header says of them.

        ``token``, ``layer`` and ``head`` are the choice, which is sent first when not all fits.
        """
        tokens = maps.shape[-1]
        decimals = decimals_for(tokens)
        blocks = plan(maps.shape[:3], layer, head)
        for block in blocks:
            chosen = maps[slice(*block.layers), slice(*block.heads)]
            if block.name == "row":
                chosen = chosen[:, :, token : token + 1, :]
            elif block.name == "column":
                chosen = chosen[:, :, :, token][:, :, None, :]
            elif block.size < tokens:
                chosen = average(chosen, block.size)
            steps, line_max = _round(chosen, scale, block.bits, decimals)
            self.add(block.name, steps.tobytes())
            self.add(f"{block.name}_max", line_max.tobytes())
        stats = statistics(maps)
        return {
            "blocks": [vars(block) for block in blocks],
            # Left out where nothing depends on it: the message then stays the same, byte for byte.
            "token": token if len(blocks) > 1 else None,
            "decimals": decimals,
            "maximum": stats.maximum.tolist(),
            "entropy": None if stats.entropy is None else stats.entropy.tolist(),
        }

    def close(self, header: dict[str, Any]) -> bytes:
        """The finished message."""
        text = json.dumps({**header, "blobs": self._blobs}, allow_nan=False).encode()
        text += b" " * (-len(text) % 4)
        return len(text).to_bytes(4, "little") + text + bytes(self._body)
