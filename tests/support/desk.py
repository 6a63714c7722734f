"""Drives a real ledger on disk by the command line and by git alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ledger_process import run_command
from measuring import this_cpu

from ledger.record_files import hardware_yaml

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    **{f"GIT_{role}_{field}": "a@example.org" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")},
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
}


class Desk:
    """A ledger on disk, reached by the command line and by git alone."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        folder.mkdir()
        self.ledger("init", ".")
        (folder / "hardware" / "cpu.yaml").write_bytes(hardware_yaml(this_cpu()))
        self.git("add", "hardware/cpu.yaml")
        self.git("commit", "-q", "-m", "A profile")

    def environment(self) -> dict[str, str]:
        """Return the environment of every command."""
        return ENVIRONMENT

    def run(self, *command: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command in the ledger, or in another folder."""
        return run_command(command, cwd=folder or self.root, env=self.environment())

    def git(self, *arguments: str) -> str:
        done = self.run("git", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ledger(self, *arguments: str) -> str:
        done = self.run(sys.executable, "-P", "-m", "ledger", *arguments)
        assert done.returncode == 0, f"ledger {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def refused(self, code: int, *arguments: str) -> str:
        """Run a command that must end with an exit code and no traceback; return what it says."""
        done = self.run(sys.executable, "-P", "-m", "ledger", *arguments)
        assert done.returncode == code, f"ledger {' '.join(arguments)}: {done.returncode}: {done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stderr
