"""Makes the question that forecasters answer, from a kernel and a profile."""

from __future__ import annotations

from ledger.forecasters.answer import Measured, Question
from ledger.kernel import Kernel
from ledger.kernel_files import build_case
from ledger.operations import Shape
from ledger.records import Dtype, Hardware
from ledger.roofline import roof_of


def make_question(
    kernel: Kernel, hardware: Hardware, *, shape: Shape, dtype: Dtype, earlier: tuple[Measured, ...] = ()
) -> Question:
    """Return the question of a cell, with the roof of the instruction path that the compiler takes there.

    Raises: InputError for shape keys, a dtype or a path that the kernel or the chip does not have.
    """
    case = build_case(kernel, hardware, shape=shape, dtype=dtype)
    roof = roof_of(hardware, kernel.path(dtype, hardware.target, case.implementation))
    return Question(case, kernel.work(shape, dtype), roof, hardware, earlier)
