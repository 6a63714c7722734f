"""Compares a kernel's work model with its reference: products by torch's FLOP counter, bytes by the tensors' sizes.

Imports torch, only when called.
"""

from __future__ import annotations

from ledger.analysis.formatting import shape_text
from ledger.analysis.work_model import elements, usual_flops
from ledger.callables.flop_counter import elementwise_counter, product_counter
from ledger.kernel import Kernel
from ledger.measure.kernel_trials import generated
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

_MORE_ELEMENTWISE = 2


def counted_flops(kernel: Kernel, shape: Shape, dtype: Dtype) -> tuple[int, int]:
    """Return the operations of the reference: those of products, and elementwise ones."""
    inputs = generated(kernel, shape, dtype, run=0, device="cpu")
    elementwise = elementwise_counter()
    with product_counter() as counter, elementwise:
        kernel.reference(inputs)
    return int(counter.get_total_flops()), int(elementwise.operations)


def flops_problem(kernel: Kernel, shape: Shape, dtype: Dtype) -> str | None:
    """Return what is wrong with the operations of the work model at a shape, or None.

    They are at least the products of the definition, and at most a quarter more with twice the elementwise operations:
    those that torch makes in the reference, and one an element of the output. The reference multiplies at least as much
    as the definition: it may compute what a mask then leaves out.
    """
    flops, products = kernel.work(shape, dtype).flops, 2 * kernel.operation.products(shape)
    counted, elementwise = counted_flops(kernel, shape, dtype)
    most = usual_flops(kernel.operation, shape)
    if elementwise:
        elementwise += elements(kernel.operation, shape)[1]
        most = min(most, products + products // 4 + _MORE_ELEMENTWISE * elementwise)
    where = f"at {shape_text(shape)}"
    if counted and not products <= counted <= 2.5 * products:
        return (
            f"{where} the operation's products are {products} FLOP; torch counts {counted} in the reference: expected "
            "Operation.products to count its multiply-adds"
        )
    if not products <= flops <= most or (flops < 1 and not products):
        return (
            f"{where} the work model has {flops} FLOP; expected {max(products, 1)}, the products (torch counts "
            f"{counted} in the reference), to {most} with elementwise operations (the definition makes {elementwise})"
        )
    return None


def bytes_problem(kernel: Kernel, shape: Shape, dtype: Dtype) -> str | None:
    """Return what is wrong with the bytes of the work model at a shape, or None: each tensor moves once."""
    work = kernel.work(shape, dtype)
    read, written = elements(kernel.operation, shape)
    for what, got, wanted in (
        ("bytes_read", work.bytes_read, DTYPE_BYTES[dtype] * read),
        ("bytes_written", work.bytes_written, DTYPE_BYTES[kernel.operation.output_dtype(dtype)] * written),
    ):
        if got != wanted:
            return f"at {shape_text(shape)} {dtype} {what} is {got}; expected {wanted}, each tensor once"
    return None
