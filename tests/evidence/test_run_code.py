"""Recomputes samples of callables by their own sources: agreement, planted values, code that fails or never ends."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from callables import OPS

import ledger.evidence.run_code as module
from ledger.callables.argument_list import parse_arguments
from ledger.callables.subject import SELF, Subject
from ledger.callables.subject_files import closure_named, load_subject
from ledger.canonical import object_id
from ledger.evidence.run_code import CodeJob, run_code
from ledger.measure.correctness import sample
from ledger.measure.inputs import input_sets
from ledger.measure.result_check import as_list
from ledger.philox_inputs import derive_key
from ledger.records import CaseV2

SEAL, CELL = "5e" * 32, "ops.f-N4096-fp32"
MORE = """

def constant(x):
    return x * 0 + 1


def endless(x):
    while x.device.type != "meta":
        pass
    return x


def leaving(x):
    raise SystemExit(3)


def leaves(text):
    import os
    import sys

    with open(sys.argv[2], "w") as result:
        result.write(text)
    os._exit(0)


def deep(x):
    return x if x.device.type == "meta" else leaves("[" * 200_000)


def uncounted(x):
    import json
    import sys

    if x.device.type == "meta":
        return x
    with open(sys.argv[1]) as job:
        numbers = [0.0] * len(json.load(job)["positions"])
    return leaves(json.dumps({"values": numbers, "allowed": numbers, "others": numbers}))
"""


def job_of(folder: Path, name: str, **changes) -> tuple[CodeJob, SimpleNamespace]:
    """Return the job of a measurement of a callable, its samples as the sealed inputs give them."""
    (folder / "ops.py").write_text(OPS + MORE)
    arguments = parse_arguments("x=fp32[N]")
    subject = Subject(f"ops:{name}", arguments)
    closure = closure_named(subject.name, folder)[0]
    case = CaseV2(
        kernel=subject.name, shape={"N": 4096}, dtype="fp32", hardware="cpu", implementation="torch-cpu",
        config=subject.config("counted"), threads=1, arguments=arguments,
    )  # fmt: skip
    honest = load_subject(replace(subject, name=changes.get("honest", "ops:doubled"), reference=SELF), closure).kernel
    (one,) = input_sets(
        honest.operation, case.shape, "fp32", seal=SEAL, cell=CELL, run=0, anchor=None, count=1, device="cpu"
    )
    results = as_list(honest.reference(one.inputs))
    key = derive_key(seal=SEAL, cell=CELL, run=0, anchor=None)
    samples = sample(results, dtype="fp64", key=key, count=32)
    measurement = SimpleNamespace(samples=samples, correctness=SimpleNamespace(elements=4096))
    asked = {
        "case": case.model_dump(mode="json"),
        "manifest": closure.manifest.model_dump(mode="json", by_alias=True),
        "files": {object_id(source.data): source.data.decode() for source in closure.files},
        "seal": SEAL, "cell": CELL, "run": 0, "anchor": None, "positions": list(samples.positions),
    }  # fmt: skip
    forecast = SimpleNamespace(case=case, operation=subject.operation)
    book = SimpleNamespace(cells=[SimpleNamespace(short_name=CELL, forecast=forecast)])
    return CodeJob(CELL, SimpleNamespace(path="p", measurement=measurement), asked), book


def test_honest_samples_agree_and_a_planted_one_is_refused(tmp_path: Path):
    job, book = job_of(tmp_path, "doubled")
    assert run_code([job], book).agreed == {"p"}
    samples = job.recorded.measurement.samples
    planted = samples.model_copy(update={"bits": ("3ff0000000000000", *samples.bits[1:])})
    job.recorded.measurement.samples = planted
    found = run_code([job], book)
    assert not found.agreed
    assert [finding.code for finding in found.findings] == ["samples-disagree"]
    assert found.findings[0].severity == "refused"


@pytest.mark.parametrize(
    ("name", "honest", "reason"),
    [
        ("constant", "ops:constant", "does not depend on its inputs"),
        ("leaving", "ops:doubled", "its code fails here"),
        ("endless", "ops:doubled", "ran longer than"),
        ("deep", "ops:doubled", "left no result"),
        ("uncounted", "ops:doubled", "left a result of another form"),
    ],
)
@pytest.mark.exhaustive
def test_code_that_says_nothing_gives_no_level(tmp_path: Path, monkeypatch, name: str, honest: str, reason: str):
    monkeypatch.setattr(module, "TIME_LIMIT_S", 300 if name != "endless" else 8)
    job, book = job_of(tmp_path, name, honest=honest)
    found = run_code([job], book)
    assert (found.agreed, found.findings) == (frozenset(), ())
    assert reason in found.skipped[0].reason


@pytest.mark.exhaustive
def test_another_number_of_elements_is_refused(tmp_path: Path):
    job, book = job_of(tmp_path, "doubled")
    job.recorded.measurement.correctness.elements = 4095
    assert "4096" in run_code([job], book).findings[0].message
