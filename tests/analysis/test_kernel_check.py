"""Tests what a kernel file is said to lack, and at which shapes it is tried."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.analysis.kernel_check import Budget, file_findings, fits, refusal, trial_shapes
from ledger.errors import InputError
from ledger.kernel import Tolerance
from ledger.kernel_files import kernel_names, load_kernel

DOCSTRING = "Compute.\n\nFormula: y\nShapes: y (N,)\nTraffic: N\nThe work model excludes: nothing"
BUDGET = Budget(elements=1 << 16, flops=1 << 22, shapes=12)
SOFTMAX = load_kernel("softmax").kernel


def failed(kernel, docstring=DOCSTRING):
    return {one.check: one.detail for one in file_findings(kernel, docstring) if one.status == "failed"}


@pytest.mark.parametrize("name", kernel_names())
def test_shipped_kernel_lacks_nothing(name: str):
    assert not failed(load_kernel(name).kernel)


@pytest.mark.parametrize(
    ("change", "check", "words"),
    [
        ({"tolerances": {}}, "tolerances", "none for fp16, which is offered"),
        (
            {"tolerances": {**SOFTMAX.tolerances, "fp64": Tolerance(0, 0, "x")}},
            "tolerances",
            "fp64, which is not offered",
        ),
        ({"tolerances": {**SOFTMAX.tolerances, "fp16": Tolerance(0, 1, " ")}}, "tolerances", "fp16 has no reason"),
        ({"tolerances": {**SOFTMAX.tolerances, "fp16": Tolerance(float("inf"), 1, "x")}}, "tolerances", "not finite"),
        ({"dtypes": ()}, "tolerances", "no dtype is offered"),
        ({"cases": ()}, "cases", "none; expected the shapes that matter"),
        ({"cases": ({"M": 3},)}, "cases", "M=3 does not have the sizes M, N"),
        ({"cases": ({"M": 3, "N": 0},)}, "cases", "does not have the sizes"),
        ({"implementations": {}}, "implementations", "none; expected one or more of: triton, cuda, torch, torch-cpu"),
        ({"implementations": {"gpu": None}}, "implementations", "'gpu' is not one of"),
        ({"launched": "("}, "implementations", "no regular expression"),
        ({"summary": " "}, "texts", "summary is empty"),
        ({"path": lambda *_: "fp31"}, "launch rule", "path of fp16 is 'fp31'"),
    ],
)
def test_what_a_kernel_file_lacks_is_named(change, check, words):
    assert words in failed(replace(SOFTMAX, **change))[check]


@pytest.mark.parametrize(
    ("docstring", "words"),
    [(None, "has none"), ("", "has none"), (DOCSTRING.replace("Formula", "x"), "no line 'Formula:'")],
)
def test_a_lacking_docstring_is_named(docstring, words):
    assert words in failed(SOFTMAX, docstring)["docstring"]


def test_a_docstring_that_refers_to_another_for_the_rest_is_said_and_does_not_fail():
    (found,) = [one for one in file_findings(SOFTMAX, "Formula: y") if one.check == "docstring"]
    assert (found.status, found.detail) == ("skipped", "no line 'Shapes:', 'Traffic:', 'The work model excludes:'")


def test_a_rule_that_its_own_check_refuses_is_named():
    def refuse(config, shape, dtype, target):
        raise InputError(f"softmax: nothing runs on {target}")

    assert "nothing runs on sm_90" in failed(replace(SOFTMAX, check_config=refuse))["launch rule"]


def test_missing_parts_that_a_kernel_may_lack_are_said_and_do_not_fail():
    only = {"triton": SOFTMAX.implementations["triton"]}
    found = {one.check: one for one in file_findings(replace(SOFTMAX, implementations=only, ahead=None), DOCSTRING)}
    assert found["cpu"].status == found["ahead"].status == "skipped"
    assert not [one for one in found.values() if one.status == "failed"]


@pytest.mark.parametrize("name", kernel_names())
def test_trial_shapes_are_odd_small_offered_and_distinct(name: str):
    kernel = load_kernel(name).kernel
    shapes = trial_shapes(kernel, BUDGET)
    assert 2 <= len(shapes) <= BUDGET.shapes
    assert len({tuple(shape.values()) for shape in shapes}) == len(shapes)
    assert all(fits(kernel, shape, BUDGET) and refusal(kernel, shape, kernel.dtypes[0]) is None for shape in shapes)
    # No size is a multiple of 16 in every shape: a kernel that forgets a mask is found.
    assert all(any(shape[key] % 16 for shape in shapes) for key in kernel.operation.shape_keys if key != "D")


def test_a_shape_that_the_kernel_refuses_is_no_trial():
    kernel = load_kernel("flash_attention").kernel
    assert refusal(kernel, {"B": 1, "HQ": 3, "HKV": 2, "S": 5, "D": 8}, "fp16") is not None
    assert all(shape["HQ"] % shape["HKV"] == 0 for shape in trial_shapes(kernel, BUDGET))
