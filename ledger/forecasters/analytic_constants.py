"""Holds what the analytic forecaster assumes of a GPU beside its profile. Pure.

`declared` values come from the sources beside them; CONSTANTS are those values after a fit to the measured cells of
this repository (tests/forecasters/evaluate.py --fit), drawn to the declared ones where few cells tell.
"""

from __future__ import annotations

from typing import NamedTuple


class Constants(NamedTuple):
    """Hold shares of peaks, rates a clock and SM, and times.

    read, write: share of the DRAM datasheet bandwidth that reads reach, and that writes reach beside them (an H200
    reads 4.4 to 4.6 TB/s and copies 4.3 of 4.8). scattered: times that writes take of parts of sectors (six products
    that mostly write moved 0.33 to 0.46 of the datasheet in all, two of whole sectors 0.58 and 0.76). tensor,
    sustained: share of the tensor peak in bursts and after seconds of load (793 and 637 of 989 TFLOP/s by cuBLAS,
    hardware/measured/h200.yaml). cuda: the same of CUDA cores.
    products: of what is left to CUDA cores in attention. clock: share of the maximum clock under a light load.
    clock_of_tensor: the share of the tensor peak at its clock that a tile reaches. request: bytes a clock and SM from
    L2 (64 by its port). shared: bytes a clock and SM of shared memory (128 by 32 banks). l2: bytes a clock of L2 for
    each SM. l2_of_dram: load of L2 where DRAM has one of 1. shared_load: the same where shared memory limits.
    convert: elements a clock and warpgroup from shared memory through registers (16 bytes a thread in the 128 clocks
    of a load, a product and a store). promoted: sums a clock and SM that CUDA cores scale and add to those before (128
    lanes, a product and a sum each). latency_us: of a load from DRAM; the stages of a pipeline wait for it together.
    chain: clocks of a product that waits for the one before. exponentials: a clock
    and SM that products do not hide (16 in hardware, most of them hidden). early, ahead: share of launch and ends that
    an early launch leaves, and one that loads ahead. share_us: of stream-K, for each CTA of a tile beyond one. partial:
    share of L2's rate at which its sums move. waited_us: of a block's loads after the first block, of 1 KiB. fill: of
    the first step of a pipeline, whose stages do not overlap. short_s, long_s: launches between which the clock falls
    from its burst to its sustained value.
    """

    read: float = 0.95
    write: float = 0.85
    scattered: float = 1.9
    tensor: float = 0.83
    sustained: float = 0.68
    cuda: float = 0.78
    products: float = 0.5
    clock: float = 0.89
    clock_of_tensor: float = 0.95
    request: float = 64.0
    shared: float = 128.0
    l2: float = 54.0
    l2_of_dram: float = 1.04
    shared_load: float = 0.8
    convert: float = 8.0
    promoted: float = 54.0
    latency_us: float = 1.2
    chain: float = 125.0
    exponentials: float = 64.0
    early: float = 0.6
    ahead: float = 0.3
    ends_us: float = 1.5
    split_memory_us: float = 1.2
    split_cluster_us: float = 0.4
    share_us: float = 0.8
    partial: float = 0.4
    waited_us: float = 0.3
    fill: float = 1.0
    overlap: float = 3.0
    short_s: float = 1.5e-4
    long_s: float = 3.0e-3


DECLARED = Constants()
CONSTANTS = DECLARED._replace(
    read=0.96,
    write=0.87,
    sustained=0.724,
    products=0.506,
    request=67.3,
    shared=135,
    l2=50.7,
    convert=8.1,
    chain=112,
    exponentials=58.6,
    early=0.639,
    ahead=0.293,
    ends_us=1.86,
    split_memory_us=1.28,
    partial=0.395,
    waited_us=0.293,
    overlap=2.71,
)

FITTED = (
    "read", "write", "sustained", "products", "request", "shared", "l2", "convert", "chain", "exponentials",
    "early", "ahead", "ends_us", "split_memory_us", "split_cluster_us", "share_us", "partial",
    "waited_us", "fill", "overlap",
)  # fmt: skip
"""Constants that a fit moves; the others stay as declared."""
