"""Names everything a user can cause that stops a command; imports nothing of ledger.

    LedgerError
    ├── InputError        what was given cannot be used (a field, a file, an option)
    │   ├── ParseError    the text is not the YAML or JSON it should be
    │   ├── RecordError   well-formed, yet no valid record
    │   └── UnknownName   a kernel, profile, seal or cell that does not exist
    ├── StateError        the repository is in a state in which this is not possible
    ├── MachineError      this machine cannot do it (no GPU, no torch, no ncu, ...)
    ├── EvidenceRefused   the evidence contradicts itself, its seal or its history
    └── ThresholdMissed   a bar that the user asked for was not reached

The command line maps the leaves to exit codes; nothing else knows them. A message names the object first, then
what it got and what it expected, then the remedy.
"""

from __future__ import annotations


class LedgerError(Exception):
    """Stand for any failure that a user can cause or meet."""


class InputError(LedgerError):
    """Report input that cannot be used."""


class ParseError(InputError):
    """Report text that is not well-formed YAML or JSON, or that breaks a bound."""


class RecordError(InputError):
    """Report well-formed text that is not a valid record."""


class UnknownName(InputError):
    """Report a name that nothing bears."""


class StateError(InputError):
    """Report a repository state in which the command cannot go on."""


class MachineError(LedgerError):
    """Report that this machine lacks what the command needs."""


class EvidenceRefused(LedgerError):
    """Report evidence that contradicts itself, its seal or its history."""


class ThresholdMissed(LedgerError):
    """Report a threshold that the user asked for and the result missed."""


def shortened(text: str, limit: int) -> str:
    """Return text in at most `limit` characters, cut in the middle: a compiler's last line says what is wrong."""
    if len(text) <= limit:
        return text
    gap = " […] "
    head = (limit - len(gap)) // 3
    return text[:head] + gap + text[len(text) - (limit - len(gap) - head) :]


def explained(error: BaseException, limit: int) -> str:
    """Return an error's type and words in at most `limit` characters, and at their end those of its first cause.

    Triton reports an error in a function at the call of that function, and the error itself only as the cause.
    """
    root = error
    while root.__cause__ is not None:
        root = root.__cause__
    words = f"{type(error).__name__}: {error}"
    if root is not error and str(root) not in words:
        words += f"; caused by {type(root).__name__}: {root}"
    return shortened(words, limit)
