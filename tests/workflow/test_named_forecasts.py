"""Tests seals of named forecasters: what they hold, and that a forged one is refused beside its honest twin."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import builders
import draw_attacks
import pytest
from builders import Ledger, ToyKernel, toy_draft
from desk import Desk

from ledger.budgets import weight_bytes
from ledger.canonical import encode, object_id, object_path
from ledger.errors import BudgetExceeded, InputError
from ledger.evidence.findings import Findings
from ledger.evidence.object_checks import Objects
from ledger.evidence.record_checks import GatheredRecords
from ledger.forecasters.registry import PARTICIPANTS
from ledger.forecasters.track import measured_runs
from ledger.git.commit import Repository
from ledger.git.history import read_history
from ledger.git.reader import Reader, quiet_environment
from ledger.records import FORECASTER, ForecasterAnswers, ForecasterCode, MeasurementSet
from ledger.workflow.named_forecasts import Known, NamedDrafts, named_drafts
from ledger.workflow.seal import Author, seal

SIZES = (4, 8, 16, 32, 64, 128, 5, 7, 9, 11)
NAIVE = PARTICIPANTS["naive-roofline"]


def known(ledger: Ledger) -> Known:
    book = ledger.book()
    return Known(book.head, measured_runs(book))


def measured(ledger: Ledger, sizes: tuple[int, ...] = SIZES) -> Known:
    """Measure toy cells, the n-th of them n% slower than the first, and return what is known then."""
    sealed = ledger.seal(*(builders.forecast(B=size) for size in sizes))
    for number in range(len(sizes)):
        ledger.measure(sealed, cell=number, timing=builders.timing(2_000_000 + 20_000 * number))
    return known(ledger)


def drafts(said: Known, by: str = "naive-roofline", **cell: int) -> NamedDrafts:
    """Return a forecaster's draft of a toy cell."""
    made = toy_draft(**cell)
    from ledger.analysis.campaign import CellRequest
    from ledger.workflow.resolve_callable import Resolved
    from ledger.workflow.seal import Prepared

    case = made.forecast.case
    request = CellRequest(kernel=case.kernel, hardware="toy", dtype=case.dtype, shape=dict(case.shape))

    class file(ToyKernel):  # noqa: N801
        sha256 = made.forecast.kernel_sha256

        class kernel:  # noqa: N801
            class operation:  # noqa: N801
                name = made.forecast.operation

    resolved = Resolved(file(), case, made.forecast.cell, made.forecast.work, made.forecast.roof.path)  # type: ignore[arg-type]
    prepared = Prepared(request, resolved, made.forecast.roof, made.hardware, made.profile)
    return named_drafts([prepared], PARTICIPANTS[by], said)


def put(ledger: Ledger, made: NamedDrafts, author: Author | None = None):
    return seal(Repository(ledger.root), made.drafts, author=author or made.author)


def held(ledger: Ledger, digest: str) -> bytes:
    return (ledger.root / object_path("predictions", digest)).read_bytes()


def test_a_seal_names_its_forecaster_its_code_and_its_answers(ledger):
    said = measured(ledger)
    sealed = put(ledger, drafts(said, B=24)).prediction
    assert sealed.forecaster == "naive-roofline" and sealed.participant.kind == "program"
    code = ForecasterCode.model_validate_json(held(ledger, sealed.participant.sha256))
    paths = {file.path: file.sha256 for file in code.files}
    own = Path(__file__).parents[2] / "ledger/forecasters/naive_roofline.py"
    assert paths["ledger/forecasters/naive_roofline.py"] == object_id(own.read_bytes())
    assert {"ledger/forecasters/answer.py", "ledger/forecasters/resource_times.py"} <= set(paths)
    assert "ledger/forecasters/persistence.py" not in paths
    answers = ForecasterAnswers.model_validate_json(held(ledger, sealed.extensions[FORECASTER]["answers"]))
    (answer,) = answers.cells.values()
    assert {term.name for term in answer.terms} >= {"arithmetic", "traffic", "launch"}
    rests = MeasurementSet.model_validate_json(held(ledger, answers.measurements))
    assert rests.commit == said.commit and len(rests.measurements) == len(SIZES)
    book = ledger.book()
    assert not book.refused and book.cells[-1].state == "open"


def test_intervals_are_the_conformal_quantiles_of_what_was_measured(ledger):
    """With 10 cases the interval runs from the least to the greatest ratio: rank floor(11 · 0.1) = 1."""
    said = measured(ledger)
    (item,) = drafts(said, B=24).drafts
    cell = item.forecast
    ratios = [one.time_s / NAIVE.forecast(one.question).time_s for one in said.runs]
    assert cell.low_milli == pytest.approx(cell.percent_milli / max(ratios), abs=2)
    assert cell.high_milli == cell.percent_milli, "naive is never too slow here"
    assert sum(cell.probabilities_ppm.values()) == 10**6


def test_few_measured_cases_give_no_interval(ledger):
    (item,) = drafts(measured(ledger, SIZES[:8]), B=24).drafts
    assert item.forecast.low_milli is None


def test_a_forecaster_without_any_answer_seals_nothing(ledger):
    with pytest.raises(InputError, match=r"rule-of-thumb answers none of 1 cell: .* no GPU|persistence"):
        drafts(Known(), "persistence")


def _altered(author: Author, field: str, value: object) -> Author:
    """Return an author whose answers have another field."""
    digest = author.extensions[FORECASTER]["answers"]
    answers = ForecasterAnswers.model_validate_json(author.objects[digest])
    data = encode(answers.model_copy(update={field: value}))
    return replace(
        author, extensions={FORECASTER: {"answers": object_id(data)}}, objects={**author.objects, object_id(data): data}
    )


def codes(ledger: Ledger) -> set[str]:
    return {finding.code for finding in ledger.book().refused}


def test_answers_that_rest_on_a_later_measurement_are_refused(ledger):
    said = measured(ledger)
    made = drafts(said, B=24)
    later = "ab" * 32
    rests = encode(MeasurementSet(schema="ledger/measurement-set/1", commit=said.commit, measurements=(later,)))
    author = _altered(made.author, "measurements", object_id(rests))
    put(ledger, made, replace(author, objects={**author.objects, object_id(rests): rests}))
    assert codes(ledger) == {"training-unknown"}


def test_a_measurement_of_another_branch_was_not_known(ledger):
    measured(ledger)
    start = ledger.head
    ledger.switch("aside", start)
    ledger.measure(ledger.seal(builders.forecast(B=99)))
    aside = known(ledger)
    made = drafts(aside, B=24)
    ledger.switch("main")
    put(ledger, made)
    ledger.merge("aside")
    assert codes(ledger) >= {"training-later"}


def test_answers_to_a_draw_rest_on_what_was_measured_before_the_domain(ledger):
    """The twin rests on the measurements before the domain; the cheat on one between the draw and its answers."""
    early = measured(ledger)
    origin = draw_attacks.declare(ledger, draw_attacks.domain())
    cells = draw_attacks.drawn(origin, draw_attacks.pulse_of())
    ledger.measure(ledger.seal(builders.forecast(B=99)))
    late = known(ledger)
    for said, refused in ((early, set()), (late, {"training-later"})):
        rests = encode(
            MeasurementSet(
                schema="ledger/measurement-set/1",
                commit=late.commit,
                measurements=tuple(sorted(run.record for run in said.runs)),
            )
        )
        like = _altered(drafts(said, B=24).author, "measurements", object_id(rests))
        answers = ForecasterAnswers.model_validate_json(like.objects[like.extensions[FORECASTER]["answers"]])
        (one,) = answers.cells.values()
        named = {"forecaster": "toy-forecaster", "version": "1", "cells": {cell.cell: one for cell in cells}}
        data = encode(answers.model_copy(update=named))
        for stored in (rests, data):
            ledger.write(object_path("predictions", object_id(stored)), stored)
        draw_attacks.answer(
            ledger, draw_attacks.pulse_of(), cells, extensions={FORECASTER: {"answers": object_id(data)}}
        )
        assert codes(ledger) == refused


def test_what_answers_rest_on_is_bounded_for_all_seals_together(ledger, monkeypatch):
    put(ledger, drafts(measured(ledger), B=24))
    monkeypatch.setattr("ledger.evidence.forecaster_checks.MAX_RESTED", len(SIZES) - 1)
    with pytest.raises(BudgetExceeded, match="rest on more than 9 measurements"):
        ledger.book()


def test_answers_do_not_count_as_what_is_kept(ledger, monkeypatch):
    """Answers and code are dropped once they are checked: a ledger may hold many of them."""
    sealed = put(ledger, drafts(measured(ledger), B=24)).prediction
    code = sealed.participant.sha256
    one = weight_bytes(held(ledger, code))
    history = read_history(Reader(ledger.root / ".git", quiet_environment()))
    gathered = GatheredRecords(history, {}, Findings())
    objects = Objects(gathered, lambda _blob, _limit: held(ledger, code))
    monkeypatch.setattr("ledger.evidence.object_checks.MAX_PROFILES_BYTES", one)
    monkeypatch.setattr("ledger.evidence.object_checks.MAX_PASSING_BYTES", 3 * one)
    for _ in range(3):
        assert objects.decoded(ForecasterCode, code, "a seal") is not None
    with pytest.raises(BudgetExceeded, match="answers need more"):
        objects.decoded(ForecasterCode, code, "a seal")
    assert objects.decoded(ForecasterCode, code, "a seal", kept=True) is not None
    with pytest.raises(BudgetExceeded, match="profiles and manifests need more"):
        objects.decoded(ForecasterCode, code, "a seal", kept=True)


@pytest.mark.parametrize("what", ["answers", "code", "source"])
def test_an_object_that_is_missing_is_refused(ledger, what):
    made = drafts(measured(ledger), B=24)
    author = made.author
    manifest = ForecasterCode.model_validate_json(author.objects[author.participant.sha256])
    digest = {
        "answers": author.extensions[FORECASTER]["answers"],
        "code": author.participant.sha256,
        "source": manifest.files[0].sha256,
    }[what]
    put(ledger, made, replace(author, objects={key: data for key, data in author.objects.items() if key != digest}))
    assert codes(ledger) == {"object-missing"}


def test_another_forecasters_name_and_an_extension_of_another_form_are_refused(ledger):
    made = drafts(measured(ledger), B=24)
    put(ledger, made, replace(made.author, name="analytic"))
    assert codes(ledger) == {"forecaster-contradicted"}
    put(ledger, made, replace(made.author, extensions={FORECASTER: {"answers": 7}}))
    assert codes(ledger) == {"forecaster-contradicted", "forecaster-unreadable"}


CAMPAIGN = """campaign: named
hardware: h200
kernel: vector_add
dtype: fp32
cells:
  - {shape: {N: [1048576, 4194304]}}
"""


def test_predict_by_seals_a_campaign_once_a_forecaster(tmp_path):
    desk = Desk(tmp_path / "desk")
    (desk.root / "campaign.yaml").write_text(CAMPAIGN)
    rows = json.loads(
        desk.ledger("predict", "--from", "campaign.yaml", "--by", "naive-roofline,rule-of-thumb", "--json")
    )
    assert [set(row) for row in rows] == 2 * [{"id", "path", "commit"}]
    again = desk.refused(2, "predict", "--from", "campaign.yaml", "--by", "rule-of-thumb")
    assert "campaign 'named' was sealed before" in again
    assert {row["forecaster"] for row in json.loads(desk.ledger("score", "--json"))} == {
        "naive-roofline",
        "rule-of-thumb",
    }


def test_predict_by_takes_no_forecast_of_ones_own(tmp_path):
    desk = Desk(tmp_path / "desk")
    cell = ("predict", "vector_add", "--hw", "h200", "--dtype", "fp32", "--shape", "N=1048576")
    told = desk.refused(2, *cell, "--by", "naive-roofline", "--pct", "80")
    assert "--by: given together with a forecast of your own" in told
    sealed = desk.run(sys.executable, "-P", "-m", "ledger", *cell, "--by", "persistence,naive-roofline", "--json")
    assert len(json.loads(sealed.stdout)) == 1 and "persistence answers none of 1 cell" in sealed.stderr
    told = desk.refused(2, *cell, "--by", "persistence")
    assert "persistence answers none of 1 cell: no fp32 cell of vector_add on h200 is measured here" in told


def test_a_program_is_sealed_with_its_source_and_its_transcript(tmp_path):
    desk = Desk(tmp_path / "desk")
    answer = "{'regime': 'hbm-bound', 'percent': 77, 'why': json.load(sys.stdin)['schema']}"
    (desk.root / "ask.py").write_text(f"import json, sys\nprint(json.dumps({answer}))\n")
    cell = ("vector_add", "--hw", "h200", "--dtype", "fp32", "--shape", "N=1048576")
    (row,) = json.loads(desk.ledger("predict", *cell, "--program", "mine=python3 ask.py", "--json"))
    sealed = json.loads((desk.root / row["path"]).read_text())
    assert (sealed["forecaster"], sealed["cells"][0]["percent_milli"]) == ("mine", 77_000)
    objects = {
        path.name: path.read_bytes() for path in (desk.root / "predictions/objects").rglob("*") if path.is_file()
    }
    code = json.loads(objects[sealed["participant"]["sha256"]])
    assert code["command"] == ["python3", "ask.py"] and [one["path"] for one in code["files"]] == ["ask.py"]
    (answer,) = json.loads(objects[sealed["extensions"][FORECASTER]["answers"]])["cells"].values()
    transcript = json.loads(objects[answer["transcript"]])
    assert transcript["asked"]["case"]["kernel"] == "vector_add" and '"percent": 77' in transcript["printed"]
    assert desk.ledger("audit", ".").strip().splitlines()[-1].startswith("verdict: holds")


def test_code_without_answers_is_looked_at(ledger):
    """A seal that names code and no answers holds it too: the digest of nothing proves no program."""
    participant, objects = draw_attacks.code()
    named = {"forecaster": "toy-forecaster", "participant": participant}
    ledger.seal(builders.forecast(B=24), **named)
    assert codes(ledger) == {"object-missing"}
    for digest, data in objects.items():
        ledger.write(object_path("predictions", digest), data)
    ledger.commit("the code, late")
    assert not codes(ledger)
    ledger.seal(builders.forecast(B=32), **{**named, "forecaster": "another"})
    assert codes(ledger) == {"forecaster-contradicted"}
    no_code = participant.model_copy(update={"sha256": object_id(builders.PROFILE)})
    ledger.seal(builders.forecast(B=40), **{**named, "participant": no_code})
    assert codes(ledger) == {"forecaster-contradicted", "bad-record"}
