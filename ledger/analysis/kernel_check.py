"""Says what a kernel file lacks, and at which shapes it is tried: each case that is small enough, and odd ones. Pure.

A finding is passed, failed, or skipped with the reason. What needs torch is in measure.kernel_check.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from ledger.analysis.formatting import shape_text
from ledger.analysis.work_model import elements
from ledger.errors import InputError
from ledger.kernel import CPU_IMPLEMENTATION, GPU_IMPLEMENTATIONS, Kernel
from ledger.operations import Shape
from ledger.records import Dtype, Path

Status = Literal["passed", "failed", "skipped"]

TARGETS = ("sm_90", "sm_80")
"""Targets whose launch rules are tried; a kernel need not be for both."""
_SECTIONS = ("Formula:", "Shapes:", "Traffic:", "The work model excludes:")
_ODD = (1, 3, 17, 97, 129, 1031)
_PRIMES = ((5, 7, 3, 11, 13, 2), (67, 131, 37, 29, 23, 19))


@dataclass(frozen=True)
class Finding:
    """Hold the result of one check: its name, what was checked, and what was found."""

    check: str
    status: Status
    detail: str


@dataclass(frozen=True)
class Budget:
    """Bound a trial: elements of all tensors, operations, and the number of shapes of a dtype."""

    elements: int
    flops: int
    shapes: int


def fits(kernel: Kernel, shape: Shape, budget: Budget) -> bool:
    """Tell whether a shape is small enough for a trial."""
    operation = kernel.operation
    return (
        sum(elements(operation, shape)) <= budget.elements
        and kernel.work(shape, kernel.dtypes[0]).flops <= budget.flops
        and 2 * operation.products(shape) <= budget.flops
    )


def refusal(kernel: Kernel, shape: Shape, dtype: Dtype, targets: Sequence[str] = TARGETS) -> str | None:
    """Return why a kernel does not offer a shape: what its launch rule says for each target; None where it does."""
    try:
        kernel.check_offers(shape, dtype)
    except InputError as error:
        return str(error)
    if not any(name in kernel.implementations for name in GPU_IMPLEMENTATIONS):
        return None
    said = None
    for target in targets:
        try:
            kernel.check_config(kernel.config(shape, dtype, target), shape, dtype, target)
        except InputError as error:
            said = said or str(error)
        else:
            return None
    return said


def trial_shapes(kernel: Kernel, budget: Budget) -> list[dict[str, int]]:
    """Return the shapes of trials: ones, cases made small enough, single odd sizes in them, and primes everywhere."""
    keys = kernel.operation.shape_keys
    cases = [_shrunk(kernel, case, budget) for case in kernel.cases]
    odd = ({**case, key: size} for case in cases[:2] for key in keys for size in _ODD)
    primes = (dict(zip(keys, itertools.cycle(row))) for row in _PRIMES)
    found: dict[tuple[int, ...], dict[str, int]] = {}
    for shape in (dict.fromkeys(keys, 1), *primes, *cases, *odd):
        size = tuple(shape[key] for key in keys)
        if size not in found and fits(kernel, shape, budget) and refusal(kernel, shape, kernel.dtypes[0]) is None:
            found[size] = {key: shape[key] for key in keys}
    return list(found.values())[: budget.shapes]


def _shrunk(kernel: Kernel, case: Shape, budget: Budget) -> dict[str, int]:
    """Return a case with its largest sizes halved until it is small enough."""
    shape = dict(case)
    while not fits(kernel, shape, budget) and max(shape.values()) > 1:
        largest = max(shape, key=shape.__getitem__)
        shape[largest] //= 2
    return shape


def file_findings(kernel: Kernel, docstring: str | None) -> Iterator[Finding]:
    """Yield what a kernel's file has and lacks."""
    yield _docstring(docstring)
    yield _finding("tolerances", _tolerance_problems(kernel), f"one for each dtype ({', '.join(kernel.dtypes)})")
    yield _finding("cases", _case_problems(kernel), f"{len(kernel.cases)}, of keys {', '.join(_keys(kernel))}")
    yield _finding("implementations", _implementation_problems(kernel), ", ".join(kernel.implementations))
    yield _finding("launch rule", _rule_problems(kernel), "gives what its own check accepts, for each case and dtype")
    texts = {"summary": kernel.summary, "formula": kernel.formula, "excludes": kernel.excludes}
    lacking = [f"{name} is empty" for name, text in texts.items() if not text.strip()]
    yield _finding("texts", lacking, "summary, formula, excludes")
    if CPU_IMPLEMENTATION not in kernel.implementations:
        yield Finding("cpu", "skipped", f"no implementation {CPU_IMPLEMENTATION}: it cannot be measured on a CPU")
    if "triton" in kernel.implementations and kernel.ahead is None:
        yield Finding("ahead", "skipped", "no Kernel(ahead=…): ledger inspect cannot compile it without a GPU")


def _finding(check: str, problems: list[str], passed: str) -> Finding:
    return Finding(check, "failed", "; ".join(problems)) if problems else Finding(check, "passed", passed)


def _keys(kernel: Kernel) -> tuple[str, ...]:
    return kernel.operation.shape_keys


def _docstring(docstring: str | None) -> Finding:
    """Return what a docstring lacks: it must give the formula, and may refer to another file for the rest."""
    lacking = [section for section in _SECTIONS if section not in (docstring or "")]
    if not lacking:
        return Finding("docstring", "passed", "formula, shapes, traffic, what the work model excludes")
    words = f"no line {', '.join(map(repr, lacking))}" if docstring else "the module has none"
    return Finding("docstring", "failed" if _SECTIONS[0] in lacking else "skipped", words)


def _tolerance_problems(kernel: Kernel) -> list[str]:
    problems = [] if kernel.dtypes else ["no dtype is offered"]
    problems += [f"none for {dtype}, which is offered" for dtype in kernel.dtypes if dtype not in kernel.tolerances]
    problems += [f"one for {dtype}, which is not offered" for dtype in kernel.tolerances if dtype not in kernel.dtypes]
    for dtype, bound in kernel.tolerances.items():
        if not (math.isfinite(bound.atol) and math.isfinite(bound.rtol) and min(bound.atol, bound.rtol) >= 0):
            problems.append(f"that of {dtype} is not finite; expected two numbers from 0")
        if not bound.reason.strip():
            problems.append(f"that of {dtype} has no reason")
    return problems


def _case_problems(kernel: Kernel) -> list[str]:
    problems = [] if kernel.cases else ["none; expected the shapes that matter, and a ragged one"]
    for case in kernel.cases:
        if set(case) != set(_keys(kernel)) or not all(isinstance(n, int) and n >= 1 for n in case.values()):
            problems.append(f"{shape_text(case)} does not have the sizes {', '.join(_keys(kernel))}, each from 1")
    return problems


def _implementation_problems(kernel: Kernel) -> list[str]:
    known = (*GPU_IMPLEMENTATIONS, CPU_IMPLEMENTATION)
    problems = [f"{name!r} is not one of: {', '.join(known)}" for name in kernel.implementations if name not in known]
    problems += [] if kernel.implementations else [f"none; expected one or more of: {', '.join(known)}"]
    try:
        re.compile(kernel.launched)
    except re.error as error:
        return [*problems, f"launched is no regular expression ({error})"]
    return problems


def _rule_problems(kernel: Kernel) -> list[str]:
    if _case_problems(kernel) or not kernel.dtypes:
        return ["not tried without valid cases and a dtype"]
    said: list[str] = []
    on_gpu = 0
    for dtype in kernel.dtypes:
        refused = {shape_text(case): refusal(kernel, case, dtype) for case in kernel.cases}
        wrong = [f"{shape} {dtype}: {why}" for shape, why in refused.items() if why is not None]
        # A dtype may be for CPUs alone.
        if len(wrong) < len(refused) or CPU_IMPLEMENTATION not in kernel.implementations:
            said += wrong
            on_gpu += 1
        for name in kernel.implementations:
            path = kernel.path(dtype, TARGETS[0], name)
            if path not in get_args(Path):
                said.append(f"path of {dtype} is {path!r}; expected one of: {', '.join(get_args(Path))}")
    if not on_gpu:
        said.append(f"no case is offered in any dtype: {refusal(kernel, kernel.cases[0], kernel.dtypes[0])}")
    return said[:3]


def documents(findings: Sequence[Finding]) -> list[dict[str, str]]:
    """Return findings as JSON values."""
    return [{"check": one.check, "status": one.status, "detail": one.detail} for one in findings]
