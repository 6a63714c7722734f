"""Says in words where a value is not what its record expects: the field, what it got, what was expected. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from ledger.records.base import CellKey, Digest, Line, Moment, Name, ShapeKey
from ledger.suggestions import did_you_mean

SHOWN = 5
"""Errors of one value that are listed; the others are counted."""
_READ = 100
"""Errors that are looked at: a hostile record may have one for each of its values."""

_ITEMS = {"cells": "cell", "domains": "domain"}
"""What one item of a list is called."""
_KEY = "[key]"
"""What pydantic puts behind a key of a mapping that is wrong itself."""
_EXTRA = "[extra]"
_KINDS = {
    "string_type": "text",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "finite_number": "a finite number",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "an object: keys with values",
    "model_type": "an object: keys with values",
    "model_attributes_type": "an object: keys with values",
    "none_required": "null",
}


def _pattern(kind: Any) -> str:
    (found,) = (part.pattern for part in get_args(kind) if hasattr(part, "pattern"))
    return str(found)


_TEXTS = {
    _pattern(Name): "a small letter, then small letters, digits or _: at most 64 characters",
    _pattern(ShapeKey): "a letter, then letters, digits or _: at most 16 characters",
    _pattern(CellKey): "letters, digits and _.=-, a letter or digit first: at most 160 characters",
    _pattern(Digest): "64 hexadecimal digits in small letters",
    _pattern(Moment): "a time in UTC, as 2026-01-31T12:00:00Z",
    _pattern(Line): "one line without control characters",
}
_BOUNDS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def explain(error: ValidationError, *, what: str, kind: type[BaseModel] | None = None) -> str:
    """Return a validation error on one line: the object and each field, what it got and what was expected.

    kind: what did not validate; it names the keys that are allowed.
    """
    errors: Sequence[Any] = error.errors(include_url=False)
    # A schema that is not known explains all the rest.
    errors = [one for one in errors if one["loc"] == ("schema",)] or errors
    found = list(dict.fromkeys(_problems(errors[:_READ], kind)))
    rest = max(0, len(found) - SHOWN) + max(0, len(errors) - _READ)
    more = [f"{rest} more"] if rest else []
    return f"{what}: {'; also '.join(found[:SHOWN] + more)}"


def _problems(errors: Sequence[Any], kind: type[BaseModel] | None) -> Iterator[str]:
    """Yield one text for each field that is wrong, in their order."""
    fields: dict[tuple[str | int, ...], list[Any]] = {}
    for one in errors:
        # Keys that are not known are named together, as the allowed ones are the same.
        place = _place(one)
        fields.setdefault((*place[:-1], _EXTRA) if one["type"] == "extra_forbidden" else place, []).append(one)
    for place, members in fields.items():
        # Of what may be one value or a list, each alternative complains: the one that came deeper is meant.
        beneath = any(other[: len(place)] == place for other in fields if other != place)
        if beneath and all(_is_alternative(one) or _is_hollow(one) for one in members):
            continue
        yield _text(place, members, kind)


def _place(one: Any) -> tuple[str | int, ...]:
    """Return where an error is: without the names that pydantic gives to the alternatives of a union."""
    loc = tuple(one["loc"])
    if loc[-1:] == (_KEY,):
        return tuple(part for part in loc[:-2] if not _is_tag(part)) + loc[-2:]
    if one["type"] == "extra_forbidden":
        return tuple(part for part in loc[:-1] if not _is_tag(part)) + loc[-1:]
    return tuple(part for part in loc if not _is_tag(part))


def _is_tag(part: str | int) -> bool:
    return isinstance(part, str) and ("[" in part or part.startswith("constrained-") or part in ("int", "str", "float"))


def _is_alternative(one: Any) -> bool:
    return bool(one["loc"]) and _is_tag(one["loc"][-1]) and one["loc"][-1] != _KEY


def _is_hollow(one: Any) -> bool:
    """Tell whether a list counts as too short only because its items are wrong."""
    return one["type"] == "too_short" and isinstance(one["input"], list | tuple) and len(one["input"]) > 0


def _text(place: tuple[str | int, ...], members: Sequence[Any], kind: type[BaseModel] | None) -> str:
    first = members[0]
    if place[-1:] == (_EXTRA,):
        return _joined(_where(place[:-1]), _extra([str(one["loc"][-1]) for one in members], _keys(kind, place[:-1])))
    if place[-1:] == (_KEY,):
        return _joined(_where(place[:-2]), _words(members, str(place[-2])).replace("got", "got the key", 1))
    return _joined(_where(place), _words(members, first["input"]))


def _extra(found: Sequence[str], allowed: Sequence[str]) -> str:
    """Return which keys are not known, what may have been meant and what is allowed."""
    told = [f"{key[:80]!r}{did_you_mean(key[:80], allowed)}" for key in found[:SHOWN]]
    told += [f"{len(found) - SHOWN} more"] if len(found) > SHOWN else []
    names, are = ("key", "is") if len(found) == 1 else ("keys", "are")
    expected = f"one of: {', '.join(allowed)}" if allowed else "no other keys than its own"
    return f"{names} {', '.join(told)} {are} not known; expected {expected}"


def _joined(where: str, words: str) -> str:
    return f"{where}: {words}" if where else words


def _where(place: Sequence[str | int]) -> str:
    """Return a place in words, items counted from 1: cell 2: shape.M."""
    words = ""
    for part in place:
        if isinstance(part, int):
            head, dot, name = words.rpartition(".")
            words = f"{head}{dot}{_ITEMS[name]} {part + 1}: " if name in _ITEMS else f"{words} #{part + 1}"
        else:
            words += part[:80] if not words or words.endswith(": ") else f".{part[:80]}"
    return words.removesuffix(": ")


def _words(members: Sequence[Any], got: Any) -> str:
    """Return what a field got and what was expected of it, by the alternative that says most."""
    kinds = dict.fromkeys(words for one in members if (words := _KINDS.get(one["type"])) is not None)
    first = next((one for one in members if one["type"] not in _KINDS), members[0])
    context, name = first.get("ctx", {}), first["type"]
    if name == "missing":
        return "not given; expected it"
    if name == "value_error":
        told = str(first["msg"]).removeprefix("Value error, ")
        return told if isinstance(got, dict) else f"{told} (got {_shown(got)})"
    if name in _KINDS:
        return _got(got, " or ".join(kinds))
    if name in ("literal_error", "enum"):
        expected = str(context["expected"])
        near = did_you_mean(got, re.findall(r"'([^']*)'", expected)) if isinstance(got, str) else ""
        return _got(got, expected.replace("'", ""), near)
    if name in _BOUNDS:
        key, words = _BOUNDS[name]
        return _got(got, f"{words} {context[key]:g}" if isinstance(context[key], float) else f"{words} {context[key]}")
    if name == "string_pattern_mismatch":
        return _got(got, _TEXTS.get(context["pattern"], f"text that matches {context['pattern']}"))
    if name in ("string_too_long", "string_too_short"):
        bound = f"at most {context['max_length']}" if name == "string_too_long" else f"at least {context['min_length']}"
        return f"{len(got)} characters; expected {bound}"
    if name in ("too_short", "too_long"):
        bound = f"at least {context['min_length']}" if name == "too_short" else f"at most {context['max_length']}"
        return f"{context.get('actual_length', len(got))} entries; expected {bound}"
    told = str(first["msg"])
    return told if isinstance(got, dict) else f"{told} (got {_shown(got)})"


def _got(got: Any, expected: str, near: str = "") -> str:
    """Return the two halves of a message; what is too long to repeat is not."""
    told = "an object" if isinstance(got, dict) else "a list" if isinstance(got, list | tuple) else _shown(got)
    return f"got {told}{near}; expected {expected}"


def _shown(got: Any) -> str:
    if got is None or isinstance(got, bool):
        return {None: "null", True: "true", False: "false"}[got]
    return repr(got[:80]) if isinstance(got, str) else str(got)[:80]


def _keys(kind: type[BaseModel] | None, place: Sequence[str | int]) -> list[str]:
    """Return the keys that are allowed at a place of a record; empty where that is not known."""
    kinds = [] if kind is None else [kind]
    for part in place:
        if isinstance(part, str):
            fields = [field for one in kinds for name, field in one.model_fields.items() if part in (name, field.alias)]
            kinds = [model for field in fields for model in _models(field.annotation)]
    return sorted({field.alias or name for one in kinds for name, field in one.model_fields.items()})


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the records within an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)
