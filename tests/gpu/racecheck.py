"""Shows which orders of shared memory racecheck follows: minimal kernels, each under its own name.

Usage where a GPU is: PYTHONPATH=. compute-sanitizer --tool racecheck python tests/gpu/racecheck.py. `no_order` is a
race and must be reported. In every other kernel the reads come after the writes by the PTX memory model: barriers, and
an mbarrier's arrive (release) and wait (acquire), order what came before them transitively, whichever thread arrives.
Those of them that are reported are what racecheck does not follow.
"""

from __future__ import annotations

import sys
from typing import Any

# Half of the threads write, and hand over to the other half, which reads what another thread wrote.
_HANDOVER = r"""
extern "C" __global__ void NAME(float* out) {
    __shared__ float sums[128];
    __shared__ __align__(8) unsigned long long ready;
    const unsigned bar = (unsigned)__cvta_generic_to_shared(&ready);
    const int thread = threadIdx.x;
    if (thread == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(ARRIVALS));
    __syncthreads();
    if (thread >= 128) {
        sums[thread - 128] = thread;
        BEFORE;
        if (WHO) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory");
    } else {
        asm volatile("{\n.reg .pred done;\nAGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n"
            "@done bra DONE;\nbra AGAIN;\nDONE:\n}" :: "r"(bar) : "memory");
        out[thread] = sums[127 - thread];
    }
}
"""
_GROUP = 'asm volatile("bar.sync 2, 128;" ::: "memory")'
HANDOVERS = {
    "no_order": ("1", "", "thread == 128"),
    "one_arrives_for_all": ("1", _GROUP, "thread == 128"),
    "a_lane_arrives_for_its_warp": ("4", "__syncwarp()", "thread % 32 == 0"),
    "all_arrive": ("128", "", "true"),
}

# Triton 3.6 hands out work like this: a word that the first warps write and the others read after a barrier.
_DISPATCH = r"""
extern "C" __global__ void NAME(float* out) {
    __shared__ int word;
    const int thread = threadIdx.x;
    if (thread < 128) {
        if (WHO) *(volatile int*)&word = 0;
        BARRIER; BARRIER;
        out[thread] = 1.f;
        BARRIER;
        if (WHO) *(volatile int*)&word = 0x01010101;
        BARRIER;
    } else {
        for (;;) {
            BARRIER;
            if (((volatile char*)&word)[thread / 32 - 4] == 1) break;
            BARRIER;
            out[thread] = 2.f;
            BARRIER;
        }
    }
}
"""
DISPATCHES = {
    "dispatch_as_triton": ("true", 'asm volatile("barrier.sync 1;" ::: "memory")'),
    "dispatch_by_one_thread": ("thread == 0", 'asm volatile("barrier.sync 1;" ::: "memory")'),
    "dispatch_counted": ("thread == 0", 'asm volatile("barrier.sync 1, 256;" ::: "memory")'),
    "dispatch_barrier_0": ("thread == 0", 'asm volatile("barrier.sync 0;" ::: "memory")'),
}


def sources() -> list[Any]:
    """Return the CUDA C++ kernels."""
    from ledger.cuda import CudaSource

    found = []
    for name, (arrivals, before, who) in HANDOVERS.items():
        defines = {"NAME": name, "ARRIVALS": arrivals, "BEFORE": before, "WHO": who}
        found.append(CudaSource(_HANDOVER, name, tuple(defines.items())))
    for name, (who, barrier) in DISPATCHES.items():
        found.append(CudaSource(_DISPATCH, name, (("NAME", name), ("WHO", who), ("BARRIER", barrier))))
    return found


def main() -> None:
    """Launch each kernel once, the CUDA C++ ones and Gluon's."""
    import torch
    import warp_specialised

    from ledger.cuda import prepare_cuda

    out = torch.zeros(256, device="cuda")
    for source in sources():
        prepare_cuda(source, programs=1, threads=256, shared_bytes=0, arguments=[out], overlap=False)()
    warp_specialised.nothing_shared[(1,)](out, num_warps=4)
    torch.cuda.synchronize()
    print(f"LAUNCHED {len(sources()) + 1}: {out.sum().item():g}")


if __name__ == "__main__":
    sys.exit(main())
