"""Defines options shared by commands, and parses values: shapes, configurations, probabilities, names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from ledger.errors import InputError
from ledger.suggestions import unknown

if TYPE_CHECKING:
    from ledger.records import CeilingKind, Dtype, Regime, Sight

Ids = Annotated[
    list[str] | None,
    typer.Argument(help="Seals or SEAL#CELL names, measured ones again; none: every open cell."),
]
CountersOption = Annotated[str, typer.Option(help="Hardware counters: auto, off, or full (keeps the report).")]
FullOption = Annotated[list[str] | None, typer.Option("--full", help="Cells whose full report is kept.")]
PriceOption = Annotated[float | None, typer.Option("--price-per-hour", min=0, help="Price of the device, per hour.")]
TimeLimitOption = Annotated[
    float | None, typer.Option("--time-limit", min=1, help="Seconds that one cell of a callable may take.")
]
AgainOption = Annotated[
    bool, typer.Option("--again", help="Measured cells again, as later runs; the first run still counts.")
]
OnceOption = Annotated[
    bool, typer.Option("--once", help="One forecast of each case; its run scores the others; of drawn cells all.")
]
DeviceOption = Annotated[
    str | None, typer.Option("--device", help="cpu, cuda or cuda:N (default: the first GPU, or the CPU without one).")
]
ProgramOption = Annotated[
    list[str] | None,
    typer.Option("--program", help="NAME=COMMAND: a program that answers JSON on stdin by JSON on stdout."),
]
ArgsOption = Annotated[
    str | None,
    typer.Option("--args", help="Arguments of a callable: 'x=fp16[B,2*H] ids=i64[B]<32000 eps=1e-6'."),
]
PassOption = Annotated[str | None, typer.Option("--pass", help="Of a callable: forward, backward or both.")]
ReferenceOption = Annotated[
    str | None,
    typer.Option("--reference", help="What a callable is compared with in float64, module:name (default: itself)."),
]
FlopsOption = Annotated[int | None, typer.Option("--flops", min=0, help="Operations of one call of a callable.")]
BytesOption = Annotated[int | None, typer.Option("--bytes", min=1, help="Bytes that one call must move.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


def parse_shape(text: str) -> dict[str, int]:
    """Return {"B": 32, "H": 4096} for "B=32,H=4096", each at least 1. Raises: InputError."""
    shape: dict[str, int] = {}
    for part, key, value in _pairs(text, "--shape"):
        if not key or not _is_integer(value) or int(value) < 1:
            raise InputError(f"--shape: got {part!r}; expected KEY=POSITIVE_INTEGER, as in B=32,H=4096,O=4096")
        shape[key] = int(value)
    return shape


def parse_config(text: str) -> dict[str, int | str]:
    """Return {"variant": "cuda", "block_k": 64} for "variant=cuda,block_k=64": integers and text. Raises: InputError.

    Which of the two a key takes is checked against the kernel's own configuration, by `inspect`.
    """
    config: dict[str, int | str] = {}
    for part, key, value in _pairs(text, "--config"):
        if not key or not (_is_integer(value) or re.fullmatch(r"[a-z][a-z0-9_]{0,63}", value)):
            raise InputError(f"--config: got {part!r}; expected KEY=INTEGER or KEY=NAME, as in block_k=16,variant=cuda")
        config[key] = int(value) if _is_integer(value) else value
    return config


def _pairs(text: str, option: str) -> Iterator[tuple[str, str, str]]:
    """Yield each KEY=VALUE of a list with its key and its value. Raises: InputError for a duplicate key."""
    seen: set[str] = set()
    for part in text.split(","):
        key, _, value = part.strip().partition("=")
        if key in seen:
            raise InputError(f"{option}: duplicate key {key!r}; expected each key once")
        seen.add(key)
        yield part.strip(), key, value


def _is_integer(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 15


def parse_probabilities(text: str) -> dict[Regime, float]:
    """Return {"hbm-bound": 0.8, …} for "hbm-bound=0.8,latency-bound=0.2". Raises: InputError."""
    probabilities: dict[Regime, float] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        regime = parse_regime(name)
        try:
            number = float(value)
        except ValueError as error:
            raise InputError(
                f"--prob: got {part.strip()!r}; expected REGIME=PROBABILITY, as in hbm-bound=0.8"
            ) from error
        if regime in probabilities or not math.isfinite(number) or not 0 <= number <= 1:
            raise InputError(f"--prob: got {part.strip()!r}; expected each regime once with a number from 0 to 1")
        probabilities[regime] = number
    return probabilities


def parse_regime(text: str) -> Regime:
    """Return a regime by name. Raises: InputError."""
    from ledger.records import Regime

    return _one_of(text, get_args(Regime), "regime")  # type: ignore[no-any-return]


def parse_dtype(text: str) -> Dtype:
    """Return a dtype by name. Raises: InputError."""
    from ledger.records import Dtype

    return _one_of(text, get_args(Dtype), "dtype")  # type: ignore[no-any-return]


def parse_sight(text: str | None) -> Sight | None:
    """Return a sight by name, None for none. Raises: InputError."""
    from ledger.records import Sight

    return None if text is None else _one_of(text, get_args(Sight), "sight")


def parse_pass(text: str | None) -> str | None:
    """Return a pass by name, None for none. Raises: InputError."""
    if text not in (None, "forward", "backward", "both"):
        raise InputError(f"--pass: got {text[:80]!r}; expected forward, backward or both")
    return text


def check_sight(sight: str | None, known: str) -> None:
    """Check that a sight other than blind says what had been timed. Raises: InputError."""
    if sight in ("near", "informed") and not known.strip():
        raise InputError(f"--sight {sight}: without --known; expected a sentence on what had been timed")
    if sight is None and known.strip():
        raise InputError("--known: without --sight; expected --sight blind, near or informed")


def parse_ceilings(text: str | None) -> CeilingKind | None:
    """Return a set of ceilings by name, None for the default. Raises: InputError."""
    from ledger.records import CeilingKind

    return None if text is None else _one_of(text, get_args(CeilingKind), "ceilings")


def _one_of(text: str, choices: tuple[Any, ...], what: str) -> Any:
    if text not in choices:
        raise InputError(unknown(what, text, choices))
    return text


def percent_number(text: str | float) -> float:
    """Return the number of a percent; a percent sign may follow. Raises: InputError."""
    try:
        return float(str(text).removesuffix("%"))
    except ValueError as error:
        raise InputError(f"got {text!r}; expected a percent of the roof, as in 60 or 60%") from error


PercentOption = partial(typer.Option, parser=percent_number, metavar="PERCENT")


def check_percent(percent: float, name: str = "--pct") -> float:
    """Return a percent of the roof in (0, 100]. Raises: InputError."""
    if not math.isfinite(percent) or not 0 < percent <= 100:
        raise InputError(f"{name}: got {percent:g}; expected a percent of the roof above 0 and at most 100")
    return percent


def check_interval(pct: float, low: float | None, high: float | None) -> None:
    """Check that an interval has both ends and holds the percent. Raises: InputError."""
    if (low is None) != (high is None):
        given, missing = (f"--low {low:g}", "--high") if low is not None else (f"--high {high:g}", "--low")
        raise InputError(f"{given}: given without {missing}; expected both or neither")
    if low is not None and high is not None and not low <= pct <= high:
        raise InputError(f"the interval {low:g} to {high:g} does not hold {pct:g}; expected low ≤ percent ≤ high")


def parse_date(text: str, option: str) -> str:
    """Return an ISO date, such as 2026-01-31. Raises: InputError."""
    from datetime import date

    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise InputError(f"{option}: got {text!r}; expected a date, as in 2026-01-31") from error
