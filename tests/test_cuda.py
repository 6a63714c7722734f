"""Tests the launch of CUDA C++ on a GPU; what needs no GPU is in tests/test_kernel_ahead.py."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from kernel_suite import gpu_target

from ledger.cuda import CudaSource, prepare_cuda

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
