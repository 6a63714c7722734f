"""Asks git who commits, where a repository is and where none is yet."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path as FilePath

from ledger.errors import StateError, shortened

# A name that git would guess from the machine is none.
_LAST_SECOND = 253_402_300_799 - 86_400
"""What a calendar of four digits shows in any zone."""
_ASK = ("-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT")


def committer(folder: FilePath, environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the committer's name, and the date of a commit made now, as `SECONDS ZONE`.

    folder: in a repository, or where one may be made. Raises: StateError when git knows no identity.
    """
    done = subprocess.run(
        ["git", *_ASK], cwd=folder, env=dict(environment), capture_output=True, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip()
        if "date" in said:
            raise StateError(f"git: {shortened(said, 200)}; expected a date that git knows in GIT_COMMITTER_DATE")
        raise StateError(
            "git knows no identity, and nothing was written; expected one: git config --global user.name NAME; "
            "git config --global user.email ADDRESS"
        )
    name, _, rest = done.stdout.decode("utf-8", "surrogateescape").strip().partition(" <")
    date = rest.rpartition("> ")[2]
    if int(date.partition(" ")[0]) > _LAST_SECOND:
        raise StateError(f"GIT_COMMITTER_DATE: got {date}; expected a date before the year 10000")
    return name, date
