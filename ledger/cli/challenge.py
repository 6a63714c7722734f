"""The command challenge: draws a text that enters the generated inputs of a measurement."""

from __future__ import annotations

from typing import Annotated

import typer

from ledger.cli.options import JsonOption
from ledger.cli.output import emit, out, say

ChallengeOption = Annotated[
    str | None, typer.Option("--challenge", help="Challenge of an auditor; it enters the generated inputs.")
]


def anchor(challenge: str | None) -> str | None:
    """Return the digest of a challenge, which enters the generated inputs; None without one. Raises: InputError."""
    from ledger.evidence.challenge import anchor_of

    return None if challenge is None else anchor_of(challenge)


def challenge(as_json: JsonOption = False) -> None:
    """Draw a challenge: a measurement that answers it was made after it was drawn."""
    from ledger.evidence.challenge import anchor_of, draw

    text = draw()
    if as_json:
        emit({"challenge": text, "anchor": anchor_of(text)})
        return
    out().print(text, markup=False)
    say(f"to measure: ledger verify --challenge {text} SEAL#CELL (or ledger order --challenge …, then ledger measure)")
    say(f"to audit:   ledger audit --challenge {text} PATH-or-URL")
