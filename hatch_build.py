"""Makes the cells of `ledger drill` from this repository's ledger when an sdist or a wheel is built.

A wheel that is built from an sdist takes the file that the sdist holds. An editable install needs none.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

DRILL = "ledger/drills/recorded.json"


class DrillHook(BuildHookInterface):  # type: ignore[type-arg]
    """Add the drill file to what is built."""

    def dependencies(self) -> list[str]:
        """Return what judging a ledger needs; nothing where the file is there already."""
        return [] if (Path(self.root) / DRILL).is_file() else list(self.metadata.core.dependencies)

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Judge the ledger at HEAD and include its measured cells."""
        root = Path(self.root)
        if version == "editable" or (root / DRILL).is_file():
            return
        if not (root / ".git").exists():
            self.app.display_warning("no git history here: the package will ship no cells for ledger drill")
            return
        sys.path.insert(0, self.root)
        try:
            from ledger.workflow.drill_files import write_drill
            from ledger.workflow.drills import drill_of_ledger
        finally:
            sys.path.remove(self.root)
        self._made = tempfile.TemporaryDirectory(prefix="ledger-drill-")
        path = Path(self._made.name) / "recorded.json"
        write_drill(path, drill_of_ledger(root))
        build_data["force_include"][str(path)] = DRILL

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove what was made."""
        made = getattr(self, "_made", None)
        if made is not None:
            made.cleanup()
