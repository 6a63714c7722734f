"""Holds the attacks on hidden forecasts, each beside its honest twin; they enter the corpus of attacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attacks import GAMES, attack, begin
from builders import Ledger, Seal, forecast

from ledger.analysis.hiding import commitment_of
from ledger.canonical import encode, record_id, record_path
from ledger.records import Forecast, ForecastV2, Opening, Reveal, Tool


def opening_of(made: Forecast, salt: str = "5a" * 32) -> Opening:
    assert isinstance(made, ForecastV2)
    return Opening(forecast=made, salt=salt)


def hide(ledger: Ledger, *made: Forecast, forecaster: str = "Ada", **changes: Any) -> Seal:
    """Seal forecasts by digest in one commit; return the seal as if it held them in the open, for measuring."""
    commitments = tuple(commitment_of(opening_of(one), forecaster) for one in made)
    fields = {"cells": (), "commitments": commitments, "forecaster": forecaster, **changes}
    sealed = ledger.put_seal(made[0], **fields)
    ledger.commit(f"Seal {made[0].cell}, hidden")
    return Seal(sealed.id, sealed.path, sealed.prediction.model_copy(update={"cells": made}))


def reveal(ledger: Ledger, sealed: Seal, openings: Sequence[Opening] = (), **changes: Any) -> str:
    """Reveal forecasts of a seal in one commit, all of them in full where no openings are given."""
    fields = {
        "schema": "ledger/reveal/1",
        "tool": Tool(name="ledger", version="0"),
        "seal": sealed.id,
        "openings": tuple(openings) or tuple(opening_of(one) for one in sealed.prediction.cells),
        "extensions": {},
    }
    data = encode(Reveal(**{**fields, **changes}))
    path = ledger.write(record_path("verifications", record_id(Reveal, data)), data)
    ledger.commit(f"Reveal {sealed.id[:10]}")
    return path


def two(**changes: Any) -> tuple[Forecast, Forecast]:
    return forecast(B=1, **changes), forecast(B=2, **changes)


def hidden_revealed_and_measured(folder, _canary):
    """Build a hidden campaign of two cells that is revealed whole, then measured."""
    ledger = begin(folder)
    sealed = hide(ledger, *two(), campaign="pair")
    reveal(ledger, sealed)
    ledger.measure(sealed, cell=0)
    ledger.measure(sealed, cell=1)
    return ledger.root


def hidden_measured_and_revealed(folder, _canary):
    """Build a hidden forecast that is measured, then revealed."""
    ledger = begin(folder)
    sealed = hide(ledger, forecast())
    ledger.measure(sealed)
    reveal(ledger, sealed)
    return ledger.root


def revealed_in_two_parts(folder, _canary):
    """Build a hidden campaign of which each cell is revealed in a record of its own."""
    ledger = begin(folder)
    sealed = hide(ledger, *two(), campaign="pair")
    for one in sealed.prediction.cells:
        reveal(ledger, sealed, [opening_of(one)])
    return ledger.root


@attack(GAMES, "refused", "reveal-contradicted", twin=hidden_measured_and_revealed, formats=(2,))
def hidden_percent_changed_once_it_is_measured(folder, _canary):
    """Reveal another percent than the one that was sealed, once the measurement is known."""
    ledger = begin(folder)
    sealed = hide(ledger, forecast())
    ledger.measure(sealed)
    reveal(ledger, sealed, [opening_of(forecast(percent_milli=1_234))])
    return ledger.root


@attack(GAMES, "refused", "reveal-contradicted", twin=hidden_revealed_and_measured, formats=(2,))
def hidden_forecast_with_another_salt(folder, _canary):
    """Reveal the sealed text with another salt."""
    ledger = begin(folder)
    sealed = hide(ledger, forecast())
    reveal(ledger, sealed, [opening_of(forecast(), "a5" * 32)])
    return ledger.root


@attack(GAMES, "refused", "reveal-contradicted", twin=hidden_measured_and_revealed, formats=(2,))
def hidden_forecast_moved_to_another_kernel(folder, _canary):
    """Commit in public to one source and hide another, to choose between them later."""
    ledger = begin(folder)
    digest = ledger.put_kernel(b"# another\n")
    sealed = hide(ledger, forecast())
    reveal(ledger, sealed, [opening_of(forecast(kernel_sha256=digest))])
    return ledger.root


@attack(GAMES, "refused", "reveal-contradicted", twin=hidden_revealed_and_measured, formats=(2,))
def digest_of_another_forecaster_sealed_as_ones_own(folder, _canary):
    """Copy the digest of another's hidden forecast, and reveal it with the text that the other revealed."""
    ledger = begin(folder)
    theirs = hide(ledger, forecast(), forecaster="Grace")
    copied = ledger.put_seal(
        forecast(), cells=(), commitments=theirs.prediction.commitments, forecaster="Ada"
    )  # fmt: skip
    ledger.commit("Seal a copy")
    reveal(ledger, theirs)
    reveal(ledger, copied, [opening_of(forecast())])
    return ledger.root


@attack(GAMES, "refused", "reveal-unknown", twin=hidden_revealed_and_measured, formats=(2,))
def reveal_of_another_seals_forecast(folder, _canary):
    """Name one's own seal in a reveal of a cell that only another's seal hides."""
    ledger = begin(folder)
    theirs = hide(ledger, forecast(B=2), forecaster="Grace")
    own = hide(ledger, forecast())
    reveal(ledger, own, [opening_of(theirs.forecast)])
    return ledger.root


@attack(GAMES, "refused", "reveal-unknown", twin=hidden_revealed_and_measured, formats=(2,))
def reveal_that_adds_a_cell(folder, _canary):
    """Reveal, beside the hidden cell, one that was never sealed."""
    ledger = begin(folder)
    sealed = hide(ledger, forecast())
    reveal(ledger, sealed, [opening_of(forecast()), opening_of(forecast(B=2))])
    return ledger.root


@attack(GAMES, "refused", "edited", twin=revealed_in_two_parts, formats=(2,))
def reveal_edited_later(folder, _canary):
    """Change the bytes of a reveal in a later commit."""
    ledger = begin(folder)
    path = reveal(ledger, hide(ledger, forecast()))
    ledger.write(path, (ledger.root / path).read_bytes().replace(b'"percent_milli":1000', b'"percent_milli":1001'))
    ledger.commit("better")
    return ledger.root


@attack(GAMES, "refused", "reveal-precedes", twin=hidden_revealed_and_measured, formats=(2,))
def reveal_on_a_branch_that_has_no_seal(folder, _canary):
    """Reveal on a branch beside that of the seal, and merge."""
    ledger = begin(folder)
    base = ledger.head
    sealed = hide(ledger, forecast())
    ledger.switch("beside", base)
    reveal(ledger, sealed)
    ledger.switch("main")
    ledger.merge("beside")
    return ledger.root


@attack(GAMES, "flagged", "reveal-repeated", twin=revealed_in_two_parts, formats=(2,))
def hidden_forecast_revealed_twice(folder, _canary):
    """Reveal the same forecast in two records."""
    ledger = begin(folder)
    sealed = hide(ledger, forecast())
    reveal(ledger, sealed)
    reveal(ledger, sealed, extensions={"again": 1})
    return ledger.root


@attack(GAMES, "flagged", "unrevealed", twin=hidden_revealed_and_measured, formats=(2,))
def only_the_good_one_is_revealed(folder, _canary):
    """Measure two hidden forecasts and reveal the one that hit."""
    ledger = begin(folder)
    sealed = hide(ledger, *two(), campaign="pair")
    ledger.measure(sealed, cell=0)
    ledger.measure(sealed, cell=1)
    reveal(ledger, sealed, [opening_of(sealed.prediction.cells[0])])
    return ledger.root
