"""Tests how a domain is sealed and drawn from: by an auditor's secret with the command, by drand from a file or URL."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from attacks import CASES  # noqa: F401  (first: the draws enter themselves into its corpus)
from desk import Desk
from draw_attacks import ROUNDS, by_secret, domain

from ledger.analysis.campaign import CellRequest
from ledger.errors import EvidenceRefused, InputError, MachineError
from ledger.workflow.draws import read_domains
from ledger.workflow.pulses import pulse_of
from ledger.workflow.seal import prepare

DOMAIN = """
kernel: rmsnorm
hardware: h200
dtypes: [fp16, bf16]
sizes:
  M: {low: 64, high: 8192, multiple_of: 64}
  N: {low: 100, high: 8192, multiple_of: 64}
cells: 3
deadline: 2099-01-01T00:00:00Z
"""


@pytest.fixture
def desk(tmp_path) -> Desk:
    return Desk(tmp_path / "desk")


def told(desk: Desk, *command: str) -> Any:
    return json.loads(desk.ledger(*command, "--json"))


def write(desk: Desk, text: str) -> None:
    (desk.root / "domain.yaml").write_text(text)


def served(round_file: bytes):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(round_file)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def round_file(number: int, signature: str) -> bytes:
    return json.dumps({"round": number, "randomness": "not read", "signature": signature}).encode()


def test_a_round_is_taken_from_a_file_or_an_address_and_verified(tmp_path):
    pytest.importorskip("py_ecc", reason="py_ecc is not installed")
    file = tmp_path / "round.json"
    file.write_bytes(round_file(1000, ROUNDS[1000]))
    assert pulse_of(domain(), str(file), None).signature == ROUNDS[1000]
    server = served(file.read_bytes())
    assert pulse_of(domain(), f"http://127.0.0.1:{server.server_port}/1000", None).round == 1000
    server.shutdown()
    file.write_bytes(round_file(657413, ROUNDS[657413]))
    with pytest.raises(InputError, match="is round 657413; expected 1000"):
        pulse_of(domain(), str(file), None)
    file.write_bytes(round_file(1000, ROUNDS[657413]))
    with pytest.raises(EvidenceRefused, match="not quicknet's"):
        pulse_of(domain(), str(file), None)


def test_what_is_no_round_is_named(tmp_path):
    file = tmp_path / "round.json"
    for text in (b"[]", b'{"round": 1000}', b'{"round": 1000, "signature": "zz"}', b"no json"):
        file.write_bytes(text)
        with pytest.raises(InputError):
            pulse_of(domain(), str(file), None)
    server = served(b" " * 9000)
    with pytest.raises(InputError, match="more than 8192 bytes"):
        pulse_of(domain(), f"http://127.0.0.1:{server.server_port}/", None)
    server.shutdown()
    with pytest.raises(InputError, match="no address of the web"):
        pulse_of(domain(), "file:///etc/hostname", None)
    with pytest.raises(MachineError):
        pulse_of(domain(), "http://127.0.0.1:1/", None)
    with pytest.raises(InputError, match="expected --pulse"):
        pulse_of(domain(), None, "a text of somebody")
    with pytest.raises(InputError, match="not the one that the domain names"):
        pulse_of(domain(**by_secret()), None, "a text of somebody")


def test_a_domain_is_sealed_drawn_by_a_secret_answered_whole_and_ordered_with_its_anchor(desk):
    auditor = told(desk, "challenge")
    write(desk, DOMAIN + f"auditor: {auditor['commitment']}\n")
    (origin,) = told(desk, "challenge", "--domain", "domain.yaml", "--by", "naive-roofline")
    assert auditor["challenge"] not in desk.git("show", "HEAD")
    assert "expected the auditor's text" in desk.refused(2, "challenge", "--draw", origin["id"], "--secret", "x" * 20)
    drawing = ("challenge", "--draw", origin["id"], "--secret", auditor["challenge"])
    assert "sight" in desk.refused(2, *drawing, "--sight", "near")
    assert "expected with --draw" in desk.refused(2, "challenge", "--sight", "blind")
    told(desk, *drawing, "--sight", "blind", "--known", "nothing")
    cells = told(desk, "status")["cells"]
    assert len(cells) == 3 and {(cell["state"], cell["sight"]) for cell in cells} == {("open", "blind")}
    desk.ledger("order", "-o", "order.json")
    ordered = json.loads((desk.root / "order.json").read_text())["cells"]
    (anchor,) = {cell["anchor"] for cell in ordered}
    assert anchor is not None and anchor != auditor["anchor"]
    assert "expected no --challenge" in desk.refused(2, "order", "--challenge", "y" * 20)
    assert told(desk, "audit", ".")["verdict"] == "holds"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("cells: 3", "cells: 300000"), "cells"),
        (("low: 64, high: 8192", "low: 64, high: 64"), ""),
        (("deadline: 2099", "deadline: 2001"), "deadline"),
        (("multiple_of: 64}\n  N", "multiple_of: 0}\n  N"), "multiple_of"),
        (("kernel: rmsnorm", "kernel: rmsnorn"), "rmsnorm"),
        (("  M:", "  Q:"), "shape"),
        (("kernel: rmsnorm", "kernel: mine:f"), "callable"),
    ],
)
def test_a_wrong_domain_is_named_and_not_sealed(desk, change, message):
    before = desk.git("rev-parse", "HEAD")
    write(desk, DOMAIN.replace(*change))
    if change[1].startswith("low: 64, high: 64"):
        # 2 dtypes by 1 by 128: still twice what is drawn.
        desk.ledger("challenge", "--domain", "domain.yaml", "--by", "naive-roofline")
        return
    assert message in desk.refused(2, "challenge", "--domain", "domain.yaml", "--by", "naive-roofline")
    assert desk.git("rev-parse", "HEAD") == before


def test_one_file_declares_several_domains_all_sealed_or_none(desk):
    entries = "domains:\n  - {kernel: rmsnorm, cells: 2}\n  - {kernel: softmax, dtypes: [fp32]}\n"
    common = DOMAIN.replace("kernel: rmsnorm\n", "")
    before = desk.git("rev-parse", "HEAD")
    for broken, message in (
        (entries.replace("softmax", "softmaxx"), "softmaxx"),
        (entries.replace("[fp32]", "[fp31]"), "domain 2"),
        ("domains: [rmsnorm]\n", "domain 1"),
        ("domains: []\n", "expected a list of 1 to"),
    ):
        write(desk, common + broken)
        assert message in desk.refused(2, "challenge", "--domain", "domain.yaml", "--by", "naive-roofline")
        assert desk.git("rev-parse", "HEAD") == before
    write(desk, common + entries)
    sealed = told(desk, "challenge", "--domain", "domain.yaml", "--by", "naive-roofline")
    declared = [json.loads((desk.root / one["path"]).read_text())["domain"] for one in sealed]
    assert [(one["kernel"], one["cells"], one["dtypes"]) for one in declared] == [
        ("rmsnorm", 2, ["fp16", "bf16"]),
        ("softmax", 3, ["fp32"]),
    ]
    assert told(desk, "audit", ".")["verdict"] == "holds"


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[2] / "campaigns").glob("*_domains.yaml")), ids=lambda path: path.stem
)
def test_the_declared_domains_hold_cells_that_their_kernels_take(path):
    for declared in read_domains(path):
        corners = (
            {key: size.low for key, size in declared.sizes.items()},
            {key: size.high - size.high % size.multiple_of for key, size in declared.sizes.items()},
        )
        for shape in corners:
            request = CellRequest(
                kernel=declared.kernel, hardware=declared.hardware, dtype=declared.dtypes[-1], shape=shape
            )
            assert prepare(request, root=Path(__file__).parents[2]).resolved.work.bytes < 8 * 10**9


def test_several_domains_are_drawn_at_once_with_their_sight_for_other_forecasters_and_measured_once(desk):
    auditor = told(desk, "challenge")
    entries = "domains:\n  - {kernel: rmsnorm, cells: 2}\n  - {kernel: softmax, cells: 1}\n"
    write(desk, DOMAIN.replace("kernel: rmsnorm\n", "") + f"auditor: {auditor['commitment']}\n" + entries)
    sealed = told(desk, "challenge", "--domain", "domain.yaml", "--by", "naive-roofline")
    before = desk.git("rev-parse", "HEAD")
    draw = ["challenge", "--draw", "all", "--secret", auditor["challenge"]]
    assert "expected with --draw" in desk.refused(2, "challenge", "--sight", "blind")
    assert "expected a sentence" in desk.refused(2, *draw, "--sight", "near")
    assert "Wrong Name" in desk.refused(2, *draw, "-o", "Wrong Name.yaml")
    assert desk.git("rev-parse", "HEAD") == before
    told(desk, *draw, "--sight", "blind", "-o", "others.yaml")
    assert "is left to draw" in desk.refused(2, *draw)
    told(desk, "predict", "--from", "others.yaml", "--by", "rule-of-thumb,no-overlap")
    cells = told(desk, "status")["cells"]
    assert len(cells) == 9 and {cell["sight"] for cell in cells} == {"blind"}
    assert told(desk, "order", "-o", "all.json")["cells"] == 9
    assert told(desk, "order", "--once", "-o", "order.json")["cells"] == 3
    ordered = json.loads((desk.root / "order.json").read_text())["cells"]
    answers = {f"predictions/{cell['seal'][:2]}/{cell['seal']}.json" for cell in ordered}
    first = [json.loads((desk.root / path).read_text())["cells"][0] for path in answers]
    assert {cell["draw"]["domain_seal"] for cell in first} == {one["id"] for one in sealed}
