"""The one way to look inside a forward pass, or to change it.

A :class:`HookPoint` is an identity module that marks a tensor worth a name. While nobody records
it returns its input untouched. Inside ``with record() as trace:`` it hands the tensor to the
collector of *this* thread or task, which keeps it under the module's path:

    with record() as trace:
        logits = model(images)
    trace["blocks.3.attn.pattern"]  # (B, H, N, N)

The collector lives in a ``ContextVar``, so many threads may record one shared, frozen model at
once and never see each other's tensors. The idea and the activation names are TransformerLens's.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor, nn

Edit = Callable[[Tensor], Tensor]


class Trace(dict[str, Tensor]):
    """Activations by hook name, in the order of the forward pass."""

    def __missing__(self, name: str) -> Tensor:
        raise KeyError(f"Nothing was recorded as {name!r}. Recorded: {', '.join(self)}.")


class _Collector:
    def __init__(self, edits: Mapping[str, Edit]) -> None:
        self.trace = Trace()
        self.edits = edits

    def visit(self, name: str, value: Tensor) -> Tensor:
        if name in self.edits:
            edited = self.edits[name](value)
            if edited.shape != value.shape:
                raise ValueError(
                    f"The edit of {name} returned the shape {tuple(edited.shape)}; it must keep "
                    f"{tuple(value.shape)}."
                )
            value = edited
        self.trace[name] = value
        return value


_collector: ContextVar[_Collector | None] = ContextVar("collector", default=None)


def is_recording() -> bool:
    """Whether a ``record()`` is open in this thread or task."""
    return _collector.get() is not None


class HookPoint(nn.Module):
    """An identity that gives the tensor passing through it a name.

    It holds no parameters and no buffers, so it adds nothing to a state dict. ``name`` is its
    module path, set once by the model that owns it.
    """

    name = ""

    def forward(self, value: Tensor) -> Tensor:
        collector = _collector.get()
        return value if collector is None else collector.visit(self.name, value)


@contextmanager
def record(edits: Mapping[str, Edit] | None = None) -> Iterator[Trace]:
    """Record every activation of the forward passes inside the ``with``.

    Args:
        edits: for hook names, functions that take the activation and return one of the same shape
            to go on with. The trace holds what went on.

    Raises:
        RuntimeError: at the end, if no activation passed by (no model ran inside).
        KeyError: at the end, if an edit names a hook that the model does not have.
    """
    collector = _Collector(edits or {})
    token = _collector.set(collector)
    try:
        yield collector.trace
    finally:
        _collector.reset(token)
    if not collector.trace:
        raise RuntimeError("Nothing was recorded: run the model inside `with record()`.")
    for name in collector.edits:
        collector.trace[name]
