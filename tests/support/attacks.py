"""Holds the attack corpus: one builder a case, made of real git commands, beside the honest twin that must pass.

A builder gets an empty folder and a canary path. It returns the folder to audit. Code that an attack would run
touches the canary, which must not exist after the audit.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Literal

from authority import Authority, next_second
from builders import (
    FASTER,
    KERNEL_SOURCE,
    PROFILE,
    Ledger,
    Seal,
    forecast,
    honest,
    honest_samples,
    manifest_of,
    measurement,
    on_profile,
    seal_kind,
    series,
    timing,
)
from builders import begun as begin
from samples import TOY, make_hardware, state

from ledger.analysis.metrics import metric_names
from ledger.analysis.protocols import COLD_GRAPH
from ledger.canonical import canonical, encode, object_id, object_path, parse_json, record_id, record_path
from ledger.device.ncu_csv import parse_raw
from ledger.evidence.timestamps import add_tokens
from ledger.evidence.trust_levels import Trust
from ledger.git.commit import Repository
from ledger.records import (
    Case,
    Correctness,
    Counters,
    DeviceFacts,
    Forecast,
    Hardware,
    KernelSource,
    Measurement,
    Metric,
    ProfiledKernel,
    Samples,
    SourceFile,
    Timing,
)

Outcome = Literal["refused", "flagged", "undetermined", "holds"]
Build = Callable[[Path, Path], Path]


@dataclass(frozen=True)
class Attack:
    """Hold a case: what it is, how it is built, what must come of it (a finding's code), and its honest twin.

    keys: the auditor gives the keys and roots that lie beside the folder. levels: what the one cell reaches.
    formats: the versions of records in which the case can be built. recomputed: the auditor recomputes samples.
    """

    name: str
    row: str
    outcome: Outcome
    code: str
    build: Build
    twin: Build
    keys: bool = False
    levels: tuple[int, ...] | None = None
    formats: tuple[int, ...] = (1, 2)
    recomputed: bool = False


CASES: dict[str, Attack] = {}


def plain(folder: Path, _canary: Path) -> Path:
    """Build the twin of most cases: a seal, then its measurement."""
    return honest(folder)[0].root


def attack(
    row: str,
    outcome: Outcome,
    code: str = "",
    twin: Build = plain,
    *,
    keys: bool = False,
    levels: tuple[int, ...] | None = None,
    formats: tuple[int, ...] = (1, 2),
    recomputed: bool = False,
) -> Callable[[Build], Build]:
    """Enter a builder into the corpus; its docstring says what is attempted."""

    def enter(build: Build) -> Build:
        name = build.__name__.replace("_", "-")
        CASES[name] = Attack(name, row, outcome, code, build, twin, keys, levels, formats, recomputed)
        return build

    return enter


def trust_of(folder: Path) -> Trust:
    """Return what the auditor of a case trusts: the files that its builder left beside the folder, if any."""
    roots, allowed = folder.parent / "roots.pem", folder.parent / "allowed"
    return Trust(tsa_roots=roots if roots.exists() else None, allowed_signers=allowed if allowed.exists() else None)


def late_seal(ledger: Ledger) -> Seal:
    """Record a measurement first and commit its seal afterwards."""
    sealed = ledger.put_seal()
    ledger.git("stash", "--quiet")
    ledger.measure(sealed)
    ledger.git("stash", "pop", "--quiet")
    ledger.commit("seal, late")
    return sealed


def script(folder: Path, canary: Path) -> Path:
    """Write a program that touches the canary, whatever it is called with."""
    path = folder.parent / "evil.sh"
    path.write_text(f"#!/bin/sh\ntouch '{canary}'\ncat\n")
    path.chmod(0o755)
    return path


def counters(number: int) -> Counters:
    """Return what the profiler printed of a real kernel but for its tensor operations, with a duration of its own."""
    text = (Path(__file__).parents[1] / "assets" / "ncu" / "big_gemm.csv").read_text()
    wanted = [name for name in metric_names("9.0") if "ops_path_tensor" not in name]
    (kernel,) = parse_raw(text, wanted=wanted, what="big_gemm.csv")
    duration = {"gpu__time_duration.sum": Metric(value=str(2000 + number), unit="ns")}
    kernel = kernel.model_copy(update={"metrics": {**kernel.metrics, **duration}})
    return Counters(tool="ncu", command="ncu", cache_control="none", clock_control="none", kernels=(kernel,))


# Time and order

TIME = "time and order"


@attack(TIME, "refused", "prediction-postdates")
def seal_after_measurement(folder, _canary):
    """Measure, then seal what was measured."""
    ledger = begin(folder)
    late_seal(ledger)
    return ledger.root


@attack(TIME, "refused", "prediction-postdates")
def seal_after_measurement_with_backdated_commit(folder, _canary):
    """Seal late and claim an early commit date."""
    ledger = begin(folder)
    sealed = ledger.put_seal()
    ledger.git("stash", "--quiet")
    ledger.measure(sealed, when="2026-03-03T00:00:00+0000")
    ledger.git("stash", "pop", "--quiet")
    ledger.commit("seal", when="2001-01-01T00:00:00+0000")
    return ledger.root


@attack(TIME, "refused", "same-commit")
def seal_and_measurement_in_one_commit(folder, _canary):
    """Commit both at once."""
    ledger = begin(folder)
    ledger.put_measurement(ledger.put_seal())
    ledger.commit("both")
    return ledger.root


@attack(TIME, "refused", "same-commit")
def seal_and_measurement_in_the_root_commit(folder, _canary):
    """Commit both at once, with no parent to compare with."""
    ledger = Ledger(folder)
    ledger.put_measurement(ledger.put_seal())
    ledger.commit("both")
    return ledger.root


def merged_branches(folder, _canary):
    """Build two honest branches, each sealed and measured, and merge them."""
    ledger = begin(folder)
    base = ledger.head
    for branch, size in (("left", 2), ("right", 3)):
        ledger.switch(branch, base)
        ledger.measure(ledger.seal(forecast(B=size)))
    ledger.switch("main")
    ledger.merge("left", "right")
    return ledger.root


@attack(TIME, "refused", "prediction-postdates", twin=merged_branches)
def seal_and_measurement_on_parallel_branches(folder, _canary):
    """Let neither come first, and merge."""
    ledger = begin(folder)
    base = ledger.head
    ledger.switch("seal", base)
    sealed = ledger.seal()
    ledger.switch("measure", base)
    ledger.measure(sealed)
    ledger.switch("main")
    ledger.merge("seal", "measure")
    return ledger.root


@attack(TIME, "refused", "prediction-postdates")
def seal_brought_by_an_evil_merge(folder, _canary):
    """Add the seal in the merge commit itself, after the measurement."""
    ledger = begin(folder)
    ledger.switch("side", ledger.head)
    sealed = ledger.put_seal()
    ledger.git("stash", "--quiet")
    ledger.measure(sealed)
    ledger.switch("main")
    ledger.write("other", b"x")
    ledger.commit()
    ledger.git("merge", "--quiet", "--no-ff", "--no-commit", "side")
    ledger.git("checkout", "--quiet", "stash@{0}", "--", "predictions")
    ledger.commit("evil merge")
    ledger.git("stash", "drop", "--quiet")
    return ledger.root


@attack(TIME, "refused", "same-commit")
def squash_of_seal_and_measurement(folder, _canary):
    """Join an honest seal and its measurement with a soft reset."""
    ledger, _ = honest(folder)
    ledger.git("reset", "--quiet", "--soft", "HEAD~2")
    ledger.commit("squashed")
    return ledger.root


@attack(TIME, "refused", "same-commit")
def amend_of_the_measurement_into_the_seal(folder, _canary):
    """Amend the seal's commit with the measurement."""
    ledger = begin(folder)
    ledger.put_measurement(ledger.seal())
    ledger.git("commit", "--quiet", "--amend", "--no-edit")
    return ledger.root


@attack(TIME, "refused", "prediction-postdates")
def rebase_that_swaps_seal_and_measurement(folder, _canary):
    """Cherry-pick the two commits in the other order."""
    ledger, _ = honest(folder)
    ledger.git("checkout", "--quiet", "-b", "swapped", "main~2")
    ledger.git("cherry-pick", "main", "main~1")
    ledger.git("branch", "--force", "main", "swapped")
    ledger.switch("main")
    return ledger.root


@attack(TIME, "refused", "same-commit")
def filter_branch_that_joins(folder, _canary):
    """Rewrite every commit so that the first already holds all records."""
    ledger, _ = honest(folder)
    tree = ledger.git("rev-parse", "HEAD:predictions"), ledger.git("rev-parse", "HEAD:verifications")
    command = f"git read-tree --prefix=p/ {tree[0]}; git read-tree --prefix=v/ {tree[1]}; true"
    ledger.git("filter-branch", "-f", "--index-filter", command, "HEAD", FILTER_BRANCH_SQUELCH_WARNING="1")
    ledger.git("reset", "--quiet", "--hard", "main~2")
    ledger.git("mv", "p", "predictions")
    ledger.git("mv", "v", "verifications")
    ledger.commit("joined")
    return ledger.root


@attack(TIME, "refused", "chain-order")
def reordered_seals(folder, _canary):
    """Commit two seals in the order that their chain forbids."""
    ledger = begin(folder)
    first, second = ledger.seal(forecast(B=1)), ledger.seal(forecast(B=2))
    ledger.git("checkout", "--quiet", "-b", "reordered", "main~2")
    for sealed in (second, first):
        ledger.git("checkout", "--quiet", "main", "--", sealed.path, "predictions/objects")
        ledger.commit()
    return ledger.root


def _joined_roots(folder: Path) -> Ledger:
    ledger, _ = honest(folder)
    ledger.git("checkout", "--quiet", "--orphan", "island")
    ledger.git("rm", "-rfq", ".")
    ledger.measure(ledger.seal(forecast(B=9)))
    ledger.switch("main")
    ledger.merge("island", options=("--allow-unrelated-histories",))
    return ledger


@attack(TIME, "flagged", "multi-root")
def unrelated_histories_joined(folder, _canary):
    """Join a history that began elsewhere."""
    return _joined_roots(folder).root


@attack(TIME, "flagged", "date-order")
def measurement_dated_before_its_seal(folder, _canary):
    """Keep the order and contradict it with dates."""
    ledger = begin(folder)
    sealed = ledger.seal(when="2026-05-05T05:05:05+0000")
    ledger.measure(sealed, when="1971-01-01T00:00:00-1100")
    return ledger.root


def _odd_date(ledger: Ledger, stamp: str) -> None:
    commit = ledger.git("cat-file", "commit", "HEAD")
    lines = [
        f"{line.split('> ')[0]}> {stamp}" if line.startswith("committer ") else line for line in commit.split("\n")
    ]
    sha = ledger.git("hash-object", "-t", "commit", "-w", "--literally", "--stdin", data="\n".join(lines).encode())
    ledger.git("update-ref", "HEAD", sha)


@attack(TIME, "refused", "unsound-object")
def commit_date_that_overflows(folder, _canary):
    """Date a commit beyond 64 bits."""
    ledger, _ = honest(folder)
    _odd_date(ledger, "99999999999999999999999 +0000")
    return ledger.root


@attack(TIME, "undetermined")
def time_zone_that_no_clock_has(folder, _canary):
    """Keep an old commit that a program of its day gave a zone of six digits: named, and not refused."""
    ledger, _ = honest(folder)
    _odd_date(ledger, "1772539200 +051800")
    return ledger.root


@attack(TIME, "refused", "prediction-postdates")
def time_zone_that_hides_a_late_seal(folder, _canary):
    """Seal late, and add a commit with an odd zone so that nothing might be judged."""
    ledger = begin(folder)
    late_seal(ledger)
    ledger.commit("odd")
    _odd_date(ledger, "1772539200 +051800")
    return ledger.root


@attack(TIME, "holds")
def commit_date_far_in_the_future(folder, _canary):
    """Date a commit into the year 2286 with an odd zone: dates decide nothing."""
    ledger, _ = honest(folder)
    _odd_date(ledger, "9999999999 +1345")
    return ledger.root


# Views of git that lie

VIEWS = "views of git that lie"


@attack(VIEWS, "refused", "prediction-postdates")
def replace_ref_over_a_late_seal(folder, _canary):
    """Show the measurement's commit as a child of the seal's by a replace ref."""
    ledger = begin(folder)
    late_seal(ledger)
    wanted = ledger.git("commit-tree", "HEAD^{tree}", "-p", "HEAD~2", "-m", "another view")
    ledger.git("replace", "HEAD", wanted)
    return ledger.root


@attack(VIEWS, "refused", "prediction-postdates")
def grafts_over_a_late_seal(folder, _canary):
    """Turn the history round by a grafts file; git's transport is told to leave it out of account."""
    ledger = begin(folder)
    late_seal(ledger)
    head, middle, root = ledger.head, ledger.git("rev-parse", "HEAD~1"), ledger.git("rev-parse", "HEAD~2")
    (ledger.root / ".git/info").mkdir(exist_ok=True)
    (ledger.root / ".git/info/grafts").write_text(f"{head} {root}\n{middle} {head}\n")
    return ledger.root


@attack(VIEWS, "undetermined")
def shallow_clone(folder, _canary):
    """Cut the history off by an honest shallow clone."""
    source, _ = honest(folder.parent / "source")
    subprocess.run(
        ["git", "clone", "-q", "--depth=1", f"file://{source.root}", str(folder)], check=True, capture_output=True
    )
    return folder


@attack(VIEWS, "undetermined")
def faked_shallow_file(folder, _canary):
    """Cut the history off by writing .git/shallow by hand."""
    ledger, _ = honest(folder)
    (ledger.root / ".git/shallow").write_text(ledger.git("rev-parse", "HEAD~1") + "\n")
    return ledger.root


@attack(VIEWS, "refused", "prediction-postdates")
def poisoned_commit_graph(folder, _canary):
    """Leave a commit-graph that tells of other parents; git's transport is told to leave it out of account."""
    ledger = begin(folder)
    late_seal(ledger)
    ledger.git("commit-graph", "write", "--reachable")
    graph = ledger.root / ".git/objects/info/commit-graph"
    graph.chmod(0o644)
    data = bytearray(graph.read_bytes())
    # The commit data chunk holds a tree name, two parent positions and a date for each commit: turn parents round.
    start = data.find(bytes.fromhex(ledger.git("rev-parse", "HEAD^{tree}"))) + 20
    data[start : start + 4] = b"\x70\x00\x00\x00"
    graph.write_bytes(bytes(data))
    return ledger.root


def _tree_entry(mode: str, name: bytes, sha: str) -> bytes:
    return mode.encode() + b" " + name + b"\0" + bytes.fromhex(sha)


@attack(VIEWS, "refused", "unsound-object")
def duplicate_tree_entries(folder, _canary):
    """Put two folders of one name into a tree: one for the reader, one for the checker."""
    ledger, _ = honest(folder)
    here, there = ledger.git("rev-parse", "HEAD:predictions"), ledger.git("rev-parse", "HEAD:verifications")
    pairs = [("40000", b"predictions", here), ("40000", b"predictions", there), ("40000", b"verifications", there)]
    ledger.graft_tree(b"".join(_tree_entry(*pair) for pair in pairs))
    return ledger.root


@attack(VIEWS, "refused", "unsound-object")
def parent_folder_in_a_tree(folder, _canary):
    """Name a folder `..` in a tree."""
    ledger, _ = honest(folder)
    here = ledger.git("rev-parse", "HEAD:predictions")
    ledger.graft_tree(_tree_entry("40000", b"..", here) + _tree_entry("40000", b"predictions", here))
    return ledger.root


@attack(VIEWS, "refused", "unsound-object")
def dot_git_in_a_tree(folder, _canary):
    """Name a folder `.GIT` in a tree."""
    ledger, _ = honest(folder)
    here = ledger.git("rev-parse", "HEAD:predictions")
    ledger.graft_tree(_tree_entry("40000", b".GIT", here) + _tree_entry("40000", b"predictions", here))
    return ledger.root


@attack(VIEWS, "refused", "odd-mode")
def symlink_for_a_record(folder, _canary):
    """Let a record's path be a link to another file."""
    ledger = begin(folder)
    sealed = ledger.put_seal()
    blob = ledger.git("hash-object", "-w", "--stdin", data=b"../../elsewhere.json")
    ledger.git("update-index", "--cacheinfo", f"120000,{blob},{sealed.path}")
    ledger.commit()
    return ledger.root


@attack(VIEWS, "refused", "odd-mode")
def symlink_for_a_folder(folder, _canary):
    """Let the folder of predictions be a link."""
    ledger = begin(folder)
    (ledger.root / "predictions").symlink_to("/etc")
    ledger.git("add", "predictions")
    ledger.commit()
    return ledger.root


@attack(VIEWS, "refused", "odd-mode")
def executable_record(folder, _canary):
    """Give a record the executable bit."""
    ledger = begin(folder)
    sealed = ledger.put_seal()
    ledger.git("update-index", "--chmod=+x", sealed.path)
    ledger.commit()
    return ledger.root


@attack(VIEWS, "refused", "odd-mode")
def submodule_inside_a_ledger_folder(folder, _canary):
    """Hide measurements in a submodule, told to be ignored."""
    ledger, _ = honest(folder)
    ledger.write(".gitmodules", b'[submodule "x"]\n\tpath = verifications/sub\n\turl = ./x\n\tignore = all\n')
    ledger.git("update-index", "--add", "--cacheinfo", f"160000,{ledger.head},verifications/sub")
    ledger.commit()
    return ledger.root


@attack(VIEWS, "refused", "odd-name")
def folder_that_collides_by_case(folder, _canary):
    """Add Predictions/ beside predictions/."""
    ledger, _ = honest(folder)
    ledger.write("Predictions/notes.txt", b"x")
    ledger.commit()
    return ledger.root


@attack(VIEWS, "refused", "odd-name")
def folder_that_collides_by_unicode_form(folder, _canary):
    """Add a folder whose name has a full-width letter and reads the same."""
    ledger, _ = honest(folder)
    ledger.write("\uff50redictions/notes.txt", b"x")
    ledger.commit()
    return ledger.root


@attack(VIEWS, "refused", "odd-name")
def object_that_collides_by_case(folder, _canary):
    """Add an object under its name in capital letters."""
    ledger, sealed = honest(folder)
    path = object_path("predictions", sealed.forecast.kernel_sha256)
    ledger.write(path.upper().replace("PREDICTIONS/OBJECTS", "predictions/objects"), b"another kernel")
    ledger.commit()
    return ledger.root


@attack(VIEWS, "holds")
def objects_behind_alternates(folder, _canary):
    """Keep the objects in another repository: they are fetched whole, or the clone fails."""
    source, _ = honest(folder.parent / "source")
    subprocess.run(["git", "clone", "-q", "--shared", str(source.root), str(folder)], check=True, capture_output=True)
    return folder


@attack(VIEWS, "flagged", "odd-file")
def attributes_that_rewrite_records(folder, _canary):
    """Ask git to expand keywords and re-encode records on checkout; the audit reads blobs."""
    ledger, _ = honest(folder)
    ledger.write("predictions/.gitattributes", b"*.json ident export-subst working-tree-encoding=UTF-16 eol=crlf\n")
    ledger.commit()
    return ledger.root


@attack(VIEWS, "holds")
def autocrlf_in_the_audited_configuration(folder, _canary):
    """Ask for line-ending conversion."""
    ledger, _ = honest(folder)
    ledger.git("config", "core.autocrlf", "true")
    return ledger.root


@attack(VIEWS, "holds")
def configuration_that_hides_changes(folder, _canary):
    """Ask git for a relative diff, another order of files, ignored submodules and a log of first parents."""
    ledger, _ = honest(folder)
    keys = {"diff.relative": "true", "diff.orderFile": "x", "log.follow": "true", "log.diffMerges": "off"}
    for key, value in {**keys, "diff.ignoreSubmodules": "all", "core.quotePath": "true"}.items():
        ledger.git("config", key, value)
    return ledger.root


@attack(VIEWS, "undetermined")
def no_ledger_at_all(folder, _canary):
    """Offer a repository without predictions."""
    return begin(folder).root


@attack(VIEWS, "undetermined")
def empty_repository(folder, _canary):
    """Offer a repository without a commit."""
    return Ledger(folder).root


@attack(VIEWS, "undetermined")
def missing_objects(folder, _canary):
    """Take an object out of the store."""
    ledger, sealed = honest(folder)
    blob = ledger.git("rev-parse", f"HEAD:{sealed.path}")
    (ledger.root / ".git/objects" / blob[:2] / blob[2:]).unlink()
    return ledger.root


# Code execution on the auditor

CODE = "code execution on the auditor"


def _configured(name: str, keys: Callable[[Path], dict[str, str]]) -> None:
    def build(folder: Path, canary: Path) -> Path:
        ledger, _ = honest(folder)
        for key, value in keys(script(folder, canary)).items():
            ledger.git("config", key, value)
        return ledger.root

    CASES[name] = Attack(name, CODE, "holds", "", build, plain)


_configured("fsmonitor-program", lambda p: {"core.fsmonitor": str(p)})
_configured("pager-and-aliases", lambda p: {"core.pager": str(p), "alias.log": f"!{p}", "alias.clone": f"!{p}"})
_configured("ssh-and-askpass-programs", lambda p: {"core.sshCommand": str(p), "core.askPass": str(p)})
_configured("external-diff", lambda p: {"diff.external": str(p), "diff.x.command": str(p), "diff.x.textconv": str(p)})
_configured(
    "signature-programs", lambda p: {"gpg.program": str(p), "gpg.ssh.program": str(p), "log.showSignature": "1"}
)
_configured("pack-objects-hook", lambda p: {"uploadpack.packObjectsHook": str(p), "core.gitProxy": str(p)})
_configured("credential-helper-and-editor", lambda p: {"credential.helper": str(p), "core.editor": str(p)})
_configured("hooks-path", lambda p: {"core.hooksPath": str(p.parent)})


@attack(CODE, "holds")
def hooks_of_every_name(folder, canary):
    """Leave a hook for every occasion."""
    ledger, _ = honest(folder)
    program = script(folder, canary).read_bytes()
    hooks = ["post-checkout", "post-upload-pack", "pre-receive", "update", "reference-transaction", "post-index-change"]
    (ledger.root / ".git/hooks").mkdir(exist_ok=True)
    for name in [*hooks, "fsmonitor-watchman", "post-merge", "pre-auto-gc", "post-receive"]:
        hook = ledger.root / ".git/hooks" / name
        hook.write_bytes(program)
        hook.chmod(0o755)
    return ledger.root


@attack(CODE, "flagged", "odd-file")
def filters_and_textconv_by_attributes(folder, canary):
    """Name filters, a merge driver and a text converter in the tree and define them in the configuration."""
    ledger, _ = honest(folder)
    program = script(folder, canary)
    ledger.write("predictions/.gitattributes", b"* filter=x diff=x merge=x\n")
    ledger.commit()
    for key in ("filter.x.smudge", "filter.x.clean", "filter.x.process", "diff.x.textconv", "merge.x.driver"):
        ledger.git("config", key, str(program))
    ledger.git("config", "filter.x.required", "true")
    return ledger.root


@attack(CODE, "holds")
def configuration_by_inclusion(folder, canary):
    """Bring the programs in by includeIf."""
    ledger, _ = honest(folder)
    included = folder.parent / "included"
    program = script(folder, canary)
    included.write_text(f"[core]\n\tfsmonitor = {program}\n\tsshCommand = {program}\n\thooksPath = {program.parent}\n")
    ledger.git("config", "includeIf.gitdir:/**.path", str(included))
    ledger.git("config", "include.path", str(included))
    return ledger.root


@attack(CODE, "undetermined")
def lazy_fetch_by_a_program(folder, canary):
    """Leave out a blob and name a program that would fetch it."""
    ledger, sealed = honest(folder)
    blob = ledger.git("rev-parse", f"HEAD:{sealed.path}")
    (ledger.root / ".git/objects" / blob[:2] / blob[2:]).unlink()
    settings = {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::{script(folder, canary)}",
        "remote.origin.uploadpack": str(script(folder, canary)),
        "protocol.ext.allow": "always",
    }
    for key, value in settings.items():
        ledger.git("config", key, value)
    return ledger.root


@attack(CODE, "holds")
def python_that_would_be_imported(folder, canary):
    """Leave modules that shadow the auditor's own, and kernels that act when loaded."""
    ledger, _ = honest(folder)
    code = f"open({str(canary)!r}, 'w').close()\n".encode()
    for path in (
        "ledger/__init__.py",
        "numpy.py",
        "git.py",
        "sitecustomize.py",
        "kernels/rmsnorm_matmul.py",
        "conftest.py",
    ):
        ledger.write(path, code)
    ledger.write("hardware/toy.yaml", b"!!python/object/apply:os.system ['touch " + str(canary).encode() + b"']\n")
    ledger.commit()
    return ledger.root


@attack(CODE, "holds")
def sealed_kernel_that_acts_when_loaded(folder, canary):
    """Seal a kernel whose source would touch the canary: it is hashed and never run."""
    ledger = begin(folder)
    source = f"open({str(canary)!r}, 'w').close()\n".encode()
    ledger.measure(ledger.seal(forecast(kernel_sha256=ledger.put_kernel(source))))
    return ledger.root


# Parsing and printing

PARSING = "parsing and printing"


def _forged(ledger: Ledger, data: bytes) -> None:
    """Commit bytes as a seal under their own true name."""
    ledger.write(record_path("predictions", record_id(seal_kind(), data)), data)
    ledger.commit()


def _parsing(name: str, forge: Callable[[bytes], bytes], code: str = "bad-record") -> None:
    def build(folder: Path, _canary: Path) -> Path:
        ledger = begin(folder)
        sealed = ledger.seal()
        _forged(ledger, forge((ledger.root / sealed.path).read_bytes()))
        return ledger.root

    CASES[name] = Attack(name, PARSING, "refused", code, build, plain)


_parsing("unknown-rule", lambda d: d.replace(b'"rule":"regime/', b'"rule":"regime/9'))
_parsing("duplicate-key", lambda d: d.replace(b'"campaign":null,', b'"campaign":null,"campaign":null,'))
_parsing("white-space", lambda d: d.replace(b",", b", ", 1))
_parsing("newline-at-the-end", lambda d: d + b"\n")
_parsing("keys-in-another-order", lambda d: b'{"why":"",' + d.replace(b',"why":""}', b"}")[1:])
_parsing("byte-order-mark", lambda d: b"\xef\xbb\xbf" + d)
_parsing("utf-16", lambda d: d.decode().encode("utf-16"))
_parsing("not-a-number", lambda d: d.replace(b'"sequence":1', b'"sequence":NaN'))
_parsing("infinite-number", lambda d: d.replace(b'"sequence":1', b'"sequence":1e999'))
_parsing("huge-integer", lambda d: d.replace(b'"sequence":1', b'"sequence":' + b"9" * 5000))
_parsing("integer-beyond-2-53", lambda d: d.replace(b'"sequence":1', b'"sequence":9007199254740993'))
_parsing("integer-as-a-fraction", lambda d: d.replace(b'"sequence":1', b'"sequence":1.0'))
_parsing("number-as-text", lambda d: d.replace(b'"sequence":1', b'"sequence":"1"'))
_parsing("unknown-field", lambda d: d.replace(b'{"campaign"', b'{"added":1,"campaign"'))
_parsing("unknown-schema", lambda d: d.replace(b"ledger/seal/", b"ledger/seal/9"))
_parsing("deep-nesting", lambda d: b"[" * 1_000_000 + b"]" * 1_000_000)
_parsing("lone-surrogate", lambda d: d.replace(b'"why":""', b'"why":"\\ud800"'))
_parsing("empty-file", lambda d: b"")
_parsing("binary-file", lambda d: bytes(range(256)) * 100)
_parsing("too-large-a-record", lambda d: b" " * (33 << 20), "too-large")
_parsing("percent-above-100", lambda d: d.replace(b'"percent_milli":1000', b'"percent_milli":100001'))


@attack(PARSING, "refused", "odd-file")
def yaml_among_the_seals(folder, _canary):
    """Leave a YAML bomb where seals lie."""
    ledger, _ = honest(folder)
    bomb = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
        b"%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n" % (c + 1, c + 1, c, c, c, c, c, c, c, c) for c in range(97, 110)
    )
    ledger.write("predictions/cells.yaml", bomb)
    ledger.commit()
    return ledger.root


@attack(PARSING, "flagged", "odd-file")
def terminal_escapes_in_a_path(folder, _canary):
    """Name a file so that a terminal would act on it."""
    ledger, _ = honest(folder)
    ledger.write("predictions/\x1b[2J\x1b]0;owned\x07\u202e[red].txt", b"x")
    ledger.commit()
    return ledger.root


@attack(PARSING, "holds")
def terminal_escapes_in_fields_and_names(folder, _canary):
    """Put escapes, bidirectional marks and rich markup into free text and the committer's name."""
    ledger = begin(folder)
    nasty = "\x1b[31mred\x1b]0;owned\x07 \u202egnp.exe [bold red]x[/] \u200b"
    sealed = ledger.seal(forecast(why=nasty), why=nasty, forecaster="\u202e[blink]Ada")
    ledger.git("config", "user.name", "x")
    ledger.put_measurement(sealed, counters_missing=nasty)
    ledger.git("commit", "--quiet", "-m", nasty, GIT_COMMITTER_NAME="\x1b[2J\u202eAda")
    return ledger.root


@attack(PARSING, "refused", "signature-unread")
def signature_file_that_nothing_reads(folder, _canary):
    """Lay a signature beside a record, as if somebody had verified it."""
    ledger, sealed = honest(folder)
    ledger.write(sealed.path.replace(".json", ".ada.sig"), b"-----BEGIN SSH SIGNATURE-----")
    ledger.commit()
    return ledger.root


# Cost to the auditor: what is cheap to write and dear to read. tests/evidence/test_bounds.py measures it.

COST = "cost to the auditor"


@attack(COST, "refused", "bad-record")
def key_repeated_a_hundred_thousand_times(folder, _canary):
    """Repeat half of 100,000 keys in a seal's extensions."""
    ledger = begin(folder)
    keys = b",".join(b'"k%d":0' % (number // 2) for number in range(100_000))
    data = encode(seal_kind().model_validate(ledger.seal().prediction))
    _forged(ledger, data.replace(b'"extensions":{}', b'"extensions":{%s}' % keys))
    return ledger.root


@attack(COST, "refused", "bad-record")
def errors_by_the_hundred_thousand(folder, _canary):
    """Name 300,000 earlier seals, none of them by a digest."""
    ledger = begin(folder)
    data = encode(ledger.seal().prediction)
    _forged(ledger, data.replace(b'"previous":[]', b'"previous":[%s]' % b",".join([b'"x"'] * 300_000)))
    return ledger.root


@attack(COST, "refused", "bad-record")
def values_by_the_million(folder, _canary):
    """Fill a seal's extensions with empty lists."""
    ledger = begin(folder)
    data = encode(ledger.seal().prediction)
    lists = b'"extensions":{"a":[%s]}' % b",".join([b"[]"] * 1_500_000)
    _forged(ledger, data.replace(b'"extensions":{}', lists))
    return ledger.root


@attack(COST, "refused", "too-large")
def samples_without_end(folder, _canary):
    """Record 70,000 samples."""
    ledger = begin(folder)
    many = 70_000
    protocol = COLD_GRAPH.model_copy(update={"parameters": {**COLD_GRAPH.parameters, "sample_elements": many}})
    sealed = ledger.seal(forecast(protocol=protocol))
    samples = Samples(dtype="fp16", positions=(0,) * many, bits=("0000",) * many)
    ledger.measure(sealed, samples=samples)
    return ledger.root


@attack(COST, "flagged", "case-repeated")
def thousand_revisions_of_one_cell(folder, _canary):
    """Forecast one case under a thousand names in one seal."""
    ledger = begin(folder)
    one = forecast()
    ledger.seal(*(one.model_copy(update={"cell": f"{one.cell}-{number}"}) for number in range(1000)))
    return ledger.root


@attack(COST, "holds")
def sparse_file_of_fifteen_tebibytes(folder, _canary):
    """Leave a file in the work tree that would take days to hash."""
    ledger, _ = honest(folder)
    with (ledger.root / "predictions" / "large").open("wb") as stream:
        # As large as the file system allows.
        for size in (15 << 40, 15 << 39, 1 << 40, 1 << 33):
            try:
                stream.truncate(size)
                break
            except OSError:
                continue
    return ledger.root


@attack(COST, "holds")
def folder_that_is_a_link_to_all_processes(folder, _canary):
    """Let a ledger folder of the work tree lead to /proc."""
    ledger, _ = honest(folder)
    (ledger.root / "predictions").rename(ledger.root / "moved")
    (ledger.root / "predictions").symlink_to("/proc")
    return ledger.root


@attack(COST, "holds")
def references_by_the_hundred(folder, _canary):
    """Name a commit that holds a seal by 400 references."""
    ledger, _ = honest(folder)
    ledger.switch("side", ledger.head)
    ledger.seal(forecast(B=2))
    commands = "".join(f"create refs/heads/many/{number} {ledger.head}\n" for number in range(400))
    ledger.git("update-ref", "--stdin", data=commands.encode())
    ledger.switch("main")
    return ledger.root


def _odd_measurement(folder: Path, **changes: object) -> Path:
    ledger = begin(folder)
    ledger.measure(ledger.seal(), **changes)
    return ledger.root


def _counted(value: str) -> Counters:
    read = counters(0)
    (kernel,) = read.kernels
    metrics = {name: Metric(value=value, unit=metric.unit) for name, metric in kernel.metrics.items()}
    return read.model_copy(update={"kernels": (kernel.model_copy(update={"metrics": metrics}),)})


@attack(PARSING, "refused", "counters-unreadable")
def counters_beyond_every_number(folder, _canary):
    """Record counters that no floating-point number holds."""
    return _odd_measurement(folder, counters=_counted("1e999"), counters_missing=None)


@attack(PARSING, "refused", "counters-unreadable")
def counters_that_overflow_in_a_sum(folder, _canary):
    """Record counters whose sums and products are infinite."""
    return _odd_measurement(folder, counters=_counted("1.7e308"), counters_missing=None)


@attack(PARSING, "refused", "roof-contradicted")
def profile_with_a_peak_beyond_every_record(folder, _canary):
    """Seal a profile whose peak has three hundred digits."""
    return _sealed_with_peak(folder, 1e300)


@attack(PARSING, "refused", "roof-contradicted")
def profile_with_a_peak_of_nothing(folder, _canary):
    """Seal a profile whose peak rounds to no operation a second."""
    return _sealed_with_peak(folder, 1e-300)


def _sealed_with_peak(folder: Path, value: float) -> Path:
    ledger = begin(folder)
    fields = parse_json(PROFILE, what="profile")
    for ceilings in fields["ceilings"].values():
        for peak in filter(None, ceilings["peaks"].values()):
            peak["value"] = value
    profile = canonical(fields)
    ledger.write(object_path("predictions", object_id(profile)), profile)
    ledger.seal(forecast(hardware_sha256=object_id(profile)))
    return ledger.root


# Games with evidence

GAMES = "games with evidence"


def revisions(folder, _canary):
    """Build two forecasts of one cell, both before the measurement."""
    ledger = begin(folder)
    ledger.seal()
    ledger.measure(ledger.seal(forecast(percent_milli=2_000)))
    return ledger.root


def campaign(folder, _canary):
    """Build a campaign of two cells, both measured."""
    ledger = begin(folder)
    sealed = ledger.seal(forecast(B=1), forecast(B=2), campaign="pair")
    ledger.measure(sealed, cell=0)
    ledger.measure(sealed, cell=1)
    return ledger.root


@attack(GAMES, "refused", "chain-skip", twin=revisions)
def many_guesses_with_one_shown(folder, _canary):
    """Drop the guesses that missed from the work tree and the head, keeping the one that hit."""
    ledger = begin(folder)
    ledger.seal()
    base = ledger.head
    missed = ledger.seal(forecast(percent_milli=2_000))
    ledger.git("rm", "--quiet", missed.path)
    ledger.git("reset", "--quiet", "--hard", base)
    ledger.seal(forecast(percent_milli=3_000), sequence=1, previous=())
    return ledger.root


@attack(GAMES, "refused", "chain-broken", twin=revisions)
def guess_rewritten_out_of_the_history(folder, _canary):
    """Rewrite the history without a seal that a later one follows."""
    ledger = begin(folder)
    base = ledger.head
    ledger.seal()
    kept = ledger.seal(forecast(percent_milli=2_000))
    ledger.git("branch", "aside")
    ledger.git("reset", "--quiet", "--hard", base)
    ledger.git("checkout", "--quiet", "aside", "--", kept.path, "predictions/objects")
    ledger.commit()
    ledger.git("branch", "-D", "aside")
    return ledger.root


@attack(GAMES, "refused", "deleted", twin=campaign)
def evidence_deleted(folder, _canary):
    """Remove the measurement that missed."""
    ledger, _ = honest(folder)
    ledger.git("rm", "-rq", "verifications")
    ledger.commit()
    return ledger.root


@attack(GAMES, "refused", "deleted", twin=campaign)
def seal_deleted_and_brought_back(folder, _canary):
    """Remove a seal and add it again later."""
    ledger, _ = honest(folder)
    ledger.git("rm", "-rq", "predictions")
    ledger.commit()
    ledger.git("revert", "--no-edit", "HEAD")
    return ledger.root


@attack(GAMES, "refused", "dropped", twin=merged_branches)
def evidence_dropped_by_a_merge(folder, _canary):
    """Merge a branch and keep none of it."""
    ledger, _ = honest(folder)
    ledger.switch("side", ledger.head)
    ledger.measure(ledger.seal(forecast(B=2)))
    ledger.switch("main")
    ledger.write("other", b"x")
    ledger.commit()
    ledger.merge("side", options=("--strategy=ours",))
    return ledger.root


@attack(GAMES, "refused", "edited")
def seal_edited_after_the_fact(folder, _canary):
    """Change the sealed percent."""
    ledger, sealed = honest(folder)
    data = (ledger.root / sealed.path).read_bytes()
    ledger.write(sealed.path, data.replace(b'"percent_milli":1000', b'"percent_milli":249 '))
    ledger.commit()
    return ledger.root


@attack(GAMES, "refused", "id-mismatch")
def seal_that_never_had_its_name(folder, _canary):
    """Write other bytes under a seal's name from the first."""
    ledger = begin(folder)
    sealed = ledger.put_seal()
    ledger.write(sealed.path, (ledger.root / sealed.path).read_bytes().replace(b"1000", b"2000"))
    ledger.commit()
    return ledger.root


@attack(GAMES, "refused", "edited")
def hardware_peaks_edited_after_sealing(folder, _canary):
    """Lower the peaks in the sealed profile so that the result comes nearer its roof."""
    ledger, sealed = honest(folder)
    path = object_path("predictions", sealed.forecast.hardware_sha256)
    ledger.write(path, PROFILE.replace(b'"value":1', b'"value":2', 1))
    ledger.commit()
    return ledger.root


@attack(GAMES, "refused", "profile-changed")
def measured_against_another_profile(folder, _canary):
    """Measure against a profile that was not sealed."""
    ledger = begin(folder)
    sealed = ledger.seal()
    other = encode(make_hardware(title="Toy 2"))
    ledger.write(object_path("predictions", object_id(other)), other)
    ledger.measure(sealed, hardware_sha256=object_id(other))
    return ledger.root


@attack(GAMES, "refused", "roof-contradicted")
def sealed_roof_lower_than_the_profile(folder, _canary):
    """Seal a roof ten times lower than the sealed profile gives."""
    ledger = begin(folder)
    ledger.measure(ledger.seal(forecast(roof=forecast().roof.model_copy(update={"bandwidth_bytes_per_s": 10**11}))))
    return ledger.root


@attack(GAMES, "refused", "kernel-changed")
def kernel_changed_after_sealing(folder, _canary):
    """Measure another kernel than the sealed one."""
    ledger = begin(folder)
    ledger.measure(ledger.seal(), kernel_sha256="ee" * 32)
    return ledger.root


@attack(GAMES, "refused", "case-changed")
def launch_configuration_changed_after_sealing(folder, _canary):
    """Measure with another launch configuration."""
    ledger = begin(folder)
    sealed = ledger.seal()
    ledger.measure(sealed, case=sealed.forecast.case.model_copy(update={"config": {"block_m": 128}}))
    return ledger.root


@attack(GAMES, "refused", "protocol-changed")
def protocol_changed_after_sealing(folder, _canary):
    """Measure with fewer rounds than sealed."""
    ledger = begin(folder)
    sealed = ledger.seal()
    protocol = sealed.forecast.protocol
    changed = protocol.model_copy(update={"parameters": {**protocol.parameters, "min_rounds": 1}})
    ledger.measure(sealed, protocol=changed)
    return ledger.root


@attack(GAMES, "refused", "binding-broken")
def measurement_copied_from_another_seal(folder, _canary):
    """Take a measurement of an earlier seal and name the new seal in it."""
    ledger, first = honest(folder)
    second = ledger.seal(forecast(percent_milli=249))
    ledger.measure(second, samples=measurement(first.forecast, seal=first.id).samples)
    return ledger.root


@attack(GAMES, "refused", "binding-broken")
def measurement_copied_from_another_run(folder, _canary):
    """Present run 1 as run 0."""
    ledger = begin(folder)
    sealed = ledger.seal()
    ledger.measure(sealed, run=0, samples=measurement(sealed.forecast, seal=sealed.id, run=1).samples)
    return ledger.root


@attack(GAMES, "refused", "device-mismatch")
def measurement_from_another_gpu(folder, _canary):
    """Measure on a device that the sealed profile does not describe."""
    ledger = begin(folder)
    sealed = ledger.seal()
    device = measurement(sealed.forecast, seal=sealed.id).device.model_copy(update={"name": "Toy 2"})
    ledger.measure(sealed, device=device)
    return ledger.root


def _tensor_counted(dtype: str) -> Counters:
    """Return counters in which the tensor cores did twice the sealed work, in one dtype."""
    count = {"fp16": "0", "bf16": "0", dtype: "34,560"}
    metrics = {
        "gpu__time_duration.sum": Metric(value="2,000", unit="ns"),
        "sm__ops_path_tensor_src_fp16.sum": Metric(value=count["fp16"], unit=""),
        "sm__ops_path_tensor_src_bf16_dst_fp32.sum": Metric(value=count["bf16"], unit=""),
    }
    kernel = ProfiledKernel(name="rmsnorm_matmul_kernel", metrics=metrics)
    return Counters(tool="ncu", command="ncu", cache_control="all", clock_control="none", kernels=(kernel,))


def counted_in_the_sealed_dtype(folder, _canary):
    """Build the twin: the tensor cores counted the sealed dtype's operations."""
    ledger = begin(folder)
    ledger.measure(ledger.seal(), counters=_tensor_counted("fp16"), counters_missing=None)
    return ledger.root


@attack(GAMES, "refused", "dtype-contradicted", twin=counted_in_the_sealed_dtype)
def other_dtype_than_sealed(folder, _canary):
    """Seal fp16 and let the tensor cores multiply bf16."""
    ledger = begin(folder)
    ledger.measure(ledger.seal(), counters=_tensor_counted("bf16"), counters_missing=None)
    return ledger.root


@attack(GAMES, "refused", "above-roof")
def result_above_the_roof(folder, _canary):
    """Claim a time that the datasheet does not allow."""
    ledger = begin(folder)
    ledger.measure(ledger.seal(), timing=timing(1_000))
    return ledger.root


@attack(GAMES, "refused", "timing-inconsistent")
def median_that_its_rounds_do_not_give(folder, _canary):
    """Report the best round as the median."""
    ledger = begin(folder)
    rounds = (1_500_000, 2_000_000, 2_100_000)
    ledger.measure(ledger.seal(), timing=timing(1_500_000, rounds_ps=rounds, low_ps=1_500_000, high_ps=2_100_000))
    return ledger.root


def _on_a_real_profile(folder: Path, *cells: dict[str, Any]) -> Path:
    """Build a ledger of cells on another profile than the golden ledgers', with fields of their measurements."""
    ledger, profile = begin(folder), TOY.model_copy(update={"name": "fresh"})
    ledger.put_profile(profile)
    for number, fields in enumerate(cells, 1):
        ledger.measure(ledger.seal(on_profile(profile, forecast(B=number))), **fields)
    return ledger.root


def halved_and_launched(folder, _canary):
    """Record an empty launch and interventions that agree with the rounds, the shape and the work."""
    halves = {f"half_H_{name}": value for name, value in (("ps", 1_500_000), ("flops", 2_000), ("bytes", 2_000))}
    varied = {"cold_ps": 2_000_000, "warm_ps": 1_000_000, "double_ps": 2_000_000, **halves}
    timed = series().model_copy(update={"launch_ps": 1_900_000})
    return _on_a_real_profile(folder, {}, {"timing": timed, "interventions": varied})


@attack(GAMES, "refused", "interventions-inconsistent", twin=halved_and_launched)
def cold_call_unlike_the_timed_one(folder, _canary):
    """Record a cold call of a fiftieth of the timed one, which alone would take more than DRAM's peak."""
    return _on_a_real_profile(folder, {"interventions": {"cold_ps": 40_000, "warm_ps": 1}, "timing": series()})


@attack(GAMES, "refused", "interventions-inconsistent", twin=halved_and_launched)
def half_of_an_axis_that_the_shape_lacks(folder, _canary):
    """Record half of an axis Z, with more work than the whole."""
    halves = {"half_ZZ_ps": 1_900_000, "half_ZZ_flops": 2**52, "half_ZZ_bytes": 2**52}
    varied = {"cold_ps": 2_000_000, "warm_ps": 2_000_000, **halves}
    return _on_a_real_profile(folder, {"interventions": varied, "timing": series()})


@attack(GAMES, "refused", "timing-inconsistent", twin=halved_and_launched)
def empty_launch_longer_than_the_call(folder, _canary):
    """Record an empty launch of 100 s beside a call of 2 us."""
    return _on_a_real_profile(folder, {"timing": series().model_copy(update={"launch_ps": 10**14})})


@attack(GAMES, "refused", "timing-inconsistent", twin=halved_and_launched)
def fewer_rounds_than_the_protocol_takes(folder, _canary):
    """Give eight rounds, the same in two cells: too few to be recognised as a copy."""
    timed = series(count=8).model_copy(update={"median_ps": 1_999_999})
    return _on_a_real_profile(folder, {"timing": timed}, {"timing": timed})


@attack(GAMES, "refused", "correctness-inconsistent", twin=halved_and_launched)
def wrong_result_said_to_have_passed(folder, _canary):
    """Say that a result passed whose largest error is a billion."""
    wrong = Correctness(
        passed=True, reference="float64", elements=32, max_abs_error="1e9", relative_error="0", atol="1e-3", rtol="0"
    )
    return _on_a_real_profile(folder, {"correctness": wrong})


@attack(GAMES, "refused", "attachment-lost")
def profiler_report_exchanged(folder, _canary):
    """Exchange the bytes of an attached report."""
    ledger = begin(folder)
    ledger.put_measurement(ledger.seal(), attachments={"ncu.csv": b"1,2,3\n"})
    ledger.write(object_path("verifications", object_id(b"1,2,3\n")), b"9,9,9\n")
    ledger.commit()
    return ledger.root


def profiled(folder, _canary):
    """Build two cells, each with counters and a report of its own."""
    ledger = begin(folder)
    sealed = ledger.seal(forecast(B=1), forecast(B=2))
    for cell in (0, 1):
        ledger.measure(
            sealed, cell=cell, counters=counters(cell), counters_missing=None, attachments={"ncu.csv": b"%d" % cell}
        )
    return ledger.root


@attack(GAMES, "refused", "evidence-copied", twin=profiled)
def profiler_report_copied_from_another_cell(folder, _canary):
    """Present the counters of one cell's report as those of two."""
    ledger = begin(folder)
    sealed = ledger.seal(forecast(B=1), forecast(B=2))
    for cell in (0, 1):
        ledger.measure(
            sealed, cell=cell, counters=counters(0), counters_missing=None, attachments={"ncu.csv": b"1,2,3\n"}
        )
    return ledger.root


@attack(GAMES, "refused", "evidence-copied")
def timings_copied_from_another_run(folder, _canary):
    """Give the rounds of one cell, to the picosecond, to another."""
    ledger = begin(folder)
    sealed = ledger.seal(forecast(B=1), forecast(B=2))
    rounds = tuple(range(2_000_000, 2_000_025))
    series = timing(2_000_012, rounds_ps=rounds, low_ps=rounds[8], high_ps=rounds[16])
    for cell in (0, 1):
        ledger.measure(sealed, cell=cell, timing=series)
    return ledger.root


@attack(GAMES, "flagged", "evidence-copied")
def one_file_attached_to_two_cells(folder, _canary):
    """Attach the same bytes to two cells whose counters and timings are their own."""
    ledger = begin(folder)
    sealed = ledger.seal(forecast(B=1), forecast(B=2))
    for cell in (0, 1):
        ledger.measure(sealed, cell=cell, attachments={"ncu.csv": b"1,2,3\n"})
    return ledger.root


@attack(GAMES, "refused", "run-missing")
def best_of_many_runs(folder, _canary):
    """Record run 3 and leave out the three before it."""
    ledger = begin(folder)
    ledger.measure(ledger.seal(), run=3)
    return ledger.root


@attack(GAMES, "flagged", "runs-parallel", twin=merged_branches)
def first_run_on_two_branches(folder, _canary):
    """Record two first runs on parallel branches, to choose between them by the order of the merge."""
    ledger = begin(folder)
    sealed = ledger.seal()
    base = ledger.head
    for branch, median in (("left", 2_000_000), ("right", 1_900_000)):
        ledger.switch(branch, base)
        ledger.measure(sealed, timing=timing(median))
    ledger.switch("main")
    ledger.merge("left", "right")
    return ledger.root


@attack(GAMES, "flagged", "vacuous-interval")
def interval_from_0_to_100(folder, _canary):
    """Forecast an interval that nothing can miss."""
    ledger = begin(folder)
    ledger.measure(ledger.seal(forecast(low_milli=0, high_milli=100_000)))
    return ledger.root


@attack(GAMES, "flagged", "clock-moved")
def clock_that_moved(folder, _canary):
    """Let the clock fall by a fifth during the run."""
    ledger = begin(folder)
    ledger.measure(ledger.seal(), after=state(800))
    return ledger.root


@attack(GAMES, "refused", "work-contradicted")
def work_larger_than_the_operation(folder, _canary):
    """Seal more bytes than the tensors can hold, so that the percent comes out higher."""
    ledger = begin(folder)
    ledger.measure(ledger.seal(forecast(work=forecast().work.model_copy(update={"bytes_read": 10**6}))))
    return ledger.root


@attack(GAMES, "refused", "work-contradicted")
def operations_larger_than_the_operation(folder, _canary):
    """Seal more operations than the products have, so that the percent comes out higher."""
    ledger = begin(folder)
    ledger.measure(ledger.seal(forecast(work=forecast().work.model_copy(update={"flops": 10**6}))))
    return ledger.root


@attack(GAMES, "flagged", "work-unlike-operation")
def work_twice_the_tensors(folder, _canary):
    """Seal twice the bytes that the tensors hold in the sealed dtype: a kernel may store them wider, so it is shown."""
    ledger = begin(folder)
    work = forecast().work
    ledger.measure(ledger.seal(forecast(work=work.model_copy(update={"bytes_read": 2 * work.bytes_read}))))
    return ledger.root


@attack(GAMES, "flagged", "operation-unknown", levels=(0,))
def operation_that_nobody_knows(folder, _canary):
    """Name an operation that the auditor cannot recompute: it is shown, and no cell of it reaches level 1."""
    ledger = begin(folder)
    known = forecast()
    sealed = ledger.seal(known.model_copy(update={"operation": "mystery/1"}))
    ledger.measure(sealed, samples=honest_samples(known, seal=sealed.id))
    return ledger.root


@attack(GAMES, "flagged", "measured-under-another-name")
def measured_cell_forecast_under_another_name(folder, _canary):
    """Forecast a measured cell again as a kernel of another name, and declare nothing."""
    ledger, sealed = honest(folder)
    changes = {
        "case": sealed.forecast.case.model_copy(update={"kernel": "fresh"}),
        "cell": "fresh-B4-H64-O32-fp16",
        "kernel_sha256": ledger.put_kernel(KERNEL_SOURCE + b"# fresh\n", "fresh"),
    }
    ledger.measure(ledger.seal(forecast(percent_milli=249).model_copy(update=changes)))
    return ledger.root


# Sight: what had been timed before


def _declared(sight: str, known: str = "a neighbour was timed", **changes: Any) -> Forecast:
    """Return a forecast of version 2 that declares a sight."""
    return forecast(**changes).model_copy(update={"sight": sight, "known": "" if sight == "blind" else known})


def _then(folder: Path, *later: Forecast, profile: Hardware = TOY, **measured: Any) -> Path:
    """Build a ledger with a measured cell, B = 4, and a later seal, with its profile."""
    ledger = begin(folder)
    ledger.measure(ledger.seal(_declared("blind")), **measured)
    ledger.put_profile(profile)
    ledger.seal(*later)
    return ledger.root


def _named(kernel: str, ledger_source: bytes = KERNEL_SOURCE, **update: Any) -> dict[str, Any]:
    """Return the fields of a forecast of another kernel."""
    case = forecast().case.model_copy(update={"kernel": kernel})
    digest = object_id(manifest_of(ledger_source, kernel))
    return {"case": case, "cell": f"{kernel}-B4-H64-O32-fp16", "kernel_sha256": digest, **update}


def another_device(folder, _canary):
    """Build a blind forecast of a measured cell on another device of the same target."""
    return _then(folder, on_profile(FASTER, _declared("blind")), profile=FASTER)


def far_shape(folder, _canary):
    """Build a blind forecast of a shape more than twice as large as any that was measured."""
    return _then(folder, _declared("blind", B=9))


def declared_near(folder, _canary):
    """Build forecasts of two neighbours of a measured cell, each declared near."""
    return _then(folder, _declared("near", B=8), _declared("near", dtype="bf16"))


def declared_informed(folder, _canary):
    """Build a forecast of a shape that interventions timed, declared informed."""
    return _then(folder, _declared("informed", B=2), interventions=HALVED)


HALVED = {"cold_ps": 2_000_000, "half_B_ps": 1_500_000, "half_B_flops": 100, "half_B_bytes": 100}


@attack(GAMES, "flagged", "sight-contradicted", twin=another_device, formats=(2,))
def measured_cell_declared_blind_under_another_profile(folder, _canary):
    """Rename the profile of a measured cell and declare it blind."""
    profile = TOY.model_copy(update={"name": "fresh"})
    return _then(folder, on_profile(profile, _declared("blind")), profile=profile)


@attack(GAMES, "flagged", "sight-contradicted", twin=another_device, formats=(2,))
def measured_cell_declared_blind_under_renamed_device(folder, _canary):
    """Rename the profile and the device in it, with the same figures."""
    profile = TOY.model_copy(update={"name": "fresh", "device_names": ("Fresh 1",)})
    return _then(folder, on_profile(profile, _declared("blind")), profile=profile)


@attack(GAMES, "flagged", "sight-contradicted", twin=declared_near, formats=(2,))
def measured_cell_declared_blind_as_another_kernel(folder, _canary):
    """Rename the kernel of a measured cell and declare it blind."""
    ledger = begin(folder)
    ledger.measure(ledger.seal())
    ledger.put_kernel(KERNEL_SOURCE, "fresh")
    ledger.seal(_declared("blind").model_copy(update=_named("fresh")))
    return ledger.root


@attack(GAMES, "flagged", "sight-contradicted", twin=declared_near, formats=(2,))
def measured_cell_declared_blind_with_a_comment_added(folder, _canary):
    """Add a comment to the kernel of a measured cell, so that its digest is new, and declare it blind."""
    ledger = begin(folder)
    ledger.measure(ledger.seal())
    digest = ledger.put_kernel(KERNEL_SOURCE + b"# new\n")
    ledger.seal(_declared("blind").model_copy(update={"kernel_sha256": digest}))
    return ledger.root


@attack(GAMES, "flagged", "sight-contradicted", twin=far_shape, formats=(2,))
def neighbour_declared_blind(folder, _canary):
    """Declare a shape blind of which every size is within a factor of two of a measured one's."""
    return _then(folder, _declared("blind", B=8))


@attack(GAMES, "flagged", "sight-contradicted", twin=declared_near, formats=(2,))
def other_dtype_of_the_same_width_declared_blind(folder, _canary):
    """Declare bf16 blind after fp16 of the same shape was measured."""
    return _then(folder, _declared("blind", dtype="bf16"))


@attack(GAMES, "flagged", "sight-contradicted", twin=declared_informed, formats=(2,))
def shape_of_an_intervention_declared_near(folder, _canary):
    """Declare a shape near that an intervention of an earlier measurement timed."""
    return _then(folder, _declared("near", B=2), interventions=HALVED)


@attack(GAMES, "flagged", "sight-contradicted", twin=declared_near, formats=(2,))
def measured_cell_declared_near(folder, _canary):
    """Declare the very case that was measured near."""
    return _then(folder, _declared("near"))


@attack(GAMES, "flagged", "case-repeated", twin=campaign)
def twenty_percents_of_one_case(folder, _canary):
    """Forecast one case at twenty percents under twenty names, and measure the one that hits."""
    ledger = begin(folder)
    ledger.measure(ledger.seal(*twenty()), cell=0)
    return ledger.root


def twenty() -> list[Forecast]:
    """Return forecasts of one case, at 1 to 20 thousandths of its roof, under names of their own."""
    made = forecast()
    return [made.model_copy(update={"cell": f"{made.cell}-{n}", "percent_milli": 250 * n}) for n in range(1, 21)]


@attack(GAMES, "flagged", "sight-note-unfounded")
def note_that_quotes_what_no_seal_says(folder, _canary):
    """Put words into a seal that it does not hold."""
    ledger, sealed = honest(folder)
    note = f'notes:\n  - seal: "{sealed.id}"\n    sight: near\n    quote: "never said by anybody"\n'
    ledger.write("campaigns/sight.yaml", note.encode())
    ledger.commit()
    return ledger.root


@attack(GAMES, "flagged", "sight-notes-unreadable")
def notes_that_cannot_be_read(folder, _canary):
    """Fill the file of notes with an alias that unfolds."""
    ledger, _ = honest(folder)
    ledger.write("campaigns/sight.yaml", b"notes: [&a [x], *a]\n")
    ledger.commit()
    return ledger.root


@attack(GAMES, "flagged", "sight-notes-unreadable")
def notes_without_end(folder, _canary):
    """Make the file of notes larger than it may be."""
    ledger, _ = honest(folder)
    ledger.write("campaigns/sight.yaml", b"notes: []\n" + b"#" * 70_000)
    ledger.commit()
    return ledger.root


@attack(GAMES, "holds", twin=revisions)
def second_prediction_after_the_measurement(folder, _canary):
    """Forecast a cell again once its result is known: it is informed, and shown as a revision."""
    ledger, _ = honest(folder)
    ledger.seal(forecast(percent_milli=249))
    return ledger.root


@attack(GAMES, "holds", twin=campaign)
def cells_dropped_from_a_campaign(folder, _canary):
    """Measure only the cell that will hit: the other stays open, by name."""
    ledger = begin(folder)
    ledger.measure(ledger.seal(forecast(B=1), forecast(B=2), campaign="pair"), cell=0)
    return ledger.root


@attack(GAMES, "holds")
def report_file_edited_by_hand(folder, _canary):
    """Write a better result into the rendered report: no view is ever read."""
    ledger, _ = honest(folder)
    ledger.write("docs/report.md", b"# 100% of the roof\n")
    ledger.commit()
    return ledger.root


@attack(GAMES, "refused", "bad-record")
def seal_reencoded_under_its_own_digest(folder, _canary):
    """Store a seal with other white space, named by the digest of those bytes."""
    ledger = begin(folder)
    sealed = ledger.put_seal()
    data = (ledger.root / sealed.path).read_bytes().replace(b":", b": ", 1)
    ledger.git("rm", "--cached", "--quiet", sealed.path)
    (ledger.root / sealed.path).unlink()
    _forged(ledger, data)
    return ledger.root


@attack(GAMES, "refused", "bad-record")
def result_recorded_though_the_kernel_is_wrong(folder, _canary):
    """Record a time for a kernel whose result was not correct."""
    ledger = begin(folder)
    sealed = ledger.seal()
    record = measurement(sealed.forecast, seal=sealed.id)
    value = parse_json(encode(record), what="m")
    value["correctness"]["passed"] = False
    data = canonical(value)
    ledger.write(record_path("verifications", record_id(type(record), data)), data)
    ledger.commit()
    return ledger.root


# Sealed sources: what a kernel's manifest lists

SOURCES = "sealed sources"


def _with_sources(folder: Path, manifest: bytes, *files: bytes) -> Path:
    """Build a measured seal of a kernel with this manifest and these files."""
    ledger = begin(folder)
    for data in (manifest, *files):
        ledger.write(object_path("predictions", object_id(data)), data)
    ledger.measure(ledger.seal(forecast(kernel_sha256=object_id(manifest))))
    return ledger.root


def _helper(data: bytes) -> SourceFile:
    return SourceFile(path="kernels/helper.py", module="kernels.helper", sha256=object_id(data))


def imports_a_module(folder, _canary):
    """Build the twin: a kernel of two files, both there."""
    entry = KernelSource.model_validate_json(manifest_of()).files[0]
    manifest = manifest_of(files=(_helper(b"TILE = 64\n"), entry))
    return _with_sources(folder, manifest, KERNEL_SOURCE, b"TILE = 64\n")


def imports_what_it_lists(folder, _canary):
    """Build the twin: imports of a listed module, of the platform, of ledger and of a module that may be absent."""
    source = b"""from __future__ import annotations
import math
import triton
from ledger.kernel import Kernel
from . import helper
from .helper import TILE
try:
    import tilebox
except ImportError:
    tilebox = None
def launch():
    return cuda_source(__name__, "rows.cu")
"""
    entry = SourceFile(path="kernels/rmsnorm_matmul.py", module="kernels.rmsnorm_matmul", sha256=object_id(source))
    cuda = SourceFile(path="kernels/rows.cu", module=None, sha256=object_id(b"// rows\n"))
    manifest = manifest_of(files=(_helper(b"TILE = 64\n"), entry, cuda), absent=("tilebox",))
    return _with_sources(folder, manifest, source, b"TILE = 64\n", b"// rows\n")


@attack(SOURCES, "flagged", "source-unlisted", twin=imports_what_it_lists, formats=(2,))
def imported_module_not_listed(folder, _canary):
    """Seal a manifest without a module that the kernel imports, so that nobody sees the module's code."""
    source = b"from .helper import TILE\n"
    return _with_sources(folder, manifest_of(source), source)


@attack(SOURCES, "flagged", "source-unlisted", twin=imports_what_it_lists, formats=(2,))
def cuda_file_not_listed(folder, _canary):
    """Seal a manifest without a CUDA file that the kernel names."""
    source = b"CODE = 'rows.cu'\n"
    return _with_sources(folder, manifest_of(source), source)


@attack(SOURCES, "flagged", "source-unlisted", twin=imports_what_it_lists, formats=(2,))
def module_loaded_by_a_name_that_no_scan_sees(folder, _canary):
    """Seal a source that imports by a computed name, which sealing refuses."""
    source = b"import importlib\nHELPER = importlib.import_module('hel' + 'per')\n"
    return _with_sources(folder, manifest_of(source), source)


@attack(SOURCES, "refused", "object-missing", twin=imports_a_module, formats=(2,))
def imported_source_left_out(folder, _canary):
    """Seal a manifest that lists an imported module whose bytes are not in the ledger."""
    entry = KernelSource.model_validate_json(manifest_of()).files[0]
    return _with_sources(folder, manifest_of(files=(_helper(b"TILE = 64\n"), entry)), KERNEL_SOURCE)


@attack(SOURCES, "refused", "object-altered", twin=imports_a_module, formats=(2,))
def imported_source_altered(folder, _canary):
    """Put other bytes under the name of an imported module."""
    ledger = begin(folder)
    entry = KernelSource.model_validate_json(manifest_of()).files[0]
    manifest = manifest_of(files=(_helper(b"TILE = 64\n"), entry))
    for data in (manifest, KERNEL_SOURCE):
        ledger.write(object_path("predictions", object_id(data)), data)
    ledger.write(object_path("predictions", object_id(b"TILE = 64\n")), b"TILE = 32\n")
    ledger.measure(ledger.seal(forecast(kernel_sha256=object_id(manifest))))
    return ledger.root


@attack(SOURCES, "refused", "source-misnamed", twin=imports_a_module, formats=(2,))
def sources_of_another_kernel(folder, _canary):
    """Seal the sources of one kernel for a forecast of another."""
    manifest = manifest_of(kernel="softmax")
    return _with_sources(folder, manifest, KERNEL_SOURCE)


@attack(SOURCES, "refused", "bad-record", twin=imports_a_module, formats=(2,))
def sources_outside_the_repository(folder, _canary):
    """List a source by a path that climbs out of the repository."""
    manifest = manifest_of().replace(b"kernels/rmsnorm_matmul.py", b"../rmsnorm_matmul.py")
    return _with_sources(folder, manifest, KERNEL_SOURCE)


@attack(SOURCES, "refused", "bad-record", twin=imports_a_module, formats=(2,))
def kernel_source_without_a_manifest(folder, _canary):
    """Name the kernel file itself where a manifest belongs, as in version 1: its imports are not listed."""
    return _with_sources(folder, KERNEL_SOURCE)


def pinned(folder, _canary):
    """Build the twin: a seal that pins a version, measured with that version."""
    ledger = begin(folder)
    sealed = ledger.seal(forecast().model_copy(update={"pins": {"torch": "==2.11.*"}}))
    device = measurement(sealed.forecast, seal=sealed.id).device
    ledger.measure(sealed, device=device.model_copy(update={"software": {"torch": "2.11.0+cu130"}}))
    return ledger.root


@attack(SOURCES, "refused", "pin-changed", twin=pinned, formats=(2,))
def pinned_version_not_used(folder, _canary):
    """Measure with another version of torch than the seal pins."""
    ledger = begin(folder)
    sealed = ledger.seal(forecast().model_copy(update={"pins": {"torch": "==2.11.*"}}))
    device = measurement(sealed.forecast, seal=sealed.id).device
    ledger.measure(sealed, device=device.model_copy(update={"software": {"torch": "2.13.0"}}))
    return ledger.root


@attack(SOURCES, "refused", "version-changed", formats=(2,))
def measurement_of_the_old_format(folder, _canary):
    """Record a measurement of format 1, which says less, for a seal of format 2."""
    ledger = begin(folder)
    sealed = ledger.seal()
    fields = dict(measurement(sealed.forecast, seal=sealed.id))
    old = {name: fields[name] for name in Measurement.model_fields if name != "schema_"}
    parts = {"case": Case, "device": DeviceFacts, "timing": Timing}
    old |= {name: kind(**{key: getattr(old[name], key) for key in kind.model_fields}) for name, kind in parts.items()}
    data = encode(Measurement(schema="ledger/measurement/1", **old))
    ledger.write(record_path("verifications", record_id(Measurement, data)), data)
    ledger.commit()
    return ledger.root


@attack(SOURCES, "refused", "object-too-large", twin=imports_a_module, formats=(2,))
def source_of_many_megabytes(folder, _canary):
    """List a source that takes long to read; sealing would have refused it."""
    large = b"#" * 2_000_001
    entry = KernelSource.model_validate_json(manifest_of()).files[0]
    return _with_sources(folder, manifest_of(files=(_helper(large), entry)), KERNEL_SOURCE, large)


@attack(SOURCES, "refused", "pin-unreadable", formats=(2,))
def pin_that_is_none(folder, _canary):
    """Pin a package that is not of the platform, to a version that is none."""
    ledger = begin(folder)
    ledger.seal(forecast().model_copy(update={"pins": {"nonsense": "garbage"}}))
    return ledger.root


# Keys and timestamps: what the auditor trusts lies beside the folder, as roots.pem and allowed

KEYS = "keys and timestamps"


@cache
def authority(name: str) -> Authority:
    """Return a running time-stamping authority of that name; it ends with this process."""
    folder = tempfile.TemporaryDirectory(prefix="authority-")
    running = Authority(Path(folder.name) / "tsa", name).__enter__()
    running.kept = folder  # type: ignore[attr-defined]
    return running


def _stamp(ledger: Ledger, *paths: str, by: str = "The auditor's choice") -> list[str]:
    """Commit tokens over records as ledger does; the auditor trusts one authority alone."""
    for setting in (("user.name", "Ada"), ("user.email", "ada@example.org")):
        ledger.git("config", *setting)
    (ledger.root.parent / "roots.pem").write_bytes(authority("The auditor's choice").root.read_bytes())
    return add_tokens(Repository(ledger.root), list(paths), authority(by).url)


def _key(folder: Path, name: str) -> Path:
    path = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(path)], check=True)
    return path


def _allow(folder: Path, key: Path, options: str = "") -> None:
    (folder.parent / "allowed").write_text(f"ada@example.org {options} {Path(f'{key}.pub').read_text()}")


def started(seconds: float = 0.0) -> str:
    """Return the time in some seconds, as a measurement says that it began."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _sign_with(ledger: Ledger, key: Path, when: str | None = None, *, stamped: bool = False) -> Seal:
    """Seal and measure in commits that a key signs, each message naming its record; perhaps stamp each, in order."""
    for name, value in (("gpg.format", "ssh"), ("user.signingkey", f"{key}.pub"), ("commit.gpgsign", "true")):
        ledger.git("config", name, value)
    sealed = ledger.put_seal()
    ledger.commit(f"Seal\n\nSeal-Id: {sealed.id}", when)
    if stamped:
        _stamp(ledger, sealed.path)
        # Tokens tell whole seconds.
        next_second()
    path = ledger.put_measurement(sealed, started_at=started())
    ledger.commit(f"Measure\n\nRecord-Id: {Path(path).stem}", when)
    if stamped:
        next_second()
        _stamp(ledger, path)
    return sealed


def witnessed(folder, _canary):
    """Build a ledger whose seal and measurement are signed and stamped, each in its order."""
    ledger = begin(folder)
    key = _key(folder.parent / "keys", "mine")
    _allow(folder, key)
    _sign_with(ledger, key, stamped=True)
    return ledger.root


@attack(KEYS, "refused", "token-broken", twin=witnessed, keys=True)
def token_of_another_record(folder, _canary):
    """Lay the token of one seal beside another."""
    ledger = begin(folder)
    first, second = ledger.seal(forecast(B=1)), ledger.seal(forecast(B=2))
    (token,) = _stamp(ledger, first.path)
    ledger.write(f"{second.path.removesuffix('.json')}.other.tsr", (ledger.root / token).read_bytes())
    ledger.commit()
    return ledger.root


@attack(KEYS, "refused", "token-broken", twin=witnessed, keys=True)
def token_with_a_flipped_bit(folder, _canary):
    """Turn over a bit of a token's signature, from the first commit on."""
    ledger, sealed = honest(folder)
    (token,) = _stamp(ledger, sealed.path)
    data = bytearray((ledger.root / token).read_bytes())
    data[-1] ^= 1
    ledger.git("reset", "--quiet", "--hard", "HEAD~1")
    ledger.write(token, bytes(data))
    ledger.commit()
    return ledger.root


@attack(KEYS, "refused", "token-broken", twin=witnessed, keys=True)
def token_that_is_none(folder, _canary):
    """Lay a file beside a seal that only has a token's name."""
    ledger, sealed = honest(folder)
    _stamp(ledger, sealed.path)
    ledger.write(f"{sealed.path.removesuffix('.json')}.here.tsr", b"the year 2001")
    ledger.commit()
    return ledger.root


@attack(KEYS, "flagged", "token-untrusted", twin=witnessed, keys=True, levels=(0,))
def token_of_an_authority_of_the_authors(folder, _canary):
    """Stamp with an authority that the author runs, and lay its root into the repository."""
    ledger, sealed = honest(folder)
    _stamp(ledger, sealed.path, by="The author's own")
    ledger.write("roots.pem", authority("The author's own").root.read_bytes())
    ledger.commit()
    return ledger.root


@attack(KEYS, "flagged", "witness-late", twin=witnessed, keys=True, levels=(0,))
def seal_stamped_after_its_measurement(folder, _canary):
    """Stamp the measurement first and the seal later."""
    ledger, sealed = honest(folder)
    _stamp(ledger, ledger.book().records[0].path)
    next_second()
    _stamp(ledger, sealed.path)
    return ledger.root


@attack(KEYS, "refused", "signature-broken", twin=witnessed, keys=True)
def signature_moved_to_another_commit(folder, _canary):
    """Keep a commit's signature and change what it says."""
    ledger = begin(folder)
    key = _key(folder.parent / "keys", "mine")
    _allow(folder, key)
    _sign_with(ledger, key)
    forged = ledger.git("cat-file", "commit", "HEAD").replace("Measure\n", "Measure it\n") + "\n"
    sha = ledger.git("hash-object", "-t", "commit", "-w", "--stdin", data=forged.encode())
    ledger.git("update-ref", "HEAD", sha)
    return ledger.root


@attack(KEYS, "holds", twin=witnessed, keys=True, levels=(0,))
def key_that_the_repository_allows(folder, canary):
    """Sign with a key that the repository's own file and configuration allow, and the auditor does not."""
    ledger = begin(folder)
    mine = _key(folder.parent / "keys", "mine")
    _sign_with(ledger, mine)
    ledger.write("allowed", f"ada@example.org {Path(f'{mine}.pub').read_text()}".encode())
    ledger.commit()
    ledger.git("config", "gpg.ssh.allowedSignersFile", str(ledger.root / "allowed"))
    ledger.git("config", "gpg.ssh.program", str(script(folder, canary)))
    _allow(folder, _key(folder.parent / "keys", "another"))
    return ledger.root


@attack(KEYS, "holds", twin=witnessed, keys=True, levels=(0,))
def commit_backdated_into_a_keys_life(folder, _canary):
    """Sign with a key that has expired and claim a commit date from before: validity goes by trusted time."""
    ledger = begin(folder)
    key = _key(folder.parent / "keys", "mine")
    _allow(folder, key, 'valid-before="20110101"')
    _sign_with(ledger, key, when="2010-06-01T00:00:00+0000")
    return ledger.root


@attack(KEYS, "holds", twin=witnessed, keys=True, levels=(0,))
def signed_commit_that_names_no_record(folder, _canary):
    """Sign commits whose message says nothing of the record: the signature carries git's SHA-1 alone."""
    ledger = begin(folder)
    key = _key(folder.parent / "keys", "mine")
    _allow(folder, key)
    for name, value in (("gpg.format", "ssh"), ("user.signingkey", f"{key}.pub"), ("commit.gpgsign", "true")):
        ledger.git("config", name, value)
    ledger.measure(ledger.seal())
    return ledger.root


# The cases of trust levels enter themselves into the corpus; they are built with what stands above.
import draw_attacks  # noqa: E402, F401
import hidden_attacks  # noqa: E402, F401
import level_attacks  # noqa: E402, F401
