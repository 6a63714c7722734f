"""Holds the attacks on drawn shapes, each beside its honest twin; they enter the corpus of attacks."""

from __future__ import annotations

from typing import Any

import hidden_attacks
from attacks import GAMES, attack, begin
from builders import KERNEL_SOURCE, MANIFEST, PROFILE, Ledger, Seal, forecast, manifest_of

from ledger.analysis.draws import commitment_to, drawn_cells, randomness_of
from ledger.canonical import encode, object_id, object_path
from ledger.forecasters.code import code_objects
from ledger.records import Beacon, Domain, Draw, Forecast, ForecastV2, Participant, Pulse, SizeRange

# Rounds of quicknet as drand published them: tests/evidence/test_beacon.py says where.
ROUNDS = {
    1000: "b44679b9a59af2ec876b1a6b1ad52ea9b1615fc3982b19576350f93447cb1125e342b73a8dd2bacbe47e4b6b63ed5e39",
    657413: "b713718a38ae728dfd477991af2822e08d2f305e47718cef9f7848ce4050e7be41076862b98fad56e91a6b85b89cd97b",
}
SECRET = "a text that only the auditor knows"
# Ten minutes before round 1000.
BEACON = Beacon(sealed_at="2023-08-23T15:49:24Z", delay_s=600, round=1000)
CELLS = 3


def code(name: str = "toy-forecaster", source: bytes = b"answer = 1\n") -> tuple[Participant, dict[str, bytes]]:
    digest, objects = code_objects(name, "1", {"forecaster.py": source})
    return Participant(kind="program", version="1", sha256=digest), objects


def domain(**changes: Any) -> Domain:
    """Return a domain of a hundred cells, of which a round of drand draws three."""
    fields = {
        "kernel": "rmsnorm_matmul",
        "kernel_sha256": object_id(MANIFEST),
        "hardware_sha256": object_id(PROFILE),
        "cells": CELLS,
        "deadline": "2026-12-01T00:00:00Z",
        "beacon": BEACON,
        "auditor_sha256": None,
        "dtypes": ("fp16",),
        "hardware": "toy",
        "sizes": {
            "B": SizeRange(low=1, high=100, multiple_of=1),
            "H": SizeRange(low=64, high=64, multiple_of=64),
            "O": SizeRange(low=20, high=40, multiple_of=32),
        },
    }
    return Domain(**{**fields, **changes})


def by_secret() -> dict[str, Any]:
    return {"beacon": None, "auditor_sha256": commitment_to(SECRET)}


def pulse_of(number: int | None = 1000, **changes: Any) -> Pulse:
    if number is None:
        fields: dict[str, Any] = {"round": None, "signature": None, "secret": SECRET}
    else:
        fields = {"round": number, "signature": ROUNDS.get(number), "secret": None}
    return Pulse(**{"schema": "ledger/pulse/1", **fields, **changes})


def declare(ledger: Ledger, declared: Domain, **changes: Any) -> Seal:
    """Seal a domain with a forecaster's code in one commit."""
    participant, objects = code()
    for data in objects.values():
        ledger.write(object_path("predictions", object_id(data)), data)
    fields = {"cells": (), "domain": declared, "participant": participant, "forecaster": "toy-forecaster"}
    sealed = ledger.put_seal(forecast(), **{**fields, **changes})
    ledger.commit("Seal a domain")
    return sealed


def drawn(origin: Seal, pulse: Pulse, **changes: Any) -> list[ForecastV2]:
    """Return forecasts of the cells that a pulse draws from a sealed domain."""
    declared = origin.prediction.domain
    challenge = object_id(encode(pulse))
    found = []
    for index, (dtype, sizes) in enumerate(drawn_cells(declared, origin.id, randomness_of(pulse))):
        made = forecast(**dict(sizes), dtype=dtype, **changes)
        draw = Draw(domain_seal=origin.id, challenge=challenge, index=index)
        found.append(made.model_copy(update={"draw": draw}))
    return found


def answer(ledger: Ledger, pulse: Pulse, cells: list[ForecastV2], **changes: Any) -> Seal:
    """Seal answers to drawn cells in one commit, with the pulse."""
    data = encode(pulse)
    ledger.write(object_path("predictions", object_id(data)), data)
    fields = {"participant": code()[0], "forecaster": "toy-forecaster"}
    return ledger.seal(*cells, **{**fields, **changes})


def measure_all(ledger: Ledger, sealed: Seal, **changes: Any) -> None:
    for index, cell in enumerate(sealed.prediction.cells):
        assert isinstance(cell, ForecastV2) and cell.draw is not None
        ledger.measure(sealed, cell=index, **{"anchor": cell.draw.challenge, **changes})


def _story(folder, declared: Domain, pulse: Pulse) -> tuple[Ledger, Seal, list[ForecastV2]]:
    ledger = begin(folder)
    origin = declare(ledger, declared)
    return ledger, origin, drawn(origin, pulse)


def drawn_by_drand(folder, _canary):
    """Build a domain, the answers to what the round that it names draws, and their measurements."""
    ledger, _, cells = _story(folder, domain(), pulse_of())
    measure_all(ledger, answer(ledger, pulse_of(), cells))
    return ledger.root


def drawn_by_a_secret(folder, _canary):
    """Build the same with an auditor's secret, whose digest was in the domain."""
    ledger, _, cells = _story(folder, domain(**by_secret()), pulse_of(None))
    measure_all(ledger, answer(ledger, pulse_of(None), cells))
    return ledger.root


@attack(GAMES, "refused", "draw-round", twin=drawn_by_drand, formats=(2,))
def drawn_by_a_wrong_round(folder, _canary):
    """Draw by a genuine round of drand that the domain does not name."""
    ledger, _, cells = _story(folder, domain(), pulse_of(657413))
    answer(ledger, pulse_of(657413), cells)
    return ledger.root


@attack(GAMES, "refused", "domain-contradicted", twin=drawn_by_drand, formats=(2,))
def drawn_by_a_chosen_round(folder, _canary):
    """Name a round in the domain that its own time and delay do not give."""
    chosen = BEACON.model_copy(update={"round": 657413})
    ledger, _, cells = _story(folder, domain(beacon=chosen), pulse_of(657413))
    answer(ledger, pulse_of(657413), cells)
    return ledger.root


@attack(GAMES, "refused", "pulse-forged", twin=drawn_by_drand, formats=(2,))
def drawn_by_a_round_that_nobody_signed(folder, _canary):
    """Give the round that the domain names with the signature of another one."""
    forged = pulse_of(1000, signature=ROUNDS[657413])
    ledger, _, cells = _story(folder, domain(), forged)
    answer(ledger, forged, cells)
    return ledger.root


@attack(GAMES, "refused", "draw-round", twin=drawn_by_a_secret, formats=(2,))
def drawn_by_a_secret_of_the_authors(folder, _canary):
    """Draw by a text whose digest the domain does not hold."""
    own = pulse_of(None, secret="a text that the author made up")
    ledger, _, cells = _story(folder, domain(**by_secret()), own)
    answer(ledger, own, cells)
    return ledger.root


@attack(GAMES, "refused", "draw-precedes", twin=drawn_by_drand, formats=(2,))
def drawn_before_its_domain_was_sealed(folder, _canary):
    """Seal the answers on a branch beside that of the domain, and merge."""
    ledger = begin(folder)
    base = ledger.head
    origin = declare(ledger, domain())
    ledger.switch("beside", base)
    answer(ledger, pulse_of(), drawn(origin, pulse_of()))
    ledger.switch("main")
    ledger.merge("beside")
    return ledger.root


@attack(GAMES, "refused", "draw-incomplete", twin=drawn_by_drand, formats=(2,))
def drawn_cell_left_out(folder, _canary):
    """Leave out the drawn cell that is hardest to forecast."""
    ledger, _, cells = _story(folder, domain(), pulse_of())
    measure_all(ledger, answer(ledger, pulse_of(), cells[1:]))
    return ledger.root


@attack(GAMES, "refused", "draw-contradicted", twin=drawn_by_drand, formats=(2,))
def drawn_cell_exchanged_for_an_easy_one(folder, _canary):
    """Say that another shape was drawn."""
    ledger, _, cells = _story(folder, domain(), pulse_of())
    sizes = {cell.case.shape["B"] for cell in cells}
    easy = forecast(B=next(size for size in range(1, 100) if size not in sizes))
    answer(ledger, pulse_of(), [easy.model_copy(update={"draw": cells[0].draw}), *cells[1:]])
    return ledger.root


@attack(GAMES, "refused", "draw-contradicted", twin=drawn_by_drand, formats=(2,))
def kernel_changed_after_the_draw(folder, _canary):
    """Change the kernel once the shapes are known, so that it does what was forecast."""
    ledger, origin, _ = _story(folder, domain(), pulse_of())
    digest = ledger.put_kernel(KERNEL_SOURCE + b"# tuned\n")
    assert digest == object_id(manifest_of(KERNEL_SOURCE + b"# tuned\n"))
    answer(ledger, pulse_of(), drawn(origin, pulse_of(), kernel_sha256=digest))
    return ledger.root


@attack(GAMES, "refused", "draw-forecaster", twin=drawn_by_drand, formats=(2,))
def answers_of_another_code_than_was_sealed(folder, _canary):
    """Answer the draw with code that was written for it."""
    ledger, _, cells = _story(folder, domain(), pulse_of())
    participant, objects = code(source=b"answer = 2\n")
    for data in objects.values():
        ledger.write(object_path("predictions", object_id(data)), data)
    answer(ledger, pulse_of(), cells, participant=participant)
    return ledger.root


@attack(GAMES, "refused", "domain-contradicted", twin=drawn_by_drand, formats=(2,))
def domain_sealed_without_the_code(folder, _canary):
    """Seal the domain alone, and let anybody answer."""
    ledger = begin(folder)
    declare(ledger, domain(), participant=None)
    return ledger.root


@attack(GAMES, "refused", "object-missing", twin=drawn_by_drand, formats=(2,))
def domain_sealed_with_a_digest_of_no_code(folder, _canary):
    """Seal a digest of code that is not in the ledger."""
    ledger = begin(folder)
    declare(ledger, domain(), participant=code(source=b"unknown = 1\n")[0])
    return ledger.root


@attack(GAMES, "refused", "draw-anchor", twin=drawn_by_drand, formats=(2,))
def drawn_cell_measured_before_the_draw(folder, _canary):
    """Measure a drawn cell from inputs that the pulse did not go into."""
    ledger, _, cells = _story(folder, domain(), pulse_of())
    measure_all(ledger, answer(ledger, pulse_of(), cells), anchor=None)
    return ledger.root


@attack(GAMES, "refused", "draw-mixed", twin=drawn_by_drand, formats=(2,))
def cell_put_beside_a_draw(folder, _canary):
    """Seal a cell of one's own choice among the drawn ones."""
    ledger, _, cells = _story(folder, domain(), pulse_of())
    own: Forecast = forecast(B=4, H=128)
    answer(ledger, pulse_of(), [*cells, own])  # type: ignore[list-item]
    return ledger.root


@attack(GAMES, "flagged", "draw-missed", twin=drawn_by_drand, formats=(2,))
def drawn_cell_measured_after_its_deadline(folder, _canary):
    """Measure the drawn cells once there was time enough to tune for them."""
    ledger, _, cells = _story(folder, domain(), pulse_of())
    measure_all(ledger, answer(ledger, pulse_of(), cells), started_at="2026-12-01T00:00:01Z")
    return ledger.root


@attack(GAMES, "flagged", "draw-repeated", twin=drawn_by_drand, formats=(2,))
def drawn_cells_answered_twice(folder, _canary):
    """Answer one draw twice, with other percents."""
    ledger, origin, cells = _story(folder, domain(), pulse_of())
    measure_all(ledger, answer(ledger, pulse_of(), cells))
    answer(ledger, pulse_of(), drawn(origin, pulse_of(), percent_milli=2_000))
    return ledger.root


@attack(GAMES, "refused", "draw-mixed", twin=drawn_by_drand, formats=(2,))
def drawn_cells_hidden_until_they_are_measured(folder, _canary):
    """Hide the answers to a draw, and reveal them once the measurements are known."""
    ledger, _, cells = _story(folder, domain(), pulse_of())
    data = encode(pulse_of())
    ledger.write(object_path("predictions", object_id(data)), data)
    sealed = hidden_attacks.hide(ledger, *cells, forecaster="toy-forecaster", participant=code()[0])
    measure_all(ledger, sealed)
    hidden_attacks.reveal(ledger, sealed)
    return ledger.root


@attack(GAMES, "flagged", "draw-unanswered", twin=drawn_by_drand, formats=(2,))
def best_of_many_domains_is_answered(folder, _canary):
    """Declare one domain twice, and answer the draw that is easier to forecast."""
    ledger = begin(folder)
    declare(ledger, domain())
    second = declare(ledger, domain())
    measure_all(ledger, answer(ledger, pulse_of(), drawn(second, pulse_of())))
    return ledger.root
