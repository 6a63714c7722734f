"""Lists the built-in forecasters and asks them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ledger.errors import InputError, UnknownName
from ledger.forecasters import measured_roofline, naive_roofline, no_overlap, persistence, rule_of_thumb
from ledger.forecasters.answer import Answer, NoAnswer, Question
from ledger.suggestions import unknown

Forecaster = Callable[[Question], Answer | NoAnswer]

FORECASTERS: Mapping[str, Forecaster] = {
    module.NAME: module.forecast
    for module in (naive_roofline, measured_roofline, no_overlap, rule_of_thumb, persistence)
}


def forecasters_named(names: str | None) -> tuple[str, ...]:
    """Return the forecasters of a list such as naive-roofline,persistence; all for None.

    Raises: UnknownName; InputError for a name that is there twice.
    """
    chosen = tuple(FORECASTERS) if names is None else tuple(name.strip() for name in names.split(","))
    for name in chosen:
        if name not in FORECASTERS:
            raise UnknownName(f"--by: {unknown('forecaster', name, FORECASTERS)}")
        if chosen.count(name) > 1:
            raise InputError(f"--by: duplicate forecaster {name!r}; expected each once")
    return chosen


def answers(question: Question, names: Iterable[str]) -> tuple[Answer | NoAnswer, ...]:
    """Return what each named forecaster says. Raises: InputError for a cell without work."""
    work = question.work
    if not (work.flops or work.bytes):
        raise InputError(f"{question.case.kernel}: its work is 0 FLOP and 0 bytes; expected some, or no roof applies")
    return tuple(FORECASTERS[name](question) for name in names)
