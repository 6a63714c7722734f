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
#if ARRIVALS
    if (thread == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(ARRIVALS));
#endif
    __syncthreads();
    if (thread >= 128) {
        sums[thread - 128] = thread;
        BEFORE;
        if (WHO) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory");
    } else {
#if ARRIVALS
        asm volatile("{\n.reg .pred done;\nAGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n"
            "@done bra DONE;\nbra AGAIN;\nDONE:\n}" :: "r"(bar) : "memory");
#else
        asm volatile("bar.sync 3, 256;" ::: "memory");
#endif
        out[blockIdx.x * 256 + thread] = sums[127 - thread];
    }
}
"""
_GROUP = 'asm volatile("bar.sync 2, 128;" ::: "memory")'
_ARRIVE = 'asm volatile("bar.arrive 3, 256;" ::: "memory")'
HANDOVERS = {
    "no_order": ("1", "", "thread == 128"),
    "one_arrives_for_all": ("1", _GROUP, "thread == 128"),
    "a_lane_arrives_for_its_warp": ("4", "__syncwarp()", "thread % 32 == 0"),
    "all_arrive": ("128", "", "true"),
    "all_arrive_at_a_named_barrier": ("0", _ARRIVE, "false"),
}

# Half of the threads copy, and each copy arrives by itself when it is there.
_COPY = r"""
extern "C" __global__ void NAME(float* out) {
    __shared__ float sums[128];
    __shared__ __align__(8) unsigned long long ready;
    const unsigned bar = (unsigned)__cvta_generic_to_shared(&ready), to = (unsigned)__cvta_generic_to_shared(sums);
    const int thread = threadIdx.x;
    if (thread == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 128;" :: "r"(bar));
    __syncthreads();
    if (thread >= 128) {
        const unsigned place = to + 4 * (thread - 128);
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(place), "l"(out + thread) : "memory");
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(bar) : "memory");
    } else {
        asm volatile("{\n.reg .pred done;\nAGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n"
            "@done bra DONE;\nbra AGAIN;\nDONE:\n}" :: "r"(bar) : "memory");
        out[blockIdx.x * 256 + thread] = sums[127 - thread];
    }
}
"""

# Triton 3.6 hands out work like this: a word that the first warps write and the others read after a barrier; a code
# for each of those warps, 0 to work, 1 to leave, 2 to come back for another.
_DISPATCH = r"""
#define ALL asm volatile("barrier.sync 1;" ::: "memory")
extern "C" __global__ void __launch_bounds__(THREADS, 1) NAME(float* out) {
    __shared__ int word[2];
    __shared__ __align__(8) unsigned long long ready;
    const unsigned bar = (unsigned)__cvta_generic_to_shared(&ready);
    const int thread = threadIdx.x, at = blockIdx.x * 256 + thread;
    if (thread < 128) {
        if (MBARRIER && thread == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar));
        if (GROUPS) asm volatile("bar.sync 0, 128;" ::: "memory");
        if (WHO) { ((volatile int*)word)[0] = 0; if (THREADS > 256) ((volatile int*)word)[1] = 0x02020202; }
        ALL;
        if (REGISTERS) asm volatile("setmaxnreg.inc.sync.aligned.u32 128;");
        ALL;
        out[at] = 1.f;
        if (GROUPS) asm volatile("bar.sync 0, 128;" ::: "memory");
        if (MBARRIER && thread == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory");
        ALL;
        if (WHO) { ((volatile int*)word)[0] = 0x01010101; if (THREADS > 256) ((volatile int*)word)[1] = 0x01010101; }
        ALL;
    } else {
        for (;;) {
            ALL;
            const int code = ((volatile char*)word)[thread / 32 - 4];
            if (code == 1) break;
            if (code == 2) { ALL; ALL; continue; }
            if (REGISTERS) asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
            ALL;
            if (MBARRIER)
                asm volatile("{\n.reg .pred done;\nAGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n"
                    "@done bra DONE;\nbra AGAIN;\nDONE:\n}" :: "r"(bar) : "memory");
            if (GROUPS) asm volatile("bar.sync 2, 128;" ::: "memory");
            out[at] = 2.f;
            ALL;
        }
    }
}
"""
_PLAIN = {"WHO": "1", "THREADS": "256", "GROUPS": "0", "MBARRIER": "0", "REGISTERS": "0"}
DISPATCHES = {
    "dispatch": {},
    "dispatch_by_one_thread": {"WHO": "thread == 0"},
    "dispatch_groups": {"GROUPS": "1"},
    "dispatch_mbarrier": {"GROUPS": "1", "MBARRIER": "1"},
    "dispatch_registers": {"REGISTERS": "1"},
    "dispatch_idle_warps": {"THREADS": "384"},
    "dispatch_all": {"GROUPS": "1", "MBARRIER": "1", "REGISTERS": "1", "THREADS": "384"},
}
BLOCKS = 64


def sources() -> list[tuple[Any, int]]:
    """Return the CUDA C++ kernels, each with its threads."""
    from ledger.kernels.common.cuda import CudaSource

    found = []
    for name, (arrivals, before, who) in HANDOVERS.items():
        defines = {"NAME": name, "ARRIVALS": arrivals, "BEFORE": before, "WHO": who}
        found.append((CudaSource(_HANDOVER, name, tuple(defines.items())), 256))
    found.append((CudaSource(_COPY, "copies_arrive", (("NAME", "copies_arrive"),)), 256))
    for name, changes in DISPATCHES.items():
        defines = {"NAME": name, **_PLAIN, **changes}
        found.append((CudaSource(_DISPATCH, name, tuple(defines.items())), int(defines["THREADS"])))
    return found


def main() -> None:
    """Launch each kernel once, the CUDA C++ ones and Gluon's."""
    import torch
    import warp_specialised

    from ledger.kernels.common.cuda import prepare_cuda

    out = torch.zeros(BLOCKS * 512, device="cuda")
    for source, threads in sources():
        prepare_cuda(source, programs=BLOCKS, threads=threads, shared_bytes=0, arguments=[out], overlap=False)()
    for kernel in warp_specialised.KERNELS:
        kernel[(BLOCKS,)](out, num_warps=4)
    torch.cuda.synchronize()
    print(f"LAUNCHED {len(sources()) + len(warp_specialised.KERNELS)}: {out.sum().item():g}")


if __name__ == "__main__":
    sys.exit(main())
