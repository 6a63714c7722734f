"""Copies a stranger's repository into a bare clone of our own, with none of its configuration and nothing of it run.

The clone goes through git's own transport, which checks every object on the way in; what the source's configuration,
grafts, replace refs, alternates or commit graph say is not copied.
"""

from __future__ import annotations

import contextlib
import re
import resource
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from urllib.parse import unquote, urlsplit

from ledger.errors import EvidenceRefused, InputError, StateError
from ledger.git.reader import quiet_environment

MAX_REPOSITORY_BYTES = 8 * 1024**3
CLONE_TIMEOUT_S = 600
SCHEMES = ("https://", "http://", "ssh://", "git://", "file://")
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.-]*::")
_UNSOUND = re.compile(r"(?:error|fatal): (?:object )?[0-9a-f]{40,64}: (\w+: .*)|fatal: (fsck error .*)")
_SETTINGS = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.commitGraph=false", "core.symlinks=false"),
    *("transfer.fsckObjects=true", "fetch.fsckObjects=true", "protocol.ext.allow=never", "gc.auto=0"),
    *("core.packedGitLimit=1g", "pack.windowMemory=256m", "core.bigFileThreshold=64m", "submodule.recurse=false"),
    *("transfer.bundleURI=false", "fetch.recurseSubmodules=false", "http.followRedirects=initial"),
)
# The sending process of a local repository does not inherit our environment and settings, so they are repeated.
_SENDER = (
    "env GIT_GRAFT_FILE=/dev/null GIT_NO_REPLACE_OBJECTS=1 GIT_NO_LAZY_FETCH=1 git -c core.commitGraph=false"
    " -c core.multiPackIndex=false -c pack.useBitmaps=false -c core.fsmonitor=false upload-pack"
)


@contextlib.contextmanager
def sanitised_clone(source: str) -> Iterator[tuple[FilePath, Mapping[str, str]]]:
    """Clone a repository for the length of a `with` block; yield its git folder and the environment to read it in.

    Raises: InputError for a source that is no repository, StateError when it cannot be cloned, EvidenceRefused when
    its objects break git's own rules (a duplicate name in a tree, a name such as `..`).
    """
    origin, local = find_origin(source)
    with tempfile.TemporaryDirectory(prefix="ledger-audit-") as name:
        folder = FilePath(name)
        config = folder / "gitconfig"
        config.write_text(_trust(origin) if local else "", encoding="utf-8")
        environment = {**quiet_environment(config), "GIT_ALLOW_PROTOCOL": "file" if local else "https:http:ssh:git"}
        settings = [option for setting in _SETTINGS for option in ("-c", setting)]
        command = ["git", "--no-replace-objects", *settings, "clone", "--quiet", "--bare", "--no-local"]
        command += ["--reject-shallow", "--template=", *(["--upload-pack", _SENDER] if local else [])]
        command += ["--", origin, str(folder / "clone.git")]
        _run(command, environment)
        yield folder / "clone.git", environment


def _trust(origin: str) -> str:
    """Return a configuration in which a repository owned by another user may be read."""
    quoted = origin.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'[safe]\n\tdirectory = "{quoted}"\n\tdirectory = "{quoted}/.git"\n'


def _run(command: list[str], environment: Mapping[str, str]) -> None:
    with subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=_limit,
    ) as process:
        try:
            _, stderr = process.communicate(timeout=CLONE_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            process.kill()
            raise StateError(f"cloning took more than {CLONE_TIMEOUT_S} s; expected a smaller repository") from error
    if process.returncode == 0:
        return
    message = stderr.decode("utf-8", "replace").strip()
    unsound = _UNSOUND.search(message)
    if unsound is not None:
        raise EvidenceRefused(f"an object breaks git's own rules ({unsound.group(1) or unsound.group(2)})")
    reason = message.splitlines()[-1] if message else f"git exit {process.returncode}"
    if "shallow" in message:
        reason = "it is a shallow repository; expected the whole history: git fetch --unshallow"
    raise StateError(f"cannot be cloned ({reason}); expected a sound, complete git repository")


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_REPOSITORY_BYTES, MAX_REPOSITORY_BYTES))


def find_origin(source: str) -> tuple[str, bool]:
    """Return what to clone, and whether it is on this machine; a folder inside a repository stands for the whole.

    Raises: InputError for what is no folder of a repository and no address.
    """
    if source.startswith("-") or _HELPER.match(source):
        raise InputError(f"{source!r}: not a path or URL of a repository; expected a folder or an https:// address")
    if source.startswith(SCHEMES) and not source.startswith("file://"):
        return source, False
    start = FilePath(unquote(urlsplit(source).path) if source.startswith("file://") else source)
    try:
        if not start.exists():
            raise InputError(f"{source}: not there; expected a folder or an https:// address")
        start = start.resolve()
    except (OSError, ValueError) as error:
        raise InputError(f"{source!r}: no path ({error}); expected a folder or an https:// address") from error
    for folder in (start, *start.parents):
        if (folder / ".git").exists() or ((folder / "HEAD").is_file() and (folder / "objects").is_dir()):
            return str(folder), True
    raise InputError(f"{source}: not in a git repository; expected one that holds a ledger")
