"""Holds what every document keeps to: its length, links and paths that exist, and nothing rendered among them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any

import pytest
from ledger_process import rows_of_version_1

from ledger.kernel_files import load_kernel

ROOT = Path(__file__).parents[2]
GENERATED = {".venv", "site", "build", "dist", ".git", ".hypothesis", ".pytest_cache"}
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in ROOT.rglob("*.md")
    if not GENERATED & set(path.relative_to(ROOT).parts)
    and not path.relative_to(ROOT).parts[0].startswith(".")
    and path.relative_to(ROOT).parts[0] not in ("predictions", "verifications")
)
MOST_WORDS = 20_000
LIMITS = {
    "README.md": 900,
    "CONTRIBUTING.md": 700,
    "ROOFLINE.md": 2500,
    "docs/security.md": 1700,
    "docs/findings.md": 1000,
    **{page: 1200 for page in PAGES if page.startswith("docs/notes/")},
}
FOLDERS = "ledger|tests|kernels|hardware|docs|examples|benchmarks|campaigns"


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def words(text: str) -> int:
    """Count the words of a text: what has a letter or a digit, so not a table's bars."""
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def anchor(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


def headings(page: str) -> set[str]:
    text = re.sub(r"^```.*?^```$", "", read(page), flags=re.MULTILINE | re.DOTALL)
    return {anchor(line) for line in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


def broken_links(page: str, text: str) -> Iterator[str]:
    for target, _, fragment in re.findall(r"\]\(([^)#]*)(#([^)]*))?\)", text):
        if "://" in target:
            continue
        path = (ROOT / page).parent / target if target else ROOT / page
        if not path.exists():
            yield target
        elif fragment and fragment not in headings(path.resolve().relative_to(ROOT.resolve()).as_posix()):
            yield f"{target}#{fragment}"


def missing_paths(text: str) -> Iterator[str]:
    """Yield paths in code spans and blocks that do not exist; a name in capitals stands for any."""
    for target in re.findall(rf"(?<![\w/.-])((?:{FOLDERS})/[A-Za-z0-9_/.-]+\.(?:py|yaml|json|md|sh|cu))\b", text):
        if not re.search(r"/[A-Z]+\.", target) and not (ROOT / target).exists():
            yield target


def test_all_documents_together_stay_within_the_limit():
    counts = {page: words(read(page)) for page in PAGES}
    assert sum(counts.values()) <= MOST_WORDS, counts


@pytest.mark.parametrize("page", LIMITS)
def test_a_page_stays_within_its_limit(page: str):
    assert words(read(page)) <= LIMITS[page]


def test_roofline_page_is_no_shorter_than_its_six_sections_need():
    assert words(read("ROOFLINE.md")) >= 1500
    assert [line[:5] for line in read("ROOFLINE.md").splitlines() if line.startswith("## ")] == [
        f"## {n}" + "." for n in range(1, 7)
    ]


@pytest.mark.parametrize("page", PAGES)
def test_links_and_their_anchors_exist(page: str):
    assert not set(broken_links(page, read(page)))


@pytest.mark.parametrize("page", [page for page in PAGES if page != "docs/format.md"])
def test_paths_that_a_page_names_exist(page: str):
    assert not list(missing_paths(read(page)))


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith(("docs/", "benchmarks/"))])
def test_a_page_says_on_top_whom_it_serves(page: str):
    lines = read(page).split("\n\n")
    assert page == "docs/format.md" or lines[1].startswith("For "), lines[1]


def test_a_dead_link_anchor_or_path_is_found():
    text = "[a](nowhere.md) [b](CHANGELOG.md#nothing) [c](CHANGELOG.md#changelog) `tests/nothing.py` `kernels/NAME.py`"
    assert list(broken_links("README.md", text)) == ["nowhere.md", "CHANGELOG.md#nothing"]
    assert list(missing_paths(text)) == ["tests/nothing.py"]


def test_nothing_rendered_is_committed():
    if not (ROOT / ".git").exists():
        pytest.skip("this copy has no git history")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [path for path in listed.split("\0") if path and not path.startswith(("predictions/", "verifications/"))]
    pictures = [path for path in paths if path.endswith((".png", ".svg", ".jpg", ".pdf"))]
    assert len(pictures) <= 1 and all((ROOT / path).stat().st_size <= 150_000 for path in pictures)
    assert not [path for path in paths if path.endswith(".html") or path.startswith("site/")]
    for path in filter(lambda path: path.endswith(".md"), paths):
        text = (ROOT / path).read_text(encoding="utf-8")
        assert "<!-- ledger:" not in text and "do not edit" not in text, path


# Numbers of the other pages that come from the records


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    if not (ROOT / ".git").exists():
        pytest.skip("this copy has no git history")
    return [row for row in rows_of_version_1() if row["counts"]]


def side(row: dict[str, Any]) -> int:
    """Return 1 above the interval, -1 below, 0 inside."""
    told, seen = row["predicted"], row["measured"]["percent"]
    return (seen > told["high"]) - (seen < told["low"])


def wrong(row: dict[str, Any]) -> bool:
    return bool(row["predicted"]["regime"] != row["measured"]["regime"])


def test_table_of_campaigns_is_what_the_records_say(rows: list[dict[str, Any]]):
    page = read("docs/notes/forecasting.md")
    for campaign in {row["campaign"] for row in rows if row["campaign"].startswith("h200_")}:
        of = [row for row in rows if row["campaign"] == campaign]
        seen = [row["sight"] for row in of]
        line = (
            f"| `{campaign}` | {len(of)} | {seen.count('near')} | {seen.count('informed')} "
            f"| {sum(not wrong(row) for row in of)} "
            f"| {sum(side(row) > 0 for row in of)} | {sum(side(row) < 0 for row in of)} "
            f"| {fmean(abs(row['gap']['percent']) for row in of):.1f} |"
        )
        assert line in page


def test_readme_and_guide_count_as_the_records_do(rows: list[dict[str, Any]]):
    readme, guide = (" ".join(read(page).split()) for page in ("README.md", "docs/campaigns.md"))
    outside, above = sum(side(row) != 0 for row in rows), sum(side(row) > 0 for row in rows)
    missed = [{row["predicted"]["regime"], row["measured"]["regime"]} for row in rows if wrong(row)]
    others = ("latency", "compute", "hbm")
    latency, compute, hbm = (sum(pair == {"l2-bound", f"{name}-bound"} for pair in missed) for name in others)
    right = len(rows) - len(missed)
    assert f"first ten campaigns measured {len(rows)} cells of an H200: {right} regimes were right, {outside}" in readme
    assert f"From {len(rows)} forecasts on an H200" in guide
    assert f"Of {outside} percents outside their intervals {above} were above" in guide
    said = f"{len(missed)} regimes were wrong, and L2 was on one side of {latency + compute + hbm}: {latency} against"
    assert f"{said} latency, {compute} against arithmetic, {hbm} against memory" in guide
    informed = [row for row in rows if row["campaign"] == "h200_handed_on" and row["revises"]]
    assert not any(map(side, informed))
    error = fmean(abs(row["gap"]["percent"]) for row in informed)
    assert f"{len(informed)} cells of `h200_handed_on`, {error:.1f}" in guide


def _holds_one_byte_products(gemm: str) -> None:
    """Hold what the notes say of benchmarks/one-byte-h200.json: torch's time over ours in the chain."""
    rows = json.loads(read("benchmarks/one-byte-h200.json"))["rows"]

    def ratio(part: str, kernel: str, *names: str, key: str = "took", **shape: int) -> list[float]:
        """Return the time of the fastest of some names over that of the configuration under a key."""
        of = [row for row in rows if row["part"] == part and row["kernel"] == kernel]
        of = [row for row in of if shape.items() <= row["shape"].items() and row.get(key) in row["chain_us"]]
        timed = [({name: row["chain_us"].get(name) for name in names}, row["chain_us"][row[key]]) for row in of]
        return [min(us.values()) / own for us, own in timed if all(us.values())]

    adding, both = ("torch_scaled_mm",), ("torch_scaled_mm", "torch_scaled_mm_fast")
    before, now, slow = (
        geometric_mean(ratio(part, "matmul_fp8", *names))
        for part, names in (("before", both), ("unseen", both), ("unseen", adding))
    )
    unseen = len(ratio("unseen", "matmul_fp8", *both))
    said = f"fp8 {before:.2f} → {now:.2f} of the faster torch mode ({unseen} unseen), {slow:.2f} of the one that adds"
    assert said in gemm
    (was,), (divided, *_) = (ratio(part, "matmul_fp8", *both, M=5, N=80, K=20480) for part in ("fit", "split_k"))
    assert f"5 × 80 × 20480 {was:.2f} → {divided:.2f}" in gemm
    parts = {part: [row for row in rows if row["part"] == part] for part in ("split_k", "early columns")}
    late, early = (next(row for row in of if row["shape"]["N"] == 208) for of in parts.values())
    timed = [f"{row['chain_us'][row['took']]:.1f}" for row in (late, early)]
    torch_us = min(early["chain_us"][name] for name in both)
    assert f"3000 × 208 × 4096 {timed[0]} → {timed[1]} (torch {torch_us:.1f})" in gemm
    (tall,) = ratio("early columns", "matmul_fp8", *both, key="takes", M=7026)
    assert f"7026 × 144 × 3584 {tall:.2f}" in gemm
    old = ratio("before", "matmul_int8", "torch_int_mm")
    new = ratio("after", "matmul_int8", "torch_int_mm", key="takes")
    said = f"int8 {geometric_mean(old):.2f} → {geometric_mean(new):.2f} of torch._int_mm ({len(new)})"
    assert said in gemm
    one_row = (ratio(part, "matmul_bias_relu", "torch_addmm_activation", M=1, N=12288) for part in ("before", "after"))
    assert "bias 1 × 12288 × 8960 {:.2f} → {:.2f}".format(*(ratios[0] for ratios in one_row)) in gemm


def test_notes_quote_the_bench():
    found = json.loads(read("benchmarks/h200.json"))["rows"]
    gemm, attention, lines = (" ".join(read(f"docs/notes/{name}.md").split()) for name in ("gemm", "attention", "rows"))

    def ratio(baseline: str, kernel: str, **shape: int) -> list[float]:
        """Return the baseline's time over ours, fp16 first."""
        of = [row for row in found if row["kernel"] == kernel and shape.items() <= row["shape"].items()]
        return [row["all_us"][baseline] / row["ours_us"] for row in of if baseline in row["all_us"]]

    decode = ratio("sdpa_cudnn", "decode_attention")
    assert f"{min(decode):.2f} to {max(decode):.2f} times in {len(decode)} fp16 cells" in attention
    (mla,) = [row for row in found if row["kernel"] == "mla_decode" and row["shape"]["B"] == 1]
    assert f"B=1 takes {mla['ours_us']:.1f} where eager takes {mla['all_us']['torch_eager']:.1f}" in attention
    for kernel, columns in (("flash_attention", 128), ("flash_attention_causal", 64)):
        sizes = {"D": columns, "S": 8192}.items()
        timed = [row for row in found if row["kernel"] == kernel and sizes <= row["shape"].items()]
        (row,) = [row for row in timed if "flash_attention_4" in row["all_us"]]
        others = f"{row['all_us']['flash_attention_4']:.0f}"
        assert re.search(rf"{others} (where this takes |\(){row['ours_us']:.0f}", attention)
    (long,) = [row for row in found if row["kernel"] == "rmsnorm" and row["shape"]["N"] == 131072]
    assert f"{long['all_us']['quack']:.1f} where this takes {long['ours_us']:.1f}" in lines
    (wide,) = ratio("torch_matmul", "rmsnorm_matmul", B=130, H=4096, O=11008)
    tall, *_ = ratio("torch_matmul", "rmsnorm_matmul", B=512, H=4096, O=4096)
    large, *_ = ratio("torch_matmul", "rmsnorm_matmul", B=128, H=8192, O=8192)
    said = f"B=128, H=8192 at {large:.2f} of cuBLAS, 512 × 4096 × 4096 at {tall:.2f}, 130 × 4096 × 11008 at {wide:.2f}"
    assert said in gemm
    assert f"777 × 3000 × 4104: {ratio('torch_matmul', 'matmul', M=777)[0]:.2f}" in gemm
    settled = json.loads(read("benchmarks/matmul-settled-h200.json"))["rows"]
    near = sum(row["torch_matmul_us"] >= 0.97 * row["rule_us"] for row in settled)
    assert f"{len(settled)} shapes, clock settled: {near} reach 0.97 of cuBLAS" in gemm
    _holds_one_byte_products(gemm)
    eager, compiled = (ratio(name, "gemv") for name in ("torch_eager", "torch_compile"))
    moved = load_kernel("gemv").kernel.work
    rates = [
        (work.bytes_read + work.bytes_written) / row["ours_us"] / 1e6
        for row in found
        if row["kernel"] == "gemv"
        for work in [moved(row["shape"], row["dtype"])]
    ]
    assert f"7168 × 16384 at {rates[0]:.2f} and {rates[1]:.2f} TB/s in fp16 and bf16, " in lines
    said = f"{eager[0]:.2f} and {eager[1]:.2f} times torch.mv, {compiled[0]:.2f} and {compiled[1]:.2f} times"
    assert said in lines
