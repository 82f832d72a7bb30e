"""A product as a CUDA graph: one launch in place of hundreds.

A solver multiplies a few vectors again and again, always of the same shape. On a GPU such a product takes as long as
the processor takes to launch its many small kernels, under `vmap` and the derivatives several milliseconds; a captured
graph of them takes as long as the GPU works.

What is captured reads the state and the weights where they lie in memory. So whether the weights are still the same is
asked before every replay, as it is before every product, and the graph keeps the tensors that it reads alive. Autograd
runs a backward pass on the stream of the forward pass: what a product needs is recorded on the stream that is captured.
A product that cannot be captured, because it waits for the device or draws on the host, runs as it is.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from skipscope.trace.freshness import asked_once

Product = Callable[[Tensor], Tensor]
CAPTURED_AT = 3  # the number of products of one shape at which there will be many more of it
WARM_UP = 2  # runs on the stream of the capture: libraries choose their algorithms and take their work space


class CapturedProduct:
    """Of vectors of one shape at a time, the last one that came."""

    def __init__(self, record: Callable[[], Product], check: Callable[[], None]) -> None:
        """record: makes the product, anew for the stream it is called on. check: raises once it no longer holds."""
        self._record, self._check = record, check
        self._shape: torch.Size | None = None
        self._seen = 0
        self._refused = False
        self._replay: Product | None = None

    def forget(self) -> None:
        """Give up the graph, with the memory that it keeps; it is captured again when many products come again."""
        self._shape, self._seen, self._replay = None, 0, None

    def of(self, vectors: Tensor, same: Callable[[Tensor], bool]) -> Tensor | None:
        """The product of vectors on a GPU; None where it is not captured, or not yet.

        same: of the first captured product, whether it is the one that is wanted.
        """
        if vectors.shape != self._shape:
            self._shape, self._seen, self._replay = vectors.shape, 0, None
        self._seen += 1
        if self._refused or self._seen < CAPTURED_AT:
            return None
        if self._replay is not None:
            self._check()
            return self._replay(vectors)
        try:
            with asked_once():  # inside of a capture nothing may wait for the device
                self._check()
                self._replay = captured(self._record, vectors)
        except Exception:  # whatever an operation says that waits for the device; the product itself has other errors
            self._refused = True
            return None
        found = self._replay(vectors)
        if not same(found):
            self._refused, self._replay = True, None
            return None
        return found


def captured(record: Callable[[], Product], example: Tensor) -> Product:
    """The product that `record` makes, for vectors of the example's shape."""
    stream = torch.cuda.Stream(example.device)
    stream.wait_stream(torch.cuda.current_stream(example.device))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        vectors = example.clone()
        product = record()
        for _ in range(WARM_UP):
            product(vectors)
        torch.cuda.synchronize(example.device)
        with torch.cuda.graph(graph, stream=stream):
            result = product(vectors)
    torch.cuda.current_stream(example.device).wait_stream(stream)

    def replay(block: Tensor) -> Tensor:
        vectors.copy_(block)
        graph.replay()
        return result.clone()

    replay.product = product  # type: ignore[attr-defined]  # what the graph reads has to stay in memory
    return replay
