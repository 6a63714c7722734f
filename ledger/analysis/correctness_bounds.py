"""Checks that a comparison said to have passed can have passed. Pure.

The tolerances of a kernel are in its sealed source, which is not run here. Of an operation that this package defines
the number and the usual size of the outputs are known; a callable's errors are in units of each result's root mean
square, and its tolerance may be sealed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from ledger.callables.subject import is_callable
from ledger.kernel import MOST_TOLERANCE
from ledger.operations import OPERATIONS, Operation
from ledger.records import Correctness, Forecast, Measurement

_DECIMAL = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?")
_ERRORS, _TOLERANCES = ("max_abs_error", "relative_error"), ("atol", "rtol")
_ROUNDING = 1.001
"""Errors and tolerances are recorded with seven digits."""
_LARGEST = 1000
"""No output is this many times its operation's spread."""
_SMALL, _MANY = 0.01, 64
"""Of this many outputs the root mean square is more than this share of the spread."""


def correctness(forecast: Forecast, measurement: Measurement, *, counted: bool = True) -> Iterator[str]:
    """Yield what contradicts that a comparison passed. counted: also check how many elements were compared."""
    seen = measurement.correctness
    if seen is None or not seen.passed:
        return
    texts = {name: getattr(seen, name) for name in (*_ERRORS, *_TOLERANCES)}
    unreadable = [name for name, text in texts.items() if not _finite(text)]
    yield from (f"{name} is {texts[name][:40]!r}; expected a finite decimal number" for name in unreadable)
    known = None if is_callable(forecast.case.kernel) else _operation(forecast)
    if not unreadable:
        yield from _bounded(seen, _limits(forecast, seen, known))
    if counted:
        yield from _elements(forecast, measurement, seen, known)


def _finite(text: str) -> bool:
    return _DECIMAL.fullmatch(text) is not None and math.isfinite(float(text))


def _operation(forecast: Forecast) -> Operation | None:
    """Return the operation of a kernel where this package defines it for the sealed shape."""
    operation = OPERATIONS.get(forecast.operation)
    return operation if operation and set(operation.shape_keys) <= set(forecast.case.shape) else None


def _limits(forecast: Forecast, seen: Correctness, known: Operation | None) -> dict[str, float]:
    """Return the largest value by name that a comparison which passed can have; none where nothing bounds it."""
    atol, rtol = float(seen.atol), float(seen.rtol)
    if is_callable(forecast.case.kernel):
        # A result of n elements, 2n numbers where they are complex, is at most √(2n) times its root mean square.
        most, widest = math.sqrt(2 * seen.elements), _callable_tolerance(forecast)
        return {
            "atol": widest, "rtol": widest, "max_abs_error": atol + rtol * most, "relative_error": rtol + atol * most,
        }  # fmt: skip
    if known is None:
        return {}
    spread = known.spread(forecast.case.shape)
    # A wider tolerance lets an output of zeros pass.
    limits = {"atol": spread, "rtol": 1.0, "max_abs_error": atol + rtol * _LARGEST * spread}
    if math.prod(known.output_dims(forecast.case.shape)) >= _MANY:
        limits["relative_error"] = rtol + atol / (_SMALL * spread)
    return limits


def _callable_tolerance(forecast: Forecast) -> float:
    """Return the sealed tolerance of a callable, or the widest that one of its dtype can have."""
    widest, sealed = MOST_TOLERANCE[forecast.case.dtype], forecast.case.config.get("tolerance")
    return min(widest, float(sealed)) if isinstance(sealed, str) and _finite(sealed) else widest


def _bounded(seen: Correctness, limits: dict[str, float]) -> Iterator[str]:
    for name, limit in limits.items():
        got = float(getattr(seen, name))
        if got > limit * _ROUNDING:
            yield f"passed with {name} {got:g}; expected at most {limit:.3g}"


def _elements(
    forecast: Forecast, measurement: Measurement, seen: Correctness, known: Operation | None
) -> Iterator[str]:
    if known is not None:
        expected = math.prod(known.output_dims(forecast.case.shape))
        if seen.elements != expected:
            yield f"{seen.elements} elements were compared; {forecast.cell} has {expected}"
    # Samples of complex results are pairs.
    elif measurement.samples and max(measurement.samples.positions, default=-1) >= 2 * seen.elements:
        yield f"{seen.elements} elements were compared, fewer than the positions of its samples"
