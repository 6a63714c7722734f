"""Tests what a ledger says of claims of ratios: honest ones hold or fail, and whatever was changed is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import attacks
import builders
import pytest
from authority import next_second
from builders import Ledger, Seal, forecast, manifest_of
from claimed import BASE_SOURCE, FILE, HEAD_SOURCE, ClaimLedger, first_protocol, honest_claim, settled
from claimed import settled as settled_record
from rich.console import Console

from ledger.analysis.claims import judged, protocol_problem, seldom_holds, stored, verdict, verdict_of
from ledger.analysis.paired_ratio import least_rounds, spread_of
from ledger.analysis.protocols import COLD_GRAPH
from ledger.canonical import canonical, decode, encode, object_id, object_path, parse_json, record_id, record_path
from ledger.errors import RecordError
from ledger.evidence.audit import audit
from ledger.evidence.audit_result import document
from ledger.evidence.trust_levels import Trust
from ledger.measure.comparison_effort import claim_protocol
from ledger.records import PredictionV2, Protocol, RatioMeasurement, Revision, SourceFile
from ledger.render.audit_text import render_audit
from ledger.render.claim_text import claim_rows, scores_of, with_claims
from ledger.render.report import html, markdown, render


@pytest.fixture(autouse=True)
def _version_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builders, "VERSION", 2)


@pytest.mark.parametrize(("speed", "expected"), [(1.1, "holds"), (1.0, "fails"), (1.3, "fails"), (1.151, "undecided")])
def test_a_claim_is_judged_by_its_interval(tmp_path: Path, speed: float, expected: str):
    ledger = ClaimLedger(tmp_path / "ledger")
    ledger.settle(ledger.claim(), speed=speed)
    result = audit(str(ledger.root), recomputed=True)
    assert result.verdict == "holds" and not result.findings, result.findings
    (said,) = document(result)["claims"]
    assert (said["verdict"], said["state"], said["levels"]) == (expected, "measured", [0, 1])
    assert result.book is not None and "1 of 1 claims are settled" in result.reason
    (score,) = scores_of(result.book)
    assert (score.settled, getattr(score, expected)) == (1, 1)


def test_everything_that_reads_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    ledger, sealed = honest_claim(tmp_path / "ledger")
    result = audit(str(ledger.root))
    assert result.book is not None
    console = Console(width=200, color_system=None)
    render_audit(result, console)
    render(result.book, console)
    said = capsys.readouterr().out
    assert said.count("1.1 (1.05–1.15)") == 2 and said.count("holds") >= 3 and "(1 claim)" in said
    page = html(result.book)
    assert '<h2 id="to-claims">Claims</h2>' in page and "of 0 cells and 1 claim" in page
    assert "<td>1.1 (1.05–1.15)</td>" in page and "<td>holds</td>" in page
    (scored,) = with_claims([], scores_of(result.book))
    assert scored["forecaster"] == "Ada" and scored["claims"]["holds"] == 1 and scored["error"] is None
    page = markdown(result.book)
    assert "## Claims" in page and "| 1.1 (1.05–1.15) |" in page and "| holds |" in page
    (row,) = claim_rows(result.book)
    assert row["claim"]["base"] == ledger.base and row["measured"]["ratio"] == pytest.approx(1.1, abs=0.01)
    assert row["seal"] == sealed.id and row["samples"] == "positions only"


def test_open_void_and_failed_claims(tmp_path: Path):
    ledger = ClaimLedger(tmp_path / "ledger")
    sealed = ledger.claim()
    assert [view.state for view in ledger.book().claims] == ["open"]
    nothing = {"ratio_ppm": None, "low_ppm": None, "high_ppm": None, "noise_ppm": None, "again_ps": ()}
    empty = {"correctness": None, "samples": None, "rounds_ps": (), "median_ps": None}
    sides = {name: getattr(settled(sealed), name).model_copy(update=empty) for name in ("base", "head")}
    ledger.settle(sealed, status="failed", failure="wrong: off by one", failed_side="head", **nothing, **sides)
    assert [view.state for view in ledger.book().claims] == ["failed"]
    ledger.settle(sealed, run=1, base=_other_run(sealed).base, head=_other_run(sealed).head)
    (view,) = ledger.book().claims
    assert view.state == "measured" and len(view.runs) == 2 and ledger.flags() == {"failed-first"}
    other = ledger.claim(why="another")
    ledger.void(other, cell=other.prediction.ratios[0].cell)
    assert [view.state for view in ledger.book().claims] == ["measured", "void"] and not ledger.codes()


def _other_run(sealed: Seal) -> RatioMeasurement:
    from builders import honest_samples

    record = settled(sealed)
    samples = honest_samples(sealed.prediction.ratios[0], seal=sealed.id, run=1)
    return record.model_copy(
        update={name: getattr(record, name).model_copy(update={"samples": samples}) for name in ("base", "head")}
    )


# What is refused. Each begins from two commits with two versions of a kernel; the honest twin is honest_claim.

Build = Callable[[ClaimLedger], None]


def swapped_sides(ledger: ClaimLedger) -> None:
    sealed = ledger.claim()
    record = settled(sealed, speed=1 / 1.1)
    ledger.settle(sealed, speed=1 / 1.1, base=record.head, head=record.base)


def another_commit_measured(ledger: ClaimLedger) -> None:
    sealed = ledger.claim()
    record = settled(sealed)
    ledger.settle(sealed, head=record.head.model_copy(update={"commit": ledger.base}))


def sealed_after_its_measurement(ledger: ClaimLedger) -> None:
    sealed = ledger.put_claim()
    ledger.git("stash", "--quiet")
    ledger.settle(sealed)
    ledger.git("stash", "pop", "--quiet")
    ledger.commit("the claim, late")


def sealed_with_its_measurement(ledger: ClaimLedger) -> None:
    ledger.put_settled(ledger.put_claim())
    ledger.commit("both")


def changed_ratio(ledger: ClaimLedger) -> None:
    ledger.settle(ledger.claim(), speed=1.0, ratio_ppm=1_100_000, low_ppm=1_090_000, high_ppm=1_110_000)


def changed_noise(ledger: ClaimLedger) -> None:
    ledger.settle(ledger.claim(), noise_ppm=0)


def changed_median(ledger: ClaimLedger) -> None:
    sealed = ledger.claim()
    record = settled(sealed)
    ledger.settle(sealed, head=record.head.model_copy(update={"median_ps": 1}))


def ratio_changed_in_the_file(ledger: ClaimLedger) -> None:
    sealed = ledger.claim()
    data = encode(settled(sealed, speed=1.0))
    value = {**parse_json(data, what="x"), "ratio_ppm": 1_100_000}
    ledger.write(record_path("verifications", record_id(RatioMeasurement, data)), canonical(value))
    ledger.commit("edited")


def commit_that_is_not_in_the_history(ledger: ClaimLedger) -> None:
    revision = Revision(commit="ab" * 20, kernel_sha256=object_id(manifest_of(BASE_SOURCE)))
    ledger.settle(ledger.claim(base=revision))


def commit_of_another_branch(ledger: ClaimLedger) -> None:
    ledger.switch("other", ledger.base)
    ledger.write(FILE, HEAD_SOURCE)
    aside = ledger.commit("aside")
    ledger.switch("main")
    ledger.settle(ledger.claim(head=Revision(commit=aside, kernel_sha256=object_id(manifest_of(HEAD_SOURCE)))))


def commit_of_a_branch_that_was_merged_later(ledger: ClaimLedger) -> None:
    ledger.switch("other", ledger.base)
    ledger.write(FILE, HEAD_SOURCE)
    aside = ledger.commit("aside")
    ledger.switch("main")
    ledger.settle(ledger.claim(head=Revision(commit=aside, kernel_sha256=object_id(manifest_of(HEAD_SOURCE)))))
    ledger.merge("other", options=("-X", "ours"))


def sources_of_another_commit(ledger: ClaimLedger) -> None:
    revision = Revision(commit=ledger.base, kernel_sha256=object_id(manifest_of(HEAD_SOURCE)))
    ledger.settle(ledger.claim(base=revision))


def file_that_the_commit_lacks(ledger: ClaimLedger) -> None:
    ledger.git("rm", "-q", "--cached", FILE)
    bare = ledger.commit("without the kernel")
    ledger.settle(ledger.claim(base=Revision(commit=bare, kernel_sha256=object_id(manifest_of(BASE_SOURCE)))))


def manifest_of_another_kernel(ledger: ClaimLedger) -> None:
    digest = ledger.put_kernel(BASE_SOURCE, "matmul")
    ledger.write("kernels/matmul.py", BASE_SOURCE)
    commit = ledger.commit("another kernel")
    ledger.settle(ledger.claim(base=Revision(commit=commit, kernel_sha256=digest)))


def samples_of_another_run(ledger: ClaimLedger) -> None:
    sealed = ledger.claim()
    other = _other_run(sealed)
    ledger.settle(sealed, base=other.base, head=other.head)


def wrong_samples_of_the_base(ledger: ClaimLedger) -> None:
    sealed = ledger.claim()
    record = settled(sealed)
    assert record.base.samples is not None
    bits = tuple("0000" for _ in record.base.samples.bits)
    wrong = record.base.samples.model_copy(update={"bits": bits})
    ledger.settle(sealed, base=record.base.model_copy(update={"samples": wrong}))


def timings_of_another_claim(ledger: ClaimLedger) -> None:
    ledger.settle(ledger.claim())
    ledger.settle(ledger.claim(why="again"))


def noise_without_a_second_series(ledger: ClaimLedger) -> None:
    sealed = ledger.claim()
    record = settled(sealed)
    series = (record.base.rounds_ps, record.head.rounds_ps, record.base.rounds_ps)
    protocol = sealed.prediction.ratios[0].protocol
    ledger.settle(sealed, again_ps=record.base.rounds_ps, **stored(judged(protocol, *series)))


def run_left_out(ledger: ClaimLedger) -> None:
    sealed = ledger.claim()
    other = _other_run(sealed)
    ledger.settle(sealed, run=1, base=other.base, head=other.head)


def another_protocol(ledger: ClaimLedger) -> None:
    sealed = ledger.claim()
    parameters = {**sealed.prediction.ratios[0].protocol.parameters, "error_ppm": 500_000}
    protocol = sealed.prediction.ratios[0].protocol.model_copy(update={"parameters": parameters})
    ledger.settle(sealed, protocol=protocol)


def protocol_of_a_forecast(ledger: ClaimLedger) -> None:
    ledger.claim(protocol=COLD_GRAPH)


def protocol_that_errs_always(ledger: ClaimLedger) -> None:
    protocol = ledger.ratio().protocol
    parameters = {**protocol.parameters, "error_ppm": 1_000_000}
    ledger.settle(ledger.claim(protocol=protocol.model_copy(update={"parameters": parameters})))


def with_parameters(ledger: ClaimLedger, **values: int) -> None:
    """Settle a claim whose protocol has other parameters, as honestly as it allows."""
    protocol = ledger.ratio().protocol
    ledger.settle(ledger.claim(protocol=protocol.model_copy(update={"parameters": {**protocol.parameters, **values}})))


def noise_that_forgives_everything(ledger: ClaimLedger) -> None:
    with_parameters(ledger, least_ppm=100_001)


def rounds_too_few_for_an_interval(ledger: ClaimLedger) -> None:
    with_parameters(ledger, max_rounds=7)


def two_versions_of_what_ships(ledger: ClaimLedger) -> None:
    sides = {}
    for name, commit in (("base", ledger.base), ("head", ledger.head_commit)):
        source = f"# {name}\n".encode()
        entry = "ledger.kernels.rmsnorm_matmul"
        file = SourceFile(path=f"{entry.replace('.', '/')}.py", module=entry, sha256=object_id(source))
        manifest = manifest_of(source, entry=entry, files=(file,))
        for data in (source, manifest):
            ledger.write(object_path("predictions", object_id(data)), data)
        sides[name] = Revision(commit=commit, kernel_sha256=object_id(manifest))
    ledger.settle(ledger.claim(**sides))


def endless_fold(ledger: ClaimLedger) -> None:
    protocol = ledger.ratio().protocol
    ledger.claim(protocol=protocol.model_copy(update={"parameters": {**protocol.parameters, "fold": 0}}))


def another_case(ledger: ClaimLedger) -> None:
    ledger.settle(ledger.claim(), case=forecast(B=8).case)


def another_device(ledger: ClaimLedger) -> None:
    sealed = ledger.claim()
    ledger.settle(sealed, device=settled(sealed).device.model_copy(update={"name": "Toy 2"}))


def claim_of_an_unknown_seal(ledger: ClaimLedger) -> None:
    ledger.settle(ledger.claim(), seal="ab" * 32)


def another_version_than_pinned(ledger: ClaimLedger) -> None:
    ledger.settle(ledger.claim(pins={"torch": "==1.0"}))


def pin_of_nothing(ledger: ClaimLedger) -> None:
    ledger.claim(pins={"torch": "newest"})


def withdrawn_cell_that_is_not_there(ledger: ClaimLedger) -> None:
    ledger.void(ledger.claim(), cell="nothing-N1-fp16")


@pytest.mark.parametrize(
    ("build", "code"),
    [
        (swapped_sides, "revision-changed"),
        (another_commit_measured, "revision-changed"),
        (sealed_after_its_measurement, "prediction-postdates"),
        (sealed_with_its_measurement, "same-commit"),
        (changed_ratio, "ratio-contradicted"),
        (changed_noise, "ratio-contradicted"),
        (changed_median, "ratio-contradicted"),
        (ratio_changed_in_the_file, "id-mismatch"),
        (commit_that_is_not_in_the_history, "revision-unknown"),
        (commit_of_another_branch, "revision-unknown"),
        (commit_of_a_branch_that_was_merged_later, "revision-unknown"),
        (sources_of_another_commit, "revision-differs"),
        (file_that_the_commit_lacks, "revision-differs"),
        (manifest_of_another_kernel, "source-misnamed"),
        (samples_of_another_run, "binding-broken"),
        (wrong_samples_of_the_base, "samples-disagree"),
        (timings_of_another_claim, "evidence-copied"),
        (noise_without_a_second_series, "evidence-copied"),
        (run_left_out, "run-missing"),
        (another_protocol, "protocol-changed"),
        (protocol_of_a_forecast, "place-unknown"),
        (endless_fold, "place-unknown"),
        (protocol_that_errs_always, "place-unknown"),
        (noise_that_forgives_everything, "place-unknown"),
        (rounds_too_few_for_an_interval, "place-unknown"),
        (two_versions_of_what_ships, "revision-differs"),
        (another_case, "case-changed"),
        (another_device, "device-mismatch"),
        (another_version_than_pinned, "pin-changed"),
        (pin_of_nothing, "pin-unreadable"),
        (claim_of_an_unknown_seal, "seal-unknown"),
        (withdrawn_cell_that_is_not_there, "seal-unknown"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_what_was_changed_is_refused(tmp_path: Path, build: Build, code: str):
    ledger = ClaimLedger(tmp_path / "ledger")
    build(ledger)
    result = audit(str(ledger.root), recomputed=True)
    codes = {finding.code for finding in result.findings if finding.severity == "refused"}
    assert result.verdict == "refused" and code in codes, result.findings
    if result.book is not None and result.book.claims and code not in ("evidence-copied", "seal-unknown"):
        expected = {"refused", "open"} if code in ("id-mismatch",) else {"refused"}
        assert {view.state for view in result.book.claims} <= expected


def test_what_cannot_be_settled_is_named(tmp_path: Path):
    protocol = ClaimLedger(tmp_path / "ledger").ratio().protocol
    for values, message in (
        ({}, None),
        ({"least_ppm": 100_000}, None),
        ({"least_ppm": 900_000}, "least_ppm is 900000; expected 0 to 100000"),
        ({"max_rounds": 8}, None),
        ({"max_rounds": 31, "fold": 4}, "max_rounds is 31, of which 7 count by fold 4; expected 8 at least"),
        ({"error_ppm": 0}, "error_ppm is 0; expected 1 to 10000"),
        ({"copies_l2_multiple": 1024, "copies_rotation_ms": 100}, None),
        ({"copies_l2_multiple": 0, "copies_rotation_ms": 0}, None),
        ({"copies_l2_multiple": 1025}, "copies_l2_multiple is 1025; expected 0 to 1024"),
        ({"copies_rotation_ms": 101}, "copies_rotation_ms is 101; expected 0 to 100"),
    ):
        said = protocol_problem(protocol.model_copy(update={"parameters": {**protocol.parameters, **values}}))
        assert (said is None) if message is None else (said is not None and message in said), values
    for error in (0.01, 0.0025, 1e-6):
        needed = least_rounds(error)
        ends = [spread_of([0.0] * count, error).low for count in (needed - 1, needed)]
        assert [math.isfinite(end) for end in ends] == [False, True], error


def test_each_protocol_has_its_own_parameters():
    first, now = first_protocol(), claim_protocol("triton", 1)
    assert (first.name, now.name) == ("interleaved/1", "interleaved/2")
    assert protocol_problem(first) is None and protocol_problem(now) is None
    assert set(now.parameters) - set(first.parameters) == {"copies_l2_multiple", "copies_rotation_ms"}
    for name, parameters in (("interleaved/1", now), ("interleaved/2", first), ("interleaved/3", now)):
        said = protocol_problem(Protocol(name=name, parameters=parameters.parameters))
        assert said is not None and f"protocol {name} with these parameters cannot be judged" in said


@pytest.mark.parametrize(("speed", "expected"), [(1.1, "holds"), (1.0, "fails")])
def test_a_claim_of_the_first_protocol_is_judged_as_before(tmp_path: Path, speed: float, expected: str):
    ledger = ClaimLedger(tmp_path / "ledger")
    ledger.settle(ledger.claim(protocol=first_protocol()), speed=speed)
    result = audit(str(ledger.root), recomputed=True)
    assert result.verdict == "holds" and not result.findings, result.findings
    assert document(result)["claims"][0]["verdict"] == expected


def test_a_claim_of_the_first_protocol_is_not_settled_by_the_second(tmp_path: Path):
    ledger = ClaimLedger(tmp_path / "ledger")
    ledger.settle(ledger.claim(protocol=first_protocol()), protocol=claim_protocol("triton", 1))
    assert "protocol-changed" in ledger.codes()


def test_a_claim_narrower_than_a_measurement_is_told():
    gpu, cpu = claim_protocol("triton", 1), claim_protocol("torch-cpu", 1)
    assert seldom_holds(gpu, 1.08, 1.15) is None and seldom_holds(cpu, 1 / 1.02, 1.02) is None
    assert "about 0.8% wide" in (seldom_holds(gpu, 1.0, 1.005) or "")
    assert "about 4.0% wide" in (seldom_holds(cpu, 1.0, 1.03) or "")


def test_a_claim_that_says_nothing_is_flagged(tmp_path: Path):
    ledger = ClaimLedger(tmp_path / "wide")
    ledger.settle(ledger.claim(low_ppm=500_000, high_ppm=2_000_000))
    assert ledger.flags() == {"vacuous-interval"} and not ledger.codes()
    ledger = ClaimLedger(tmp_path / "slower")
    ledger.settle(ledger.claim(ratio_ppm=400_000, low_ppm=100_000, high_ppm=700_000))
    assert not ledger.flags() and not ledger.codes()
    ledger = ClaimLedger(tmp_path / "idle")
    same = Revision(commit=ledger.base, kernel_sha256=object_id(manifest_of(BASE_SOURCE)))
    ledger.settle(ledger.claim(base=same, head=same))
    assert ledger.flags() == {"claim-idle"} and not ledger.codes()


def test_what_precedes_a_claim_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ledger = ClaimLedger(tmp_path / "ledger")
    for source in (BASE_SOURCE, HEAD_SOURCE):
        ledger.put_kernel(source)
    many = [ledger.ratio(cell=f"{ledger.ratio().cell}-{number}") for number in range(50)]
    ledger.put_seal(cells=(), ratios=tuple(many))
    ledger.commit("Seal claims")
    monkeypatch.setattr("ledger.evidence.claim_checks.MAX_REVISION_STEPS", 10)
    assert len(ledger.book().claims) == 50 and not ledger.codes()


def test_a_squash_of_claim_and_measurement_is_refused(tmp_path: Path):
    ledger, _ = honest_claim(tmp_path / "ledger")
    assert not ledger.codes()
    ledger.git("reset", "-q", "--soft", "HEAD~2")
    ledger.commit("squashed")
    assert "same-commit" in ledger.codes()


def test_a_squash_that_drops_a_claimed_commit_names_it_and_the_remedy(tmp_path: Path):
    ledger, _ = honest_claim(tmp_path / "ledger")
    ledger.git("reset", "-q", "--soft", ledger.base)
    ledger.commit("squashed")
    (said,) = [one for one in audit(str(ledger.root)).findings if one.code == "revision-unknown"]
    assert f"its head {ledger.head_commit[:12]} is not in the history" in said.message
    assert "after a squash or a rebase" in said.message and "with a merge commit" in said.message


def test_signed_and_stamped_claims_reach_levels_2_and_3(tmp_path: Path):
    pytest.importorskip("rfc3161_client", reason="rfc3161_client is not installed: nothing is stamped")
    ledger = ClaimLedger(tmp_path / "ledger")
    key = attacks._key(tmp_path / "keys", "mine")
    attacks._allow(ledger.root, key)
    for name, value in (("gpg.format", "ssh"), ("user.signingkey", f"{key}.pub"), ("commit.gpgsign", "true")):
        ledger.git("config", name, value)
    early = ledger.put_claim()
    ledger.commit(f"Seal\n\nSeal-Id: {early.id}")
    late = ledger.put_claim(why="stamped late")
    ledger.commit(f"Seal\n\nSeal-Id: {late.id}")
    attacks._stamp(ledger, early.path)
    next_second()
    paths = []
    for sealed, began, speed in ((early, attacks.started(), 1.1), (late, attacks.started(-60), 1.101)):
        paths.append(ledger.put_settled(sealed, speed=speed, started_at=began))
        ledger.commit(f"Measure\n\nRecord-Id: {Path(paths[-1]).stem}")
    attacks._stamp(ledger, late.path, *paths)
    trust = Trust(allowed_signers=tmp_path / "allowed", tsa_roots=tmp_path / "roots.pem")
    result = audit(str(ledger.root), trust=trust)
    assert result.verdict == "holds" and result.book is not None, result.findings
    assert [view.levels for view in result.book.claims] == [(0, 2, 3), (0, 2)]
    assert {one.code for one in result.findings} == {"witness-late"}
    # The token of one seal beside another proves nothing of it.
    token = next(one for one in (ledger.root / "predictions").rglob("*.tsr") if early.id in one.name)
    ledger.write(f"{late.path.removesuffix('.json')}.other.tsr", token.read_bytes())
    ledger.commit("token of another claim")
    broken = audit(str(ledger.root), trust=trust)
    assert broken.verdict == "refused" and "token-broken" in {one.code for one in broken.findings}


@pytest.mark.parametrize(
    ("source", "shape", "sight"),
    [(HEAD_SOURCE, {}, "informed"), (BASE_SOURCE, {}, "informed"), (builders.KERNEL_SOURCE, {}, "near"),
     (builders.KERNEL_SOURCE, {"B": 5}, "near"), (builders.KERNEL_SOURCE, {"B": 400}, "blind")],
)  # fmt: skip
def test_a_settled_claim_is_a_time_that_was_known(tmp_path: Path, source: bytes, shape: dict[str, int], sight: str):
    ledger, _ = honest_claim(tmp_path / "ledger")
    cell = forecast(**shape, kernel_sha256=object_id(manifest_of(source)))
    ledger.seal(cell.model_copy(update={"sight": "blind"}))
    (view,) = ledger.book().cells
    assert view.sight == sight and ("sight-contradicted" in ledger.flags()) == (sight != "blind")


def test_seals_without_claims_keep_their_bytes():
    sealed = builders.prediction(forecast())
    assert isinstance(sealed, PredictionV2) and b'"ratios":[]' in encode(sealed)


def test_an_interval_must_hold_its_ratio(tmp_path: Path):
    ledger = ClaimLedger(tmp_path / "ledger")
    sealed = ledger.put_claim()
    value = parse_json((ledger.root / sealed.path).read_bytes(), what="x")
    value["ratios"][0]["low_ppm"] = 1_200_000
    with pytest.raises(RecordError, match="does not hold the ratio"):
        decode(PredictionV2, canonical(value), what="seal")


def test_verdicts_follow_their_definition():
    claimed = (1.05, 1.15)
    assert verdict(claimed, (1.06, 1.14), 0.01) == "holds"
    assert verdict(claimed, (1.04, 1.06), 0.01) == "undecided"
    # Outside, and yet no farther than base is from base.
    assert verdict(claimed, (1.035, 1.045), 0.01) == "undecided"
    assert verdict(claimed, (1.02, 1.03), 0.01) == "fails"
    assert verdict(claimed, (1.17, 1.18), 0.01) == "fails" and verdict(claimed, (1.2, None), 0.01) == "fails"
    assert verdict(claimed, (0.0, None), 100.0) == "undecided"


def test_a_failed_measurement_settles_nothing(tmp_path: Path):
    sealed = ClaimLedger(tmp_path / "ledger").put_claim()
    record = settled_record(sealed)
    nothing = {"ratio_ppm": None, "low_ppm": None, "high_ppm": None, "noise_ppm": None}
    failed = record.model_copy(update={"status": "failed", "failure": "x", "failed_side": "head", **nothing})
    assert verdict_of(sealed.prediction.ratios[0], failed) is None


def test_a_ledger_of_forecasts_has_no_claims(tmp_path: Path):
    ledger, _ = builders.honest(tmp_path / "ledger")
    assert isinstance(ledger, Ledger) and ledger.book().claims == () and not ledger.codes()
