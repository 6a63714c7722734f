"""Lists the sources of a forecaster of this package: its module and the modules of this folder that it imports.

What else they import (records, roofline, regime rule) is covered by the version of ledger in the seal. Reads the
package's own files.
"""

from __future__ import annotations

from importlib.resources import files

from ledger.canonical import encode, object_id
from ledger.records import CodeFile, Distribution, ForecasterCode
from ledger.sources.closure import normalised
from ledger.sources.scan import imported_modules, scan_python

_FOLDER = "ledger.forecasters"
_BESIDE = ("ledger.cost_model",)


def package_sources(module: str) -> dict[str, bytes]:
    """Return path -> source of a module of this folder and of those of this folder that it imports."""
    found: dict[str, bytes] = {}
    wanted = [module]
    while wanted:
        name = wanted.pop()
        path = f"{name.replace('.', '/')}.py"
        package, _, stem = name.rpartition(".")
        if path in found or not (name in _BESIDE or package == _FOLDER):
            continue
        source = files(package).joinpath(f"{stem}.py")
        if not source.is_file():
            # A name that a module holds, and no module.
            continue
        found[path] = normalised(source.read_bytes())
        for one in scan_python(found[path], what=path).imports:
            wanted += [target for target, _ in imported_modules(one, module=name, is_package=False)]
    return found


def code_objects(
    name: str,
    version: str,
    sources: dict[str, bytes],
    *,
    command: tuple[str, ...] = (),
    distributions: tuple[Distribution, ...] = (),
    model: bytes | None = None,
) -> tuple[str, dict[str, bytes]]:
    """Return the digest of a forecaster's code, and its objects by digest: manifest, sources, fitted parameters."""
    digests = {path: object_id(data) for path, data in sources.items()}
    manifest = encode(
        ForecasterCode(
            schema="ledger/forecaster-code/1",
            name=name,
            version=version,
            command=command,
            files=tuple(CodeFile(path=path, sha256=digest) for path, digest in sorted(digests.items())),
            distributions=distributions,
            model=None if model is None else object_id(model),
        )
    )
    objects = {digests[path]: data for path, data in sources.items()}
    if model is not None:
        objects[object_id(model)] = model
    return object_id(manifest), {**objects, object_id(manifest): manifest}
