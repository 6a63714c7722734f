"""Installs small distributions into a folder, as pip does."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path


def install(
    folder: Path, name: str, text: str, *, version: str = "1.0", pure: bool = True, record: bool = True
) -> None:
    """Install a distribution of one module as pip does."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (folder / f"{name}.py").write_text(text)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nRoot-Is-Purelib: {str(pure).lower()}\n")
    (info / "top_level.txt").write_text(f"{name}\n")
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    if record:
        (info / "RECORD").write_text(
            f"{name}.py,sha256={digest},{len(text)}\n__pycache__/{name}.pyc,,\n{name}-{version}.dist-info/RECORD,,\n"
        )
