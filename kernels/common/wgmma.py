"""Writes wgmma instructions as CUDA C++ functions, into the generated header wgmma.h. Imports nothing of its own.

The operand list of a wgmma names one register for each accumulator of a thread, n / 2 of them, so its text depends on n
and no macro or template of CUDA C++ writes it. Source: PTX ISA, wgmma.mma_async.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

HEADER = "wgmma.h"
Kind = Literal["f16", "bf16", "e4m3", "s8"]


@dataclass(frozen=True)
class Wgmma:
    """Describe one wgmma of 64 rows by n columns, issued by the C++ function NAME(d, a, b, accumulate).

    kind: the type of both operands; sums of s8 are integers. a: where the first operand lies. a_transposed,
    b_transposed: whether an operand in shared memory is MN-major, which those of one byte an element cannot be.
    zeroing: whether the function takes `accumulate`, which 0 makes start from zero; without it all products are added
    to d.
    """

    n: int
    kind: Kind
    name: str = "mma"
    a: Literal["shared", "registers"] = "shared"
    a_transposed: bool = False
    b_transposed: bool = False
    zeroing: bool = True

    @property
    def text(self) -> str:
        """Return the C++ function."""
        sums, in_registers = self.n // 2, self.a == "registers"
        held = [f"a[{i}]" for i in range(4)] if in_registers else ["a"]
        a = ", ".join(f"%{sums + i}" for i in range(len(held)))
        b = sums + len(held)
        integers, one_byte = self.kind == "s8", self.kind in ("e4m3", "s8")
        outputs = ", ".join(f'"+{"r" if integers else "f"}"(d[{i}])' for i in range(sums))
        inputs = ", ".join(f'"{"r" if in_registers else "l"}"({one})' for one in held)
        operands = f"{{{', '.join(f'%{i}' for i in range(sums))}}}, {f'{{{a}}}' if in_registers else a}, %{b}"
        kinds = f"{'s32' if integers else 'f32'}.{self.kind}.{self.kind}"
        shape = f"m64n{self.n}k{32 if one_byte else 16}.{kinds}"
        before = f'"{{.reg .pred p; setp.ne.b32 p, %{b + 1}, 0;\\n"\n        ' if self.zeroing else ""
        flag = ', "r"(accumulate)' if self.zeroing else ""
        # Integers have no signs.
        signs = "" if integers else f", 1, 1{'' if one_byte else self._major}"
        tail = f"{'p' if self.zeroing else '1'}{signs};{'}' if self.zeroing else ''}"
        return (
            f"DEVICE void {self.name}({'int' if integers else 'float'} (&d)[{sums}], "
            f"{'const u32* a' if in_registers else 'u64 a'}, u64 b"
            f"{', int accumulate' if self.zeroing else ''}) {{\n"
            f'    asm volatile({before}"wgmma.mma_async.sync.aligned.{shape} {operands}, {tail}"\n'
            f'        : {outputs} : {inputs}, "l"(b){flag});\n'
            "}\n"
        )

    @property
    def _major(self) -> str:
        """Return the operands that say which operands in shared memory are MN-major."""
        given = [self.b_transposed] if self.a == "registers" else [self.a_transposed, self.b_transposed]
        return "".join(f", {int(one)}" for one in given)


def wgmma_header(*instructions: Wgmma) -> dict[str, str]:
    """Return the header of some instructions, by its name."""
    return {HEADER: "".join(instruction.text for instruction in instructions)}
