"""Tests what claims seal of their timing, and which sealed protocols this version follows."""

from typing import Any

import pytest
from claimed import first_protocol

from ledger.measure.comparison_effort import ON_CPU, ON_GPU, claim_protocol, effort_of, follows
from ledger.measure.input_copies import NO_COPIES, CopyLimits
from ledger.records import Protocol


def changed(protocol: Protocol, **values: int) -> Protocol:
    return protocol.model_copy(update={"parameters": {**protocol.parameters, **values}})


def copies_of(protocol: Protocol) -> CopyLimits:
    return CopyLimits(protocol.parameters["copies_l2_multiple"], protocol.parameters["copies_rotation_ms"])


def test_a_claim_seals_copies_on_a_gpu_only():
    gpu, cpu = claim_protocol("triton", 1), claim_protocol("torch-cpu", 1)
    assert (copies_of(gpu), copies_of(cpu)) == (CopyLimits(64, 2), NO_COPIES)
    assert (effort_of(gpu), effort_of(cpu)) == (ON_GPU, ON_CPU)
    assert effort_of(changed(gpu, copies_l2_multiple=16, copies_rotation_ms=5)).copies == CopyLimits(16, 5)


@pytest.mark.parametrize("implementation", ["triton", "torch-cpu"])
def test_the_first_protocol_is_followed_without_copies(implementation: str):
    first = first_protocol(implementation, 3)
    assert follows(first, implementation, 3) and effort_of(first).copies == NO_COPIES
    assert not follows(first, implementation, 4)


@pytest.mark.parametrize(
    ("implementation", "values", "followed"),
    [
        ("triton", {}, True),
        ("triton", {"copies_l2_multiple": 128, "copies_rotation_ms": 4}, True),
        ("triton", {"copies_l2_multiple": 0}, True),
        ("triton", {"copies_l2_multiple": 10**6}, False),
        ("triton", {"copies_rotation_ms": 10**6}, False),
        ("triton", {"min_rounds": 20}, False),
        ("triton", {"budget_ms": 10**9}, False),
        ("triton", {"footprint_l2_multiple": 1}, False),
        ("torch-cpu", {}, True),
        ("torch-cpu", {"copies_l2_multiple": 64, "copies_rotation_ms": 2}, False),
    ],
)
def test_only_copies_may_differ_within_bounds(implementation: str, values: dict[str, Any], followed: bool):
    assert follows(changed(claim_protocol(implementation, 1), **values), implementation, 1) is followed
