"""Tests the launch of CUDA C++ on a GPU; what needs no GPU is in tests/kernels/test_kernel_ahead.py."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest
from kernel_suite import gpu_target

from ledger.kernels.common.cuda import CudaSource, prepare_cuda, tensor_map

pytestmark = pytest.mark.gpu

FILL = CudaSource('extern "C" __global__ void fill(float* out, float value) { out[threadIdx.x] = value; }', "fill")


def _prepared(out: Any, value: float) -> Any:
    return prepare_cuda(FILL, programs=1, threads=32, shared_bytes=0, arguments=[out, value], overlap=False)


def test_a_launch_can_be_prepared_in_a_thread_that_has_no_context() -> None:
    gpu_target()
    import torch

    out, failed = torch.zeros(32, device="cuda"), []

    def work() -> None:
        try:
            _prepared(out, 7.0)()
        except Exception as error:  # noqa: BLE001 - whatever it is, it must reach the test
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert not failed
    assert (out == 7.0).all()


def test_preparing_a_launch_does_not_wait_for_the_device() -> None:
    gpu_target()
    import torch

    out = torch.zeros(32, device="cuda")
    _prepared(out, 1.0)()
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000_000)
    launch = _prepared(out, 2.0)
    assert not torch.cuda.current_stream().query()
    launch()
    torch.cuda.synchronize()
    assert (out == 2.0).all()


def test_a_launch_keeps_the_tensors_that_it_reads_through_maps() -> None:
    gpu_target()
    import torch

    out, behind = torch.zeros(32, device="cuda"), torch.zeros(64, 64, device="cuda", dtype=torch.float16)
    seen = weakref.ref(behind)
    # The map follows what the kernel takes, and is not read.
    arguments = [out, 3.0, tensor_map(behind, (64, 64))]
    source = CudaSource(FILL.text.replace("float value", "float value, const __grid_constant__ Map map", 1), "fill")
    source = CudaSource("struct alignas(64) Map { char bytes[128]; };\n" + source.text, "fill")
    launch = prepare_cuda(source, programs=1, threads=32, shared_bytes=0, arguments=arguments, overlap=False)
    del behind, arguments
    gc.collect()
    assert seen() is not None
    launch()
    torch.cuda.synchronize()
    assert (out == 3.0).all()
    del launch
    gc.collect()
    assert seen() is None
