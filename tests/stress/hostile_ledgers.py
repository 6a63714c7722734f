"""Builds repositories that are small and dear to audit, and prints the time and memory that each audit takes.

python tests/stress/hostile_ledgers.py [NAME …]    all of them without a name

Memory is that of the largest process; seconds are those on the wall and those of processors.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "support"), str(ROOT)]

from builders import KERNEL_SOURCE, PROFILE, forecast, measurement, prediction, timing
from spent import spend

from ledger.canonical import encode, object_id, object_path, record_id, record_path
from ledger.records import Measurement, Prediction

Build = Callable[[Path], None]
OBJECTS = {object_path("predictions", object_id(data)): data for data in (KERNEL_SOURCE, PROFILE)}
CASES: dict[str, Build] = {}


def case(build: Build) -> Build:
    CASES[build.__name__.replace("_", "-")] = build
    return build


def fast_import(folder: Path, commands: Iterator[bytes]) -> None:
    """Make a bare repository of fast-import commands."""
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(folder)], check=True)
    with subprocess.Popen(
        ["git", "-C", str(folder), "fast-import", "--quiet", "--force"], stdin=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        for command in commands:
            process.stdin.write(command)
    subprocess.run(["git", "-C", str(folder), "repack", "-q", "-a", "-d", "--depth=50"], check=True)


def commit(
    files: dict[str, bytes], *, ref: str = "main", mark: int = 0, parents: tuple[str, ...] = (), message: bytes = b"x"
) -> bytes:
    lines = [b"commit refs/heads/%s\n" % ref.encode(), b"mark :%d\n" % mark if mark else b""]
    lines.append(b"committer A <a@e.org> 1700000000 +0000\ndata %d\n%s\n" % (len(message), message))
    lines += [b"%s %s\n" % (b"merge" if number else b"from", name.encode()) for number, name in enumerate(parents)]
    for path, data in files.items():
        lines.append(b"M 100644 inline %s\ndata %d\n%s\n" % (path.encode(), len(data), data))
    return b"".join(lines)


def sealed(number: int, tips: dict[str, int], **changes: object) -> tuple[str, bytes, Prediction]:
    record = prediction(forecast(B=1 + number // 100, H=64 + number % 100), tips=tips, **changes)
    data = encode(record)
    return record_id(Prediction, data), data, record


def measured(number: int, identity: str) -> dict[str, bytes]:
    rounds = tuple(2_000_000 + number + k for k in range(31))
    times = timing(2_000_015 + number, rounds_ps=rounds, low_ps=rounds[10], high_ps=rounds[20])
    cell = forecast(B=1 + number // 100, H=64 + number % 100)
    data = encode(measurement(cell, seal=identity, timing=times))
    return {record_path("verifications", record_id(Measurement, data)): data}


def honest(count: int, branches: bool) -> Build:
    """Return a builder of an honest ledger; branches: each record comes on a branch that is merged at once."""

    def build(folder: Path) -> None:
        def commands() -> Iterator[bytes]:
            yield commit(dict(OBJECTS), mark=1)
            tips: dict[str, int] = {}
            mark = 1
            for number in range(count // 2):
                identity, data, record = sealed(number, tips)
                for files in ({record_path("predictions", identity): data}, measured(number, identity)):
                    if branches:
                        yield commit(files, ref="side", mark=mark + 1, parents=(f":{mark}",))
                        yield commit(files, mark=mark + 2, parents=(f":{mark}", f":{mark + 1}"))
                        mark += 2
                    else:
                        yield commit(files, mark=mark + 1, parents=(f":{mark}",))
                        mark += 1
                tips = {identity: record.sequence}

        fast_import(folder, commands())

    return build


for size in (1000, 4000, 16000):
    CASES[f"honest-{size}"] = honest(size, False)
CASES["honest-merges-4000"] = honest(4000, True)


@case
def seals_of_descending_sequence(folder: Path) -> None:
    """8,000 seals in a line, each with a lower sequence: the chain is asked about in the wrong order."""

    def commands() -> Iterator[bytes]:
        for number in range(8000):
            identity, data, _ = sealed(number, {}, sequence=8001 - number)
            yield commit({record_path("predictions", identity): data, **(OBJECTS if not number else {})})

    fast_import(folder, commands())


@case
def merges_of_everything(folder: Path) -> None:
    """2,000 branches with a seal each, 10,000 merges of pairs of them, and all of these merged."""

    def commands() -> Iterator[bytes]:
        yield commit(dict(OBJECTS), mark=1)
        for number in range(2000):
            identity, data, _ = sealed(number, {})
            files = {record_path("predictions", identity): data}
            yield commit(files, ref="side", mark=number + 2, parents=(":1",))
        marks = range(3000, 13000)
        for number, mark in enumerate(marks):
            pair = (f":{2 + number % 2000}", f":{2 + (number * 7 + 1) % 2000}")
            yield commit({}, ref="pair", mark=mark, parents=pair)
        for start in range(0, len(marks), 500):
            yield commit({}, ref="main", parents=(*(f":{mark}" for mark in marks[start : start + 500]),))

    fast_import(folder, commands())


@case
def a_million_commits(folder: Path) -> None:
    """700,000 empty commits and one seal."""

    def commands() -> Iterator[bytes]:
        identity, data, _ = sealed(0, {})
        yield commit({record_path("predictions", identity): data, **OBJECTS})
        for _ in range(700_000):
            yield commit({})

    fast_import(folder, commands())


@case
def a_hundred_thousand_references(folder: Path) -> None:
    """100,000 branches beside a seal."""
    honest(2, False)(folder)
    head = subprocess.run(["git", "-C", str(folder), "rev-parse", "main"], capture_output=True, text=True, check=True)
    lines = "".join(f"{head.stdout.strip()} refs/heads/b{number:06d}\n" for number in range(100_000))
    (folder / "packed-refs").write_text(f"# pack-refs with: peeled fully-peeled sorted \n{lines}")
    (folder / "refs" / "heads" / "main").write_text(head.stdout)


@case
def ten_thousand_cells_of_one_case(folder: Path) -> None:
    """Two seals of 10,000 forecasts of one case under as many names."""

    def commands() -> Iterator[bytes]:
        tips: dict[str, int] = {}
        for seal in range(2):
            one = forecast()
            cells = (one.model_copy(update={"cell": f"{one.cell}-{seal}-{number}"}) for number in range(10_000))
            record = prediction(*cells, tips=tips)
            data = encode(record)
            tips = {record_id(Prediction, data): record.sequence}
            yield commit({record_path("predictions", *tips): data, **OBJECTS})

    fast_import(folder, commands())


@case
def extensions_of_a_million_values(folder: Path) -> None:
    """300 seals whose extensions hold 900,000 empty lists each."""

    def commands() -> Iterator[bytes]:
        for number in range(300):
            _, data, _ = sealed(number, {})
            data = data.replace(b'"extensions":{}', b'"extensions":{"a":[%s]}' % b",".join([b"[]"] * 450_000))
            identity = record_id(Prediction, data)
            yield commit({record_path("predictions", identity): data, **(OBJECTS if not number else {})})

    fast_import(folder, commands())


@case
def records_with_a_million_errors(folder: Path) -> None:
    """200 seals that name 450,000 earlier seals, none by a digest."""

    def commands() -> Iterator[bytes]:
        for number in range(200):
            _, data, _ = sealed(number, {})
            data = data.replace(b'"previous":[]', b'"previous":[%s]' % b",".join([b'"x"'] * 450_000))
            identity = record_id(Prediction, data)
            yield commit({record_path("predictions", identity): data, **(OBJECTS if not number else {})})

    fast_import(folder, commands())


@case
def messages_of_a_hundred_megabytes(folder: Path) -> None:
    """Ten commits whose messages are 100 MB each, beside a seal."""

    def commands() -> Iterator[bytes]:
        identity, data, _ = sealed(0, {})
        yield commit({record_path("predictions", identity): data, **OBJECTS})
        for _ in range(10):
            yield commit({}, message=b"y" * 100_000_000)

    fast_import(folder, commands())


@case
def blob_of_four_gigabytes(folder: Path) -> None:
    """An object of 4 GB of zeros, 4 MB in the pack."""
    block, packer = bytes(1 << 20), zlib.compressobj()
    data = b"".join(packer.compress(block) for _ in range(4096)) + packer.flush()
    _with_pack(folder, [_header(3, 4096 << 20) + data])


@case
def deltas_that_unfold(folder: Path) -> None:
    """300 objects that each copy a megabyte 500 times: 150 GB from a pack of less than a megabyte."""
    _with_pack(folder, _deltas(300, 500))


@case
def delta_of_eight_gigabytes(folder: Path) -> None:
    """One object of 8 GB that must be held in memory as a whole."""
    _with_pack(folder, _deltas(1, 8192))


def _deltas(count: int, times: int) -> list[bytes]:
    block = bytes(1 << 20)
    base = hashlib.sha1(b"blob %d\0" % len(block) + block).digest()
    entries = [_header(3, len(block)) + zlib.compress(block)]
    for number in range(count):
        tail = b"%06d" % number
        # 0x80 copies 64 KiB from the beginning; then a tail of its own is inserted.
        delta = _size(len(block)) + _size(len(block) * times + len(tail))
        delta += b"\x80" * (times * 16) + bytes([len(tail)]) + tail
        entries.append(_header(7, len(delta)) + base + zlib.compress(delta))
    return entries


def _with_pack(folder: Path, entries: list[bytes]) -> None:
    """Lay a pack beside a seal, with references to its objects, whose names but the first delta base are invented."""
    honest(2, False)(folder)
    block = bytes(1 << 20)
    base = hashlib.sha1(b"blob %d\0" % len(block) + block).digest()
    names = [base if len(entries) > 1 and not n else hashlib.sha1(b"%d" % n).digest() for n in range(len(entries))]
    pack = b"PACK" + (2).to_bytes(4, "big") + len(entries).to_bytes(4, "big")
    listed = []
    for name, entry in zip(names, entries, strict=True):
        listed.append((name, zlib.crc32(entry), len(pack)))
        pack += entry
    pack += hashlib.sha1(pack).digest()
    listed.sort()
    fan = b"".join(sum(name[0] <= first for name, _, _ in listed).to_bytes(4, "big") for first in range(256))
    index = b"\xfftOc" + (2).to_bytes(4, "big") + fan + b"".join(name for name, _, _ in listed)
    index += b"".join(crc.to_bytes(4, "big") for _, crc, _ in listed)
    index += b"".join(offset.to_bytes(4, "big") for _, _, offset in listed) + pack[-20:]
    index += hashlib.sha1(index).digest()
    place = folder / "objects" / "pack" / f"pack-{pack[-20:].hex()}"
    place.with_suffix(".pack").write_bytes(pack)
    place.with_suffix(".idx").write_bytes(index)
    for number, name in enumerate(names):
        (folder / "refs" / "tags" / f"t{number}").write_text(f"{name.hex()}\n")


def _header(kind: int, size: int) -> bytes:
    first, size = kind << 4 | size & 15, size >> 4
    return bytes([first | 0x80]) + _size(size) if size else bytes([first])


def _size(size: int) -> bytes:
    made = []
    while size > 127:
        made.append(size & 127 | 0x80)
        size >>= 7
    return bytes([*made, size])


def main() -> None:
    """Print a line a case."""
    for name in sys.argv[1:] or CASES:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "hostile.git"
            CASES[name](folder)
            packed = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
            spent = spend(sys.executable, "-m", "ledger", "audit", "--json", str(folder))
            document = json.loads(spent.stdout)
            print(
                f"{name}: {packed / 1e6:.1f} MB; {spent.wall_s:.1f} s, {spent.cpu_s:.1f} s of CPU, "
                f"{spent.memory_mib} MiB; exit {spent.code}, {document['verdict']} ({document['reason'][:90]})",
                flush=True,
            )


if __name__ == "__main__":
    main()
