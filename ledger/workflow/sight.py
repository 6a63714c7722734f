"""Gives drafts the sight that the ledger's own records show, and says where they disprove the one declared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from ledger.analysis.sight_names import SIGHTS
from ledger.errors import LedgerError
from ledger.evidence.known_cases import KnownCases
from ledger.git.commit import Repository
from ledger.git.reader import Reader, quiet_environment
from ledger.workflow.index_file import ask_index
from ledger.workflow.record_index import RecordIndex
from ledger.workflow.seal import Draft

_SHOWN = 10


def with_sights(repository: Repository, drafts: Sequence[Draft]) -> tuple[list[Draft], list[str]]:
    """Return drafts that each declare a sight where their author or the records do, and what the author should know.

    A draft whose author declares none is informed or near where the ledger holds a measurement that shows it, and
    stays undeclared otherwise: that nothing like it was timed elsewhere only its author can say.
    """
    known = _known(repository, drafts)
    told = [_told(item, known) for item in drafts]
    lines = [line for _, line in told if line]
    undeclared = sum(item.forecast.sight is None for item, _ in told)
    return [item for item, _ in told], list(_shortened(lines, undeclared))


def _told(item: Draft, known: KnownCases | None) -> tuple[Draft, str]:
    """Return a draft with its sight, and a line where records show more than its author says."""
    said = item.forecast.sight
    shown = known.disproof(item.forecast, "", said or "blind") if known is not None else None
    if shown is None or (said is not None and SIGHTS.index(shown.sight) <= SIGHTS.index(said)):
        return item, ""
    if said is not None:
        return item, f"sight of {item.forecast.cell}: {said}, yet {shown.words}: it will count as {shown.sight}"
    words = f"{shown.words} (by the ledger, not the author)"
    forecast = item.forecast.model_copy(update={"sight": shown.sight, "known": words})
    return replace(item, forecast=forecast), f"sight of {forecast.cell}: {shown.sight}, since {shown.words}"


def _shortened(lines: Sequence[str], undeclared: int) -> Iterator[str]:
    yield from lines[:_SHOWN]
    if len(lines) > _SHOWN:
        yield f"and {len(lines) - _SHOWN} more with a sight that records show"
    if undeclared:
        cells = "1 forecast" if undeclared == 1 else f"{undeclared} forecasts"
        yield f"sight: {cells} undeclared, which counts as blind nowhere; declare it with --sight and --known"


def _known(repository: Repository, drafts: Sequence[Draft]) -> KnownCases | None:
    """Return what the ledger timed that is like the drafts; None where there is none that can be read."""
    head, profiles = repository.head(), [item.hardware for item in drafts]
    if head is None:
        return None
    reader = Reader(repository.git_dir, quiet_environment())
    forecasts = [item.forecast for item in drafts]
    with suppress(LedgerError):
        return ask_index(
            repository.git_dir, lambda index: RecordIndex(index, reader, head).known_to(forecasts, profiles)
        )
    return None
