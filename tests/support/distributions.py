"""Installs small distributions into a folder, as pip does."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path


def install(
    folder: Path,
    name: str,
    text: str,
    *,
    version: str = "1.0",
    pure: bool = True,
    record: bool = True,
    editable: Path | None = None,
    top_level: str | None = None,
) -> None:
    """Install a distribution of one module as pip does; in editable mode it has no module, only a path to a folder."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    module = f"{name}.py"
    if editable is not None:
        module, text = f"__editable__.{name}.pth", f"{editable}\n"
        direct = {"url": editable.as_uri(), "dir_info": {"editable": True}}
        (info / "direct_url.json").write_text(json.dumps(direct))
    (folder / module).write_text(text)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nRoot-Is-Purelib: {str(pure).lower()}\n")
    (info / "top_level.txt").write_text(f"{top_level or name}\n")
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    if record:
        (info / "RECORD").write_text(
            f"{module},sha256={digest},{len(text)}\n__pycache__/{name}.pyc,,\n{info.name}/RECORD,,\n"
        )
