"""Asks for a forecast on a terminal, one question at a time; shows the roof before it asks for the percent.

Every question takes ? or help as an answer, and is asked again after an answer that it does not take.
"""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from ledger.cli.options import (
    check_interval,
    check_percent,
    parse_probabilities,
    parse_shape,
    parse_sight,
    percent_number,
)
from ledger.cli.output import err
from ledger.errors import InputError
from ledger.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from ledger.analysis.campaign import Request
    from ledger.records import CeilingKind, Regime

    T = TypeVar("T")
    C = TypeVar("C", bound=str)

REGIMES: dict[Regime, str] = {
    "hbm-bound": "main memory: bytes come no faster",
    "compute-bound": "arithmetic: tensor cores or other units are busy",
    "smem-bound": "shared memory: its bandwidth is used up",
    "l2-bound": "the L2 cache: data come from it rather than from main memory",
    "launch-bound": "launches: an empty one takes at least half of the call",
    "latency-bound": "no resource: none reaches 60%; threads wait, or are too few",
}
"""What binds a kernel in each regime, in a line; docs/regimes.md defines them."""
_MILLION = 1_000_000


def ask(root: FilePath) -> tuple[Request, CeilingKind]:
    """Return a forecast from the answers of a person, and the set of ceilings they chose.

    Raises: InputError where the input ends before the last answer.
    """
    try:
        return _asked(root)
    except EOFError as error:
        raise InputError("the input ended before the last answer; nothing is sealed") from error


def _asked(root: FilePath) -> tuple[Request, CeilingKind]:
    from ledger.analysis.campaign import Request
    from ledger.canonical import record_errors
    from ledger.kernel_files import implementation_for, kernel_names, load_kernel
    from ledger.record_files import hardware_names, load_hardware
    from ledger.render.forecast_table import roof_sentence
    from ledger.roofline import roof_of

    err().print("  ? explains a question; Ctrl-C ends without a seal", markup=False)
    kernel = load_kernel(choose("Kernel", kernel_names(root), other=_no_callable), root).kernel
    hardware = load_hardware(choose("Hardware", hardware_names(root)), root)
    dtype = choose("Data type", kernel.dtypes)
    keys = ",".join(f"{key}=…" for key in kernel.operation.shape_keys)
    shape = until(
        f"Shape ({keys})", lambda text: _shape(text, kernel.check_shape), "Sizes of the operation, as B=8,H=64."
    )
    ceilings = choose("Ceilings", tuple(hardware.ceilings), "Datasheet: theoretical peaks; the others are measured.")
    path = kernel.path(dtype, hardware.target, implementation_for(kernel, hardware))
    with record_errors("forecast"):
        err().print(roof_sentence(kernel.work(shape, dtype), roof_of(hardware, path, ceilings)))
        regime = choose_regime("Which resource binds it")
        pct, low, high = ask_percent("Percent of the roof it will reach")
        request = Request(
            kernel=kernel.name,
            hardware=hardware.name,
            dtype=dtype,
            shape=shape,
            regime=regime,
            pct=pct,
            low=low,
            high=high,
            prob=until("Probability of that regime (empty: not stated)", lambda text: probability(text, regime), _SURE),
            why=line("Why, in a sentence or two"),
            **sight(),
        )
    return request, ceilings


def _no_callable(text: str) -> str:
    """Return what to do where the answer is a callable, whose arguments are not asked for."""
    from ledger.callables.subject import is_callable

    return f"; of a callable: ledger predict {text} --args … --hw … --regime … --pct …" if is_callable(text) else ""


_SURE = "In percent, as 80, which leaves the rest to the other regimes alike; or each: hbm-bound=0.8,latency-bound=0.2."


def sight() -> dict[str, Any]:
    """Return what had been timed before, by the answers of a person."""
    err().print("  blind: nothing like it; near: a neighbouring shape or another version; informed: this cell")
    answer = until("Timed before: blind, near, informed (empty: undeclared)", lambda text: parse_sight(text or None))
    known = until("What had been timed", _sentence) if answer in ("near", "informed") else ""
    return {"sight": answer, "known": known}


def choose_regime(question: str) -> Regime:
    """Ask for a regime, each explained in a line."""
    for name, words in REGIMES.items():
        err().print(f"  {name:14} {words}", markup=False)
    return choose(question, tuple(REGIMES), "docs/regimes.md of this package defines each by counters.", listed=True)


def ask_percent(question: str) -> tuple[float, float | None, float | None]:
    """Ask for a percent of the roof and an interval around it; without a low end there is none."""
    meaning = "100 × time lower bound ÷ time: the shortest time that the roof allows, over the time that it takes."
    pct = until(question, percent, meaning)
    around = "The interval in which the measured percent will lie, with the probability that you aim at, such as 80%."
    while True:
        low = until("No lower than (empty: no interval)", bound, around)
        high = None if low is None else until("No higher than", percent, around)
        try:
            check_interval(pct, low, high)
        except InputError as error:
            err().print(f"  {error}", markup=False, soft_wrap=True)
            continue
        return pct, low, high


def confirmed(question: str) -> bool:
    """Ask a question to which only y or yes is consent; the end of the input is none."""
    try:
        return line(f"{question} [y/N]").lower() in ("y", "yes")
    except EOFError:
        return False


def _sentence(text: str) -> str:
    if not text:
        raise InputError("got nothing; expected a sentence on what had been timed")
    return text


def line(question: str) -> str:
    """Return one line that a person typed."""
    from rich.prompt import Prompt
    from rich.text import Text

    return Prompt.ask(Text(question), console=err(), default="", show_default=False).strip()


def until(question: str, parse: Callable[[str], T], meaning: str = "") -> T:
    """Ask until the answer parses. meaning: what ? and help print."""
    while True:
        answer = line(question)
        if answer.lower() in ("?", "help"):
            err().print(f"  {meaning or question}", markup=False, soft_wrap=True)
            continue
        try:
            return parse(answer)
        except (InputError, ValueError) as error:
            err().print(f"  {error}", markup=False, soft_wrap=True)


def choose(
    question: str,
    choices: Sequence[C],
    meaning: str = "",
    *,
    listed: bool = False,
    other: Callable[[str], str] = lambda _: "",
) -> C:
    """Ask for one of a few names; a unique prefix is enough.

    listed: they are on the screen already. other: adds to what is said of an answer that is none of them.
    """
    if len(choices) == 1:
        return choices[0]
    if not listed:
        err().print(f"  {', '.join(choices)}", markup=False)

    def pick(text: str) -> C:
        found = [choice for choice in choices if choice == text] or [c for c in choices if text and c.startswith(text)]
        if len(found) != 1:
            meant = did_you_mean(text, choices)
            raise InputError(f"got {text!r}; expected one of those above, or a unique prefix{meant}{other(text)}")
        return found[0]

    return until(question, pick, meaning or f"One of: {', '.join(choices)}; a unique prefix is enough.")


def _shape(text: str, check: Callable[[dict[str, int]], None]) -> dict[str, int]:
    shape = parse_shape(text)
    check(shape)
    return shape


def percent(text: str) -> float:
    """Return a percent of the roof; a percent sign may follow. Raises: InputError."""
    return check_percent(percent_number(text), "percent")


def bound(text: str) -> float | None:
    """Return one end of an interval, None for an empty answer."""
    return percent(text) if text else None


def probability(text: str, regime: Regime) -> dict[Regime, float] | None:
    """Return the probabilities of regimes, None for an empty answer; a percent alone is that of `regime`.

    Raises: InputError.
    """
    if not text:
        return None
    if "=" in text:
        return parse_probabilities(text)
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError as error:
        raise InputError(f"got {text!r}; expected a percent, or REGIME=PROBABILITY,…") from error
    if not 0 < share <= 1:
        raise InputError(f"got {text!r}; expected a percent above 0 and at most 100")
    # 0.8 may mean 80% or 0.8%.
    if share <= 0.01 and not text.endswith("%"):
        raise InputError(f"got {text!r}; expected a percent, as in 80, and its sign where it is at most 1%")
    others = [name for name in REGIMES if name != regime]
    first = round(share * _MILLION)
    each, more = divmod(_MILLION - first, len(others))
    parts = {name: each + (number < more) for number, name in enumerate(others)}
    return {name: parts.get(name, first) / _MILLION for name in REGIMES}
