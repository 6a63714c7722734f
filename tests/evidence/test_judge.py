"""Tests each numbered check of ledger.judge, and that honest life keeps a ledger open."""

from __future__ import annotations

import dataclasses
import hashlib

import pytest
from builders import Ledger, forecast, honest, measurement, timing
from samples import TOY, failed, make_hardware, state

from ledger.canonical import encode, object_id, object_path, record_id, record_path
from ledger.kernel_files import kernel_closure, load_kernel
from ledger.records import Measurement, Prediction, Protocol
from ledger.workflow.select import current_digests


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "ledger")
    made.write("README.md", b"a project\n")
    made.commit("begin")
    return made


# Honest life


def test_honest_ledger_is_clean_bound_and_blind(tmp_path):
    """(4·64 + 64 + 64·32 + 4·32) fp16 elements are 4992 bytes, 4.992 ns at 1 TB/s, of the 2 µs measured."""
    ledger, sealed = honest(tmp_path / "ledger")
    book = ledger.book()
    assert book.findings == ()
    (cell,) = book.cells
    assert (cell.state, cell.levels, cell.binding, cell.blind, cell.name) == (
        "measured",
        (0,),
        "positions only",
        True,
        f"{sealed.id}#{cell.forecast.cell}",
    )
    assert cell.counted is not None and cell.counted.verification.measured_percent == pytest.approx(0.2496)


def test_open_seals_hold(ledger):
    ledger.seal()
    assert not ledger.book().findings
    assert ledger.book().cells[0].state == "open"


def test_later_kernel_and_profile_disturb_nothing_measured(ledger):
    first = ledger.seal()
    ledger.measure(first)
    second = ledger.seal(forecast(B=8))
    now = {("kernel", first.forecast.case.kernel): "ee" * 32, ("hardware", "toy"): object_id(encode(TOY))}
    book = ledger.book(current=lambda kind, name: now[kind, name])
    assert [cell.state for cell in book.cells] == ["measured", "stale"]
    assert not book.refused
    assert second.id == book.cells[1].sealed.id


def test_only_open_cells_ask_what_is_current(ledger):
    ledger.measure(ledger.seal())
    asked = []
    assert ledger.book(current=lambda kind, name: asked.append((kind, name))).cells[0].state == "measured"
    assert not asked
    ledger.seal(forecast(B=8))
    # What is not here any more cannot be measured.
    assert ledger.book(current=lambda kind, name: asked.append((kind, name))).cells[1].state == "stale"
    assert ledger.book().cells[1].state == "open"
    assert asked == [("kernel", "rmsnorm_matmul"), ("hardware", "toy")]


def test_digests_are_read_without_running_a_kernel(tmp_path):
    marker = tmp_path / "was-loaded"
    (tmp_path / "kernels").mkdir()
    loud = f"KERNEL = open({str(marker)!r}, 'w')\nraise ValueError('loud')\n"
    (tmp_path / "kernels" / "loud.py").write_text(loud)
    (tmp_path / "kernels" / "broken.py").write_text("def f(:\nKERNEL = 1\n")
    digest = current_digests(tmp_path)
    assert digest("kernel", "matmul") == load_kernel("matmul").sha256
    assert digest("kernel", "nobody") is None
    assert digest("hardware", "nobody") is None
    assert digest("kernel", "loud") == kernel_closure("loud", tmp_path)[0].sha256
    assert digest("kernel", "broken") == ""
    assert not marker.exists()


def test_a_campaign_lists_what_is_missing(ledger):
    sealed = ledger.seal(forecast(B=4), forecast(B=8), forecast(B=16), campaign="first")
    ledger.measure(sealed, cell=1)
    assert [cell.state for cell in ledger.book().cells] == ["open", "measured", "open"]
    assert not ledger.book().findings


def test_merge_of_two_honest_branches_holds(ledger):
    ledger.seal(forecast(B=1))
    base = ledger.head
    for branch, size in (("left", 2), ("right", 3)):
        ledger.switch(branch, base)
        ledger.measure(ledger.seal(forecast(B=size)))
    ledger.switch("main")
    ledger.merge("left")
    ledger.merge("right")
    after = ledger.seal(forecast(B=5))
    ledger.measure(after)
    book = ledger.book()
    assert not book.findings
    assert len(after.prediction.previous) == 2
    assert [cell.state for cell in book.cells] == ["open", "measured", "measured", "measured"]
    assert [s.prediction.sequence for s in book.seals] == [1, 2, 2, 3]


def test_octopus_merge_holds(ledger):
    base = ledger.head
    for branch, size in (("a", 2), ("b", 3), ("c", 5)):
        ledger.switch(branch, base)
        ledger.measure(ledger.seal(forecast(B=size)))
    ledger.switch("main")
    ledger.merge("a", "b", "c")
    ledger.seal(forecast(B=7))
    assert not ledger.book().findings


def test_fast_forward_and_cherry_picked_seal_hold(ledger):
    base = ledger.head
    ledger.switch("side", base)
    sealed = ledger.seal()
    ledger.switch("main")
    ledger.write("other", b"x")
    ledger.commit()
    ledger.git("cherry-pick", "side")
    ledger.measure(sealed)
    ledger.merge("side")
    assert not ledger.book().findings
    assert ledger.book().cells[0].state == "measured"


def test_plain_clone_holds(tmp_path):
    honest(tmp_path / "ledger")
    clone = Ledger(tmp_path / "clone")
    clone.git("pull", "--quiet", str(tmp_path / "ledger"), "main")
    assert not clone.book().findings


def test_failed_run_then_finished_run_is_shown(ledger):
    sealed = ledger.seal()
    wrong = failed(sealed.forecast).model_copy(update={"seal": sealed.id})
    data = encode(wrong)
    ledger.write(record_path("verifications", record_id(Measurement, data)), data)
    ledger.commit()
    assert ledger.book().cells[0].state == "failed"
    ledger.measure(sealed, run=1)
    book = ledger.book()
    assert {f.code for f in book.findings} == {"failed-first"}
    assert len(book.cells[0].runs) == 2 and book.cells[0].counted is book.cells[0].runs[1]


def test_void_is_shown_and_clears_nothing(ledger):
    sealed = ledger.seal(forecast(B=1), forecast(B=2))
    ledger.void(sealed, sealed.prediction.cells[0].cell)
    assert [cell.state for cell in ledger.book().cells] == ["void", "open"]
    ledger.write(sealed.path, b"{}")
    ledger.commit()
    assert "edited" in ledger.codes()


def test_readme_and_keep_files_may_change(ledger):
    for text in (b"1", b"2"):
        ledger.write("predictions/README.md", text)
        ledger.commit()
    ledger.git("rm", "--quiet", "predictions/README.md")
    ledger.commit()
    assert not ledger.book().findings


def test_the_files_that_keep_the_folders_mean_nothing(ledger):
    # As `ledger init` founds a ledger: both in one commit, before any record.
    for folder in ("predictions", "verifications"):
        ledger.write(f"{folder}/.gitkeep", b"")
    ledger.commit("Found a ledger")
    ledger.measure(ledger.seal())
    assert not ledger.book().findings
    ledger.write("predictions/ab/.gitkeep", b"")
    ledger.commit()
    assert (ledger.codes(), ledger.flags()) == (set(), {"odd-file"})
    ledger.git("update-index", "--chmod=+x", "verifications/.gitkeep")
    ledger.commit()
    assert ledger.codes() == {"odd-mode"}


# Informed and blind, revisions


def test_a_forecast_after_a_measurement_of_its_cell_is_informed(ledger):
    first = ledger.seal()
    ledger.measure(first)
    second = ledger.seal(forecast(percent_milli=467))
    other = ledger.seal(forecast(B=9))
    cells = {cell.sealed.id: cell for cell in ledger.book().cells}
    assert [cells[s.id].blind for s in (first, second, other)] == [True, False, True]
    assert cells[second.id].revises == (cells[first.id].name,)


def test_another_configuration_of_a_measured_cell_is_informed(ledger):
    ledger.measure(ledger.seal())
    case = forecast().case.model_copy(update={"config": {"block_m": 128}})
    ledger.seal(forecast().model_copy(update={"case": case}))
    assert [cell.blind for cell in ledger.book().cells] == [True, False]


def test_a_revision_before_measuring_stays_blind(ledger):
    first, second = ledger.seal(), ledger.seal(forecast(percent_milli=2_000))
    ledger.measure(second)
    cells = ledger.book().cells
    assert [cell.blind for cell in cells] == [True, True]
    assert [cell.state for cell in cells] == ["open", "measured"]
    assert cells[1].revises == (f"{first.id}#{first.forecast.cell}",)


def test_a_seal_parallel_to_a_measurement_of_its_cell_is_not_blind(ledger):
    base = ledger.head
    ledger.switch("known", base)
    ledger.measure(ledger.seal())
    ledger.switch("guess", base)
    guess = ledger.seal(forecast(percent_milli=467))
    ledger.switch("main")
    ledger.merge("known", "guess")
    ledger.measure(guess)
    assert not ledger.book().refused
    assert {cell.sealed.id == guess.id: cell.blind for cell in ledger.book().cells} == {False: True, True: False}


# 1 files


@pytest.mark.parametrize(
    "path",
    [
        "predictions/notes.json",
        "predictions/ab/short.json",
        f"predictions/cd/{'ab' * 32}.json",
        f"predictions/AB/{'AB' * 32}.json",
        "verifications/latest.yaml",
        f"verifications/{'ab' * 32}.json",
        "predictions/objects/x.YML",
    ],
)
def test_check_1_refuses_records_in_odd_places(ledger, path):
    ledger.write(path, b"{}")
    ledger.commit()
    assert ledger.codes() == {"odd-file"}


def test_check_1_flags_other_files(ledger):
    ledger.write("predictions/.gitattributes", b"* ident\n")
    ledger.commit()
    assert (ledger.codes(), ledger.flags()) == (set(), {"odd-file"})


# 2 append


def test_check_2_refuses_edits_even_when_taken_back(ledger):
    sealed = ledger.seal()
    data = (ledger.root / sealed.path).read_bytes()
    ledger.write(sealed.path, data + b" ")
    ledger.commit()
    assert ledger.codes() == {"edited", "id-mismatch"}
    ledger.write(sealed.path, data)
    ledger.commit()
    assert ledger.codes() == {"edited"}


def test_check_2_refuses_removal_even_when_taken_back(ledger):
    sealed = ledger.seal()
    path = ledger.measure(sealed)
    ledger.git("rm", "--quiet", path)
    ledger.commit()
    assert {"deleted", "dropped"} <= ledger.codes()
    ledger.git("revert", "--no-edit", "HEAD")
    assert "deleted" in ledger.codes()


def test_check_2_refuses_a_rename(ledger):
    sealed = ledger.seal()
    ledger.git("mv", sealed.path, "predictions/notes.txt")
    ledger.commit()
    assert "deleted" in ledger.codes()


def test_check_2_refuses_a_merge_that_drops_a_side(ledger):
    ledger.seal(forecast(B=1))
    ledger.switch("side", ledger.head)
    ledger.measure(ledger.seal(forecast(B=2)))
    ledger.switch("main")
    ledger.write("other", b"x")
    ledger.commit()
    ledger.merge("side", options=("--strategy=ours",))
    assert ledger.codes() == {"dropped"}


# 3 digest, 4 canonical


def test_check_3_refuses_other_bytes_under_a_name(ledger):
    sealed = ledger.put_seal()
    data = (ledger.root / sealed.path).read_bytes()
    ledger.write(sealed.path, data.replace(b"1000", b"2000"))
    ledger.commit()
    (finding,) = ledger.book().refused
    assert finding.code == "id-mismatch" and "SHA-256 of a prefix such as ledger/seal/v1, a NUL byte" in finding.message
    assert sealed.id in {hashlib.sha256(b"ledger/seal/v%d\0" % version + data).hexdigest() for version in (1, 2)}


def test_check_3_refuses_a_seal_under_the_measurement_folder(ledger):
    sealed = ledger.seal()
    data = (ledger.root / sealed.path).read_bytes()
    ledger.write(record_path("verifications", record_id(Measurement, data)), data)
    ledger.commit()
    assert ledger.codes() == {"bad-record"}


def test_check_4_refuses_white_space_even_under_its_own_digest(ledger):
    sealed = ledger.put_seal()
    data = (ledger.root / sealed.path).read_bytes() + b"\n"
    ledger.git("rm", "--cached", "--quiet", sealed.path)
    (ledger.root / sealed.path).unlink()
    ledger.write(record_path("predictions", record_id(Prediction, data)), data)
    ledger.commit()
    assert ledger.codes() == {"bad-record"}


# 5 objects


def test_check_5_refuses_missing_and_altered_objects(ledger):
    sealed = ledger.put_seal()
    profile = object_path("predictions", sealed.forecast.hardware_sha256)
    kernel = object_path("predictions", sealed.forecast.kernel_sha256)
    ledger.git("rm", "--cached", "--quiet", profile)
    ledger.write(kernel, b"another kernel")
    ledger.commit()
    assert ledger.codes() == {"object-missing", "object-altered"}


def test_check_5_refuses_a_lost_attachment(ledger):
    sealed = ledger.seal()
    path = ledger.put_measurement(sealed, attachments={"ncu.csv": b"1,2,3\n"})
    ledger.git("rm", "--cached", "--quiet", object_path("verifications", object_id(b"1,2,3\n")))
    ledger.commit()
    assert ledger.codes() == {"object-missing", "attachment-lost"}
    assert path in {finding.path for finding in ledger.book().refused}


# 6 alone, 8 order


def test_check_6_refuses_seal_and_measurement_in_one_commit(ledger):
    sealed = ledger.put_seal()
    ledger.put_measurement(sealed)
    ledger.commit()
    assert ledger.codes() == {"same-commit", "prediction-postdates"}


def test_check_6_refuses_two_seals_in_one_commit(ledger):
    ledger.put_seal()
    ledger.put_seal(forecast(B=2))
    ledger.commit()
    assert "joined" in ledger.codes()


def test_check_8_refuses_a_seal_after_its_measurement(ledger):
    sealed = ledger.put_seal()
    ledger.git("stash", "--quiet")
    ledger.measure(sealed)
    ledger.git("stash", "pop", "--quiet")
    ledger.commit()
    assert ledger.codes() == {"prediction-postdates"}
    assert ledger.book().cells[0].state == "refused"
    assert ledger.book().cells[0].levels == ()


def test_check_8_refuses_parallel_branches(ledger):
    base = ledger.head
    ledger.switch("seal", base)
    sealed = ledger.seal()
    ledger.switch("measure", base)
    ledger.measure(sealed)
    ledger.switch("main")
    ledger.merge("seal", "measure")
    assert ledger.codes() == {"prediction-postdates"}


def test_check_8_refuses_a_measurement_without_a_seal(ledger):
    sealed = ledger.seal()
    data = encode(measurement(sealed.forecast, seal="ab" * 32))
    ledger.write(record_path("verifications", record_id(Measurement, data)), data)
    ledger.commit()
    assert ledger.codes() == {"seal-unknown"}


def test_check_8_refuses_a_void_before_its_seal(ledger):
    sealed = ledger.put_seal()
    ledger.git("stash", "--quiet")
    ledger.void(sealed)
    ledger.git("stash", "pop", "--quiet")
    ledger.commit()
    assert ledger.codes() == {"void-precedes"}


# 7 chain


def test_check_7_refuses_a_seal_that_skips_an_earlier_one(ledger):
    ledger.seal(forecast(B=1))
    ledger.seal(forecast(B=2), sequence=1, previous=())
    assert ledger.codes() == {"chain-skip"}


def test_check_7_refuses_an_unknown_previous_seal(ledger):
    ledger.seal(forecast(B=1), sequence=2, previous=("ab" * 32,))
    assert "chain-broken" in ledger.codes()


def test_check_7_refuses_a_wrong_sequence(ledger):
    ledger.seal(forecast(B=1))
    ledger.seal(forecast(B=2), sequence=7)
    assert ledger.codes() == {"chain-broken"}


def test_check_7_refuses_reordered_seals(ledger):
    first = ledger.seal(forecast(B=1))
    second = ledger.seal(forecast(B=2))
    ledger.git("checkout", "--quiet", "-b", "reordered", "main~2")
    for sealed in (second, first):
        ledger.git("checkout", "--quiet", "main", "--", sealed.path, "predictions/objects")
        ledger.commit()
    assert ledger.codes() == {"chain-order", "chain-skip"}


def test_check_7_refuses_a_previous_that_is_no_tip(ledger):
    first = ledger.seal(forecast(B=1))
    second = ledger.seal(forecast(B=2))
    ledger.seal(forecast(B=3), previous=tuple(sorted((first.id, second.id))))
    assert ledger.codes() == {"chain-broken"}


# 9 subject, 10 binding


def test_check_9_refuses_a_cell_outside_the_seal(ledger):
    sealed = ledger.seal()
    stranger = dataclasses.replace(sealed, prediction=sealed.prediction.model_copy(update={"cells": (forecast(B=2),)}))
    ledger.measure(stranger)
    assert ledger.codes() == {"cell-unknown"}


CHANGES = {
    "kernel": ({"kernel_sha256": "ee" * 32}, "kernel-changed"),
    "profile": ({"hardware_sha256": "ee" * 32}, "profile-changed"),
    "config": ({"case": forecast().case.model_copy(update={"config": {"block_m": 128}})}, "case-changed"),
    "protocol": ({"protocol": Protocol(name="cold-graph/1", parameters={"sample_elements": 32})}, "protocol-changed"),
    "anchor": ({"anchor": "ee" * 32, "samples": measurement(forecast(), seal="ab" * 32).samples}, "binding-broken"),
}


@pytest.mark.parametrize(("changes", "code"), CHANGES.values(), ids=CHANGES)
def test_check_9_refuses_what_was_not_sealed(ledger, changes, code):
    ledger.measure(ledger.seal(), **changes)
    assert ledger.codes() == {code}


def test_check_10_refuses_samples_of_another_seal_run_or_dtype(ledger):
    sealed = ledger.seal()
    right = measurement(sealed.forecast, seal=sealed.id).samples
    assert right is not None
    wrong = {
        "seal": measurement(sealed.forecast, seal="ab" * 32).samples,
        "run": measurement(sealed.forecast, seal=sealed.id, run=1).samples,
        "dtype": right.model_copy(update={"dtype": "bf16"}),
        "width": right.model_copy(update={"bits": tuple(bits + "00" for bits in right.bits)}),
        "fewer": right.model_copy(update={"positions": right.positions[:-1], "bits": right.bits[:-1]}),
        "none": right.model_copy(update={"positions": (), "bits": ()}),
    }
    for samples in wrong.values():
        ledger.git("checkout", "--quiet", "-B", "try", "main")
        ledger.measure(sealed, samples=samples)
        assert ledger.codes() == {"binding-broken"}


def test_check_10_no_samples_reach_no_level_1(ledger):
    protocol = Protocol(name="cold-graph/1", parameters={"sample_elements": 0})
    sealed = ledger.seal(forecast(protocol=protocol))
    ledger.measure(sealed)
    assert not ledger.book().refused
    assert ledger.book().cells[0].binding == "none"


# 11 physics, 12 dates


def test_check_11_refuses_another_device_and_impossible_speed(ledger):
    sealed = ledger.seal()
    ledger.measure(sealed, timing=timing(1_000))
    assert ledger.codes() == {"above-roof"}
    ledger.git("reset", "--quiet", "--hard", "HEAD~1")
    device = measurement(sealed.forecast, seal=sealed.id).device.model_copy(update={"name": "Toy 2"})
    ledger.measure(sealed, device=device)
    assert ledger.codes() == {"device-mismatch"}


def test_check_11_flags_a_clock_that_moved(ledger):
    ledger.measure(ledger.seal(), after=state(800))
    assert (ledger.codes(), ledger.flags()) == (set(), {"clock-moved"})


@pytest.mark.parametrize("when", ["1970-01-01T00:00:00+0000", "1999-12-31T23:59:59-1200", "@0 +0000"])
def test_check_12_flags_dates_against_the_graph_and_lets_the_graph_decide(ledger, when):
    sealed = ledger.seal(when="2026-05-05T05:05:05+0000")
    ledger.measure(sealed, when=when)
    assert (ledger.codes(), ledger.flags()) == (set(), {"date-order"})


# 13 claims, 14 repeats


def test_check_13_refuses_a_roof_that_the_profile_does_not_give(ledger):
    roof = forecast().roof.model_copy(update={"bandwidth_bytes_per_s": 10**11})
    ledger.seal(forecast(roof=roof))
    assert ledger.codes() == {"roof-contradicted"}


def test_check_13_refuses_a_profile_of_another_name(ledger):
    data = encode(make_hardware(name="other"))
    ledger.write(object_path("predictions", object_id(data)), data)
    ledger.seal(forecast(hardware_sha256=object_id(data)))
    assert ledger.codes() == {"profile-misnamed"}


def test_check_13_flags_odd_claims(ledger):
    ledger.seal(forecast(low_milli=0, high_milli=100_000))
    assert ledger.flags() == {"vacuous-interval"}
    work = forecast().work.model_copy(update={"bytes_read": 2 * forecast().work.bytes_read})
    ledger.seal(forecast(work=work, cell="rmsnorm_matmul-B4096-fp16"))
    assert ledger.flags() == {"vacuous-interval", "work-unlike-operation", "cell-misnamed"}
    assert not ledger.codes()


def test_check_13_flags_more_operations_than_are_usually_counted(ledger):
    # B=4, H=64, O=32: 8192 multiply-adds, 2·8192 + 4096 + 32·(256 + 64 + 2048 + 128) = 100,352 at most.
    for flops, flags in ((100_352, set()), (100_353, {"work-unlike-operation"})):
        ledger.seal(forecast(work=forecast().work.model_copy(update={"flops": flops})))
        assert ledger.flags() == flags
    assert not ledger.codes()


@pytest.mark.parametrize("name", ["bytes_read", "bytes_written", "flops"])
def test_check_13_refuses_work_beyond_the_operation(ledger, name):
    # 8 bytes of each of 2368 elements in and 128 out; four times 100,352 operations.
    most = {"bytes_read": 18_944, "bytes_written": 1_024, "flops": 401_408}[name]
    ledger.seal(forecast(work=forecast().work.model_copy(update={name: most})))
    assert not ledger.codes()
    ledger.seal(forecast(work=forecast().work.model_copy(update={name: most + 1})))
    assert ledger.codes() == {"work-contradicted"}


def test_check_13_notes_what_was_measured_under_another_name(ledger):
    case = forecast().case.model_copy(update={"kernel": "fresh"})
    twin = forecast().model_copy(update={"case": case, "cell": "fresh-B4-H64-O32-fp16"})
    before = ledger.seal(twin)
    ledger.measure(ledger.seal())
    assert not ledger.book().findings
    after = ledger.seal(twin)
    (note,) = ledger.book().findings
    assert (note.code, note.severity, note.path) == ("measured-under-another-name", "note", after.path)
    assert [cell.sight for cell in ledger.book().cells] == [None, None, "informed"], "the very same sources"
    ledger.measure(before)
    ledger.seal(twin)
    assert len(ledger.book().findings) == 1, "an informed forecast needs no note"


def test_check_14_discloses_repeated_and_copied_runs_and_gaps(ledger):
    sealed = ledger.seal(forecast(B=1), forecast(B=2))
    rounds = (*range(2_000_000, 2_000_008), 2_000_007)
    series = timing(2_000_004, rounds_ps=rounds, low_ps=2_000_002, high_ps=2_000_006)
    ledger.measure(sealed, run=0, timing=series)
    ledger.measure(sealed, run=0, started_at="2026-01-02T03:04:06Z")
    assert ledger.flags() == {"run-repeated"}
    # As ledger numbers a run that follows a merge of two first runs.
    ledger.measure(sealed, run=2, started_at="2026-01-02T03:04:07Z")
    assert ledger.flags() == {"run-repeated", "run-missing"}
    ledger.measure(sealed, cell=1, timing=series)
    assert ledger.flags() == {"run-repeated", "run-missing", "evidence-copied"}
    assert not ledger.codes()


def test_check_14_refuses_a_run_without_those_before_it(ledger):
    sealed = ledger.seal()
    ledger.measure(sealed)
    ledger.measure(sealed, run=2)
    assert ledger.codes() == {"run-missing"}
    ledger.measure(sealed, run=1)
    assert (ledger.codes(), ledger.flags()) == (set(), {"run-missing"})


def test_check_14_refuses_a_series_of_timings_that_another_run_has(ledger):
    sealed = ledger.seal(forecast(B=1), forecast(B=2))
    rounds = tuple(range(2_000_000, 2_000_009))
    series = timing(2_000_004, rounds_ps=rounds, low_ps=2_000_002, high_ps=2_000_006)
    for cell in (0, 1):
        ledger.measure(sealed, cell=cell, timing=series)
    assert ledger.codes() == {"evidence-copied"}


def test_check_14_discloses_parallel_first_runs(ledger):
    sealed = ledger.seal()
    base = ledger.head
    for branch, median in (("left", 2_000_000), ("right", 1_900_000)):
        ledger.switch(branch, base)
        ledger.measure(sealed, timing=timing(median))
    ledger.switch("main")
    ledger.merge("left", "right")
    assert (ledger.codes(), ledger.flags()) == (set(), {"run-repeated", "runs-parallel"})


def test_multi_root_history_is_flagged(ledger):
    ledger.seal()
    ledger.git("checkout", "--quiet", "--orphan", "island")
    ledger.git("rm", "-rfq", ".")
    ledger.write("x", b"x")
    ledger.commit()
    ledger.switch("main")
    ledger.merge("island", options=("--allow-unrelated-histories",))
    assert (ledger.codes(), ledger.flags()) == (set(), {"multi-root"})
