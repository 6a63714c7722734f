"""The command challenge: a text that goes into the inputs of a measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli.output import emit, out, say

if TYPE_CHECKING:
    pass


ChallengeOption = Annotated[
    str | None, typer.Option("--challenge", help="What an auditor handed over: it goes into the inputs.")
]


def anchor(challenge: str | None) -> str | None:
    """Return the digest of a challenge that goes into the inputs, or None. Raises: InputError."""
    from ledger.evidence.challenge import anchor_of

    return None if challenge is None else anchor_of(challenge)


def challenge(as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False) -> None:
    """Draw a text to hand to whoever is to measure, so that the measurement must come after it."""
    from ledger.evidence.challenge import anchor_of, draw

    text = draw()
    if as_json:
        emit({"challenge": text, "anchor": anchor_of(text)})
        return
    out().print(text, markup=False)
    say(f"they run: ledger verify --challenge {text} SEAL#CELL (or ledger order --challenge …, and ledger measure)")
    say(f"then you run: ledger audit --challenge {text} PATH-or-URL")
