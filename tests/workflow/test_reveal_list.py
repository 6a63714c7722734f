"""Plants the names of a user, a host and folders, and searches for them in everything that is committed."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from builders import Ledger, measurement
from desk import ENVIRONMENT, Desk

from ledger.analysis.revealing import MachineNames
from ledger.canonical import object_id, object_path
from ledger.workflow.ingest import incoming_of
from ledger.workflow.reveal_list import MAX_LINES, reveal_lines

WORD = "xyzzy"
FAILING = """
def _fails(torch):
    import os, socket, getpass
    raise OSError(f"cannot open {os.path.expanduser('~')}/secret, {os.getcwd()}/x.py or {__file__} as "
                  f"{getpass.getuser()} on {socket.gethostname()}")
"""


class PlantedDesk(Desk):
    """A ledger of a user, on a host and in folders whose names all hold one word."""

    def environment(self) -> dict[str, str]:
        home, temporary = (self.root.parent / f"{WORD}-{name}" for name in ("home", "tmp"))
        for folder in (home, temporary):
            folder.mkdir(exist_ok=True)
        names = {"USER": f"{WORD}-user", "LOGNAME": f"{WORD}-user", "HOME": str(home), "TMPDIR": str(temporary)}
        return {**ENVIRONMENT, **names, "HOSTNAME": f"{WORD}-host"}

    def committed(self) -> str:
        """Return every byte of every object, and the list of their paths."""
        held = self.git("rev-list", "--objects", "--all")
        shas = [line.split()[0] for line in held.splitlines()]
        return held + "".join(self.git("cat-file", "-p", sha) for sha in shas)


@pytest.fixture
def desk(tmp_path):
    return PlantedDesk(tmp_path / f"{WORD}-folder")


def seal(desk: Desk, kernel: str, shape: str) -> None:
    text = f"predict {kernel} --hw cpu --dtype fp32 --shape {shape} --regime hbm-bound --pct 50"
    desk.ledger(*text.split())


@pytest.mark.exhaustive
def test_no_planted_name_is_committed_with_a_measurement(desk):
    seal(desk, "rmsnorm_matmul", "B=1,H=64,O=64")
    done = desk.run(sys.executable, "-P", "-m", "ledger", "verify")
    assert done.returncode == 0, done.stderr
    assert WORD not in desk.committed()


@pytest.mark.slow
def test_no_planted_name_is_committed_with_the_failure_of_a_kernel_that_tells_them(desk):
    example = (Path(__file__).parents[2] / "examples" / "kernels" / "absmax_norm.py").read_text()
    call = 'torch_cpu=library(lambda torch, out, x: out.copy_(reference({"x": x})), "x")'
    assert call in example
    text = example.replace(call, 'torch_cpu=library(lambda torch, out, x: _fails(torch), "x")')
    (desk.root / "kernels").mkdir(exist_ok=True)
    kernel = text.replace("\n\nKERNEL = ", f"\n{FAILING}\n\nKERNEL = ")
    (desk.root / "kernels" / "absmax_norm.py").write_text(kernel)
    seal(desk, "absmax_norm", "M=16,N=64")
    done = desk.run(sys.executable, "-P", "-m", "ledger", "verify")
    (failure,) = (desk.root / "verifications").glob("??/*.json")
    assert b"cannot open ~" in failure.read_bytes(), done.stderr
    assert WORD not in desk.committed()
    told = failure.read_text().split("cannot open", 1)[1].split('"')[0]
    assert f" {socket.gethostname()}" not in told


def test_what_a_commit_will_reveal_is_listed_first(tmp_path):
    ledger = Ledger(tmp_path)
    sealed = ledger.seal()
    report = b"NVR\0" + b"\x11/home/ada/x/ker.py" + b"\0\x0bxyzzy-host1\0"
    named = ({"name": "c.ncu-rep", "sha256": object_id(report), "bytes": len(report)},)
    record = measurement(sealed.forecast, seal=sealed.id)
    record = type(record).model_validate({**record.model_dump(by_alias=True), "attachments": named})
    item = incoming_of(record, {object_path("verifications", object_id(report)): report})
    lines = list(reveal_lines([item], MachineNames(words=("xyzzy-host1",))))
    assert lines[0].startswith("the commit will reveal")
    shown = sorted(line.strip().split(" (")[0] for line in lines[1:])
    assert shown == ["name: xyzzy-host1", "path: /home/ada/x/ker.py"]
    assert all("c.ncu-rep" in line for line in lines[1:])
    assert not list(reveal_lines([incoming_of(measurement(sealed.forecast, seal=sealed.id), {})], MachineNames()))


def test_the_list_is_bounded(tmp_path):
    sealed = Ledger(tmp_path).seal()
    report = b"\0".join(f"/home/ada/{number}/x.py".encode() for number in range(500))
    named = ({"name": "c.csv", "sha256": object_id(report), "bytes": len(report)},)
    record = measurement(sealed.forecast, seal=sealed.id)
    record = type(record).model_validate({**record.model_dump(by_alias=True), "attachments": named})
    item = incoming_of(record, {object_path("verifications", object_id(report)): report})
    lines = list(reveal_lines([item], MachineNames()))
    assert len(lines) == MAX_LINES + 2 and lines[-1] == "  and 480 more"
