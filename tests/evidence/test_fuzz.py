"""Gives every reader of a file what no author meant: whatever comes in, a value or a LedgerError comes out.

Each reader gets arbitrary bytes, damaged copies of a valid file, and valid files in which one value is another's. The
readers of records, of any YAML and of any JSON have theirs in test_golden.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from authority import Authority
from builders import Ledger, forecast
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from measuring import cell_of, order_of, this_cpu
from samples import COUNTERS, TOY, make_book, make_forecast, make_measurement, make_sealed, make_view
from strategies import JSON, leaves

from ledger.analysis.bench_regression import check, compare
from ledger.analysis.campaign import parse_campaign
from ledger.analysis.drill import drill_of, parse_guesses
from ledger.analysis.metric_readings import readings
from ledger.analysis.metrics import metric_names
from ledger.canonical import canonical, decode, encode, id_input, parse_json, record_id
from ledger.cli.options import parse_ceilings, parse_probabilities, parse_shape
from ledger.device.ncu_csv import parse_raw
from ledger.device.ncu_report import read_hand_made
from ledger.errors import LedgerError
from ledger.evidence.challenge import anchor_of
from ledger.evidence.seal_checks import claims
from ledger.evidence.signatures import signer, split_commit
from ledger.evidence.timestamps import authority_name, load_roots, stamp, token_time
from ledger.git.clone import find_origin
from ledger.git.commit import Repository
from ledger.operations import OPERATIONS
from ledger.record_files import hardware_yaml, parse_yaml, read_hardware, read_record
from ledger.records import Counters, Order, Prediction, Tool, Void, Work
from ledger.workflow.drill_files import read_drill, write_drill

ROOT = Path(__file__).parents[2]
RAW_PAGE = (ROOT / "tests" / "assets" / "ncu" / "big_gemm.csv").read_bytes()
BENCH = ROOT / "benchmarks" / "h200.json"
CAMPAIGN = b"""\
campaign: small
why: a test
hardware: h200
dtype: [fp16, bf16]
cells:
  - kernel: matmul
    shape: {M: [64, 128], N: 64, K: 64}
    regime: launch-bound
    pct: 2.5
    low: 1
    high: 5
    prob: {launch-bound: 0.75, latency-bound: 0.25}
"""
UNCHECKED = (*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture)
many = settings(max_examples=150, suppress_health_check=UNCHECKED)
few = settings(max_examples=30, suppress_health_check=UNCHECKED)


def answered(read: Callable[[], object]) -> None:
    """Call a reader; anything but a value or a LedgerError fails the test."""
    with contextlib.suppress(LedgerError):
        read()


def damaged(data: bytes) -> st.SearchStrategy[bytes]:
    """Return copies of a file with bytes changed, put in, cut out or doubled, or arbitrary bytes."""
    place = st.integers(0, len(data))
    edit = st.tuples(place, st.sampled_from(["set", "insert", "cut", "double", "end"]), st.binary(max_size=8))

    def apply(edits: list[tuple[int, str, bytes]]) -> bytes:
        changed = data
        for at, how, new in edits:
            if how == "set":
                changed = changed[:at] + new + changed[at + len(new) :]
            elif how == "insert":
                changed = changed[:at] + new + changed[at:]
            elif how == "cut":
                changed = changed[:at] + changed[at + 16 :]
            elif how == "double":
                changed = changed[: at + 64] + changed[at:]
            else:
                changed = changed[:at]
        return changed

    return st.lists(edit, min_size=1, max_size=4).map(apply) | st.binary(max_size=200)


def altered(value: Any) -> st.SearchStrategy[Any]:
    """Return copies of a document in which one value is any other, or is missing."""

    def apply(change: tuple[tuple[Any, ...], Any, bool]) -> Any:
        (*path, last), new, gone = change
        copy = json.loads(json.dumps(value))
        within = copy
        for key in path:
            within = within[key]
        if gone and isinstance(within, dict):
            del within[last]
        else:
            within[last] = new
        return copy

    places = [place for place in leaves(value) if place]
    return st.tuples(st.sampled_from(places), JSON, st.booleans()).map(apply)


# Files that a user writes


@many
@given(damaged(CAMPAIGN) | altered(parse_yaml(CAMPAIGN, what="x")).map(lambda v: yaml.safe_dump(v).encode()))
def test_any_campaign_is_answered(data):
    answered(lambda: parse_campaign(parse_yaml(data, what="x"), what="x"))


PROFILE = hardware_yaml(TOY)


@many
@given(damaged(PROFILE) | altered(parse_yaml(PROFILE, what="x")).map(lambda v: yaml.safe_dump(v).encode()))
def test_any_profile_is_answered(tmp_path, data):
    path = tmp_path / "toy.yaml"
    path.write_bytes(data)
    answered(lambda: read_hardware(path))


@many
@given(st.text(max_size=60))
def test_any_option_is_answered(text):
    for read in (parse_shape, parse_probabilities, parse_ceilings, anchor_of, authority_name, find_origin):
        answered(lambda read=read: read(text))
    answered(lambda: check([], text))


# Files that ledger writes and anybody may change


ORDER = encode(order_of(cell_of(this_cpu())))
VOID = canonical(
    {
        "schema": "ledger/void/1",
        "tool": {"name": "ledger", "version": "0"},
        "seal": "ab" * 32,
        "cell": None,
        "why": "a reason",
        "extensions": {},
    }
)


@many
@given(damaged(ORDER) | altered(parse_json(ORDER, what="x")).map(lambda v: json.dumps(v, allow_nan=True).encode()))
def test_any_order_is_answered(tmp_path, data):
    path = tmp_path / "order.json"
    path.write_bytes(data)
    answered(lambda: read_record(Order, path))


@many
@given(damaged(VOID) | altered(parse_json(VOID, what="x")).map(lambda v: json.dumps(v, allow_nan=True).encode()))
def test_any_void_is_answered(data):
    answered(lambda: decode(Void, data, what="x"))


CELL = make_forecast()
COUNTED = make_measurement(CELL, counters=COUNTERS, counters_missing=None)
DRILL = drill_of(make_book(make_view(make_sealed(CELL), CELL, COUNTED)), Tool(name="ledger", version="0"))


def _drill(folder: Path) -> bytes:
    write_drill(folder / "drill.json", DRILL)
    return (folder / "drill.json").read_bytes()


def test_any_drill_is_answered(tmp_path):
    data = _drill(tmp_path)

    @many
    @given(damaged(data) | altered(json.loads(data)).map(lambda v: json.dumps(v, allow_nan=True).encode()))
    def run(changed):
        path = tmp_path / "changed.json"
        path.write_bytes(changed)
        answered(lambda: read_drill(path))

    run()


@many
@given(JSON)
def test_any_guesses_are_answered(value):
    questions = DRILL.questions
    answered(lambda: parse_guesses(value, questions, what="x"))
    answered(lambda: parse_guesses({questions[0].forecast.cell: value}, questions, what="x"))


@many
@given(altered(json.loads(BENCH.read_bytes())) | JSON)
def test_any_earlier_bench_is_answered(before):
    answered(lambda: compare(json.loads(BENCH.read_bytes()), before))


@few
@given(
    st.binary(max_size=120)
    | st.lists(st.text(max_size=20), max_size=4).map(lambda t: "\0".join(t).encode(errors="replace"))
)
def test_any_mark_of_a_killed_writer_is_answered(tmp_path_factory, data):
    ledger = Ledger(tmp_path_factory.mktemp("marked"))
    ledger.write("mine.txt", b"mine\n")
    ledger.commit()
    repository = Repository(ledger.root)
    (ledger.root / ".git" / "ledger.pending").write_bytes(data)
    answered(repository.recover)
    assert ledger.git("status", "--porcelain") == "" and (ledger.root / "mine.txt").read_bytes() == b"mine\n"


# What profilers, authorities and keys write


@many
@given(damaged(RAW_PAGE))
def test_any_raw_page_is_answered(tmp_path, data):
    answered(lambda: parse_raw(data.decode("utf-8", "replace"), wanted=metric_names("9.0"), what="x"))
    path = tmp_path / "raw.csv"
    path.write_bytes(data)

    def read() -> None:
        kernels = read_hand_made(path, "9.0").kernels
        counters = Counters(tool="t", command="c", cache_control="all", clock_control="none", kernels=kernels)
        readings(counters, "sm_90")

    answered(read)


@many
@given(damaged(b"NVR\0\x04\0\0\0head\x02\0\0\0\x28\x04body"))
def test_any_container_of_a_report_is_answered(tmp_path, data):
    path = tmp_path / "x.ncu-rep"
    path.write_bytes(b"NVR\0" + data)
    if not pytest.importorskip("ncu_report", reason="needs the package ncu-report"):
        return
    answered(lambda: read_hand_made(path, "9.0"))


@pytest.fixture(scope="module")
def token(tmp_path_factory):
    pytest.importorskip("rfc3161_client", reason="rfc3161-client is not installed")
    message = id_input(Prediction, b'{"a":1}')
    with Authority(tmp_path_factory.mktemp("tsa") / "tsa") as authority:
        yield stamp(message, authority.url), load_roots(authority.root), authority.root.read_bytes()


def test_any_token_is_answered(token):
    data, roots, _ = token
    identity = record_id(Prediction, b'{"a":1}')
    truth = token_time(data, identity, roots)

    @many
    @given(damaged(data))
    def run(changed):
        with contextlib.suppress(LedgerError):
            assert token_time(changed, identity, roots) == truth

    run()


def test_any_file_of_roots_is_answered(token, tmp_path):
    @many
    @given(damaged(token[2]))
    def run(changed):
        path = tmp_path / "roots.pem"
        path.write_bytes(changed)
        answered(lambda: load_roots(path))

    run()


@many
@given(st.binary(max_size=300) | damaged(b"tree 1\ngpgsig -----BEGIN SSH SIGNATURE-----\n abc\n -----END\n\nSeal\n"))
def test_any_commit_is_split(data):
    payload, signature = split_commit(data)
    assert len(payload) + len(signature or b"") <= len(data) + 1


@pytest.fixture(scope="module")
def signed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("signed")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "a", "-f", str(folder / "key")], check=True)
    ledger = Ledger(folder / "ledger")
    for setting in (("gpg.format", "ssh"), ("user.signingkey", str(folder / "key.pub"))):
        ledger.git("config", *setting)
    ledger.git("commit", "--quiet", "--allow-empty", "-S", "-m", f"Seal\n\nSeal-Id: Id: {'ab' * 32}")
    commit = subprocess.run(
        ["git", "-C", str(ledger.root), "cat-file", "commit", "HEAD"], capture_output=True, check=True
    ).stdout
    return folder, commit, b"ada@example.org " + (folder / "key.pub").read_bytes()


def test_any_signed_commit_and_any_file_of_allowed_signers_is_answered(signed):
    folder, commit, allowed = signed
    path = folder / "allowed"
    path.write_bytes(allowed)
    assert signer(commit, "ab" * 32, path) == "ada@example.org"

    @few
    @given(damaged(commit))
    def commits(changed):
        path.write_bytes(allowed)
        answered(lambda: signer(changed, "ab" * 32, path))

    @few
    @given(damaged(allowed))
    def files(changed):
        path.write_bytes(changed)
        answered(lambda: signer(commit, "ab" * 32, path))

    commits()
    files()


@many
@given(
    st.sampled_from([*OPERATIONS, "mystery/9"]),
    st.dictionaries(st.sampled_from("BHOMNKSD"), st.integers(1, 2**50), max_size=6),
    st.integers(0, 2**52),
)
def test_a_claim_of_any_operation_shape_and_work_is_judged(operation, shape, count):
    if operation in OPERATIONS and count % 3:
        shape = dict.fromkeys(OPERATIONS[operation].shape_keys, 1 + count % 2**20) | shape
    case = forecast().case.model_copy(update={"shape": shape})
    work = Work(flops=count, bytes_read=count, bytes_written=count)
    sealed = forecast().model_copy(update={"operation": operation, "case": case, "work": work})
    assert all(finding.code for finding in claims(sealed, TOY))
