"""Defines small Triton kernels that probe a device. Imports triton, only when called.

Triton reads a kernel's source from its file and resolves its names in this module. So kernels are defined inside
functions, and triton.language is bound to `tl` on the first call.
"""

from __future__ import annotations

import functools
from typing import Any

from ledger.kernel import Launch, import_triton

tl: Any = None


def _triton() -> Any:
    global tl
    triton, tl = import_triton()
    return triton


@functools.cache
def _empty_kernel() -> Any:
    @_triton().jit
    def ledger_empty():  # type: ignore[no-untyped-def]
        pass

    return ledger_empty


@functools.cache
def _marker_kernel() -> Any:
    @_triton().jit
    def ledger_marker():  # type: ignore[no-untyped-def]
        pass

    return ledger_marker


def _one_program(kernel: Any) -> Launch:
    def launch() -> None:
        kernel[(1,)]()

    return launch


def empty_launch() -> Launch:
    """Return the launch of a kernel that does nothing."""
    return _one_program(_empty_kernel())


def marker_launch() -> Launch:
    """Return the launch of a kernel that does nothing, whose name separates the cells of a profile."""
    return _one_program(_marker_kernel())


# SM clock


_MAX_SMS = 1024


@functools.cache
def _stamp_kernel() -> Any:
    @_triton().jit
    def ledger_stamp(out_ptr):  # type: ignore[no-untyped-def]
        lane = tl.arange(0, 32)
        cycles = tl.inline_asm_elementwise(
            "mov.u64 $0, %clock64;", "=l,r", [lane], dtype=tl.int64, is_pure=False, pack=1
        )
        nanoseconds = tl.inline_asm_elementwise(
            "mov.u64 $0, %globaltimer;", "=l,r", [lane], dtype=tl.int64, is_pure=False, pack=1
        )
        sm = tl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r,r", [lane], dtype=tl.int32, is_pure=False, pack=1)
        tl.store(out_ptr + sm * 2, cycles, mask=lane == 0)
        tl.store(out_ptr + sm * 2 + 1, nanoseconds, mask=lane == 0)

    return ledger_stamp


def stamps() -> Any:
    """Return memory for the stamps of all SMs. Shapes: (_MAX_SMS, 2) int64: cycles, nanoseconds; 0 where unseen."""
    import torch

    return torch.zeros((_MAX_SMS, 2), dtype=torch.int64, device="cuda")


def stamp_launch(out: Any) -> Launch:
    """Return the launch that writes each SM's cycle counter and the device's timer into `out`, made by `stamps`."""
    import torch

    kernel = _stamp_kernel()
    programs = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
    return lambda: kernel[(programs,)](out, num_warps=1)


def clock_mhz(first: Any, second: Any) -> int | None:
    """Return the SM clock between two stamps: the median over the SMs seen in both, None where there is none."""
    seen = (first[:, 1] > 0) & (second[:, 1] > first[:, 1])
    if not bool(seen.any()):
        return None
    spent = (second - first)[seen].double()
    return round(float((1e3 * spent[:, 0] / spent[:, 1]).median()))


# Holding the device


_HOLD = """{
.reg .u64 %now, %end;
.reg .pred %more;
mov.u64 %end, %globaltimer;
add.u64 %end, %end, $1;
again:
mov.u64 %now, %globaltimer;
setp.lt.u64 %more, %now, %end;
@%more bra again;
mov.u32 $0, 0;
}"""
_CTAS_PER_SM, _WARPS = 2, 32
"""Fill the 2048 threads of an SM."""


@functools.cache
def _hold_kernel() -> Any:
    @_triton().jit  # type: ignore[untyped-decorator]
    def ledger_hold(nanoseconds, ASM: tl.constexpr, THREADS: tl.constexpr):  # type: ignore[no-untyped-def]
        wait = nanoseconds + tl.zeros((THREADS,), tl.int64)
        tl.inline_asm_elementwise(ASM, "=r,l", [wait], dtype=tl.int32, is_pure=False, pack=1)

    return ledger_hold


def hold_launch(duration_ns: int) -> Launch:
    """Return the launch of a kernel that fills all SMs for a time, so that no other stream's work begins."""
    import torch

    kernel = _hold_kernel()
    programs = _CTAS_PER_SM * torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
    return lambda: kernel[(programs,)](duration_ns, ASM=_HOLD, THREADS=32 * _WARPS, num_warps=_WARPS)


# Bandwidth probes. Each is a loop of loads without other work, so that only the memory level under test limits it.


@functools.cache
def _read_kernel() -> Any:
    @_triton().jit  # type: ignore[untyped-decorator]
    def ledger_read(  # type: ignore[no-untyped-def]
        x_ptr, out_ptr, n_blocks, rounds, first_step, round_step, BLOCK: tl.constexpr
    ):
        program = tl.program_id(0)
        lanes = tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), tl.float32)
        for i in tl.range(rounds, loop_unroll_factor=4):
            block = (program * first_step + i * round_step) % n_blocks
            # .cg reads through L2 and bypasses L1.
            total += tl.load(x_ptr + block.to(tl.int64) * BLOCK + lanes, cache_modifier=".cg")
        tl.store(out_ptr + program * BLOCK + lanes, total)

    return ledger_read


def read_launch(x: Any, out: Any, *, programs: int, rounds: int, streams: bool = False) -> Launch:
    """Return the launch of programs that read in all `rounds × programs` blocks of READ_BLOCK floats of `x`.

    Shapes: x (n,), n a multiple of READ_BLOCK; out (programs · READ_BLOCK,), both fp32.
    streams: each program reads consecutive blocks; otherwise all programs together do.
    """
    kernel = _read_kernel()
    blocks = x.numel() // READ_BLOCK
    steps = (rounds, 1) if streams else (1, programs)

    def launch() -> None:
        kernel[(programs,)](x, out, blocks, rounds, *steps, BLOCK=READ_BLOCK, num_warps=8)

    return launch


READ_BLOCK = 2048

_SMEM_LOADS = 8
SMEM_THREADS = 256
SMEM_BYTES_PER_ROUND = 16 * _SMEM_LOADS


def _smem_asm() -> str:
    """Return a loop of loads in PTX that uses every loaded word: the assembler removes loads without a use."""
    loads = []
    for load in range(_SMEM_LOADS):
        loads += [
            f"ld.volatile.shared.v4.u32 {{%a, %b, %c, %d}}, [%at+{16 * SMEM_THREADS * load}];",
            "xor.b32 %a, %a, %b;",
            "xor.b32 %c, %c, %d;",
            "xor.b32 %sum, %sum, %a;",
            "xor.b32 %sum, %sum, %c;",
        ]
    return "\n".join(
        [
            "{",
            ".reg .u32 %at, %i, %a, %b, %c, %d, %sum;",
            ".reg .pred %more;",
            f".shared .align 16 .b8 ledger_smem[{16 * SMEM_THREADS * _SMEM_LOADS}];",
            "mov.u32 %at, ledger_smem;",
            "add.u32 %at, %at, $1;",
            "mov.u32 %i, 0;",
            "mov.u32 %sum, 0;",
            "again:",
            *loads,
            "add.u32 %i, %i, 1;",
            "setp.lt.u32 %more, %i, $2;",
            "@%more bra again;",
            "mov.u32 $0, %sum;",
            "}",
        ]
    )


@functools.cache
def _smem_kernel() -> Any:
    @_triton().jit  # type: ignore[untyped-decorator]
    def ledger_smem(out_ptr, rounds, ASM: tl.constexpr, THREADS: tl.constexpr):  # type: ignore[no-untyped-def]
        thread = tl.arange(0, THREADS)
        many = rounds + tl.zeros((THREADS,), tl.int32)
        value = tl.inline_asm_elementwise(ASM, "=r,r,r", [thread * 16, many], dtype=tl.int32, is_pure=False, pack=1)
        tl.store(out_ptr + tl.program_id(0) * THREADS + thread, value)

    return ledger_smem


def smem_launch(out: Any, *, programs: int, rounds: int) -> Launch:
    """Return the launch of programs whose SMEM_THREADS threads each load SMEM_BYTES_PER_ROUND × `rounds` bytes.

    Neighbouring threads load neighbouring 16 bytes: no bank conflict. Shapes: out (programs · SMEM_THREADS,) int32.
    """
    kernel, asm = _smem_kernel(), _smem_asm()

    def launch() -> None:
        kernel[(programs,)](out, rounds, ASM=asm, THREADS=SMEM_THREADS, num_warps=SMEM_THREADS // 32)

    return launch
