"""Checks built distributions: their files are those of git, and the wheel works where nothing else is installed.

A script, run by `make dist`: FOLDER, with one wheel and one sdist. The wheel and its dependencies are installed into a
new environment, from the package index that pip is configured for.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
DRILL = "ledger/drills/recorded.json"
# Made by the build, and what the sdist needs to build.
OF_SDIST = {"pyproject.toml", "hatch_build.py", "README.md", "CHANGELOG.md", "LICENSE", "PKG-INFO", ".gitignore", DRILL}
SEAL = "predict matmul --hw t4 --dtype fp16 --shape M=512,N=512,K=512 --regime compute-bound --pct 40"


def shipped() -> set[str]:
    """Return the committed files that are shipped, without dated copies and profiles of single machines."""
    command = ["git", "ls-files", "ledger", "kernels", "hardware"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return {path for path in listed if "/dated/" not in path and not path.startswith("hardware/cpu")}


def differences(held: Iterable[str], expected: Iterable[str]) -> list[str]:
    """Return a line for each file that is missing or stray."""
    found, wanted = set(held), set(expected)
    return [f"missing: {name}" for name in sorted(wanted - found)] + [
        f"stray: {name}" for name in sorted(found - wanted)
    ]


def wheel_differences(wheel: Path) -> list[str]:
    """Return what a wheel lacks or has beyond the repository's files and its own metadata."""
    names = zipfile.ZipFile(wheel).namelist()
    packaged = [name for name in names if ".dist-info/" not in name]
    expected = {name if name.startswith("ledger/") else f"ledger/shipped/{name}" for name in shipped()}
    return differences(packaged, expected | {DRILL})


def sdist_differences(sdist: Path) -> list[str]:
    """Return what an sdist lacks or has beyond what the wheel is built from."""
    with tarfile.open(sdist) as archive:
        names = [member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()]
    return differences(names, shipped() | OF_SDIST)


def use(wheel: Path) -> None:
    """Install the wheel alone, then found, seal and audit a ledger with it. Raises: CalledProcessError."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "GIT_"))}
    for who in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{who}_NAME": "d", f"GIT_{who}_EMAIL": "d@example.org"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "work"
        folder.mkdir()
        subprocess.run([sys.executable, "-m", "venv", f"{name}/venv"], env=environment, check=True)
        subprocess.run([f"{name}/venv/bin/pip", "install", "--quiet", str(wheel)], env=environment, check=True)
        for command in ("--version", "init .", SEAL, "report", "audit .", "drill --json --count 1"):
            print(f"$ ledger {command}", flush=True)
            ledger = [f"{name}/venv/bin/ledger", *command.split()]
            subprocess.run(ledger, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)


def main(folder: Path) -> None:
    """Check the newest build in a folder; exits with what differs."""
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    found = [f"{wheel.name}: {line}" for line in wheel_differences(wheel)]
    found += [f"{sdist.name}: {line}" for line in sdist_differences(sdist)]
    if found:
        sys.exit("\n".join(found))
    use(wheel)
    print(f"{wheel.name} and {sdist.name} hold the committed files and nothing else; the wheel works alone")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
