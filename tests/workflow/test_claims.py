"""Tests claims end to end on this CPU in a scratch repository: sealed, measured, recorded, audited."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from claimed import first_protocol
from measuring import with_small_rotation
from two_commits import ROOT, WHO, WRONG, Scratch

from ledger.errors import EvidenceRefused, InputError, MachineError
from ledger.records import Protocol

WORSE = (
    "if extra.shape[0]:",
    "for _ in range(3):\n            torch.matmul(a, b, out=out)\n        if extra.shape[0]:",
)
CASE = ("product", "--shape", "M=64,N=96,K=128", "--dtype", "fp32", "--threads", "1", "--hw", "cpu")
CALLABLE = "mypkg.ops:swiglu"


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scratch:
    (tmp_path / "repository").mkdir()
    made = Scratch(tmp_path / "repository")
    monkeypatch.chdir(made.folder)
    for name, value in WHO.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Rotate over few bytes and take few rounds; doubled work is still seen."""
    pytest.importorskip("torch", reason="torch is not installed: nothing can be timed")
    from ledger.device import gpu_selection
    from ledger.measure import comparison, comparison_effort, contestants

    with_small_rotation(monkeypatch)
    effort = replace(comparison_effort.ON_CPU, min_rounds=80, max_rounds=240, budget_s=3.0, least=0.1, most=0.5)
    for module in (comparison, comparison_effort):
        monkeypatch.setattr(module, "parameters_of", contestants.parameters_of)
        monkeypatch.setattr(module, "ON_CPU", effort)
    yield
    gpu_selection.select_device(None)


def ledger(*arguments: str) -> None:
    """Run a command in this process, so that what a fixture changes holds."""
    from ledger.cli.app import app

    app(list(arguments), standalone_mode=False)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> object:
    capsys.readouterr()
    ledger(*arguments, "--json")
    return json.loads(capsys.readouterr().out)


def test_a_claim_is_sealed_measured_and_audited(scratch: Scratch, quick: None, capsys: pytest.CaptureFixture[str]):
    scratch.kernel("worse", WORSE)
    wanted = ("--base", "first", "--head", "worse", "--ratio", "0.25", "--low", "0.1", "--high", "0.7", "--why", "x")
    (sealed,) = shown(capsys, "claim", *CASE, *wanted)
    other = ("--base", "worse", "--head", "first", "--ratio", "1", "--low", "0.9", "--high", "1.1")
    ledger("claim", *CASE, *other, "--pin", "torch>=1")
    said = shown(capsys, "status")
    assert [(one["state"], one["claim"]["ratio"]) for one in said["claims"]] == [("open", 0.25), ("open", 1.0)]
    done = shown(capsys, "verify", "--device", "cpu")
    assert [one["verdict"] for one in done["claims"]] == ["holds", "fails"] and not done["rows"]
    first = done["claims"][0]
    assert first["seal"] == sealed["id"] and first["measured"]["ratio"] < 0.7
    assert first["measured"]["base_us"] < first["measured"]["head_us"]
    report = shown(capsys, "report")
    assert report["claims"] == shown(capsys, "status")["claims"] and not report["refused"]
    (scored,) = shown(capsys, "score")
    assert scored["claims"]["settled"] == 2 and scored["measured"] == 0
    ledger("report")
    ledger("score")
    ledger("log")
    text = capsys.readouterr().out
    assert "2 claims: 1 holds, 1 fails" in text and "(1 claim)" in text and "claims settled" in text
    audit = shown(capsys, "audit", ".", "--recompute")
    assert audit["verdict"] == "holds" and not audit["findings"]
    assert [(one["state"], one["levels"]) for one in audit["claims"]] == [("measured", [0, 1])] * 2
    with pytest.raises(EvidenceRefused, match="is measured"):
        ledger("verify", sealed["id"], "--device", "cpu")


def test_a_claim_of_the_first_protocol_is_settled_by_it(
    scratch: Scratch, quick: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    from ledger.workflow import claim

    scratch.kernel("worse", WORSE)
    with monkeypatch.context() as earlier:
        earlier.setattr(claim, "claim_protocol", first_protocol)
        ledger("claim", *CASE, *"--base first --head worse --ratio 0.25 --low 0.1 --high 0.9".split())
    done = shown(capsys, "verify", "--device", "cpu")
    assert [one["verdict"] for one in done["claims"]] == ["holds"]
    (record,) = [path for path in Path("verifications").rglob("*.json") if b'"interleaved/1"' in path.read_bytes()]
    assert b"copies" not in record.read_bytes()
    assert shown(capsys, "audit", ".")["verdict"] == "holds"


def test_a_claim_timed_by_other_values_is_left_to_the_version_that_sealed_it(
    scratch: Scratch, quick: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    from ledger.measure.comparison_effort import claim_protocol
    from ledger.workflow import claim

    scratch.kernel("worse", WORSE)

    def another(implementation: str, claims: int) -> Protocol:
        made = claim_protocol(implementation, claims)
        return made.model_copy(update={"parameters": {**made.parameters, "max_rounds": 10**9}})

    monkeypatch.setattr(claim, "claim_protocol", another)
    ledger("claim", *CASE, *"--base first --head worse --ratio 0.25 --low 0.1 --high 0.9".split())
    with pytest.raises(MachineError, match="none of the claims can be settled here"):
        ledger("verify", "--device", "cpu")
    assert "was sealed with another timing protocol" in " ".join(capsys.readouterr().err.split())


def test_cells_of_another_device_keep_no_claim_from_being_settled(
    scratch: Scratch, quick: None, capsys: pytest.CaptureFixture[str]
):
    ledger("predict", "vector_add", *"--hw h200 --dtype fp32 --shape N=4096 --regime latency-bound --pct 5".split())
    with pytest.raises(MachineError, match=r"1 cell of h200 and none for this machine .*ledger order -o order.json"):
        ledger("verify", "--device", "cpu")
    scratch.kernel("worse", WORSE)
    ledger("claim", *CASE, "--base", "first", "--head", "worse", "--ratio", "0.25", "--low", "0.1", "--high", "0.9")
    done = shown(capsys, "verify", "--device", "cpu")
    assert [one["verdict"] for one in done["claims"]] == ["holds"]
    (cell,) = shown(capsys, "status")["cells"]
    assert cell["state"] == "open"


def test_claims_that_cannot_be_settled_here_keep_no_measured_cell_back(
    scratch: Scratch, quick: None, capsys: pytest.CaptureFixture[str]
):
    ledger(
        "predict", "product", *"--hw cpu --dtype fp32 --shape M=64,N=96,K=128 --regime latency-bound --pct 5".split()
    )
    scratch.kernel("worse", WORSE)
    wanted = ("--base", "first", "--head", "worse", "--ratio", "0.25", "--low", "0.1", "--high", "0.9")
    ledger("claim", *CASE, *wanted, "--pin", "torch==99.*")
    scratch.git("checkout", "-q", "first", "--", "kernels")
    done = shown(capsys, "verify", "--device", "cpu")
    assert len(done["rows"]) == 1 and not done["claims"]
    assert [one["state"] for one in shown(capsys, "status")["cells"]] == ["measured"]
    for named in ((), (shown(capsys, "status")["claims"][0]["seal"],)):
        with pytest.raises(MachineError, match="none of the claims can be settled here"):
            ledger("verify", *named, "--device", "cpu")


def test_an_error_keeps_the_claims_that_were_settled_before_it(
    scratch: Scratch, quick: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    from ledger.workflow import settle

    scratch.kernel("worse", WORSE)
    wanted = ("--base", "first", "--head", "worse", "--low", "0.1", "--high", "0.9")
    for ratio in ("0.25", "0.3"):
        ledger("claim", *CASE, *wanted, "--ratio", ratio)
    compare_once, left = settle.compare_once, [0]

    def once(*sides, **options):
        left.pop()
        return compare_once(*sides, **options)

    monkeypatch.setattr(settle, "compare_once", once)
    with pytest.raises(IndexError):
        ledger("verify", "--device", "cpu")
    capsys.readouterr()
    assert [one["state"] for one in shown(capsys, "status")["claims"]] == ["measured", "open"]


def test_what_no_record_can_hold_of_an_error_is_a_question_mark(
    scratch: Scratch, quick: None, capsys: pytest.CaptureFixture[str]
):
    scratch.kernel("odd", ("torch.matmul(a, b, out=out)", 'raise OSError("cannot open b\\udcfd")'))
    ledger("claim", *CASE, *"--base first --head odd --ratio 1 --low 0.9 --high 1.1".split())
    ledger(
        "predict", "product", *"--hw cpu --dtype fp32 --shape M=64,N=96,K=128 --regime latency-bound --pct 5".split()
    )
    ledger("verify", "--device", "cpu")
    assert capsys.readouterr().out.count("failed: OSError: cannot open b?") == 1
    found = shown(capsys, "status")
    assert [one["state"] for one in (*found["claims"], *found["cells"])] == ["failed", "failed"]


def test_compare_shows_the_claim(scratch: Scratch, quick: None, capsys: pytest.CaptureFixture[str]):
    scratch.kernel("worse", WORSE)
    ledger("claim", *CASE, "--base", "first", "--head", "worse", "--ratio", "1", "--low", "0.9", "--high", "1.1")
    case = ("product", "--shape", "M=64,N=96,K=128", "--dtype", "fp32", "--threads", "1", "--device", "cpu")
    (row,) = shown(capsys, "compare", "first", "worse", *case)["rows"]
    assert row["verdict"] == "slower" and row["claim"]["verdict"] == "fails" and row["claim"]["state"] == "open"
    ledger("compare", "first", "worse", *case, "--markdown")
    assert "1 (0.9–1.1) FAILS | SLOWER" in capsys.readouterr().out


def test_other_cases_are_claimed_to_stay(scratch: Scratch, quick: None, capsys: pytest.CaptureFixture[str]):
    scratch.kernel("worse", WORSE)
    Path("suite.yaml").write_text(
        "campaign: gate\ncells:\n  - {kernel: product, dtype: fp32, shape: {M: [64, 32], N: 96, K: 128}}\n"
    )
    named = (*CASE, "--ratio", "0.25", "--low", "0.1", "--high", "0.7")
    ledger("claim", *named, "--base", "first", "--head", "worse", "--unchanged", "2%", "--suite", "suite.yaml")
    found = shown(capsys, "status")["claims"]
    assert [one["shape"]["M"] for one in found] == [64, 32]
    assert found[1]["claim"]["high"] == 1.02 and found[1]["claim"]["low"] == pytest.approx(1 / 1.02, abs=1e-6)
    done = shown(capsys, "verify", "--device", "cpu")
    assert [one["verdict"] for one in done["claims"]] == ["holds", "fails"]
    # Without a suite: every case of kernels/ whose sources differ.
    ledger("claim", "--base", "first", "--head", "worse", "--unchanged", "2%", "--threads", "1", "--hw", "cpu")
    assert len(shown(capsys, "status")["claims"]) == 2 + 4


def test_a_wrong_head_fails_and_a_callable_is_claimed(
    scratch: Scratch, quick: None, capsys: pytest.CaptureFixture[str]
):
    scratch.kernel("wrong", WRONG)
    text = (scratch.folder / "mypkg" / "ops.py").read_text()
    scratch.commit(
        "slow", {"mypkg/ops.py": text.replace("return ", "for _ in range(4):\n        F.silu(x) * y\n    return ")}
    )
    band = ("--ratio", "1", "--low", "0.9", "--high", "1.1")
    ledger("claim", *CASE, "--base", "first", "--head", "wrong", *band)
    where = ("--base", "wrong", "--head", "slow", "--threads", "1", "--hw", "cpu")
    ledger("claim", CALLABLE, *where, "--ratio", "0.2", "--low", "0.05", "--high", "0.7")
    ledger("verify", "--device", "cpu")
    printed = capsys.readouterr()
    assert "largest absolute error" in " ".join(printed.out.split()), printed
    found = shown(capsys, "status")["claims"]
    assert [one["state"] for one in found] == ["failed", "measured"]
    assert found[1]["verdict"] == "holds" and found[1]["subject"] == CALLABLE


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (CASE, "expected SUBJECT with --ratio"),
        (("--ratio", "1"), "expected SUBJECT with --ratio"),
        ((*CASE, "--ratio", "1.1"), "without an interval nothing can fail"),
        ((*CASE, "--ratio", "2", "--low", "1", "--high", "1.5"), "does not hold 2"),
        ((*CASE, "--ratio", "-1", "--low", "-2", "--high", "3"), "expected ratios from"),
        (("--unchanged", "200%", "--hw", "cpu"), "between 0 and 100"),
        (("--unchanged", "x", "--hw", "cpu"), "got 'x'"),
        (("--unchanged", "2%", "--hw", "cpu", "--pin", "torch"), "expected a package and a version"),
        (("--unchanged", "2%", "--head", "first", "--hw", "cpu"), "nothing to claim"),
        (("--unchanged", "2%", "--base", "aside", "--hw", "cpu"), "not in the history of HEAD"),
        (("--unchanged", "2%", "--base", "nowhere", "--hw", "cpu"), "names no commit"),
        (
            ("product", "--ratio", "1", "--low", "0.9", "--high", "1.1", "--hw", "cpu", "--head", "worse"),
            "names 4 cases of both commits",
        ),
    ],
)
def test_bad_input_is_named(scratch: Scratch, arguments: tuple[str, ...], message: str):
    scratch.git("checkout", "-q", "-b", "apart")
    scratch.kernel("aside", ("EXTRA = 0", "EXTRA = 2"))
    scratch.git("checkout", "-q", "main")
    scratch.kernel("worse", WORSE)
    given = arguments if "--base" in arguments else (*arguments, "--base", "first")
    with pytest.raises(InputError, match=message):
        ledger("claim", *given)
    assert not (scratch.folder / "predictions").exists()


def test_a_claim_is_sealed_without_torch(scratch: Scratch, tmp_path: Path):
    """A claim of a GPU's kernel needs neither triton nor a device."""
    scratch.kernel("worse", ("rows = (tl", "rows = 0 + (tl"))
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    for name in ("torch", "triton"):
        (hidden / f"{name}.py").write_text("raise ImportError('hidden')\n")
    path = os.pathsep.join([str(hidden), str(ROOT), os.environ.get("PYTHONPATH", "")])
    arguments = ("product", "--shape", "M=512,N=512,K=512", "--dtype", "fp16", "--hw", "h200", "--unchanged", "2%")
    done = subprocess.run(
        [sys.executable, "-m", "ledger", "claim", *arguments, "--base", "first", "--head", "worse", "--ratio", "1.12",
         "--low", "1.08", "--high", "1.15"],
        cwd=scratch.folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "sealed " in done.stdout and "1.12 (1.08–1.15)" in done.stdout and done.stdout.count("(0.9804–1.02)") == 3
