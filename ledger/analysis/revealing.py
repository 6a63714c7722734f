"""Finds, and masks, what records and profiler reports reveal of the machine they were made on. Pure.

Paths, command lines, network addresses, and names of users and hosts. Masking takes the names of the machine itself
and is exact for them; finding goes by form, so that it also serves files of another machine, and may miss a name that
looks like any word.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ledger.canonical import parse_json

MASK = "~"
MIN_WORD = 5
"""Shorter names are masked in a report only where they are a whole field, and in text as whole words."""
MAX_SHOWN = 120
_ROOTS = (
    "app|build|code|content|data|dev|etc|export|gpfs|home|lustre|media|mnt|net|nfs|opt|private|proc|projects?|root|run|"
    "scratch|shared|src|srv|storage|sw|tmp|usr|Users|var|work|workspaces?"
)
_PATH = re.compile(rf"(?<![\w/:.~-])/(?:{_ROOTS})(?:/[^\s/\"'`:,;()<>|\\]+)+|\b[A-Z]:\\[\w .-]+(?:\\[\w .-]+)+")
# The length byte before a field of a report may look like a letter.
_PATH_IN_FILE = re.compile(_PATH.pattern.replace(r"(?<![\w/:.~-])", ""))
_FOLDER = re.compile(r"(?<![\w/:.~-])/(?:[\w.+@%~-]+/)+")
_COMMAND = re.compile(r"(?:\S*/)?[a-z0-9_.~+-]+ (?:\S+ )*?(?:--[a-z][\w-]+|-[A-Za-z])(?:[ =]|$)")
_ADDRESS = re.compile(
    r"(?<![\w.])(?!127\.|0\.0\.0\.0)(?:\d{1,3}\.){3}\d{1,3}(?![\w.])|\bfe80:[0-9a-f:]+|\bf[cd][0-9a-f]{2}:[0-9a-f:]+"
)
# The first byte of a text field in a protocol buffer, then its length and its bytes.
_TEXT_FIELD = b"[" + re.escape(bytes(range(2, 128, 8))) + b"]"
_PRINTABLE = re.compile(rb"[\x20-\x7e]{4,}")

Kind = Literal["command line", "path", "address", "name"]


@dataclass(frozen=True)
class MachineNames:
    """Hold what names a machine: its private folders, longest first, and words (users, hosts, addresses)."""

    folders: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Revealed:
    """Hold one thing that a file reveals, the part of the file it is in, and how often it is there."""

    kind: Kind
    text: str
    where: str
    count: int = 1


# Masking


def masked_text(text: str, names: MachineNames) -> str:
    """Return text without folders and names of a machine; a file keeps its last part. Never longer than it was.

    Half of a surrogate pair, which Python has for a byte of a file's name that is no text and no record holds, is a
    question mark.
    """
    text = text.encode("utf-8", "replace").decode()
    for folder in names.folders:
        text = text.replace(folder, MASK)
    text = _FOLDER.sub(f"{MASK}/", text)
    for word in names.words:
        text = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", MASK, text)
    return text


def masked_report(data: bytes, names: MachineNames) -> bytes:
    """Return a binary report with the folders and names of a machine overwritten in place: no length changes."""
    for folder in names.folders:
        text = folder.encode()
        data = data.replace(text, re.sub(rb"[^/]", b"x", text))
    for word in names.words:
        text = word.encode()
        blank = b"x" * len(text)
        if len(text) >= MIN_WORD:
            data = re.sub(rb"(?<![A-Za-z0-9])" + re.escape(text) + rb"(?![A-Za-z0-9])", blank, data)
        if len(text) < 128:
            field = b"(" + _TEXT_FIELD + re.escape(bytes([len(text)])) + b")" + re.escape(text)
            data = re.sub(field, rb"\g<1>" + blank, data)
    return data


# Finding


def in_record(data: bytes, names: MachineNames) -> list[Revealed]:
    """Return what a record's texts reveal, each with its field. Raises: ParseError."""
    found: Counter[tuple[Kind, str, str]] = Counter()
    for field, text in _texts(parse_json(data, what="record"), ""):
        for kind, seen in _found(text, names, _PATH):
            # A version of four numbers is no address.
            if not (kind == "address" and seen == text and field.startswith("device.software.")):
                found[kind, seen, field] += 1
    return [Revealed(kind, text, field, count) for (kind, text, field), count in found.items()]


def in_file(data: bytes, where: str, names: MachineNames) -> list[Revealed]:
    """Return what the readable texts of any file reveal."""
    found: Counter[tuple[Kind, str]] = Counter()
    for run in _PRINTABLE.finditer(data):
        found.update(_found(run.group().decode("ascii"), names, _PATH_IN_FILE))
    # What follows a path may look like one more letter of it.
    shorter = {(kind, text[:-1]) for kind, text in found if kind == "path"} & set(found)
    return [
        Revealed(kind, text, where, count)
        for (kind, text), count in found.items()
        if kind != "path" or (kind, text[:-1]) not in shorter
    ]


def _found(text: str, names: MachineNames, path: re.Pattern[str]) -> Iterator[tuple[Kind, str]]:
    if " -" in text and _COMMAND.match(text.lstrip()):
        yield "command line", _shown(text)
    for match in path.finditer(text) if "/" in text or "\\" in text else ():
        yield "path", _shown(match.group())
    for match in _ADDRESS.finditer(text) if "." in text or ":" in text else ():
        yield "address", match.group()
    for word in names.words:
        if word in text and not _ADDRESS.fullmatch(word) and re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text):
            yield "name", word


def _shown(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


def _texts(value: Any, field: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield field, key
            yield from _texts(one, f"{field}.{key}" if field else key)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one, field)
