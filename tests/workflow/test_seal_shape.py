"""Tests that a kernel cannot seal a shape whose keys are not those of its operation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.errors import InputError
from ledger.kernel_files import load_kernel
from ledger.operations import MATMUL
from ledger.records import Work
from ledger.workflow.seal import _check_work


def test_extra_shape_key_is_bad_input_at_the_seal():
    kernel = load_kernel("matmul", None).kernel
    work = Work(flops=2 * 64**3, bytes_read=16_384, bytes_written=8_192)
    shape = {"M": 64, "N": 64, "K": 64}
    _check_work(kernel, shape, work)
    wider = replace(kernel, operation=replace(MATMUL, shape_keys=(*MATMUL.shape_keys, "X")))
    with pytest.raises(InputError, match="shape keys are K,M,N,X; matmul/1 has M,N,K"):
        _check_work(wider, {**shape, "X": 1}, work)
