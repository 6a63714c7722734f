"""Compares what a callable returns, and the inputs that it changed, with a reference. Imports torch, only when called.

Results may be nested and of several dtypes. They are compared element by element, floats in units of the root mean
square of each output; integers must be equal, those of eight bits within 1. Samples are of all results as one list, in
float64. References are computed after the calls that they judge. After the timing fresh_values checks the timed calls;
then the first input set is filled from the seal again and called once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ledger.callables.calls import Call
from ledger.callables.subject import SELF, SELF_CONSISTENT
from ledger.kernel import Kernel, Tolerance
from ledger.measure.correctness import explain_failure, sample
from ledger.measure.fresh_values import Fresh, Timeds, check_timed_calls
from ledger.measure.inputs import InputSet
from ledger.measure.result_form import frozen, require_own_memory, require_settled
from ledger.measure.timer import Timed
from ledger.philox_inputs import derive_key
from ledger.records import Correctness, OrderedCell, Samples

if TYPE_CHECKING:
    import torch

_NOT_NUMBERS = float("inf")


def reference_name(cell: OrderedCell) -> str:
    """Return what a callable was compared with, as the record says it."""
    import torch

    reference, where = cell.case.config["reference"], f"in float64 by torch {torch.__version__}"
    if reference == SELF:
        return f"{SELF_CONSISTENT} {cell.case.kernel} itself {where}; not compared with anything else"
    return f"{reference} {where}"


def compare_results(
    results: Sequence[torch.Tensor], references: Sequence[torch.Tensor], tolerance: Tolerance, *, name: str
) -> Correctness:
    """Return how far results are from their references; errors of floats in units of each output's root mean square.

    Results of other number or shapes than the references' never pass.
    """
    got, expected = [_shape(one) for one in results], [_shape(one) for one in references]
    if not got:
        return _failed(name, tolerance, "no tensor is returned and no argument is changed; expected a result")
    if got != expected:
        return _failed(name, tolerance, f"results of shapes {got[:8]}; expected {expected[:8]}")
    largest, squares, reference_squares, passed = 0.0, 0.0, 0.0, True
    for one, other in zip(results, references, strict=True):
        error, size = _error(one, other, tolerance)
        if not error.numel():
            continue
        allowed = tolerance.atol + tolerance.rtol * size
        passed &= bool((error <= allowed).all())
        largest = max(largest, float(error.nan_to_num(nan=_NOT_NUMBERS).max()))
        squares += float((error**2).sum())
        reference_squares += float((size**2).sum())
    relative = (squares / reference_squares) ** 0.5 if reference_squares else squares**0.5
    return Correctness(
        passed=passed,
        reference=name,
        elements=sum(one.numel() for one in results),
        max_abs_error=f"{largest:.6e}",
        relative_error=f"{relative:.6e}",
        atol=f"{tolerance.atol:.6e}",
        rtol=f"{tolerance.rtol:.6e}",
    )


def _shape(tensor: torch.Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)


def _failed(name: str, tolerance: Tolerance, reason: str) -> Correctness:
    bounds = {"atol": f"{tolerance.atol:.6e}", "rtol": f"{tolerance.rtol:.6e}"}
    text = f"{name}: {reason}"[:400]
    return Correctness(passed=False, reference=text, elements=0, max_abs_error="nan", relative_error="nan", **bounds)


def _error(result: torch.Tensor, reference: torch.Tensor, tolerance: Tolerance) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each element's error and the size of its reference, in units in which the tolerance holds."""
    import torch

    got, expected = as_numbers(result), as_numbers(reference)
    if result.is_floating_point() or result.is_complex():
        scale = float(expected.square().mean().sqrt()) if expected.numel() else 1.0
        unit = scale if scale > 0 else 1.0
        return (got - expected).abs() / unit, expected.abs() / unit
    step = 1.0 if result.dtype in (torch.int8, torch.uint8) else 0.0
    off = ((got - expected).abs() > step).double()
    return off * (1.0 + tolerance.atol), expected.abs() * 0.0


def as_numbers(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as float64, a complex one as pairs."""
    import torch

    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).double()


def as_list(results: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return all elements of some results as one list. Shapes: (N,) float64."""
    import torch

    return torch.cat([as_numbers(one).reshape(-1) for one in results])


class ResultCheck:
    """Compare the results of a cell's input sets with the reference."""

    def __init__(
        self,
        cell: OrderedCell,
        kernel: Kernel,
        sets: Sequence[InputSet],
        launches: Sequence[Any],
        fresh: Fresh,
    ) -> None:
        """Keep the first input set. fresh: as in Timeds."""
        self.cell, self.calls, self.fresh = cell, [launch for launch in launches if isinstance(launch, Call)], fresh
        self.tolerance, self.name, self.reference = (
            kernel.tolerances[cell.case.dtype], reference_name(cell), kernel.reference,
        )  # fmt: skip
        self.first = {name: tensor.clone() for name, tensor in sets[0].inputs.items()}
        self.earlier: list[torch.Tensor] = []
        self.expected: list[Any] = []

    def compare(self) -> Correctness:
        """Return how far the result of a first call on the first input set is from its reference.

        Inputs that this call has changed are results, whether torch saw the change or not. Raises: SubjectRefused.
        """
        call = self.calls[0]
        copies = frozen(call)
        written = call.differing(self.first)
        require_settled(call, copies)
        for one in self.calls:
            one.note_written(written)
        self.expected = self.reference(self.first)
        self.first.clear()
        self.earlier = [one.clone() for one in call.results()]
        require_own_memory(call.results(), self.expected)
        return self._compare(self.earlier, self.expected)

    def again(self, timed: Timed) -> Correctness:
        """Check the timed calls, and return how far a new call on the first input set is from its reference.

        Raises: SubjectRefused.
        """
        check_timed_calls(
            Timeds(
                self.calls, timed, self.fresh, self.reference, self._compare, explain_failure, self.earlier,
                self.expected,
            )
        )  # fmt: skip
        self.calls[0].restore(next(self.fresh(0, 1)).inputs)
        self.calls[0]()
        return self._compare(frozen(self.calls[0]), self.expected)

    def samples(self, count: int) -> Samples:
        """Return elements of the first set's results at positions that the seal determines."""
        cell = self.cell
        key = derive_key(seal=cell.seal, cell=cell.cell, run=cell.run, anchor=cell.anchor)
        return sample(as_list(self.calls[0].results()), dtype="fp64", key=key, count=count)

    def poison(self) -> None:
        """Do nothing: the results are a callable's own memory."""

    def _compare(self, results: Sequence[torch.Tensor], references: Sequence[torch.Tensor]) -> Correctness:
        return compare_results(results, references, self.tolerance, name=self.name)


@contextmanager
def compiled_once(launches: Sequence[Callable[[], None]]) -> Iterator[None]:
    """Call every launch once, then refuse a compilation inside the block, and eager mode instead of one.

    Without torch.compile nothing is watched. Raises: what torch._dynamo raises, with its reason.
    """
    import sys

    dynamo: Any = sys.modules.get("torch._dynamo")
    if dynamo is None or not _compilations(dynamo):
        yield
        return
    with dynamo.config.patch(fail_on_recompile_limit_hit=True, suppress_errors=False):
        for launch in launches:
            launch()
        with dynamo.config.patch(error_on_recompile=True):
            before = _compilations(dynamo)
            yield
    if _compilations(dynamo) != before:
        raise RuntimeError("torch.compile compiled again during the rotation; expected one program for all input sets")


def _compilations(dynamo: Any) -> int:
    counters: Mapping[str, Mapping[str, int]] = dynamo.utils.counters
    return sum(counters["frames"].values()) if "frames" in counters else 0
