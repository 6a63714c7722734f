"""Defines the errors that a user can cause and that stop a command. Imports nothing of ledger.

    LedgerError
    ├── InputError        input that cannot be used (a field, a file, an option)
    │   ├── ParseError    text that is not valid YAML or JSON
    │   ├── RecordError   well-formed text that is no valid record
    │   ├── UnknownName   a kernel, profile, seal or cell that does not exist
    │   └── CannotRun     a callable that fails on the arguments described
    ├── StateError        the state of the repository does not allow it
    ├── BudgetExceeded    input that costs more than an audit may spend
    ├── MachineError      this machine cannot do it (no GPU, no torch, no ncu, ...)
    ├── EvidenceRefused   evidence that contradicts itself, its seal or its history
    ├── SubjectRefused    a callable that interferes with its own measurement
    ├── ThresholdMissed   a threshold of the user was missed
    └── Interrupted       the user ended a command that does not go on where it stopped

Only the command line maps them to exit codes. A message names the object first, then what it got and what was
expected, then the remedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class LedgerError(Exception):
    """Report any failure that a user can cause or meet."""


class InputError(LedgerError):
    """Report input that cannot be used."""


class ParseError(InputError):
    """Report text that is not well-formed YAML or JSON, or that breaks a bound."""


class RecordError(InputError):
    """Report well-formed text that is not a valid record."""


class UnknownName(InputError):
    """Report a name that does not exist."""


class CannotRun(InputError):
    """Report a callable that fails on the arguments described, on any device: to give its work would not help."""


class StateError(InputError):
    """Report a repository state that does not allow the command."""


class MachineError(LedgerError):
    """Report that this machine lacks what the command needs."""


class EvidenceRefused(LedgerError):
    """Report evidence that contradicts itself, its seal or its history. details: lines below the message."""

    def __init__(self, message: str = "", details: Sequence[str] = ()) -> None:
        """Hold the message and its details."""
        super().__init__(message)
        self.details = tuple(details)


class SubjectRefused(LedgerError):
    """Report a callable whose measurement says nothing: the message names what it did. A record keeps it."""


class BudgetExceeded(LedgerError):
    """Report input that costs more than the auditor is willing to spend: it is not judged.

    findings: what was found before, as the judge has it; a refusal among it stands.
    """

    def __init__(self, message: str, findings: tuple[Any, ...] = ()) -> None:
        """Keep the findings beside the message."""
        super().__init__(message)
        self.findings = findings


class ThresholdMissed(LedgerError):
    """Report a result that missed a threshold of the user."""


class Interrupted(LedgerError):
    """Report that the user ended a command that does not go on where it stopped: the message says what is kept."""


def shortened(text: str, limit: int) -> str:
    """Return text in at most `limit` characters, cut in the middle: a compiler's last line names the error."""
    if len(text) <= limit:
        return text
    gap = " […] "
    head = (limit - len(gap)) // 3
    return text[:head] + gap + text[len(text) - (limit - len(gap) - head) :]


def explained(error: BaseException, limit: int) -> str:
    """Return an error's type and message, then those of its first cause, in at most `limit` characters.

    Triton reports an error in a called function at the call, and the error itself only as the cause.
    """
    root = error
    while root.__cause__ is not None:
        root = root.__cause__
    text = f"{type(error).__name__}: {error}"
    if root is not error and str(root) not in text:
        text += f"; caused by {type(root).__name__}: {root}"
    return shortened(text, limit)
