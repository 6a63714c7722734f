"""Keeps what a command found out about one commit, so that it need not judge a large ledger again."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Callable
from pathlib import Path as FilePath
from typing import Any

from ledger.workflow.index_file import ask_index


def remembered(git_dir: FilePath, name: str, commit: str, make: Callable[[], Any]) -> Any:
    """Return the JSON value that was kept under a name for a commit, else what `make` returns, which is kept.

    One value is kept for each name. A value whose digest is wrong counts as none.
    """
    held = ask_index(git_dir, lambda index: _read(index, name, commit))
    if held is not None:
        return json.loads(held)
    value = make()
    data = zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 1)
    row = (name, commit, hashlib.sha256(data).digest(), data)
    ask_index(git_dir, lambda index: index.execute("insert or replace into answers values (?, ?, ?, ?)", row).rowcount)
    return value


def _read(index: sqlite3.Connection, name: str, commit: str) -> bytes | None:
    asked = "select digest, data from answers where name = ? and key = ?"
    found = index.execute(asked, (name, commit)).fetchone()
    return zlib.decompress(found[1]) if found is not None and hashlib.sha256(found[1]).digest() == found[0] else None
