"""Draws what happens to a ledger next: seals, runs, withdrawals, branches, merges, rewrites, and what is refused."""

from __future__ import annotations

import random

import builders
from builders import Ledger, Seal, forecast


def random_step(ledger: Ledger, drawn: random.Random, seals: list[Seal]) -> None:
    """Do one thing that may happen to a ledger, honest or not."""
    what = drawn.choices(
        ["seal", "measure", "again", "void", "merge", "fork", "rewrite", "remove", "early", "skip", "other"],
        [8, 8, 3, 2, 3, 4, 1, 0.2, 0.2, 0.2, 1],
    )[0]
    held = [one for one in seals if (ledger.root / one.path).exists()]
    branch = ledger.git("branch", "--show-current")
    if what == "seal":
        sights = (
            [{}] if builders.VERSION == 1 else [{}, {"sight": "blind", "known": ""}, {"sight": "near", "known": ""}]
        )
        cells = [forecast(B=drawn.choice((2, 4, 8)), H=drawn.choice((64, 100))) for _ in range(drawn.choice((1, 1, 2)))]
        unlike = {one.cell: one.model_copy(update=drawn.choice(sights)) for one in cells}
        seals.append(ledger.seal(*unlike.values()))
    elif what in ("measure", "again", "skip") and held:
        sealed = drawn.choice(held)
        number = drawn.randrange(len(sealed.prediction.cells))
        run = {"measure": 0, "again": 1, "skip": 5}[what]
        median = drawn.randrange(2_000_000, 3_000_000)
        rounds = tuple(median + k for k in range(-15, 16))
        times = builders.timing(median, rounds_ps=rounds, low_ps=rounds[10], high_ps=rounds[20])
        ledger.measure(sealed, number, run=run, timing=times)
    elif what == "void" and held:
        ledger.void(drawn.choice(held), why=str(drawn.random()))
    elif what == "fork":
        ledger.switch("side" if branch == "main" else "main", None) if "side" in ledger.git(
            "branch"
        ) else ledger.switch("side", "HEAD")
    elif what == "merge" and "side" in ledger.git("branch"):
        if branch != "main":
            ledger.switch("main")
        ledger.merge("side")
    elif what == "rewrite" and int(ledger.git("rev-list", "--count", "HEAD")) > 6:
        ledger.git("reset", "--quiet", "--hard", f"HEAD~{drawn.choice((1, 2))}")
    elif what == "remove" and held:
        ledger.git("rm", "-q", drawn.choice(held).path)
        ledger.commit("remove")
    elif what == "early" and held:
        sealed = ledger.put_seal(forecast(B=16))
        seals.append(sealed)
        ledger.put_measurement(sealed)
        ledger.commit("at once")
    elif what == "other":
        ledger.write(f"file{drawn.randrange(3)}", str(drawn.random()).encode())
        ledger.commit("other")
