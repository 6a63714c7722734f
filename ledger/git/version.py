"""Checks once that the git that is installed knows what ledger relies on."""

from __future__ import annotations

import re
import subprocess
from functools import cache

from ledger.errors import StateError

OLDEST_GIT = (2, 36)
"""core.fsync, without which a seal may be lost, is the newest option that ledger needs. Older ones ignore more in
silence: GIT_CONFIG_GLOBAL and clone --reject-shallow (2.32), safe.directory (2.35)."""


def parse_version(text: str) -> tuple[int, ...] | None:
    """Return the numbers of what `git version` prints, None for other text."""
    found = re.match(r"git version (\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?", text)
    return None if found is None else tuple(int(part) for part in found.groups() if part is not None)


@cache
def check_git() -> str:
    """Return the version of git. Raises: StateError when there is none, or one that is too old."""
    expected = f"expected git {'.'.join(map(str, OLDEST_GIT))} or newer on the PATH"
    try:
        done = subprocess.run(
            ["git", "version"], capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StateError(f"git cannot be run ({error}); {expected}") from error
    text = done.stdout[:200].decode("utf-8", "replace").strip()
    version = parse_version(text)
    if version is None or version < OLDEST_GIT:
        raise StateError(f"{text or 'git says no version'}: too old; {expected}")
    return text.removeprefix("git version ")
