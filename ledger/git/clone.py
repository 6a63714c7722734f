"""Copies a stranger's repository into a bare clone of our own, with none of its configuration and nothing of it run.

The clone goes through git's own transport, which checks every object on the way in; what the source's configuration,
grafts, replace refs, alternates or commit graph say is not copied.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import NamedTuple, NoReturn
from urllib.parse import unquote, urlsplit

from ledger.budgets import (
    CLONE_CPU_S,
    CLONE_TIMEOUT_S,
    MAX_GIT_MEMORY_BYTES,
    MAX_REPOSITORY_BYTES,
    OTHER_REFS_TIMEOUT_S,
)
from ledger.errors import EvidenceRefused, InputError, StateError
from ledger.git.limits import bounding, end_group
from ledger.git.reader import quiet_environment, read_message
from ledger.git.special_files import check_regular, repository_around
from ledger.git.version import check_git

SCHEMES = ("https://", "http://", "ssh://", "git://", "file://")
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.-]*::")
_UNSOUND = re.compile(r"(?:error|fatal): (?:object )?[0-9a-f]{40,64}: (\w+: .*)|fatal: (fsck error .*)")
_WARNED = re.compile(r"^warning: (?:object )?([0-9a-f]{40,64}): (\w+: .*)$", re.MULTILINE)
# What programs of earlier days wrote into commits, tags and modes. It changes neither the graph nor the bytes of a
# file, so it is named and the rest is judged; what only a forger writes is still refused.
_OLD_CUSTOMS = (
    *("badEmail", "badName", "badTimezone", "missingEmail", "missingNameBeforeEmail", "missingSpaceBeforeDate"),
    *("missingSpaceBeforeEmail", "missingTaggerEntry", "zeroPaddedDate", "zeroPaddedFilemode"),
)
_SETTINGS = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.commitGraph=false", "core.symlinks=false"),
    *("transfer.fsckObjects=true", "fetch.fsckObjects=true", "protocol.ext.allow=never", "gc.auto=0"),
    *("core.packedGitLimit=512m", "pack.windowMemory=128m", "core.bigFileThreshold=64m", "submodule.recurse=false"),
    *("pack.threads=2", "core.deltaBaseCacheLimit=64m"),
    *("transfer.bundleURI=false", "fetch.recurseSubmodules=false", "http.followRedirects=initial"),
    *(f"fetch.fsck.{custom}=warn" for custom in _OLD_CUSTOMS),
)
# The sending process of a local repository does not inherit our environment and settings, so they are repeated.
_SENDER = (
    "env GIT_GRAFT_FILE=/dev/null GIT_NO_REPLACE_OBJECTS=1 GIT_NO_LAZY_FETCH=1 git -c core.commitGraph=false"
    " -c core.multiPackIndex=false -c pack.useBitmaps=false -c core.fsmonitor=false -c pack.threads=2"
    # No reference is hidden, whatever the repository's own configuration says.
    " -c transfer.hideRefs='!refs' -c uploadpack.hideRefs='!refs' upload-pack"
)


class Clone(NamedTuple):
    """Hold a sanitised clone: its git folder, the environment to read it in, and where it came from.

    warnings: object and message of what git's own rules forbid and old programs wrote.
    """

    git_dir: FilePath
    environment: Mapping[str, str]
    origin: str
    local: bool
    warnings: tuple[tuple[str, str], ...]


@contextlib.contextmanager
def sanitised_clone(source: str) -> Iterator[Clone]:
    """Clone a repository for the length of a `with` block.

    Raises: InputError for a source that is no repository, StateError when it cannot be cloned, EvidenceRefused when
    its objects break git's own rules (a duplicate name in a tree, a name such as `..`).
    """
    origin, local = find_origin(source)
    check_git()
    if local:
        check_regular(FilePath(origin))
    with tempfile.TemporaryDirectory(prefix="ledger-audit-") as name:
        folder = FilePath(name)
        config = folder / "gitconfig"
        config.write_bytes(os.fsencode(_trust(origin)) if local else b"")
        environment = {**quiet_environment(config), "GIT_ALLOW_PROTOCOL": "file" if local else "https:http:ssh:git"}
        # Each arena of memory counts as address space, which is bounded.
        environment["MALLOC_ARENA_MAX"] = "2"
        command = [*_git(), "clone", "--quiet", "--bare", "--no-local", "--reject-shallow", "--template="]
        command += [*_upload_pack(local), "--", origin, str(folder / "clone.git")]
        said = _run(command, environment, CLONE_TIMEOUT_S)
        yield Clone(folder / "clone.git", environment, origin, local, tuple(_WARNED.findall(said)))


def fetch_other_refs(clone: Clone) -> None:
    """Fetch what only references outside of branches and tags hold: a stash, notes, pull requests.

    Raises: StateError, EvidenceRefused when that cannot be had within its bounds; the clone can be read as before.
    """
    command = [*_git(), f"--git-dir={clone.git_dir}", "fetch", "--quiet", "--no-tags", "--no-write-fetch-head"]
    command += [*_upload_pack(clone.local), "--", clone.origin, "+refs/*:refs/*", "^refs/heads/*", "^refs/tags/*"]
    _run(command, clone.environment, OTHER_REFS_TIMEOUT_S)


def _git() -> list[str]:
    return ["git", "--no-replace-objects", *(option for setting in _SETTINGS for option in ("-c", setting))]


def _upload_pack(local: bool) -> list[str]:
    return ["--upload-pack", _SENDER] if local else []


def _trust(origin: str) -> str:
    """Return a configuration in which a repository owned by another user may be read."""
    quoted = origin.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'[safe]\n\tdirectory = "{quoted}"\n\tdirectory = "{quoted}/.git"\n'


def _run(command: list[str], environment: Mapping[str, str], timeout_s: float) -> str:
    """Run git to its end and return what it said. Raises: StateError, EvidenceRefused."""
    said: list[bytes] = []
    limits = {"RLIMIT_FSIZE": MAX_REPOSITORY_BYTES, "RLIMIT_AS": MAX_GIT_MEMORY_BYTES, "RLIMIT_CPU": CLONE_CPU_S}
    with subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=bounding(limits),
    ) as process:
        assert process.stderr is not None
        pipe = process.stderr
        listener = threading.Thread(target=lambda: said.append(read_message(pipe)), daemon=True)
        listener.start()
        try:
            process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise StateError(f"cloning took more than {timeout_s:g} s; expected a smaller repository") from error
        finally:
            end_group(process.pid)
            listener.join(timeout=5)
    message = b"".join(said).decode("utf-8", "replace").strip()
    if process.returncode != 0:
        _explain(message, process.returncode)
    return message


def _explain(message: str, code: int) -> NoReturn:
    """Raise what a failure of git means: EvidenceRefused for an unsound object, else StateError."""
    unsound = _UNSOUND.search(message)
    if unsound is not None:
        raise EvidenceRefused(f"an object breaks git's own rules ({unsound.group(1) or unsound.group(2)})")
    reason = message.splitlines()[-1] if message else f"git exit {code}"
    if "shallow" in message:
        reason = "it is a shallow repository; expected the whole history: git fetch --unshallow"
    elif "No space left" in message:
        raise StateError(f"{tempfile.gettempdir()}: full; expected room for a copy of the repository: set TMPDIR")
    elif "out of memory" in message.lower() or "signal" in message or code < 0:
        reason = f"it needs more than {CLONE_CPU_S} s, or {MAX_GIT_MEMORY_BYTES} bytes of memory: {reason}"
    raise StateError(f"cannot be cloned ({reason}); expected a sound, complete git repository")


def find_origin(source: str) -> tuple[str, bool]:
    """Return what to clone, and whether it is on this machine; a folder inside a repository stands for the whole.

    Raises: InputError for what is no folder of a repository and no address.
    """
    if not source.strip():
        raise InputError(f"{source!r}: empty; expected a folder (. for this one) or an https:// address")
    if source.startswith("-") or _HELPER.match(source):
        raise InputError(f"{source!r}: not a path or URL of a repository; expected a folder or an https:// address")
    if source.startswith(SCHEMES) and not source.startswith("file://"):
        return _check_address(source), False
    path = _file_path(source) if source.startswith("file://") else source
    try:
        start = FilePath(path)
        if not start.is_dir():
            raise InputError(f"{source}: no folder; expected one, or an https:// address")
        start = start.resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"{source!r}: no path ({error}); expected a folder or an https:// address") from error
    if (folder := repository_around(start)) is not None:
        return str(folder), True
    raise InputError(f"{source}: not in a git repository; expected one that holds a ledger")


def _check_address(source: str) -> str:
    """Return an address that names a host and a path on it. Raises: InputError."""
    try:
        parts = urlsplit(source)
        named = parts.hostname and not parts.hostname.startswith("-") and parts.path.strip("/")
        # Asked for, because only then is it read.
        _ = parts.port
    except ValueError as error:
        raise InputError(f"{source!r}: not a URL ({error}); expected https://HOST/PATH") from error
    if not named or any(ord(character) <= 32 or ord(character) == 127 for character in source):
        raise InputError(f"{source!r}: names no host or no repository on it; expected https://HOST/PATH")
    return source


def _file_path(source: str) -> str:
    """Return the path of a file:// URL as git reads it: no query, no fragment. Raises: InputError."""
    host, slash, path = source.removeprefix("file://").partition("/")
    if host not in ("", "localhost") or not slash:
        raise InputError(f"{source!r}: not a path on this machine; expected file:///PATH")
    return unquote(f"/{path}")
