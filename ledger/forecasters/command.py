"""Asks any program for a forecast: a question as JSON on its stdin, an answer as JSON on its stdout.

The program runs as the user, with the user's rights and environment: the limits of time and output keep a mistake
short, they are no security boundary. What was asked and what it printed on stdout is the transcript, which is sealed.

Question: schema ledger/question/1, with case, work, roof, hardware (the whole profile), regimes (those that may be
named) and time_limit_s. Answer: regime and percent (above 0, at most 100), and where it likes low and high,
probabilities, why, and terms ({name, value, unit}).
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import IO, Annotated, Any

from pydantic import Field

from ledger.canonical import canonical, parse_json, validate
from ledger.errors import InputError, LedgerError, shortened
from ledger.forecasters.answer import Answer, NoAnswer, Question, Term
from ledger.forecasters.registry import FORECASTERS, Participating
from ledger.records import REGIMES, Line, Record, Regime
from ledger.roofline import time_lower_bound_s
from ledger.sources.closure import MAX_SOURCE_BYTES, normalised

VERSION = "1"
"""The version of the protocol; that of the program is its digest."""
TIME_LIMIT_S = 120.0
MAX_OUTPUT_BYTES = 1 << 20
_NAME = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"


class ToldTerm(Record):
    """Hold one number that explains an answer, and its unit."""

    name: Line
    value: Annotated[float, Field(ge=-1e24, le=1e24, allow_inf_nan=False)]
    unit: Line


class Told(Record):
    """Hold what a program answers. Units: percent of the roof; probabilities from 0 to 1, which sum to 1."""

    regime: Regime
    percent: Annotated[float, Field(ge=0.001, le=100, allow_inf_nan=False)]
    low: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = None
    high: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = None
    probabilities: dict[Regime, Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]] | None = None
    terms: Annotated[tuple[ToldTerm, ...], Field(max_length=200)] = ()
    why: Annotated[str, Field(max_length=4000)] = ""


@dataclass(frozen=True)
class Program:
    """Hold a program that takes part. words: its command line."""

    name: str
    words: tuple[str, ...]
    time_limit_s: float = TIME_LIMIT_S

    def forecast(self, question: Question) -> Answer | NoAnswer:
        """Run the program once and return its answer, or why there is none."""
        asked = question_document(question, self.time_limit_s)
        try:
            printed = run(self.words, json.dumps(asked).encode(), self.time_limit_s)
            told = validate(Told, parse_json(printed, what="its answer"), what="its answer")
            _check(told)
        except LedgerError as error:
            return NoAnswer(self.name, VERSION, shortened(str(error), 300))
        transcript = canonical(
            {"schema": "ledger/transcript/1", "asked": asked, "printed": printed.decode("utf-8", "replace")}
        )
        return Answer(
            forecaster=self.name,
            version=VERSION,
            regime=told.regime,
            percent=told.percent,
            time_s=100 * time_lower_bound_s(question.work, question.roof) / told.percent,
            terms=tuple(Term(term.name, term.value, term.unit) for term in told.terms),
            assumes=(told.why,) if told.why else (),
            probabilities=told.probabilities,
            low=told.low,
            high=told.high,
            transcript=transcript,
        )

    def sources(self) -> dict[str, bytes]:
        """Return the files that the command line names, by their names there: what the seal calls its code."""
        found = {}
        for word in self.words:
            path = FilePath(word)
            if path.is_file() and path.stat().st_size <= MAX_SOURCE_BYTES:
                found[_public(word)] = normalised(path.read_bytes())
        return found


def participant(text: str, time_limit_s: float = TIME_LIMIT_S) -> Participating:
    """Return the program of a text NAME=COMMAND as it takes part. Raises: InputError."""
    name, found, command = text.partition("=")
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise InputError(f"--program: {command[:80]!r} is no command line ({error}); expected NAME=COMMAND") from error
    if not found or not words or not 1 <= len(name) <= 64 or set(name) - set(_NAME):
        raise InputError(f"--program: got {text[:80]!r}; expected NAME=COMMAND, as in gpt='python ask.py'")
    if name in FORECASTERS:
        raise InputError(f"--program: {name} is a built-in forecaster; expected another name")
    program = Program(name, words, time_limit_s)
    return Participating(
        name,
        VERSION,
        program.forecast,
        __name__,
        repeatable=False,
        command=tuple(_public(word) for word in words),
        sources=program.sources,
    )


def _public(word: str) -> str:
    """Return a word of a command line without the folders of this machine."""
    return FilePath(word).name if FilePath(word).is_absolute() else word


def question_document(question: Question, time_limit_s: float) -> dict[str, Any]:
    """Return a question as the program reads it."""
    return {
        "schema": "ledger/question/1",
        "case": question.case.model_dump(mode="json"),
        "work": question.work.model_dump(mode="json"),
        "roof": question.roof.model_dump(mode="json"),
        "time_lower_bound_us": time_lower_bound_s(question.work, question.roof) * 1e6,
        "hardware": question.hardware.model_dump(mode="json", by_alias=True),
        "regimes": list(REGIMES),
        "time_limit_s": time_limit_s,
    }


def _check(told: Told) -> None:
    if (told.low is None) != (told.high is None):
        raise InputError("its answer has one end of an interval; expected low and high, or neither")
    if told.low is not None and told.high is not None and not told.low <= told.percent <= told.high:
        raise InputError(f"its interval {told.low:g} to {told.high:g} does not hold {told.percent:g}")
    if told.probabilities is not None and abs(sum(told.probabilities.values()) - 1) > 1e-6:
        raise InputError(f"its probabilities sum to {sum(told.probabilities.values()):g}; expected 1")


def run(words: Sequence[str], data: bytes, time_limit_s: float) -> bytes:
    """Run a program on some input and return what it prints on stdout.

    Raises: InputError where it cannot be run, fails, prints too much or takes too long; it and what it started end.
    """
    name = FilePath(words[0]).name
    try:
        process = subprocess.Popen(
            list(words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    except OSError as error:
        raise InputError(f"{name}: cannot be run ({error.strerror}); expected a program") from error
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    printed, told = _Reader(process, process.stdout), _Reader(process, process.stderr)
    writing = threading.Thread(target=_write, args=(process.stdin, data), daemon=True)
    writing.start()
    try:
        code = process.wait(time_limit_s)
    except subprocess.TimeoutExpired as error:
        raise InputError(f"{name}: no answer within {time_limit_s:g} s") from error
    finally:
        _end(process)
        for thread in (printed, told):
            thread.join(1)
    if printed.too_much or told.too_much:
        raise InputError(f"{name}: printed more than {MAX_OUTPUT_BYTES} bytes; expected one JSON document")
    if code != 0:
        lines = told.data.decode("utf-8", "replace").strip().splitlines()
        raise InputError(f"{name}: ended with {code}{': ' + lines[-1] if lines else ''}")
    return bytes(printed.data)


class _Reader(threading.Thread):
    """Read a stream to its end; end the process where it prints too much."""

    def __init__(self, process: subprocess.Popen[bytes], stream: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self._process, self._stream = process, stream
        self.data, self.too_much = bytearray(), False
        self.start()

    def run(self) -> None:
        """Read until the end, or until there is too much."""
        while part := os.read(self._stream.fileno(), 1 << 16):
            self.data += part
            if len(self.data) > MAX_OUTPUT_BYTES:
                self.too_much = True
                _end(self._process)
                return


def _write(stream: IO[bytes], data: bytes) -> None:
    # A program that does not read its question may still answer.
    try:
        stream.write(data)
        stream.close()
    except OSError:
        pass


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError, AttributeError):
        process.kill()
    process.wait()
