"""Runs kernels built to be each regime, one at a time, for Nsight Compute to profile; records their counters.

Usage on a machine with a GPU and ncu: python tests/gpu/regimes.py FOLDER writes FOLDER/NAME.csv for each name, cut to
the columns of ledger.metrics, as ncu printed them; python tests/gpu/regimes.py --run NAME is what ncu watches.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import torch
import triton
import triton.language as tl

ROOT = Path(__file__).resolve().parents[2]


@triton.jit
def streaming_read(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(program * BLOCK, n, tl.num_programs(0) * BLOCK):
        offset = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + offset, mask=offset < n, other=0.0)
    tl.store(out_ptr + program, tl.sum(total))


@triton.jit
def conflicted_transpose(out_ptr, rounds):
    """Transpose a 32 × 32 tile in shared memory again and again; all words of a column lie in one bank."""
    thread = tl.arange(0, 1024)
    row_major = thread * 4
    column_major = (thread % 32) * 128 + (thread // 32) * 4
    value = tl.inline_asm_elementwise(
        """{
        .reg .u32 %base, %row, %column, %i, %v;
        .reg .pred %more;
        .shared .align 16 .b8 ledger_tile[4096];
        mov.u32 %base, ledger_tile;
        add.u32 %row, %base, $1;
        add.u32 %column, %base, $2;
        mov.u32 %i, 0;
        mov.u32 %v, $1;
        again:
        st.volatile.shared.u32 [%row], %v;
        bar.sync 0;
        ld.volatile.shared.u32 %v, [%column];
        bar.sync 0;
        add.u32 %i, %i, 1;
        setp.lt.u32 %more, %i, $3;
        @%more bra again;
        mov.u32 $0, %v;
        }""",
        "=r,r,r,r",
        [row_major, column_major, rounds + tl.zeros((1024,), tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
    tl.store(out_ptr + tl.program_id(0) * 1024 + thread, value)


@triton.jit
def empty():
    pass


@triton.jit
def l2_loop(x_ptr, out_ptr, n_blocks, rounds, BLOCK: tl.constexpr):
    """Read a buffer that fits in L2 many times, around L1."""
    program = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in tl.range(rounds, loop_unroll_factor=4):
        block = (program + i * tl.num_programs(0)) % n_blocks
        total += tl.load(x_ptr + block * BLOCK + lanes, cache_modifier=".cg")
    tl.store(out_ptr + program * BLOCK + lanes, total)


@triton.jit
def pointer_chase(next_ptr, out_ptr, steps):
    """Follow one chain of addresses through memory: each load waits for the one before."""
    at = tl.load(out_ptr)
    for _ in range(steps):
        at = tl.load(next_ptr + at)
    tl.store(out_ptr, at)


def prepare_streaming_read():
    x = torch.randn(1 << 28, device="cuda")
    out = torch.empty(1056, device="cuda")
    return lambda: streaming_read[(1056,)](x, out, x.numel(), BLOCK=4096, num_warps=8)


def prepare_big_gemm():
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    return lambda: torch.matmul(a, b, out=out)


def prepare_conflicted_transpose():
    blocks = 132 * 2
    out = torch.empty(blocks * 1024, device="cuda", dtype=torch.int32)
    return lambda: conflicted_transpose[(blocks,)](out, 2000, num_warps=32)


def prepare_empty():
    return lambda: empty[(1,)]()


def prepare_l2_loop():
    x = torch.randn(1 << 22, device="cuda")  # 16 MiB
    out = torch.empty(1056 * 2048, device="cuda")
    return lambda: l2_loop[(1056,)](x, out, x.numel() // 2048, 2048, BLOCK=2048, num_warps=8)


def prepare_pointer_chase():
    count = 1 << 24
    order = torch.randperm(count, device="cuda")
    chain = torch.empty(count, device="cuda", dtype=torch.int64)
    chain[order] = order.roll(-1)
    out = torch.zeros(1, device="cuda", dtype=torch.int64)
    return lambda: pointer_chase[(1,)](chain, out, 20_000, num_warps=1)


PREPARE = {
    "streaming_read": prepare_streaming_read,
    "big_gemm": prepare_big_gemm,
    "conflicted_transpose": prepare_conflicted_transpose,
    "empty": prepare_empty,
    "l2_loop": prepare_l2_loop,
    "pointer_chase": prepare_pointer_chase,
}


def run(name: str) -> None:
    launch = PREPARE[name]()
    for _ in range(2):
        launch()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    launch()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def record(name: str, folder: Path) -> None:
    from ledger.analysis.metrics import capability_of, metric_names
    from ledger.device.facts import cuda_facts
    from ledger.device.ncu import find_ncu
    from ledger.device.ncu_process import run_command
    from ledger.measure.cuda_graphs import capture, empty_node_ps, replay_ps, warm_up

    ncu = find_ncu()
    wanted = metric_names(capability_of(cuda_facts().target))
    report = folder / f"{name}.ncu-rep"
    command = [ncu.path, "--profile-from-start", "off", "--clock-control", "none", "--cache-control", "all"]
    command += ["--metrics", ",".join(wanted), "-o", str(report), "--force-overwrite"]
    done = run_command([*command, sys.executable, __file__, "--run", name], timeout_s=120, folder=folder)
    raw = [ncu.path, "--import", str(report), "--csv", "--page", "raw", "--print-units", "base"]
    text = subprocess.run(raw, capture_output=True, text=True, check=False).stdout
    if not report.is_file() or not text:
        print(name, "FAILED", done.output[-1500:])
        return
    kept = {"ID", "Kernel Name", "Block Size", "Grid Size", "CC", *wanted}
    rows = list(csv.reader(io.StringIO(text)))
    columns = [place for place, column in enumerate(rows[0]) if column in kept]
    with (folder / f"{name}.csv").open("w", newline="") as stream:
        csv.writer(stream, quoting=csv.QUOTE_ALL).writerows([[row[place] for place in columns] for row in rows])
    report.unlink()
    launch = PREPARE[name]()
    warm_up([launch])
    calls = 100 if name == "empty" else 3
    median = sorted(replay_ps(capture([launch] * calls), 9, calls=calls))[4]
    facts = {"ncu": ncu.version, "device": cuda_facts().name, "driver": cuda_facts().driver}
    timing = {"call_ps": median, "launch_ps": empty_node_ps()}
    (folder / f"{name}.json").write_text(json.dumps({**facts, **timing}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    if sys.argv[1] == "--run":
        run(sys.argv[2])
    else:
        for each in PREPARE:
            try:
                record(each, Path(sys.argv[1]))
            # One kernel that cannot be recorded loses no other.
            except Exception as error:  # noqa: BLE001
                print(each, "FAILED", type(error).__name__, error)
