"""Asks git for objects and history, and for nothing else. Read-only; bounded in time, memory and size.

Replace refs, grafts, the commit graph, lazy fetching, hooks, filters and all configuration that could run a program
are switched off; nothing is checked out.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path as FilePath
from typing import IO

from ledger.budgets import MAX_ANSWER_BYTES as _MAX_ANSWER_BYTES
from ledger.budgets import MAX_ANSWER_CPU_S, MAX_GIT_MEMORY_BYTES, MAX_MESSAGE_BYTES, MAX_READ_BYTES
from ledger.budgets import MAX_ANSWER_S as _MAX_ANSWER_S
from ledger.errors import BudgetExceeded, InputError, StateError
from ledger.git.limits import KILLED, bound

FOLDERS = ("predictions", "verifications")
"""The folders of a ledger."""
# Against trees and deltas that unfold without end.
_BOUNDS = {"RLIMIT_AS": MAX_GIT_MEMORY_BYTES, "RLIMIT_CPU": MAX_ANSWER_CPU_S}
_QUIET = (
    "--no-replace-objects",
    "--literal-pathspecs",
    "-c",
    "core.commitGraph=false",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.quotePath=false",
    "-c",
    "log.showSignature=false",
    "-c",
    "log.showRoot=true",
    "-c",
    "log.mailmap=false",
    "-c",
    "diff.ignoreSubmodules=none",
    "-c",
    "advice.graftFileDeprecated=false",
    "-c",
    "i18n.logOutputEncoding=UTF-8",
    "-c",
    "core.pager=cat",
)
_KEPT = (
    *("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "no_proxy", "NO_PROXY"),
)
_ASKED_AHEAD = 256


def quiet_environment(config: FilePath | None = None) -> dict[str, str]:
    """Return an environment in which git reads no configuration but the repository's own and `config`."""
    keep = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {
        **keep,
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": str(config) if config else os.devnull,
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_GRAFT_FILE": os.devnull,
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_ALLOW_PROTOCOL": "",
        "GIT_PAGER": "cat",
    }


class Reader:
    """Read objects of one repository through a single long-lived `git cat-file`."""

    def __init__(self, git_dir: FilePath, environment: Mapping[str, str]) -> None:
        """Remember the repository; no process is started yet."""
        self._git_dir = git_dir
        self._environment = dict(environment)

    def run(self, *arguments: str, given: bytes = b"") -> bytes:
        """Return what a read-only git command prints when it is given some bytes, within bounds of time and size.

        Raises: StateError with git's own message, or when a bound is broken.
        """
        with (
            _held(given) as stdin,
            subprocess.Popen(
                self._command(*arguments),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
            ) as process,
        ):
            bound(process.pid, **_BOUNDS)
            alarm = threading.Timer(_MAX_ANSWER_S, process.kill)
            alarm.start()
            try:
                answer, stderr = _drain(process)
            finally:
                alarm.cancel()
        if len(answer) == _MAX_ANSWER_BYTES:
            raise StateError(f"git {arguments[0]}: more than {_MAX_ANSWER_BYTES} bytes; expected a smaller repository")
        if process.returncode in KILLED:
            raise StateError(f"git {arguments[0]}: took too long; expected a smaller repository")
        if process.returncode != 0:
            message = stderr.decode("utf-8", "replace").strip() or f"exit {process.returncode}"
            raise StateError(f"git {arguments[0]}: {message}")
        return answer

    def begin(self, *arguments: str, given: bytes = b"") -> Callable[[], bytes]:
        """Start a read-only git command; what is returned waits for its answer, and fails as `run` does."""
        background = ThreadPoolExecutor(max_workers=1)
        answer = background.submit(self.run, *arguments, given=given)
        background.shutdown(wait=False)
        return answer.result

    @contextmanager
    def blobs(self) -> Iterator[Blobs]:
        """Open a reader of blobs for the length of a `with` block."""
        blobs = Blobs(self._command("cat-file", "--batch"), self._environment)
        try:
            yield blobs
        finally:
            blobs.close()

    def _command(self, *arguments: str) -> list[str]:
        return ["git", *_QUIET, f"--git-dir={self._git_dir}", *arguments]


@contextmanager
def _held(data: bytes) -> Iterator[IO[bytes]]:
    """Open a file that holds some bytes and has no name."""
    with tempfile.TemporaryFile() as stream:
        stream.write(data)
        stream.seek(0)
        yield stream


def read_message(pipe: IO[bytes]) -> bytes:
    """Return the beginning of what a process says on its standard error, and read the rest away."""
    kept = pipe.read(MAX_MESSAGE_BYTES)
    while pipe.read(1 << 16):
        pass
    return kept


def _drain(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Return a process's output and its stderr, killing it when the output has no end."""
    assert process.stdout is not None and process.stderr is not None
    errors: list[bytes] = []
    listener = threading.Thread(
        target=lambda pipe: errors.append(read_message(pipe)), args=(process.stderr,), daemon=True
    )
    listener.start()
    # Piece by piece: a read of so many bytes takes their memory before the first one comes.
    kept = BytesIO()
    while part := process.stdout.read(min(1 << 16, _MAX_ANSWER_BYTES - kept.tell())):
        kept.write(part)
    answer = kept.getvalue()
    if len(answer) == _MAX_ANSWER_BYTES:
        process.kill()
    process.wait()
    listener.join()
    return answer, b"".join(errors)


class Blobs:
    """Answer for the bytes of blobs, by git's name of them, through a `git cat-file --batch`."""

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        """Remember the command; the process starts with the first question."""
        self._command = command
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._planned: deque[str] = deque()
        self._asked: deque[str] = deque()
        self._aside: Blobs | None = None
        self._unpacked = 0

    def plan(self, blobs: Iterable[str]) -> None:
        """Announce which blobs will be read next, in order: they are asked for ahead, which saves the waiting."""
        self._planned.extend(blobs)

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        self._planned.extendleft(reversed(self._asked))
        self._asked.clear()
        if process is not None:
            process.kill()
            process.communicate()
        if self._aside is not None:
            self._aside.close()

    def read(self, blob: str, limit: int) -> bytes | None:
        """Return a blob's bytes, or None when it is larger than `limit` bytes.

        Raises: InputError when it is missing; BudgetExceeded when all that was asked for is too much.
        """
        queue = self._asked or self._planned
        if queue and queue[0] != blob:
            # Not the next in order: another process answers, so that this one keeps its order.
            self._aside = self._aside or Blobs(self._command, self._environment)
            data = self._aside.read(blob, limit)
            self._aside._unpacked, unpacked = 0, self._aside._unpacked
            self._spend(unpacked)
            return data
        if not queue:
            self._planned.append(blob)
        try:
            return self._next(limit)
        except (OSError, ValueError) as error:
            self.close()
            raise InputError(f"object {blob[:12]}: git stopped answering; expected a sound object store") from error

    def _next(self, limit: int) -> bytes | None:
        request, answer = self._pipes()
        if len(self._asked) <= _ASKED_AHEAD // 2:
            more = [self._planned.popleft() for _ in range(min(len(self._planned), _ASKED_AHEAD - len(self._asked)))]
            self._asked.extend(more)
            request.write("".join(f"{name}\n" for name in more).encode())
            request.flush()
        header = answer.readline().split()
        blob = self._asked.popleft()
        if len(header) != 3 or header[1] != b"blob":
            self.close()
            raise InputError(f"object {blob[:12]}: missing or not a blob; expected it in the repository")
        size = int(header[2])
        # Git has unpacked it already, however large it is.
        self._spend(size)
        if size > limit:
            # A new process costs less than reading past what may be gigabytes.
            self.close()
            return None
        data = answer.read(size)
        if len(data) != size or answer.read(1) != b"\n":
            self.close()
            raise InputError(f"object {blob[:12]}: damaged; expected {size} bytes")
        return data

    def _spend(self, size: int) -> None:
        self._unpacked += size
        if self._unpacked > MAX_READ_BYTES:
            self.close()
            raise BudgetExceeded(f"records and objects unpack to more than {MAX_READ_BYTES} bytes; expected less")

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self._environment,
                bufsize=1 << 16,
            )
            bound(self._process.pid, **_BOUNDS)
        assert self._process.stdin is not None and self._process.stdout is not None
        return self._process.stdin, self._process.stdout
