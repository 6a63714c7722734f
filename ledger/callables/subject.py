"""Defines a callable as a subject: its name, its arguments, the pass that is timed and what its result is held against.

All of it is sealed in the case: the name as its kernel, the arguments, and `pass`, `reference` and `work` in its
configuration. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from ledger.errors import InputError
from ledger.kernel import MOST_TOLERANCE
from ledger.records import Argument, Case, CaseV2, Dtype

Pass = Literal["forward", "backward", "both"]
SELF = "self-float64"
OPERATION = "callable/1"
SELF_CONSISTENT = "self-consistent with"
"""What the name of a reference starts with where it is the callable itself."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*")


def is_callable(kernel: str) -> bool:
    """Tell whether the name of a kernel is that of a callable, module:name."""
    return ":" in kernel


def work_of(case: Case) -> int | str | None:
    """Return how a callable's work is known, "counted" by torch or "given" by its author; None of a kernel."""
    return case.config.get("work") if is_callable(case.kernel) else None


def recompute_command(kernels: Iterable[str]) -> str:
    """Return the command that recomputes samples of some kernels or callables: a callable's code must be run."""
    kinds = {is_callable(name) for name in kernels}
    more = "" if True not in kinds else " --run-code" if False not in kinds else " [--run-code for callables]"
    return f"ledger audit --recompute{more}"


@dataclass(frozen=True)
class Subject:
    """Hold a callable. reference: module:name, or SELF for the callable itself in float64.

    tolerance: decimal text, in units of the root mean square of each result; None is that of the dtype.
    counted: whether its work is, by a call on meta tensors; a callable whose work was given is not called on those.
    """

    name: str
    arguments: tuple[Argument, ...]
    run: Pass = "forward"
    reference: str = SELF
    tolerance: str | None = None
    counted: bool = True

    @property
    def module(self) -> str:
        """Return the module that holds the callable."""
        return self.name.partition(":")[0]

    @property
    def operation(self) -> str:
        """Return the name of its operation, which no auditor knows: another callable is never the same operation."""
        return f"{OPERATION}:{self.name}"

    def config(self, work: Literal["counted", "given"]) -> dict[str, int | str]:
        """Return what the case seals beside name, shape and arguments."""
        given = {} if self.tolerance is None else {"tolerance": self.tolerance}
        return {"pass": self.run, "reference": self.reference, "work": work, **given}


def subject_of(case: Case) -> Subject:
    """Return the callable of a case. Raises: InputError for a configuration that is not one of a callable."""
    arguments = case.arguments if isinstance(case, CaseV2) else None
    run, reference, work, tolerance = (case.config.get(key) for key in ("pass", "reference", "work", "tolerance"))
    known = run in get_args(Pass) and isinstance(reference, str) and work in ("counted", "given")
    if arguments is None or not known:
        raise InputError(
            f"{case.kernel}: arguments, pass, reference or work are not those of a callable; expected all four"
        )
    if tolerance is not None:
        check_tolerance(tolerance, case.dtype)
    counted = work == "counted"
    return checked(Subject(case.kernel, arguments, run, reference, tolerance, counted))  # type: ignore[arg-type]


def checked(subject: Subject) -> Subject:
    """Return a subject whose names are well-formed. Raises: InputError."""
    for name in (subject.name, *(() if subject.reference == SELF else (subject.reference,))):
        if not _NAME.fullmatch(name):
            raise InputError(f"callable {name!r}: expected module:name in ASCII, as in mypkg.ops:swiglu")
    return subject


def check_tolerance(text: str | int, dtype: Dtype) -> None:
    """Check the tolerance of a callable. Raises: InputError for one that results of another function would meet."""
    most = MOST_TOLERANCE[dtype]
    try:
        value = float(text) if isinstance(text, str) else math.nan
    except ValueError:
        value = math.nan
    if not 0 < value <= most:
        raise InputError(
            f"--tolerance: got {text} for {dtype}; expected a number above 0, at most {most:g} of each result's root "
            "mean square: a wider one lets another function's results pass"
        )


def sources_name(case: Case) -> str:
    """Return what names the sources of a case: its kernel, or a callable and the callable it is compared with."""
    reference = case.config.get("reference", SELF)
    return case.kernel if not is_callable(case.kernel) or reference == SELF else f"{case.kernel} {reference}"


def modules_of(sources: str) -> tuple[str, tuple[str, ...]]:
    """Return the module of a callable, and those it is compared with, from their `sources_name`."""
    first, *others = (name.partition(":")[0] for name in sources.split(" "))
    return first, tuple(name for name in others if name != first)


def cell_suffix(config: Mapping[str, int | str]) -> str:
    """Return what a cell's name ends in: nothing for a forward pass."""
    return "" if config.get("pass", "forward") == "forward" else f"-{config['pass']}"
