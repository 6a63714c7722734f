"""Collects the findings of the checks. Pure.

Each check adds findings and goes on, so that one defect never hides another. Findings of severity `refused` refuse
the evidence; `flag` and `note` disclose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Literal

from ledger.budgets import MAX_FINDINGS, MAX_FINDINGS_OF_A_KIND
from ledger.errors import BudgetExceeded
from ledger.records import Finding

_MOST_CODES = 10
"""Codes that are named of findings that are left out."""
NOT_JUDGED = "not-judged"
"""The finding about a valid record whose numbers no analysis expected."""


@dataclass
class Findings:
    """Collect findings as the checks go on; what refuses is counted apart, so that nothing can crowd it out."""

    found: list[Finding] = field(default_factory=list)
    _by_path: dict[str, list[Finding]] = field(default_factory=dict)
    _refused: set[str] = field(default_factory=set)
    _kept: Counter[str] = field(default_factory=Counter)
    _left_out: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        """Add a finding, or count it where there are very many."""
        known = self._by_path.setdefault(finding.path, [])
        refuses = finding.severity == "refused"
        if refuses:
            self._refused.add(finding.path)
        sort = "refused" if refuses else "shown"
        alike = sum(1 for one in known if one.code == finding.code)
        if self._kept[sort] >= MAX_FINDINGS or alike >= MAX_FINDINGS_OF_A_KIND:
            self._left_out.setdefault(sort, Counter())[finding.code] += 1
            return
        self._kept[sort] += 1
        self.found.append(finding)
        known.append(finding)

    def all(self) -> tuple[Finding, ...]:
        """Return the findings, with one that counts those that were left out."""
        severity: dict[str, Literal["refused", "flag"]] = {"refused": "refused", "shown": "flag"}
        more = (
            Finding(code="more-findings", severity=severity[sort], path="", message=_more(codes))
            for sort, codes in self._left_out.items()
        )
        return (*self.found, *more)

    def about_one(self, path: str) -> AbstractContextManager[None]:
        """Make a failure to judge one file a finding about it, so that it hides none about others."""
        return _about_one(self, path)

    def refuse(self, code: str, path: str, message: str) -> None:
        """Add a finding that refuses the evidence."""
        self.add(Finding(code=code, severity="refused", path=path, message=message))

    def flag(self, code: str, path: str, message: str) -> None:
        """Add a finding that discloses something."""
        self.add(Finding(code=code, severity="flag", path=path, message=message))

    def note(self, code: str, path: str, message: str) -> None:
        """Add a finding that a reader should know and that is no objection."""
        self.add(Finding(code=code, severity="note", path=path, message=message))

    def about(self, path: str) -> tuple[Finding, ...]:
        """Return the findings about one file."""
        return tuple(self._by_path.get(path, ()))

    def refused(self, path: str) -> bool:
        """Tell whether a finding about one file refuses it."""
        return path in self._refused


def _more(codes: Counter[str]) -> str:
    """Return how many findings are left out, beyond which limits, and of which codes."""
    count, shown = codes.total(), codes.most_common(_MOST_CODES)
    named = ", ".join(f"{code} ({number})" for code, number in shown)
    return (
        f"{count} more {'finding' if count == 1 else 'findings'} beyond the limits of {MAX_FINDINGS} in all and "
        f"{MAX_FINDINGS_OF_A_KIND} of a code about one file; of codes {named}{' …' if len(codes) > len(shown) else ''}"
    )


@contextmanager
def _about_one(findings: Findings, path: str) -> Iterator[None]:
    try:
        yield
    except (BudgetExceeded, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - any failure to judge a valid record is the record's
        findings.refuse(NOT_JUDGED, path, f"cannot be judged: {type(error).__name__}: {str(error)[:200]}")
