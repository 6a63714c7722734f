"""Writes the wgmma instruction of 8-bit integers as a CUDA C++ function, into the generated header wgmma.h.

Beside wgmma.py: sums are integers, and the instruction has no signs and no majors. Source: PTX ISA, wgmma.mma_async.
"""

from __future__ import annotations

from .wgmma import HEADER


def int8_header(n: int) -> dict[str, str]:
    """Return the header of mma(d, a, b, accumulate), a wgmma of 64 rows by n columns of K-major operands, by its name.

    n: a multiple of 16, or at most 32 and one of 8. accumulate: 0 makes it start from zero.
    """
    sums = n // 2
    registers = ", ".join(f"%{i}" for i in range(sums))
    outputs = ", ".join(f'"+r"(d[{i}])' for i in range(sums))
    text = (
        f"DEVICE void mma(int (&d)[{sums}], u64 a, u64 b, int accumulate) {{\n"
        f'    asm volatile("{{.reg .pred p; setp.ne.b32 p, %{sums + 2}, 0;\\n"\n'
        f'        "wgmma.mma_async.sync.aligned.m64n{n}k32.s32.s8.s8 {{{registers}}}, %{sums}, %{sums + 1}, p;}}"\n'
        f'        : {outputs} : "l"(a), "l"(b), "r"(accumulate));\n'
        "}\n"
    )
    return {HEADER: text}
