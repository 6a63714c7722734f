"""Makes the environment of the package's own child processes."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path as FilePath

import ledger


def child_environment() -> dict[str, str]:
    """Return an environment in which a child process finds this package, installed or not."""
    root = FilePath(ledger.__file__).resolve().parents[1]
    if str(root) in {sysconfig.get_path(name) for name in ("purelib", "platlib")}:
        return dict(os.environ)
    found = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(root), found]))}
