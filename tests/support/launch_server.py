"""Imports the package, then forks a process for each command that is asked for. A script: SOCKET [torch].

It ends when its standard input does.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import io
import json
import os
import pkgutil
import select
import socket
import struct
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve()
_OPTIONAL = ("ledger.shipped",)


def write_message(connection: socket.socket, value: object) -> None:
    """Send a JSON value with its length ahead."""
    text = json.dumps(value).encode()
    connection.sendall(struct.pack("<I", len(text)) + text)


def read_message(connection: socket.socket) -> Any:
    """Receive a JSON value. Raises: EOFError."""
    (size,) = struct.unpack("<I", _read(connection, 4))
    return json.loads(_read(connection, size))


def _read(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = connection.recv(size - len(found))
        if not part:
            raise EOFError("connection closed")
        found += part
    return found


def _load(*, with_torch: bool) -> None:
    """Import what commands import; what an extra lacks stays for the command to name."""
    if with_torch:
        with contextlib.suppress(ImportError):
            import_module("torch")
    import ledger

    for found in pkgutil.walk_packages(ledger.__path__, "ledger."):
        if found.name != "ledger.__main__" and not found.name.startswith(_OPTIONAL):
            with contextlib.suppress(ImportError):
                import_module(found.name)
    _read_shipped()
    assert with_torch or "torch" not in sys.modules
    assert threading.active_count() == 1, "a process with threads must not be forked"


def _read_shipped() -> None:
    """Fill the caches, by content, of the profiles and sources that come with the package."""
    from ledger.kernel_files import kernel_closure, kernel_names
    from ledger.record_files import hardware_names, load_hardware

    for name in hardware_names():
        load_hardware(name)
    for name in kernel_names():
        kernel_closure(name)


def _serve(address: str) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen(64)
        gc.collect()
        gc.freeze()
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([listening, sys.stdin], [], [])
            if sys.stdin in ready:
                return
            connection, _ = listening.accept()
            _reap()
            if os.fork() == 0:
                listening.close()
                _supervise(connection)
            connection.close()


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _supervise(connection: socket.socket) -> None:
    """Fork the command, tell its process id, then its exit code; never returns."""
    _, ancillary, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(2 * array.array("i").itemsize))
    descriptors = array.array("i")
    descriptors.frombytes(ancillary[0][2])
    request = read_message(connection)
    child = os.fork()
    if child == 0:
        connection.close()
        _command(request, *descriptors)
    write_message(connection, child)
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(OSError):
        write_message(connection, os.waitstatus_to_exitcode(status))
    os._exit(0)


def _command(request: dict[str, Any], out: int, err: int) -> None:
    """Be the command: as the interpreter starts, runs and ends it; never returns."""
    null = os.open(os.devnull, os.O_RDONLY)
    for given, own in ((null, 0), (out, 1), (err, 2)):
        os.dup2(given, own)
    os.closerange(3, 256)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False), encoding=encoding)
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), encoding=encoding)
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(2, "w", closefd=False)),
        encoding=encoding, errors="backslashreplace", line_buffering=True,
    )  # fmt: skip
    import ledger.__main__ as main_module

    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    own_paths = 1  # PYTHONPATH of this server
    sys.path[:] = [*([] if request["safe_path"] else [str(Path.cwd())]), *given, *sys.path[own_paths:]]
    sys.argv = [str(main_module.__file__), *request["arguments"]]
    sys.modules["__main__"] = main_module
    os._exit(_ended())


def _ended() -> int:
    """Run the command and what it registered for its end; return its exit code."""
    code = 0
    try:
        from ledger.cli import main

        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - as the interpreter: a traceback and exit code 1
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return code & 0xFF


if __name__ == "__main__":
    _load(with_torch="torch" in sys.argv[2:])
    _serve(sys.argv[1])
