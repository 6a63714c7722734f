"""Tests which variants of a cell are timed, and that a failing one does not affect the others."""

from dataclasses import replace

import pytest
from measuring import cell_of, kernel_file, this_cpu

pytest.importorskip("torch", reason="torch is not installed: nothing can be timed")


def test_only_axes_of_the_output_are_halved_and_only_even_ones():
    from ledger.measure.intervene import halved

    shapes = dict(halved(kernel_file().kernel, {"M": 4, "N": 3, "K": 8}))
    assert shapes == {"M": {"M": 2, "N": 3, "K": 8}}


def test_interventions_keep_their_time_budget(monkeypatch):
    from ledger.measure import intervene as vary
    from ledger.measure.timer import parameters_of

    cell = cell_of(this_cpu())
    found = vary.intervene(
        cell, kernel_file().kernel, [lambda: None] * 2, call_ps=10**13, target="x86_64", l2_bytes=None,
        parameters=parameters_of(cell.protocol), device="cpu",
    )  # fmt: skip
    assert found == {"cold_ps": 10**13}


def intervened(kernel, shape: dict[str, int]) -> set[str]:
    """Return the names of the readings that a cell of this shape gives on this CPU."""
    import torch

    from ledger.measure import intervene as vary
    from ledger.measure.timer import parameters_of

    case = cell_of(this_cpu()).case.model_copy(update={"kernel": kernel.name, "shape": shape})
    cell = cell_of(this_cpu(), case=case)
    inputs = {
        spec.name: torch.rand(spec.dims, generator=torch.Generator().manual_seed(0))
        for spec in kernel.operation.inputs(shape)
    }
    launch = kernel.implementations["torch-cpu"](inputs, torch.empty(kernel.operation.output_dims(shape)), {})
    return set(
        vary.intervene(
            cell, kernel, [launch] * 2, call_ps=10**6, target="x86_64", l2_bytes=None,
            parameters=parameters_of(cell.protocol), device="cpu",
        )
    )  # fmt: skip


def test_a_half_that_a_kernel_does_not_offer_does_not_affect_the_others():
    from ledger.kernel_files import load_kernel

    # Half of four query heads are fewer than the four key heads: no attention, and two ways to say so.
    kernel, shape = load_kernel("decode_attention", launch=True).kernel, {"B": 2, "HQ": 4, "HKV": 4, "S": 32, "D": 16}
    assert {"warm_ps", "half_B_ps"} <= intervened(kernel, shape)
    assert "half_HQ_ps" not in intervened(kernel, shape)

    def work(shape, dtype):
        if shape["HQ"] < shape["HKV"]:
            raise ZeroDivisionError("no query head in a group")
        return kernel.work(shape, dtype)

    assert {"warm_ps", "half_B_ps"} <= intervened(replace(kernel, work=work), shape)
