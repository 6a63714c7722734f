"""Asks for a forecast on a terminal, one question at a time; shows the roof before it asks for the percent."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, get_args

from ledger.cli.options import check_percent, parse_shape, parse_sight
from ledger.cli.output import err
from ledger.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from ledger.analysis.campaign import Request
    from ledger.records import CeilingKind

    T = TypeVar("T")
    C = TypeVar("C", bound=str)


def ask(root: FilePath) -> tuple[Request, CeilingKind]:
    """Return a forecast from the answers of a person, and the set of ceilings they chose."""
    from ledger.analysis.campaign import Request
    from ledger.canonical import record_errors
    from ledger.kernel_files import implementation_for, kernel_names, load_kernel
    from ledger.record_files import hardware_names, load_hardware
    from ledger.records import Regime
    from ledger.render.forecast_table import roof_sentence
    from ledger.roofline import roof_of

    kernel = load_kernel(choose("Kernel", kernel_names(root)), root).kernel
    hardware = load_hardware(choose("Hardware", hardware_names(root)), root)
    dtype = choose("Data type", kernel.dtypes)
    keys = ",".join(f"{key}=…" for key in kernel.operation.shape_keys)
    shape = until(f"Shape ({keys})", lambda text: _shape(text, kernel.check_shape))
    ceilings = choose("Ceilings", tuple(hardware.ceilings))
    path = kernel.path(dtype, hardware.target, implementation_for(kernel, hardware))
    with record_errors("forecast"):
        err().print(roof_sentence(kernel.work(shape, dtype), roof_of(hardware, path, ceilings)))
        request = Request(
            kernel=kernel.name,
            hardware=hardware.name,
            dtype=dtype,
            shape=shape,
            regime=choose("Which resource binds it", get_args(Regime)),
            pct=until("Percent of the roof it will reach", percent),
            low=until("No lower than (empty: no interval)", bound),
            high=until("No higher than (empty: no interval)", bound),
            why=line("Why, in a sentence or two"),
            **sight(),
        )
    return request, ceilings


def sight() -> dict[str, Any]:
    """Return what had been timed before, by the answers of a person."""
    err().print("  blind: nothing like it; near: a neighbouring shape or another version; informed: this cell")
    answer = until("Timed before: blind, near, informed (empty: undeclared)", lambda text: parse_sight(text or None))
    known = until("What had been timed", _sentence) if answer in ("near", "informed") else ""
    return {"sight": answer, "known": known}


def _sentence(text: str) -> str:
    if not text:
        raise InputError("got nothing; expected a sentence on what had been timed")
    return text


def line(question: str) -> str:
    """Return one line that a person typed."""
    from rich.prompt import Prompt

    try:
        return Prompt.ask(question, console=err(), default="", show_default=False).strip()
    except EOFError as error:
        raise InputError(
            "the input ended before the last answer; expected one to each question: nothing is sealed"
        ) from error


def until(question: str, parse: Callable[[str], T]) -> T:
    """Ask until the answer parses."""
    while True:
        answer = line(question)
        try:
            return parse(answer)
        except (InputError, ValueError) as error:
            err().print(f"  {error}", markup=False)


def choose(question: str, choices: Sequence[C]) -> C:
    """Ask for one of a few names; a unique prefix is enough."""
    if len(choices) == 1:
        return choices[0]
    err().print(f"  {', '.join(choices)}", markup=False)

    def pick(text: str) -> C:
        found = [choice for choice in choices if choice == text] or [c for c in choices if text and c.startswith(text)]
        if len(found) != 1:
            raise InputError(f"got {text!r}; expected one of those above, or a unique prefix")
        return found[0]

    return until(question, pick)


def _shape(text: str, check: Callable[[dict[str, int]], None]) -> dict[str, int]:
    shape = parse_shape(text)
    check(shape)
    return shape


def percent(text: str) -> float:
    """Return a percent of the roof."""
    return check_percent(float(text), "percent")


def bound(text: str) -> float | None:
    """Return one end of an interval, None for an empty answer."""
    return float(text) if text else None
