"""Computes the work of an operation from its definition, to check a sealed work model. Pure.

The tensors of an operation are its compulsory traffic, each input read once and each output written once. How wide an
element is stored is a kernel's choice, and so is how a division is counted; what no such choice explains is excess.
"""

from __future__ import annotations

import functools
import math

from ledger.analysis.formatting import si
from ledger.operations import Operation, Shape
from ledger.records import Work

WIDEST_BYTES = 8
"""Bytes of the widest element that any dtype here has."""

_FLOPS_PER_ELEMENT = 32
_MOST_FLOPS = 4


def elements(operation: Operation, shape: Shape) -> tuple[int, int]:
    """Return how many elements the inputs and the output hold."""
    return _elements(operation, tuple(shape.items()))


# An audit asks several times for each sealed cell.
@functools.lru_cache(maxsize=16)
def _elements(operation: Operation, sizes: tuple[tuple[str, int], ...]) -> tuple[int, int]:
    shape = dict(sizes)
    return sum(math.prod(spec.dims) for spec in operation.inputs(shape)), math.prod(operation.output_dims(shape))


def usual_flops(operation: Operation, shape: Shape) -> int:
    """Return the most operations that a work model usually counts: the products, a quarter more, 32 an element."""
    products = operation.products(shape)
    return 2 * products + products // 2 + _FLOPS_PER_ELEMENT * sum(elements(operation, shape))


def excess(operation: Operation, shape: Shape, work: Work) -> str | None:
    """Return what in a work model is more than the operation can be, or None.

    That is more bytes than its tensors hold at eight bytes an element, or four times the operations usually counted.
    Less is no excess: it makes the percent of the roof smaller.
    """
    read, written = elements(operation, shape)
    for what, sealed, most, unit in (
        ("read", work.bytes_read, WIDEST_BYTES * read, "B"),
        ("written", work.bytes_written, WIDEST_BYTES * written, "B"),
        ("computed", work.flops, _MOST_FLOPS * usual_flops(operation, shape), "FLOP"),
    ):
        if sealed > most:
            return f"{si(sealed, unit)} {what}; {operation.name} of this shape is {si(most, unit)} at the very most"
    return None
