"""Builds real repositories with real git commands: honest ledgers, and every forgery that the tests need.

A Ledger is a work tree whose records are written with plain files, `git add` and `git commit`, so that nothing here
depends on how ledger commits. Each method is one step of a story. Measurements come from a factory that places the
samples where the seal puts them and computes their true values, as an honest machine would.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from samples import TOY, make_forecast, make_measurement, second, state

from ledger.analysis.book import Book
from ledger.analysis.protocols import COLD_GRAPH
from ledger.canonical import decode_any, encode, next_link, object_id, object_path, record_id, record_path
from ledger.evidence.judge import judge
from ledger.git.history import read_history
from ledger.git.reader import Reader, quiet_environment
from ledger.operations import OPERATIONS
from ledger.philox_inputs import derive_key, element_integers, sample_positions
from ledger.records import (
    Correctness,
    Forecast,
    ForecastV2,
    Hardware,
    KernelSource,
    Measurement,
    Prediction,
    PredictionV2,
    Samples,
    SourceFile,
    Timing,
    Tool,
    Void,
    Work,
)
from ledger.roofline import DTYPE_BYTES, roof_of
from ledger.workflow.seal import Draft

KERNEL_SOURCE = b'"""A kernel of the tests: its bytes are sealed and never run."""\n'


def manifest_of(source: bytes = KERNEL_SOURCE, kernel: str = "rmsnorm_matmul", **changes: Any) -> bytes:
    """Return the manifest of a kernel of one file."""
    file = SourceFile(path=f"kernels/{kernel}.py", module=f"kernels.{kernel}", sha256=object_id(source))
    fields: dict[str, Any] = {
        "schema": "ledger/kernel-source/1",
        "contract": "kernel-contract/1",
        "entry": f"kernels.{kernel}",
        "files": (file,),
        "distributions": (),
        "absent": (),
    }
    return encode(KernelSource(**{**fields, **changes}))


MANIFEST = manifest_of()
PROFILE = encode(TOY)
_CEILINGS = TOY.ceilings["datasheet"]
_FASTER_DRAM = _CEILINGS.dram_bandwidth.model_copy(update={"value": 2.0})
FASTER = TOY.model_copy(
    update={
        "name": "toy2",
        "device_names": ("Toy 2",),
        "ceilings": {"datasheet": _CEILINGS.model_copy(update={"dram_bandwidth": _FASTER_DRAM})},
    }
)
"""Another device of the same target."""
VERSION = 1
"""The version of the records that are built; a test sets it to 2."""
EMPTY_GIT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}
# No second process that looks for work after each commit.
_QUIET_GIT = ("git", "-c", "maintenance.auto=false", "-c", "gc.auto=0")


def forecast(B: int = 4, H: int = 64, O: int = 32, dtype: str = "fp16", **changes: Any) -> Forecast:  # noqa: E741
    """Return a forecast of a small rmsnorm_matmul on the toy device, everything in it true."""
    size = DTYPE_BYTES[dtype]
    work = Work(
        flops=2 * B * H * O + 3 * B * H + B * O, bytes_read=size * (B * H + H + H * O), bytes_written=size * B * O
    )
    path = "fp32" if dtype == "fp32" else "fp16_tensor"
    fields = {
        "shape": {"B": B, "H": H, "O": O},
        "dtype": dtype,
        "work": work,
        "roof": roof_of(TOY, path),
        "protocol": COLD_GRAPH,
        "kernel_sha256": object_id(KERNEL_SOURCE),
        "hardware_sha256": object_id(PROFILE),
        "percent_milli": 1_000,
    }
    made = make_forecast(**{**fields, **changes})
    digest = changes.get("kernel_sha256", object_id(MANIFEST))
    return made if VERSION == 1 else second_forecast(made, digest)


def second_forecast(forecast: Forecast, kernel_sha256: str = object_id(MANIFEST)) -> ForecastV2:
    """Return a forecast of version 1 as one of version 2."""
    return ForecastV2(**second(ForecastV2, {**dict(forecast), "kernel_sha256": kernel_sha256}))


def on_profile(profile: Hardware, made: Forecast) -> Forecast:
    """Return a forecast for another profile."""
    case = made.case.model_copy(update={"hardware": profile.name})
    roof = made.roof.model_copy(update=roof_of(profile, made.roof.path).model_dump())
    return made.model_copy(update={"case": case, "roof": roof, "hardware_sha256": object_id(encode(profile))})


class ToyKernel:
    """Stand for the kernel file of a draft: its sources are sealed and never run."""

    class closure:  # noqa: N801
        objects: ClassVar[dict[str, bytes]] = {object_id(data): data for data in (MANIFEST, KERNEL_SOURCE)}


def toy_draft(**changes: Any) -> Draft:
    """Return a draft of a forecast as `forecast` makes it, ready to be sealed by ledger's own code."""
    made = forecast(**changes)
    cell = made if isinstance(made, ForecastV2) else second_forecast(made)
    return Draft(cell, ToyKernel(), TOY, PROFILE)  # type: ignore[arg-type]


def honest_samples(forecast: Forecast, *, seal: str, run: int = 0, anchor: str | None = None) -> Samples:
    """Return the output samples that a correct machine records for a run of a sealed cell."""
    operation = OPERATIONS[forecast.operation]
    shape = forecast.case.shape
    key = derive_key(seal=seal, cell=forecast.cell, run=run, anchor=anchor)
    specs = {spec.name: (number, spec) for number, spec in enumerate(operation.inputs(shape))}

    def read(name: str, index: Any) -> Any:
        number, spec = specs[name]
        generated = spec.generated
        integers = element_integers(index, key=key, tensor=number, input_set=0, how=generated.distribution)
        return as_held(integers * 2.0**generated.exponent, forecast.case.dtype)

    size = math.prod(operation.output_dims(shape))
    count = forecast.protocol.parameters["sample_elements"]
    positions = tuple(sample_positions(j, key=key, size=size) for j in range(count))
    dtype = operation.output_dtype(forecast.case.dtype)
    bits = tuple(as_bits(operation.element(shape, position, read), dtype) for position in positions)
    return Samples(dtype=dtype, positions=positions, bits=bits)


def as_held(values: Any, dtype: str) -> Any:
    """Return input elements as a device holds them: the eight-bit dtypes do not hold all of them exactly."""
    if dtype not in ("int8", "fp8_e4m3"):
        return values
    import torch

    held = torch.from_numpy(values).to(torch.int8 if dtype == "int8" else torch.float8_e4m3fn)
    return held.to(torch.float64).numpy()


def as_bits(value: float, dtype: str) -> str:
    """Return the hexadecimal digits of a number rounded to a dtype."""
    if dtype == "int8":
        return f"{round(value) & 0xFF:02x}"
    if dtype == "fp8_e4m3":
        import torch

        return f"{int(torch.tensor(value).to(torch.float8_e4m3fn).view(torch.uint8)):02x}"
    if dtype == "fp16":
        return f"{int(np.float16(value).view(np.uint16)):04x}"
    word = int(np.float32(value).view(np.uint32))
    if dtype == "fp32":
        return f"{word:08x}"
    # bf16 is the upper half of fp32, rounded to nearest even.
    return f"{(word + 0x7FFF + (word >> 16 & 1)) >> 16:04x}"


def timing(median_ps: int = 2_000_000, **changes: Any) -> Timing:
    """Return a timing of three rounds around a median, with the sealed footprint."""
    fields = {
        "rounds_ps": (median_ps - 1, median_ps, median_ps + 1),
        "calls_per_round": 20,
        "input_sets": 1000,
        "bytes_per_set": 300_000,
        "median_ps": median_ps,
        "low_ps": median_ps - 1,
        "high_ps": median_ps + 1,
        "confidence_ppm": 950_000,
        "launch_ps": None,
    }
    return Timing(**{**fields, **changes})


def series(median_ps: int = 2_000_000, count: int = 25) -> Timing:
    """Return a timing of rounds a picosecond apart, 25 as cold-graph/1 takes at least."""
    rounds = tuple(range(median_ps - count // 2, median_ps - count // 2 + count))
    return timing(median_ps, rounds_ps=rounds, low_ps=rounds[0], high_ps=rounds[-1])


def _as_a_timer_records(forecast: Forecast, compared: Correctness, seal: str) -> dict[str, Any]:
    """Return what a record needs on any profile but the golden ledgers': all rounds, all elements."""
    dims = OPERATIONS[forecast.operation].output_dims(forecast.case.shape)
    return {
        "timing": series(2_000_000 + int(seal[:4], 16)),
        "correctness": compared.model_copy(update={"elements": math.prod(dims)}),
    }


def measurement(forecast: Forecast, *, seal: str, run: int = 0, **changes: Any) -> Measurement:
    """Return an honest measurement of a run of a sealed cell; keyword arguments replace fields."""
    fields: dict[str, Any] = {
        "seal": seal,
        "run": run,
        "timing": timing(),
        "correctness": Correctness(
            passed=True,
            reference="float64",
            elements=128,
            max_abs_error="1.0e-04",
            relative_error="1.0e-04",
            atol="1e-3",
            rtol="0",
        ),
        "before": state(1000),
        "after": state(1000),
    }
    if forecast.hardware_sha256 != object_id(PROFILE):
        fields |= _as_a_timer_records(forecast, fields["correctness"], seal)
    if "samples" not in changes:
        anchor = changes.get("anchor")
        fields["samples"] = honest_samples(forecast, seal=seal, run=run, anchor=anchor)
    return make_measurement(forecast, **{**fields, **changes})


def seal_kind() -> type[Prediction]:
    """Return the class of the seals that are built."""
    return Prediction if VERSION == 1 else PredictionV2


def prediction(*forecasts: Forecast, tips: dict[str, int] | None = None, **changes: Any) -> Prediction:
    """Return a seal's record that follows the seals at the tips of the chain."""
    sequence, previous = next_link(tips or {})
    fields: dict[str, Any] = {
        "schema": "ledger/seal/1",
        "rule": "regime/1",
        "tool": Tool(name="ledger", version="0"),
        "forecaster": "Ada",
        "sequence": sequence,
        "previous": previous,
        "campaign": None,
        "metric": "percent-of-roof/1",
        "repeats": "first-run/1",
        "cells": forecasts or (forecast(),),
        "why": "",
        "nonce": os.urandom(16).hex(),
        "extensions": {},
    }
    if VERSION == 2:
        return PredictionV2(**second(PredictionV2, {**fields, **changes}))
    return Prediction(**{**fields, **changes})


@dataclass(frozen=True)
class Seal:
    """Hold a seal that was written into a ledger."""

    id: str
    path: str
    prediction: Prediction

    @property
    def forecast(self) -> Forecast:
        return self.prediction.cells[0]


class Ledger:
    """Stand for one repository on disk with a ledger in it."""

    def __init__(self, folder: Path, *, bare: bool = False, exists: bool = False) -> None:
        self.root = folder
        if exists:
            return
        folder.mkdir(parents=True, exist_ok=True)
        self.git("init", "--quiet", "--template=", "--initial-branch=main", *(["--bare"] if bare else []))

    def git(self, *arguments: str, data: bytes | None = None, check: bool = True, **environment: str) -> str:
        """Run git here and return what it prints, stripped."""
        done = subprocess.run(
            [*_QUIET_GIT, *arguments],
            cwd=self.root,
            input=data,
            capture_output=True,
            env={**os.environ, **EMPTY_GIT, **environment},
            check=False,
        )
        assert not check or done.returncode == 0, f"git {arguments}: {done.stderr.decode(errors='replace')}"
        return done.stdout.decode("utf-8", "surrogateescape").strip()

    @property
    def head(self) -> str:
        # Read as git stores it, which saves a process, where it stands in one file.
        folder = self.root / ".git"
        named = (folder / "HEAD").read_bytes().strip().removeprefix(b"ref: ") if folder.is_dir() else b""
        reference = folder / os.fsdecode(named)
        if named.startswith(b"refs/") and reference.is_file():
            return reference.read_text().strip()
        return self.git("rev-parse", "HEAD")

    # Files and commits

    def write(self, path: str, data: bytes) -> str:
        """Write a file and add it to the index."""
        self.write_all({path: data})
        return path

    def write_all(self, files: Mapping[str, bytes]) -> None:
        """Write files and add them to the index."""
        for path, data in files.items():
            file = self.root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        self.git("add", "--force", "--", *files)

    def commit(self, message: str = "step", when: str | None = None) -> str:
        """Commit what is in the index."""
        dates = {} if when is None else {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
        self.git("commit", "--quiet", "--allow-empty", "-m", message, **dates)
        return self.head

    def graft_tree(self, entries: bytes, message: str = "odd tree") -> str:
        """Commit a top-level tree given by its raw bytes, as no git command would write it."""
        tree = self.git("hash-object", "-t", "tree", "-w", "--literally", "--stdin", data=entries)
        parent = self.git("rev-parse", "--verify", "--quiet", "HEAD", check=False)
        above = ["-p", parent] if parent else []
        sha = self.git("commit-tree", tree, *above, "-m", message)
        self.git("update-ref", "HEAD", sha)
        return sha

    def switch(self, branch: str, start: str | None = None) -> None:
        """Go to a branch, made at `start` when it is new."""
        if start is None:
            self.git("checkout", "--quiet", branch)
        else:
            self.git("checkout", "--quiet", "-b", branch, start)

    def merge(self, *branches: str, message: str = "merge", options: tuple[str, ...] = ()) -> str:
        """Merge branches with a merge commit."""
        self.git("merge", "--quiet", "--no-ff", "--no-edit", "-m", message, *options, *branches)
        return self.head

    # Records

    def put_kernel(self, source: bytes, kernel: str = "rmsnorm_matmul") -> str:
        """Write a kernel's objects into the index and return the digest that a forecast names it by."""
        objects = [source] if VERSION == 1 else [source, manifest_of(source, kernel)]
        self.write_all({object_path("predictions", object_id(data)): data for data in objects})
        return object_id(objects[-1])

    def put_profile(self, profile: Hardware) -> None:
        """Write a profile's object into the index."""
        self.write(object_path("predictions", object_id(encode(profile))), encode(profile))

    def tips(self) -> dict[str, int]:
        """Return the tips of the chain as the work tree shows them."""
        held: dict[str, Prediction] = {}
        for file in sorted((self.root / "predictions").glob("??/*.json")):
            held[file.stem] = decode_any(file.read_bytes(), what=file.name)
        named = {previous for record in held.values() for previous in record.previous}
        return {identity: record.sequence for identity, record in held.items() if identity not in named}

    def put_seal(self, *forecasts: Forecast, **changes: Any) -> Seal:
        """Write a seal and its objects into the index, uncommitted."""
        record = prediction(*forecasts, tips=self.tips(), **changes)
        data = encode(record)
        identity = record_id(type(record), data)
        sources = (KERNEL_SOURCE, PROFILE, *([MANIFEST] if isinstance(record, PredictionV2) else []))
        objects = {object_path("predictions", object_id(source)): source for source in sources}
        path = record_path("predictions", identity)
        self.write_all({**objects, path: data})
        return Seal(identity, path, record)

    def seal(self, *forecasts: Forecast, when: str | None = None, **changes: Any) -> Seal:
        """Seal forecasts in one commit."""
        sealed = self.put_seal(*forecasts, **changes)
        self.commit(f"Seal {sealed.forecast.cell}", when)
        return sealed

    def put_measurement(self, sealed: Seal, cell: int = 0, attachments: dict[str, bytes] = {}, **changes: Any) -> str:  # noqa: B006
        """Write an honest measurement of a sealed cell into the index, with `changes`; return its path."""
        record = measurement(sealed.prediction.cells[cell], seal=sealed.id, **changes)
        objects = {object_path("verifications", object_id(data)): data for data in attachments.values()}
        if attachments:
            named = tuple({"name": n, "sha256": object_id(d), "bytes": len(d)} for n, d in attachments.items())
            fields = {**record.model_dump(mode="json", by_alias=True), "attachments": named}
            record = type(record).model_validate_json(json.dumps(fields))
        data = encode(record)
        path = record_path("verifications", record_id(type(record), data))
        self.write_all({**objects, path: data})
        return path

    def measure(self, sealed: Seal, cell: int = 0, when: str | None = None, **changes: Any) -> str:
        """Record an honest measurement of a sealed cell in one commit; return its path."""
        path = self.put_measurement(sealed, cell, **changes)
        self.commit(f"Measure {sealed.prediction.cells[cell].cell}", when)
        return path

    def void(self, sealed: Seal, cell: str | None = None, why: str = "a reason") -> str:
        """Withdraw a seal in one commit; return the path of the record."""
        tool = Tool(name="ledger", version="0")
        record = Void(schema="ledger/void/1", tool=tool, seal=sealed.id, cell=cell, why=why, extensions={})
        data = encode(record)
        path = self.write(record_path("verifications", record_id(Void, data)), data)
        self.commit(f"Void {sealed.id[:10]}")
        return path

    # Judging

    def book(self, **options: Any) -> Book:
        """Judge the ledger at HEAD as `ledger report` does."""
        reader = Reader(Path(self.git("rev-parse", "--absolute-git-dir")), quiet_environment())
        history = read_history(reader)
        with reader.blobs() as blobs:
            return judge(history, blobs.read, **options)

    def codes(self) -> set[str]:
        """Return the codes of the findings that refuse this ledger."""
        return {finding.code for finding in self.book().refused}

    def flags(self) -> set[str]:
        """Return the codes of the findings that only disclose."""
        return {finding.code for finding in self.book().findings if finding.severity != "refused"}


def honest(folder: Path) -> tuple[Ledger, Seal]:
    """Return a ledger with one seal and its measurement, each in a commit, after a first commit of other files.

    It is built once a process and then copied: each has the same records.
    """
    built, sealed = _honest(VERSION)
    shutil.copytree(built, folder, dirs_exist_ok=True)
    return Ledger(folder, exists=True), sealed


def begun(folder: Path) -> Ledger:
    """Return a ledger with one commit of another file; copied as `honest` is."""
    shutil.copytree(_begun(), folder, dirs_exist_ok=True)
    return Ledger(folder, exists=True)


@cache
def _begun() -> Path:
    kept = tempfile.mkdtemp(prefix="begun-ledger-")
    atexit.register(shutil.rmtree, kept, ignore_errors=True)
    ledger = Ledger(Path(kept) / "ledger")
    ledger.write("README.md", b"a project\n")
    ledger.commit("begin")
    return ledger.root


@cache
def _honest(_version: int) -> tuple[Path, Seal]:
    kept = tempfile.mkdtemp(prefix="honest-ledger-")
    atexit.register(shutil.rmtree, kept, ignore_errors=True)
    ledger = begun(Path(kept) / "ledger")
    sealed = ledger.seal()
    ledger.measure(sealed)
    return ledger.root, sealed
