"""Gathers the names of this machine that evidence should not hold: folders, users, hosts, network addresses."""

from __future__ import annotations

import getpass
import ipaddress
import os
import re
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ledger.analysis.revealing import MachineNames

_COMMON = {"root", "user", "users", "admin", "ubuntu", "runner", "host", "localhost", "localdomain", "home", "work"}
"""Names that name nobody, and that stand in any text."""


def machine_names(*folders: str) -> MachineNames:
    """Return the names of this machine; `folders` are private ones besides."""
    private = {path for folder in (*folders, *_folders()) for path in (folder, os.path.realpath(folder))}
    kept = {path.rstrip("/") for path in private if path.startswith("/") and len(path.rstrip("/")) >= 4}
    words = {word for word in _words() if len(word) >= 2 and word.lower() not in _COMMON}
    return MachineNames(tuple(sorted(kept, key=len, reverse=True)), tuple(sorted(words, key=len, reverse=True)))


def _folders() -> Iterator[str]:
    yield from (sys.executable, sys.prefix, sys.base_prefix, tempfile.gettempdir(), str(Path(__file__).parents[2]))
    yield from (path for path in sys.path if path)
    yield os.environ.get("HOME", "")
    with suppress(OSError, RuntimeError):
        yield str(Path.home())
    with suppress(OSError):
        yield str(Path.cwd())


def _words() -> Iterator[str]:
    with suppress(OSError, KeyError, ImportError):
        yield getpass.getuser()
    yield from (os.environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER"))
    with suppress(OSError, RuntimeError):
        yield Path.home().name
    name = socket.gethostname()
    yield from (name, name.partition(".")[0])
    yield from _addresses()


def _addresses() -> Iterator[str]:
    """Yield the network addresses that Linux lists; none elsewhere."""
    with suppress(OSError):
        for text in set(re.findall(r"\d+\.\d+\.\d+\.\d+", Path("/proc/net/fib_trie").read_text())):
            address = ipaddress.ip_address(text)
            if not address.is_loopback and not address.is_unspecified:
                yield text
    with suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            address = ipaddress.ip_address(bytes.fromhex(line.split()[0]))
            if not address.is_loopback:
                yield str(address)
