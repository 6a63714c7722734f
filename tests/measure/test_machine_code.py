"""Tests that a comment leaves the digest of machine code as it is, and that another instruction changes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.errors import InputError
from ledger.kernel_files import build_case, load_kernel_file
from ledger.measure.machine_code import code_digest, machine_code
from ledger.record_files import load_hardware

KERNEL = Path(__file__).parents[2] / "kernels" / "vector_add.py"


def digest(folder: Path, *changes: tuple[str, str]) -> str | None:
    pytest.importorskip("triton", reason="triton is not installed: nothing can be compiled")
    text = KERNEL.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    folder.mkdir()
    (folder / "vector_add.py").write_text(text)
    file = load_kernel_file(folder / "vector_add.py", launch=True)
    case = build_case(file.kernel, load_hardware("h200"), shape={"N": 4096}, dtype="fp16")
    return machine_code(file.kernel, case, "sm_90", {})


def test_digest_follows_the_instructions_alone(tmp_path: Path):
    plain = digest(tmp_path / "a")
    assert plain is not None
    moved = digest(tmp_path / "b", ("triton, tl = import_triton()", "# A line more.\n\ntriton, tl = import_triton()"))
    renamed = digest(tmp_path / "c", ("start = tl", "first = tl"), ("= start +", "= first +"), ("if start", "if first"))
    assert moved == plain and renamed == plain
    assert (
        digest(
            tmp_path / "d", ("(a + b).to(y_ptr.dtype.element_ty), cache", "(a - b).to(y_ptr.dtype.element_ty), cache")
        )
        != plain
    )


@pytest.mark.parametrize("cubin", [b"", b"\x7fELF\x01", b"\x7fELF\x02" + b"\xff" * 100])
def test_what_is_no_cubin_is_refused(cubin: bytes):
    with pytest.raises(InputError, match="cubin"):
        code_digest(cubin)
