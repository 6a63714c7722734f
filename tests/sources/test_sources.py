"""Tests that a closure lists every source that a kernel executes, and that exactly those bytes are executed."""

from __future__ import annotations

import importlib
import inspect
import pickle
import sys
from pathlib import Path

import pytest
from distributions import install

from ledger.canonical import decode, encode, object_id
from ledger.errors import InputError
from ledger.kernel_files import kernel_closure, kernel_names, load_kernel, load_kernel_file, shipped_folder
from ledger.records import KernelSource
from ledger.sources import distributions, loader
from ledger.sources.closure import Closure
from ledger.sources.collector import collect
from ledger.sources.loader import load, read_text
from ledger.sources.platform import contradicted_pins, parse_pin
from ledger.sources.rebuild import check_installed, rebuild
from ledger.sources.scan import included_files, scan_python


def tree(root: Path, files: dict[str, str]) -> Path:
    """Write files below a folder."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def closure_of(root: Path, entry: str = "kernels/entry.py") -> Closure:
    return collect(root / entry, root=root, shipped=shipped_folder("kernels"))


def paths(closure: Closure) -> list[str]:
    return [source.path for source in closure.files]


# What is found


def test_scan_names_imports_and_cuda_files():
    source = b'''"""Docstring that names other.cu."""
import math, mylib.tiles
from . import near
from ..up import one, two
try:
    import optional
except ImportError:
    optional = None
if TYPE_CHECKING:
    import never
def f():
    from late import inside
    return get("rows.cu"), "rows.cuh"
'''
    scan = scan_python(source, what="k.py")
    found = [(one.level, one.module, one.names, one.guarded) for one in scan.imports]
    assert found == [
        (0, "math", (), False),
        (0, "mylib.tiles", (), False),
        (1, "", ("near",), False),
        (2, "up", ("one", "two"), False),
        (0, "optional", (), True),
        (0, "late", ("inside",), False),
    ]
    assert scan.cuda_files == ("rows.cu", "rows.cuh")
    assert included_files(b'#include "a.cuh"\n# include "b.h"\n#include <c.h>\n// "d.cuh"\n') == ("a.cuh", "b.h")


DYNAMIC = {
    "importlib": "import importlib\n",
    "importlib-util": "from importlib import util\n",
    "dunder-import": "m = __import__('helper')\n",
    "exec": "exec('import helper')\n",
    "eval": "m = eval('1')\n",
    "runpy": "import runpy\n",
    "builtins": "import builtins\n",
    "sys-modules": "import sys\nm = sys.modules['helper']\n",
    "sys-path": "import sys\nsys.path.insert(0, 'x')\n",
    "from-sys-modules": "from sys import modules\n",
    "own-loader": "m = __loader__.load_module('helper')\n",
    "sys-by-another-name": "import sys as s\nm = s.modules['helper']\n",
    "all-of-sys": "from sys import *\n",
    "importlib-of-another": "from inspect import importlib\n",
    "pydoc": "import pydoc\n",
    "builtins-of-a-function": "m = (lambda: 0).__builtins__\n",
    "type-checking-set": "TYPE_CHECKING = True\nif TYPE_CHECKING:\n    import helper\n",
    "dynamic-under-type-checking": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    exec('1')\n",
    "cuda-name-in-pieces": "def f(name):\n    return f'{name}.cu'\n",
    "cuda-suffix": "SUFFIX = '.cuh'\n",
    "in-a-function": "def f():\n    import importlib.util\n",
    "not-python": "def f(:\n",
}


def test_guarded_imports_are_marked():
    text = b"from contextlib import suppress\nimport typing as t\nwith suppress(ImportError):\n    import maybe\n"
    scan = scan_python(text + b"if t.TYPE_CHECKING:\n    import never\n", what="k.py")
    assert [(one.module, one.guarded) for one in scan.imports][2:] == [("maybe", True)]


@pytest.mark.parametrize("text", DYNAMIC.values(), ids=DYNAMIC)
def test_dynamic_imports_are_refused(text, tmp_path):
    root = tree(tmp_path, {"kernels/entry.py": text})
    with pytest.raises(InputError, match=r"^kernels/entry\.py"):
        closure_of(root)


def test_closure_follows_imports_packages_and_cuda_files(tmp_path):
    root = tree(
        tmp_path,
        {
            "kernels/entry.py": "from mylib.deep import tiles\nimport numpy\nCODE = 'rows.cu'\n",
            "kernels/rows.cu": '#include "rows.cuh"\n#include "toolkit.h"\n',
            "kernels/rows.cuh": "#define N 1\n",
            "mylib/__init__.py": "",
            "mylib/deep/tiles.py": "from ..sizes import N\nfrom . import near\n",
            "mylib/deep/near.py": "",
            "src/other.py": "",
            "mylib/sizes.py": "import other\nN = 1\n",
            "mylib/unused.py": "",
        },
    )
    closure = closure_of(root)
    assert paths(closure) == [
        "kernels/entry.py", "kernels/rows.cu", "kernels/rows.cuh", "mylib/__init__.py", "mylib/deep/near.py",
        "mylib/deep/tiles.py", "mylib/sizes.py", "src/other.py",
    ]  # fmt: skip
    assert closure.entry == "kernels.entry"
    manifest = decode(KernelSource, encode(closure.manifest), what="m")
    assert closure.sha256 == object_id(encode(manifest))
    assert set(closure.objects) == {closure.sha256, *(file.sha256 for file in manifest.files)}


def test_shipped_kernels_have_the_same_digest_in_any_repository(tmp_path):
    root = tree(
        tmp_path, {"math.py": "raise RuntimeError\n", "kernels/mine.py": "", "triton.py": "raise RuntimeError\n"}
    )
    for name in kernel_names():
        assert kernel_closure(name, root)[0].sha256 == kernel_closure(name)[0].sha256
        assert all(path.startswith("ledger/kernels/") for path in paths(kernel_closure(name)[0]))


def test_a_users_kernels_folder_never_shadows_the_shared_code(tmp_path):
    text = "from ledger.kernels.common import cuda\n"
    root = tree(tmp_path, {"kernels/entry.py": text, "kernels/common/cuda.py": "raise RuntimeError\n"})
    closure = closure_of(root)
    assert "kernels/common/cuda.py" not in paths(closure)
    shared = next(source for source in closure.files if source.path == "ledger/kernels/common/cuda.py")
    assert shared.data == (shipped_folder("kernels") / "common" / "cuda.py").read_bytes()


def test_line_ends_do_not_change_a_digest(tmp_path):
    digests = set()
    for number, end in enumerate((b"\n", b"\r\n")):
        folder = tmp_path / str(number) / "kernels"
        folder.mkdir(parents=True)
        (folder / "entry.py").write_bytes(b"A = 1" + end + b"B = 2" + end)
        digests.add(closure_of(tmp_path / str(number)).sha256)
    assert len(digests) == 1


REFUSED = {
    "not-installed": ("import not_a_package_anywhere\n", {}, "is not installed"),
    "shadows-python": ("import math\n", {"math.py": ""}, "rename it"),
    "shadows-platform": ("import numpy\n", {"numpy/__init__.py": ""}, "rename it"),
    "not-in-package": ("import mylib.absent\n", {"mylib/__init__.py": ""}, "not in this work tree"),
    "above-the-top": ("from ... import x\n", {}, "above the top"),
    "plain-shared-import": ("import ledger.kernels.common.cuda\n", {}, "expected the form"),
    "no-shared-module": ("from ledger.kernels.absent import x\n", {}, "does not ship"),
    "cuda-file-missing": ("CODE = 'rows.cu'\n", {}, "not beside it"),
    "cuda-file-in-capitals-missing": ("CODE = 'A.CU'\n", {}, "not beside it"),
    "cuda-file-outside": ("CODE = '../rows.cu'\n", {"rows.cu": ""}, "own folder or below"),
}


@pytest.mark.parametrize(("text", "files", "words"), REFUSED.values(), ids=REFUSED)
def test_sources_that_a_seal_cannot_cover_are_refused(text, files, words, tmp_path):
    root = tree(tmp_path, {"kernels/entry.py": text, **files})
    with pytest.raises(InputError, match=words):
        closure_of(root)


def test_a_link_out_of_the_work_tree_is_refused(tmp_path):
    root = tree(tmp_path / "tree", {"kernels/entry.py": "import helper\n"})
    (tmp_path / "helper.py").write_text("")
    (root / "helper.py").symlink_to(tmp_path / "helper.py")
    with pytest.raises(InputError, match="link to outside"):
        closure_of(root)


def test_a_large_or_binary_source_is_refused(tmp_path):
    root = tree(tmp_path, {"kernels/entry.py": "import helper\n", "helper.py": "#" * 2_000_001})
    with pytest.raises(InputError, match="larger than"):
        closure_of(root)
    (root / "helper.py").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="UTF-8"):
        closure_of(root)


# Distributions


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Return a folder on sys.path in which distributions can be installed."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))

    def forget():
        for function in (distributions._by_module, distributions.identify, distributions.owns, loader._is_trusted):
            function.cache_clear()
        importlib.invalidate_caches()

    forget()
    folder_and_forget = (folder, forget)
    yield folder_and_forget
    forget()
    for name in ("tilebox",):
        sys.modules.pop(name, None)


def test_an_imported_distribution_is_named_with_its_files(site, tmp_path):
    folder, _ = site
    install(folder, "tilebox", "TILE = 64\n")
    root = tree(tmp_path / "tree", {"kernels/entry.py": "import tilebox\nTILE = tilebox.TILE\n"})
    closure = closure_of(root)
    (found,) = closure.distributions
    assert (found.name, found.version) == ("tilebox", "1.0") and found.record_sha256 is not None
    assert load(closure).TILE == 64


def test_a_distribution_with_compiled_code_is_named_by_version_alone(site, tmp_path):
    folder, _ = site
    install(folder, "tilebox", "TILE = 64\n", pure=False)
    root = tree(tmp_path / "tree", {"kernels/entry.py": "import tilebox\n"})
    assert closure_of(root).distributions[0].record_sha256 is None


def test_a_distribution_upgraded_or_edited_in_between_is_refused(site, tmp_path):
    folder, forget = site
    install(folder, "tilebox", "TILE = 64\n")
    root = tree(tmp_path / "tree", {"kernels/entry.py": "import tilebox\n"})
    sealed = closure_of(root)
    check_installed(sealed)
    (folder / "tilebox.py").write_text("TILE = 32\n")
    forget()
    with pytest.raises(InputError, match="not what RECORD says"):
        check_installed(sealed)
    for file in sorted((folder / "tilebox-1.0.dist-info").iterdir()):
        file.unlink()
    (folder / "tilebox-1.0.dist-info").rmdir()
    install(folder, "tilebox", "TILE = 32\n", version="1.1")
    forget()
    with pytest.raises(InputError, match=r"tilebox is 1\.1 .* expected 1\.0"):
        check_installed(sealed)
    assert closure_of(root).sha256 != sealed.sha256


def test_a_distribution_without_record_is_refused(site, tmp_path):
    folder, _ = site
    install(folder, "tilebox", "TILE = 64\n", record=False)
    root = tree(tmp_path / "tree", {"kernels/entry.py": "import tilebox\n"})
    with pytest.raises(InputError, match="no RECORD"):
        closure_of(root)


def test_an_optional_import_stays_absent(site, tmp_path):
    folder, forget = site
    text = "try:\n    import tilebox\nexcept ImportError:\n    tilebox = None\n"
    root = tree(tmp_path / "tree", {"kernels/entry.py": text})
    closure = closure_of(root)
    assert closure.absent == ("tilebox",)
    assert load(closure).tilebox is None
    install(folder, "tilebox", "TILE = 64\n")
    forget()
    with pytest.raises(InputError, match="expected none"):
        check_installed(closure)


def test_an_editable_installation_is_refused(site, tmp_path):
    folder, forget = site
    install(folder, "tilebox", "", editable=tmp_path)
    forget()
    root = tree(tmp_path / "tree", {"kernels/entry.py": "import tilebox\n"})
    with pytest.raises(InputError, match="editable"):
        closure_of(root)


@pytest.mark.parametrize("name", ["tilebox", "colorsys", "cuda"])
def test_a_module_put_before_the_real_one_is_never_used(site, name, tmp_path, monkeypatch):
    folder, _ = site
    install(folder, "tilebox", "TILE = 64\n")
    root = tree(tmp_path / "tree", {"kernels/entry.py": f"import {name}\nSHADOWED = {name}.TILE\n"})
    closure = closure_of(root)
    shadow = tree(tmp_path / "shadow", {f"{name}.py": "TILE = 32\n"})
    monkeypatch.syspath_prepend(str(shadow))
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ImportError, match="belongs neither to Python nor"):
        load(closure)
    sys.modules.pop(name, None)


def test_a_platform_package_installed_in_editable_mode_is_imported_from_its_own_folder_only(site, tmp_path):
    folder, forget = site
    sources = tree(tmp_path / "sources", {"cuda/__init__.py": "TILE = 64\n"})
    install(folder, "cuda-tiles", "", editable=sources, top_level="cuda")
    forget()
    root = tree(tmp_path / "tree", {"kernels/entry.py": "import cuda\nTILE = cuda.TILE\n"})
    for place, trusted in ((sources, True), (tree(tmp_path / "other", {"cuda/__init__.py": "TILE = 32\n"}), False)):
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(place))
            for name in [name for name in sys.modules if name.partition(".")[0] == "cuda"]:
                patch.delitem(sys.modules, name)
            if trusted:
                assert load(closure_of(root)).TILE == 64
            else:
                with pytest.raises(ImportError, match="belongs neither to Python nor"):
                    load(closure_of(root), variant="_other")
            sys.modules.pop("cuda")


# What is executed


def test_the_loader_executes_the_collected_bytes_and_not_what_the_disk_has_become(tmp_path):
    root = tree(
        tmp_path, {"kernels/entry.py": "from helper import tile\n", "helper.py": "def tile():\n    return 64\n"}
    )
    closure = closure_of(root)
    (root / "helper.py").write_text("def tile():\n    return 32\n")
    module = load(closure)
    assert module.tile() == 64
    assert inspect.getsource(module.tile) == "def tile():\n    return 64\n"
    changed = load(closure_of(root))
    assert (changed.tile(), module.tile()) == (32, 64)


def test_the_loader_never_takes_a_module_that_others_imported(tmp_path, monkeypatch):
    root = tree(tmp_path, {"kernels/entry.py": "import helper\nTILE = helper.TILE\n", "helper.py": "TILE = 64\n"})
    monkeypatch.setitem(sys.modules, "helper", type(sys)("helper"))
    assert load(closure_of(root)).TILE == 64


def test_the_loader_refuses_modules_outside_the_closure(tmp_path, monkeypatch):
    root = tree(tmp_path, {"kernels/entry.py": "import json\n\ndef later():\n    import helper\n", "helper.py": ""})
    closure = closure_of(root)
    without = Closure(closure.entry, tuple(source for source in closure.files if source.path != "helper.py"))
    monkeypatch.syspath_prepend(str(root))
    with pytest.raises(ImportError, match="not among the sealed sources"):
        load(without).later()


def test_lines_end_as_python_ends_them_and_a_coding_line_has_no_say(tmp_path):
    text = "# -*- coding: utf-7 -*-\n#+AAo-R=2\n# \x0c\x0c \x85 \u2028\ndef tile():\n    return 64\n"
    module = load(closure_of(tree(tmp_path, {"kernels/entry.py": text})))
    assert inspect.getsource(module.tile) == "def tile():\n    return 64\n"
    assert not hasattr(module, "R")


def test_classes_of_sealed_modules_can_be_pickled(tmp_path):
    module = load(closure_of(tree(tmp_path, {"kernels/entry.py": "class Tile:\n    pass\n"})))
    assert isinstance(pickle.loads(pickle.dumps(module.Tile())), module.Tile)


def test_the_kernels_own_folder_comes_before_a_package_of_that_name(site, tmp_path):
    folder, _ = site
    install(folder, "kernels", "V = 1\n")
    text = "from .helper import V\nfrom kernels.helper import V as W\n"
    root = tree(tmp_path / "tree", {"kernels/entry.py": text, "kernels/helper.py": "V = 2\n"})
    closure = closure_of(root)
    assert closure.distributions == () and load(closure).W == 2


def test_a_linked_kernel_keeps_its_own_name(tmp_path):
    root = tree(tmp_path, {"impl/fast.py": "A = 1\n", "kernels/README": ""})
    (root / "kernels" / "entry.py").symlink_to("../impl/fast.py")
    assert closure_of(root).entry == "kernels.entry"


@pytest.mark.parametrize(
    "text", ["raise SystemExit(0)\n", "raise KeyError('a')\n", "CODE = '_a#.cu'\n", f"C = '{'x' * 300}.cu'\n"]
)
def test_a_kernel_that_cannot_be_loaded_is_an_input_error(text, tmp_path):
    root = tree(tmp_path, {"kernels/entry.py": text})
    with pytest.raises(InputError, match="entry"):
        load_kernel("entry", root)


def test_a_sealed_file_is_read_through_the_loader(tmp_path):
    text = "CODE = 'rows.cu'\n"
    root = tree(tmp_path, {"kernels/entry.py": text, "kernels/rows.cu": "// rows\n", "kernels/rows.cuh": ""})
    module = load(closure_of(root))
    (root / "kernels" / "rows.cu").write_text("// edited\n")
    assert read_text(module.__name__, "rows.cu") == "// rows\n"
    with pytest.raises(InputError, match="not among the sealed sources"):
        read_text(module.__name__, "rows.cuh")


def test_a_closure_is_rebuilt_elsewhere_from_carried_files(tmp_path):
    text = "from ledger.kernels.common import cuda\nfrom helper import TILE\n"
    root = tree(tmp_path / "here", {"kernels/entry.py": text, "helper.py": "TILE = 64\n"})
    closure = closure_of(root)
    texts = {object_id(source.data): source.data for source in closure.carried}
    there = rebuild(closure.manifest, texts, folder=tmp_path / "there", shipped=shipped_folder("kernels"))
    assert there.sha256 == closure.sha256 and load(there).TILE == 64
    assert (tmp_path / "there" / "helper.py").read_text() == "TILE = 64\n"
    with pytest.raises(InputError, match=r"helper\.py: is missing"):
        rebuild(closure.manifest, {}, folder=tmp_path / "third", shipped=shipped_folder("kernels"))


def test_a_kernel_may_be_a_folder(tmp_path):
    source = (Path(__file__).parents[1] / "assets" / "kernels" / "small_matmul.py").read_text()
    root = tree(tmp_path, {"kernels/small_matmul/__init__.py": source})
    assert "small_matmul" in kernel_names(root) and "common" not in kernel_names(root)
    assert load_kernel("small_matmul", root).kernel.name == "small_matmul"
    with pytest.raises(InputError, match="expected the name of its file"):
        (root / "kernels" / "other.py").write_text(source)
        load_kernel_file(root / "kernels" / "other.py", root=root)


# Pins


def test_pins_compare_recorded_versions():
    assert parse_pin("torch==2.11.*") == ("torch", "==2.11.*")
    assert parse_pin("nvidia_cublas >=13,<14") == ("nvidia-cublas", "<14,>=13")
    software = {"torch": "2.11.0+cu130", "nvidia-cublas": "12.9"}
    pins = dict(map(parse_pin, ("torch==2.11.*", "nvidia-cublas>=13", "triton==3.6.0")))
    assert list(contradicted_pins(pins, software)) == [
        "nvidia-cublas is 12.9; sealed is nvidia-cublas>=13",
        "triton is not recorded; sealed is triton==3.6.0",
    ]


@pytest.mark.parametrize("text", ["torch", "torch=2", "liger-kernel==0.8", "torch==", "==2", "torch===a b;c"])
def test_a_pin_that_is_none_is_refused(text):
    with pytest.raises(InputError, match="pin "):
        parse_pin(text)
