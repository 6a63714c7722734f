"""Makes a book in which several forecasters forecast one case, scored by one run."""

from __future__ import annotations

from dataclasses import replace

from samples import COUNTERS, make_book, make_forecast, make_measurement, make_sealed, make_view

from ledger.analysis.book import Book
from ledger.records import Participant, PredictionV2

OWN = make_forecast(shape={"B": 1, "H": 64, "O": 64}, percent_milli=52_500, low_milli=40_000, high_milli=60_000)
OTHER = OWN.model_copy(update={"percent_milli": 40_000, "regime": "l2-bound"})


def shared_case(*others: str, measured: bool = True) -> Book:
    """Return one case that programs and ada forecast, which the run of ada's seal scores: 50% and hbm-bound."""
    seals = []
    for number, name in enumerate(others, start=1):
        sealed = make_sealed(OTHER, identity=f"{number:02}" * 32, forecaster=name)
        code = Participant(kind="program", version="1", sha256="cc" * 32)
        fields = {**dict(sealed.prediction), "participant": code, "commitments": (), "ratios": (), "domain": None}
        seals.append(replace(sealed, prediction=PredictionV2.model_construct(**fields)))
    views = [make_view(sealed, OTHER) for sealed in seals]
    own = make_sealed(OWN)
    if not measured:
        return make_book(*views, make_view(own, OWN))
    record = make_measurement(OWN, counters=COUNTERS, counters_missing=None)
    runs = [make_view(sealed, OTHER, record).runs[0] for sealed in seals]
    answered = [replace(view, answer=run) for view, run in zip(views, runs, strict=True)]
    return make_book(*answered, make_view(own, OWN, record))
