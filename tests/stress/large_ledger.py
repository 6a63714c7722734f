"""Builds a ledger of N seals and N measurements with git fast-import and times its audit against git fsck.

python tests/stress/large_ledger.py 1000 10000
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent.parent.parent)]

from builders import KERNEL_SOURCE, PROFILE, forecast, measurement, prediction, timing

from ledger.records import Measurement, Prediction
from ledger.seal import encode, object_id, object_path, record_id, record_path


def build(folder: Path, count: int) -> None:
    """Import `count` seals and their measurements, a commit each, and pack them."""
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(folder)], check=True)
    command = ["git", "-C", str(folder), "fast-import", "--quiet", "--force"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        say = process.stdin.write

        def commit(files: dict[str, bytes], number: int) -> None:
            say(
                b"commit refs/heads/main\ncommitter Ada <ada@example.org> %d +0000\ndata 1\nx\n"
                % (1_700_000_000 + number)
            )
            for path, data in files.items():
                say(b"M 100644 inline %s\ndata %d\n" % (path.encode(), len(data)))
                say(data + b"\n")

        tips: dict[str, int] = {}
        objects = {object_path("predictions", object_id(data)): data for data in (KERNEL_SOURCE, PROFILE)}
        for number in range(count):
            cell = forecast(B=1 + number // 100, H=64 + number % 100)
            record = prediction(cell, tips=tips)
            data = encode(record)
            identity = record_id(Prediction, data)
            commit({record_path("predictions", identity): data, **objects}, 2 * number)
            objects, tips = {}, {identity: record.sequence}
            rounds = tuple(2_000_000 + number + k for k in range(31))
            times = timing(2_000_015 + number, rounds_ps=rounds, low_ps=rounds[10], high_ps=rounds[20])
            measured = encode(measurement(cell, seal=identity, timing=times))
            commit({record_path("verifications", record_id(Measurement, measured)): measured}, 2 * number + 1)
    subprocess.run(["git", "-C", str(folder), "repack", "-q", "-a", "-d"], check=True)


def timed(command: list[str]) -> tuple[float, str]:
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return time.perf_counter() - start, done.stdout


AUDIT = (
    f"import sys, json, resource; sys.path.insert(0, {str(Path(__file__).parent.parent.parent)!r});"
    "from ledger.evidence.audit import audit; r = audit(sys.argv[1]);"
    "use = [resource.getrusage(w).ru_maxrss // 1024 for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)];"
    "print(json.dumps([r.verdict, r.reason, len(r.findings), *use]))"
)


def main() -> None:
    """Print one line a size."""
    for count in map(int, sys.argv[1:]):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "large.git"
            build(folder, count)
            fsck, _ = timed(["git", "-C", str(folder), "fsck", "--full"])
            wall, out = timed([sys.executable, "-c", AUDIT, str(folder)])
            verdict, reason, findings, own, git = json.loads(out)
            print(
                f"{count} seals + {count} measurements: audit {wall:.1f} s, git fsck --full {fsck:.1f} s, "
                f"ratio {wall / fsck:.2f}, memory {own} MiB (git {git} MiB), {verdict} ({reason}), {findings} findings",
                flush=True,
            )


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
