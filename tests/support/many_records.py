"""Writes a large ledger fast, with `git fast-import`: several authors, branches and merges, one record a commit.

Everything is what an audit expects but the values of output samples, which are not computed: they are at the right
positions, and `ledger audit --recompute` would refuse them. Each author seals and measures in turn. Of every BLOCK
seals the last BRANCHED are made on a branch, in a second working copy as it were, and merged.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO

import builders
from builders import KERNEL_SOURCE, PROFILE, forecast, manifest_of, measurement, prediction, timing

from ledger.canonical import cell_key, encode, object_id, object_path, record_id, record_path
from ledger.philox_inputs import derive_key, sample_positions
from ledger.records import ForecastV2, MeasurementV2, PredictionV2, Samples

AUTHORS = ("Ada", "Grace", "Edsger")
KERNELS = tuple(f"rmsnorm_matmul_{letter}" for letter in "abcdef")
BLOCK, BRANCHED = 10, 3
_SHAPES = 40
"""Widths of a kernel before the batch grows."""
_EPOCH = 1_700_000_000


@dataclass
class Branch:
    """Hold a branch that is being written: its tips of the chain, and the files that it added since it began."""

    name: str
    tips: dict[str, int] = field(default_factory=dict)
    added: dict[str, bytes] = field(default_factory=dict)


class _Import:
    """Write commits to `git fast-import`."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._number = 0

    def commit(self, branch: Branch, files: Mapping[str, bytes], author: str, *more: str) -> None:
        """Add files to a branch. more: lines about its parents, where the last commit of the branch is not enough."""
        self._number += 1
        who = f"committer {author} <{author.lower()}@example.org> {_EPOCH + self._number} +0000"
        head = [f"commit refs/heads/{branch.name}", who, "data 1", "x", *more]
        self._pipe.write("\n".join(head).encode() + b"\n")
        for path, data in files.items():
            self._pipe.write(b"M 100644 inline %s\ndata %d\n" % (path.encode(), len(data)))
            self._pipe.write(data + b"\n")
        branch.added.update(files)

    def forget(self, branch: Branch) -> None:
        """Delete a branch."""
        self._pipe.write(f"reset refs/heads/{branch.name}\nfrom {'0' * 40}\n\n".encode())


def write_many(folder: Path, count: int) -> Branch:
    """Write a bare repository of `count` seals of one cell each, all measured: twice as many records.

    Returns its branch, after which `records_of` goes on.
    """
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(folder)], check=True)
    command = ["git", "-C", str(folder), "fast-import", "--quiet", "--force"]
    version, builders.VERSION = builders.VERSION, 2
    try:
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            main = _write(_Import(process.stdin), count)
        assert process.returncode == 0
    finally:
        builders.VERSION = version
    subprocess.run(["git", "-C", str(folder), "repack", "-q", "-a", "-d"], check=True)
    return main


def _write(out: _Import, count: int) -> Branch:
    main = Branch("main")
    sources = [KERNEL_SOURCE, PROFILE, *map(_manifest, KERNELS)]
    out.commit(main, {object_path("predictions", object_id(data)): data for data in sources}, AUTHORS[0])
    for first in range(0, count, BLOCK):
        numbers = range(first, min(first + BLOCK, count))
        stay, leave = numbers[: BLOCK - BRANCHED], numbers[BLOCK - BRANCHED :]
        side = Branch(f"side-{first}", dict(main.tips))
        start = ["from refs/heads/main"]
        for number in leave:
            for data in records_of(number, side):
                out.commit(side, data, AUTHORS[(number + 1) % len(AUTHORS)], *start)
                start = []
        for number in stay:
            for data in records_of(number, main):
                out.commit(main, data, AUTHORS[number % len(AUTHORS)])
        if leave:
            out.commit(main, side.added, AUTHORS[0], f"merge refs/heads/{side.name}")
            out.forget(side)
            main.tips = {**main.tips, **side.tips}
        main.added.clear()
    return main


def records_of(number: int, branch: Branch) -> Iterator[dict[str, bytes]]:
    """Yield a seal and its measurement, of version 2, a commit's files each."""
    cell = _cell(number)
    record = prediction(
        cell, tips=branch.tips, forecaster=AUTHORS[number % len(AUTHORS)], nonce=object_id(b"%d" % number)[:32]
    )
    data = encode(record)
    identity = record_id(PredictionV2, data)
    branch.tips = {identity: record.sequence}
    yield {record_path("predictions", identity): data}
    rounds = tuple(2_000_000 + number + k for k in range(31))
    times = timing(2_000_015 + number, rounds_ps=rounds, low_ps=rounds[10], high_ps=rounds[20])
    measured = encode(measurement(cell, seal=identity, timing=times, samples=_samples(cell, identity)))
    yield {record_path("verifications", record_id(MeasurementV2, measured)): measured}


def _cell(number: int) -> ForecastV2:
    """Return the forecast of a seal by its number; two neighbours in number are of different kernels."""
    kernel = KERNELS[number % len(KERNELS)]
    place = number // len(KERNELS)
    # No two kernels share a width, so that none is measured under another's name.
    shape = {"B": 1 + place // _SHAPES, "H": 64 + len(KERNELS) * (place % _SHAPES) + number % len(KERNELS), "O": 32}
    made = forecast(**shape, kernel_sha256=object_id(_manifest(kernel)))
    assert isinstance(made, ForecastV2)
    case = made.case.model_copy(update={"kernel": kernel})
    return made.model_copy(update={"case": case, "cell": cell_key(case)})


@cache
def _manifest(kernel: str) -> bytes:
    return manifest_of(kernel=kernel)


def _samples(cell: ForecastV2, seal: str) -> Samples:
    """Return samples at the positions that the seal draws, with made-up values."""
    import numpy as np

    key = derive_key(seal=seal, cell=cell.cell, run=0, anchor=None)
    count = cell.protocol.parameters["sample_elements"]
    positions = sample_positions(np.arange(count, dtype=np.int64), key=key, size=cell.case.shape["B"] * 32)
    return Samples(dtype="fp16", positions=tuple(positions.tolist()), bits=_bits(seal, count))


def _bits(seal: str, count: int) -> tuple[str, ...]:
    """Return made-up values of fp16, below 1 and all unlike."""
    drawn = hashlib.shake_128(seal.encode()).digest(2 * count)
    return tuple(f"{int.from_bytes(drawn[2 * k : 2 * k + 2]) % 0x3C00:04x}" for k in range(count))
