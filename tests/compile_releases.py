"""Compiles the kernels ahead of time with each supported release of Triton: make test-triton. Needs no GPU.

    python tests/compile_releases.py [--releases 3.6.0,3.9.0 | --ends] [--targets sm_75,sm_80,sm_90] [--variants]

Each release is installed once, without what it depends on, into an ignored folder and put in front of the path of its
own processes. What is compiled is every case of every kernel, as its launcher would: the distinct builds of function,
signature, constants, options and hints. --variants takes one build of each function, kinds of arguments and flags.
CUDA C++ is left out: NVRTC compiles it, whatever the release of Triton is (tests/kernels/test_kernel_ahead.py).

Results are kept: the same command goes on where it stopped. What failed, or whose source changed, is compiled again.
Exit codes: 0 everything compiles; 1 something does not, in a table with the end of each error; 2 bad arguments, or a
release that cannot be installed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from ledger.errors import LedgerError  # noqa: E402
from ledger.kernel import Ahead, Kernel  # noqa: E402
from ledger.kernel_files import kernel_names, load_kernel  # noqa: E402
from ledger.releases import TRITON_RELEASES  # noqa: E402

TARGETS = ("sm_75", "sm_80", "sm_90")
FOLDER = ROOT / ".triton"


class Build(NamedTuple):
    """Hold one thing to compile; `key` says whether it is the same as another, `variant` whether it is alike."""

    key: str
    variant: tuple[Any, ...]
    words: str
    target: str
    ahead: Ahead
    launched: Any


# Shapes beside the cases, for a Triton function that the launch rule takes for none of them.
MORE_CASES = {"rmsnorm_matmul": ({"B": 1, "H": 5632, "O": 9216}, {"B": 4, "H": 12288, "O": 4608})}


def builds(target: str, kernels: Sequence[Kernel]) -> Iterator[Build]:
    """Yield the distinct builds of all cases, and of MORE_CASES, for a target, in a fixed order."""
    from ledger.measure.compilation import launched_with

    seen = set()
    for kernel in kernels:
        for dtype in kernel.dtypes:
            for case in (*kernel.cases, *MORE_CASES.get(kernel.name, ())):
                try:
                    config = kernel.config(case, dtype, target)
                    kernel.check_config(config, case, dtype, target)
                except LedgerError:
                    # The kernel refuses this case on this architecture, with a reason.
                    continue
                assert kernel.ahead is not None
                ahead = kernel.ahead(config, case, dtype, target)
                if not isinstance(ahead, Ahead):
                    continue
                launched = launched_with(kernel, ahead, config, shape=case, dtype=dtype)
                name = ahead.function.__name__
                hints = None if launched is None else (sorted(launched.multiples), sorted(launched.ones))
                parts = (sorted(part.items()) for part in (ahead.signature, ahead.options))
                constants = sorted((key, str(value)) for key, value in ahead.constants.items())
                key = hashlib.sha256(repr((kernel.name, target, name, *parts, constants, hints)).encode()).hexdigest()
                if key not in seen:
                    seen.add(key)
                    shape = ",".join(f"{size}={number}" for size, number in case.items())
                    words = f"{kernel.name} {name} {target} {dtype} {shape}"
                    yield Build(key, variant(kernel.name, ahead), words, target, ahead, launched)


def variant(kernel: str, ahead: Ahead) -> tuple[Any, ...]:
    """Return what tells apart the ways through a function: kinds of arguments, and which constants are 0 or 1."""
    kinds = tuple("*" if kind.startswith("*") else kind.partition("<")[0] for kind in ahead.signature.values())
    flags = tuple((name, value if value in (0, 1) else None) for name, value in sorted(ahead.constants.items()))
    return kernel, ahead.function.__name__, kinds, flags


def work(targets: Sequence[str], part: int, parts: int, variants: bool, done: set[str]) -> None:
    """Compile one part of all builds with the Triton that is on the path; write a JSON line before and after each."""
    import triton

    from ledger.measure.compilation import compile_ahead

    kernels = [load_kernel(name, launch=True).kernel for name in kernel_names()]
    for target in targets:
        seen = set()
        wanted = []
        for build in builds(target, kernels):
            if not variants or build.variant not in seen:
                seen.add(build.variant)
                wanted.append(build)
        for build in wanted[part::parts]:
            name = {"key": build.key, "target": target, "words": build.words}
            print(json.dumps(name), flush=True)
            if build.key in done:
                continue
            error = None
            try:
                compile_ahead(build.ahead, target, build.launched)
            except LedgerError as problem:
                # What the compiler said last, which is where it names the cause.
                error = str(problem)[-300:]
            print(json.dumps({**name, "triton": triton.__version__, "error": error}), flush=True)


def sources() -> str:
    """Return a digest of what decides how a kernel is compiled."""
    digest = hashlib.sha256()
    for path in sorted([*(ROOT / "kernels").rglob("*.py"), ROOT / "ledger/kernel.py", Path(__file__)]):
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def install(release: str, folder: Path) -> Path:
    """Return the folder of a release, installed into it unless it is there already."""
    wanted = folder / release
    if (wanted / f"triton-{release}.dist-info").is_dir():
        return wanted
    folder.mkdir(parents=True, exist_ok=True)
    print(f"installing triton {release} into {wanted}", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=folder) as half:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        done = subprocess.run([*command, "--target", half, f"triton=={release}"], check=False)
        if done.returncode:
            print(f"triton {release} cannot be installed; see pip's words above", file=sys.stderr)
            sys.exit(2)
        shutil.rmtree(wanted, ignore_errors=True)
        Path(half).rename(wanted)
        # The context removes what is there at its end.
        Path(half).mkdir()
    return wanted


class Campaign:
    """Run the processes of each release and keep what they say in one file."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Read what an earlier run with the same sources has compiled."""
        self.options, self.sources = options, sources()
        self.log = options.folder / "results.jsonl"
        self.lock = threading.Lock()
        self.met: dict[str, dict[str, dict[str, Any]]] = {release: {} for release in options.releases}
        self.kept: dict[str, set[str]] = {release: set() for release in options.releases}
        if self.log.exists():
            for line in self.log.read_text(encoding="utf-8").splitlines():
                self._recall(line)

    def _recall(self, line: str) -> None:
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            # The last line of a run that was killed.
            return
        if entry["sources"] == self.sources and entry["error"] is None and entry["triton"] in self.kept:
            self.kept[entry["triton"]].add(entry["key"])

    def run(self, release: str) -> None:
        """Compile with one release, in as many processes as there are processors."""
        path = install(release, self.options.folder)
        with ThreadPoolExecutor(self.options.jobs) as pool:
            list(pool.map(lambda part: self._part(release, path, part), range(self.options.jobs)))

    def _part(self, release: str, path: Path, part: int) -> None:
        while (crashed := self._process(release, path, part)) is not None:
            self._note(release, crashed)

    def _process(self, release: str, path: Path, part: int) -> dict[str, Any] | None:
        """Run one process to its end; return the build in which it crashed, if it did."""
        options = self.options
        command = [sys.executable, __file__, "--work", f"{part}/{options.jobs}", "--targets", ",".join(options.targets)]
        done = self.kept[release] | set(self.met[release])
        paths = os.pathsep.join(filter(None, [str(path), str(ROOT), os.environ.get("PYTHONPATH")]))
        with (
            tempfile.TemporaryDirectory() as cache,
            tempfile.TemporaryFile("w+") as said,
            subprocess.Popen(
                [*command, *(["--variants"] if options.variants else [])],
                env={**os.environ, "PYTHONPATH": paths, "TRITON_CACHE_DIR": cache},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            ) as process,
        ):
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("\n".join(done))
            process.stdin.close()
            begun = None
            for line in process.stdout:
                entry = json.loads(line)
                if "error" in entry:
                    self._note(release, entry)
                    begun = None
                else:
                    begun = None if entry["key"] in done else entry
                    if entry["key"] in self.kept[release]:
                        self.met[release][entry["key"]] = {**entry, "error": None}
            if process.wait() == 0:
                return None
            said.seek(0)
            words = said.read().strip()[-2000:]
        if begun is None:
            print(f"triton {release}: the process ended with {process.returncode}: {words}", file=sys.stderr)
            sys.exit(2)
        return {**begun, "triton": release, "error": f"the compiler's process ended with {process.returncode}"}

    def _note(self, release: str, entry: dict[str, Any]) -> None:
        with self.lock:
            if entry["triton"] != release:
                print(f"triton {entry['triton']} ran; expected {release} from {self.options.folder}", file=sys.stderr)
                os._exit(2)
            self.met[release][entry["key"]] = entry
            with self.log.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**entry, "sources": self.sources}) + "\n")
            count = len(self.met[release])
            if sys.stderr.isatty():
                print(f"\rtriton {release}: {count} built, {entry['words'][:80]:80}", end="", file=sys.stderr)
            elif count % 50 == 0:
                print(f"triton {release}: {count} built", file=sys.stderr)

    def report(self) -> int:
        """Print how many builds each release compiles for each target, then what failed; return the exit code."""
        print(f"{'triton':8} " + " ".join(f"{target:>14}" for target in self.options.targets))
        failed = []
        for release, met in self.met.items():
            counts = Counter((entry["target"], entry["error"] is None) for entry in met.values())
            cells = (f"{counts[t, True]} of {counts[t, True] + counts[t, False]}" for t in self.options.targets)
            print(f"{release:8} " + " ".join(f"{cell:>14}" for cell in cells))
            failed += [(release, entry) for entry in met.values() if entry["error"] is not None]
        for release, entry in failed:
            print(f"FAILED  triton {release}  {entry['words']}\n        {entry['error']}")
        nothing = [release for release, met in self.met.items() if not met]
        if nothing:
            print(f"nothing was compiled with {', '.join(nothing)}; expected every kernel's cases")
        return int(bool(failed or nothing))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--releases", default=",".join(TRITON_RELEASES), help="releases of Triton")
    parser.add_argument("--ends", action="store_true", help="only the oldest and the newest supported release")
    parser.add_argument("--targets", default=",".join(TARGETS), help="architectures")
    parser.add_argument("--variants", action="store_true", help="one build of each variant")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where releases and results are kept")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.targets = options.targets.split(",")
    if options.work:
        part, parts = map(int, options.work.split("/"))
        work(options.targets, part, parts, options.variants, set(sys.stdin.read().split()))
        return 0
    options.releases = options.releases.split(",")
    if options.ends:
        options.releases = [TRITON_RELEASES[0], TRITON_RELEASES[-1]]
    options.folder.mkdir(parents=True, exist_ok=True)
    campaign = Campaign(options)
    for release in options.releases:
        campaign.run(release)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return campaign.report()


if __name__ == "__main__":
    sys.exit(main())
