"""Tests which imports a manifest must list, case by case, and that every shipped kernel's manifest lists its own."""

from __future__ import annotations

import pytest

from ledger.canonical import object_id
from ledger.errors import InputError
from ledger.kernel_files import kernel_closure, kernel_names
from ledger.records import Distribution, KernelSource, SourceFile
from ledger.sources.scan import scan_python
from ledger.sources.unlisted import unlisted

FILES = {"kernels/entry.py": "", "mylib/__init__.py": "", "mylib/tiles.py": "", "space/near.py": "", "kernels/a.cu": ""}


def found(text: str, *distributions: str, absent: tuple[str, ...] = ()) -> list[str]:
    """Return what the entry of a manifest of FILES loads and the manifest does not list."""
    texts = {**FILES, "kernels/entry.py": text}
    files = [
        SourceFile(
            path=path,
            module=path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            if path.endswith(".py")
            else None,
            sha256=object_id(data.encode()),
        )
        for path, data in sorted(texts.items())
    ]
    manifest = KernelSource(
        schema="ledger/kernel-source/1",
        contract="kernel-contract/1",
        entry="kernels.entry",
        files=tuple(files),
        distributions=tuple(Distribution(name=name, version="1", record_sha256=None) for name in distributions),
        absent=absent,
    )
    return list(unlisted(manifest, lambda file: scan_python(texts[file.path].encode(), what=file.path)))


@pytest.mark.parametrize(
    "text",
    [
        "import math, torch\nfrom ledger.kernel import Kernel\nfrom ledger import kernel\n",
        "import mylib.tiles\nfrom mylib import tiles, TILE\nfrom space import near\nfrom . import entry\n",
        "CODE = 'a.cu'\n",
        "if TYPE_CHECKING:\n    import never\n",
    ],
)
def test_what_is_listed_or_of_the_platform_is_no_finding(text):
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import helper\n", "helper"),
        ("from . import helper\n", "kernels.helper"),
        ("from .helper import TILE\n", "kernels.helper"),
        ("from ...helper import TILE\n", "...helper"),
        ("import mylib.other\n", "mylib.other"),
        ("from space import far\n", "space.far"),
        ("from ledger.kernels.common import cuda\n", "ledger.kernels.common"),
        ("try:\n    import maybe\nexcept ImportError:\n    pass\n", "maybe"),
        ("CODE = 'b.cu'\n", "'b.cu'"),
        ("exec('1')\n", "exec"),
        ("def f(:\n", "not Python"),
    ],
)
def test_what_is_not_listed_is_found(text, name):
    (message,) = found(text)
    assert message.startswith("kernels/entry.py") and name in message


def test_a_distribution_covers_its_own_name_and_one_with_other_names_covers_the_rest():
    text = "import tilebox\nimport yaml\n"
    assert [message.split()[4] for message in found(text)] == ["tilebox,", "yaml,"]
    assert [message.split()[4] for message in found(text, "tilebox")] == ["yaml,"]
    assert found(text, "pyyaml", "tilebox") == []
    assert found(text, "tilebox", absent=("yaml",)) == []


def test_a_file_that_cannot_be_scanned_is_reported():
    def refuse(file):
        raise InputError(f"{file.path}: too large")

    closure = kernel_closure("vector_add")[0]
    assert len(list(unlisted(closure.manifest, refuse))) == sum(source.module is not None for source in closure.files)


@pytest.mark.parametrize("name", kernel_names())
def test_the_manifest_of_a_shipped_kernel_lists_all(name):
    closure = kernel_closure(name)[0]
    texts = {source.path: source.data for source in closure.files}
    assert list(unlisted(closure.manifest, lambda file: scan_python(texts[file.path], what=file.path))) == []
