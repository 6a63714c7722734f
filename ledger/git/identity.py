"""Asks git who commits, where a repository is and where none is yet."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path as FilePath

from ledger.errors import StateError

# A name that git would guess from the machine is none.
_ASK = ("-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT")


def committer(folder: FilePath, environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the committer's name, and the date of a commit made now, as `SECONDS ZONE`.

    folder: in a repository, or where one may be made. Raises: StateError when git knows no identity.
    """
    done = subprocess.run(
        ["git", *_ASK], cwd=folder, env=dict(environment), capture_output=True, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode != 0:
        raise StateError(
            "git knows no identity, and nothing was written; expected one: git config --global user.name NAME; "
            "git config --global user.email ADDRESS"
        )
    name, _, rest = done.stdout.decode("utf-8", "surrogateescape").strip().partition(" <")
    return name, rest.rpartition("> ")[2]
