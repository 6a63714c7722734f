"""Defines the command line: one short function a command (load, call, render). Only this package knows exit codes.

0 done; 1 a threshold that the user set was missed; 2 bad input, or this machine cannot do it; 3 the evidence is
refused. Progress and messages go to stderr; with --json, stdout holds one JSON document and nothing else.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from typing import NoReturn

from ledger.errors import EvidenceRefused, Interrupted, LedgerError, ThresholdMissed

_INTERRUPTED = 130
_READER_LEFT = 141
_INTERRUPTION = "interrupted; what was finished is kept: run the same command again to go on"


def exit_code(error: LedgerError) -> int:
    """Return the exit code of a failure."""
    if isinstance(error, ThresholdMissed):
        return 1
    if isinstance(error, Interrupted):
        return _INTERRUPTED
    return 3 if isinstance(error, EvidenceRefused) else 2


def main() -> None:
    """Run the command line; no traceback reaches a user unless LEDGER_DEBUG is set."""
    atexit.register(_discard_exit_messages)
    # What ends with the process need not be looked at once more.
    atexit.register(gc.freeze)
    _open_standard_streams()
    _print_anywhere()
    try:
        from ledger.cli.app import run

        run(sys.argv[1] if len(sys.argv) > 1 else None)
    except LedgerError as error:
        _fail(str(error), exit_code(error), error)
    except SystemExit as ended:
        # Typer turns an interruption into this exit code, without a word.
        if ended.code == _INTERRUPTED:
            _fail(_INTERRUPTION, _INTERRUPTED, None)
        # Typer and rich end with 1 where the reader of a pipe went away.
        if isinstance(ended.__context__, BrokenPipeError):
            _leave_pipe()
        raise
    except KeyboardInterrupt:
        # Before Typer has begun.
        _fail(_INTERRUPTION, _INTERRUPTED, None)
    except BrokenPipeError:
        _leave_pipe()
    except OSError as error:
        _fail(f"{error.filename or 'system'}: {error.strerror or error}", 2, error)
    except Exception as error:  # noqa: BLE001 - a user gets a message, never a traceback
        _fail(f"internal error: {type(error).__name__}: {error}; set LEDGER_DEBUG=1 for the traceback", 2, error)


def _open_standard_streams() -> None:
    """Open what a parent closed, as after >&-, so that no file or pipe of git takes its number."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _leave_pipe() -> NoReturn:
    """End where nobody reads stdout any more, as a program does that SIGPIPE ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(_READER_LEFT)


def _print_anywhere() -> None:
    """Let a terminal or a pipe that knows fewer characters show a question mark instead of stopping the command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _discard_exit_messages() -> None:
    """Discard what triton's library writes to stderr while the process ends, after Python's own exit.

    Triton 3.9 lists objects that its binding leaked, and has no switch for it (nanobind's set_leak_warnings is not
    exported). Registered first, this runs last. With LEDGER_DEBUG=1 stderr stays open.
    """
    if "triton" in sys.modules and not os.environ.get("LEDGER_DEBUG"):
        sys.stderr.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _fail(message: str, code: int, error: BaseException | None) -> NoReturn:
    if error is not None and os.environ.get("LEDGER_DEBUG"):
        raise error
    from ledger.analysis.formatting import harmless

    details = error.details if isinstance(error, EvidenceRefused) else ()
    text = "\n  ".join([f"ledger: {harmless(message)}", *map(harmless, details)])
    # Nobody may read it, or the disk be full: the code is what is left to say.
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        # Python would try once more when it ends, and end with another code.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.exit(code)
