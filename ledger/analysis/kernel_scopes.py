"""Puts Proton's scopes around the phases of a Triton or Gluon function, in its source. Pure: text in, text out.

A phase is a run of statements that load, wait, multiply or store, or a loop. Gluon's code keeps the order of its
source, so its loops are opened; a loop of Triton is one phase, since its compiler reorders what is inside.
Source: Proton's intra-kernel documentation (triton, third_party/proton/tutorials/intra_kernel/README.md).
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Literal

Kind = Literal["load", "wait", "multiply", "store"]

MODULE = "ledger_proton_language"
"""The name by which instrumented source calls triton.profiler.language."""

_CALLS: dict[str, Kind] = {
    **dict.fromkeys(("load", "async_copy_global_to_shared", "async_load", "async_gather"), "load"),
    **dict.fromkeys(("wait", "warpgroup_mma_wait", "store_wait", "async_wait", "wait_group"), "wait"),
    **dict.fromkeys(("dot", "dot_scaled", "warpgroup_mma", "mma_v2", "tcgen05_mma"), "multiply"),
    **dict.fromkeys(("store", "async_copy_shared_to_global", "async_store", "atomic_add"), "store"),
}
# Of the calls in one statement the first of these names it.
_ORDER: tuple[Kind, ...] = ("multiply", "load", "store", "wait")
_COMPOUND = (ast.For, ast.While, ast.If, ast.With)


def kinds_in(source: str, kinds_of: Callable[[str], frozenset[Kind]]) -> frozenset[Kind]:
    """Return what a function does, also through functions that it calls by name."""
    return _kinds(ast.parse(textwrap.dedent(source)), kinds_of)


def has_phases(kinds: frozenset[Kind]) -> bool:
    """Tell whether a function of these kinds is more than one phase: it both loads and stores."""
    return {"load", "store"} <= kinds


def partitions(source: str) -> tuple[str, ...]:
    """Return the names of the functions that a Gluon function hands to warp_specialize."""
    found = [
        name.id
        for call in _calls(ast.parse(textwrap.dedent(source)))
        if _called(call) == "warp_specialize"
        for argument in call.args[:1]
        for pair in getattr(argument, "elts", ())
        if isinstance(pair, ast.Tuple) and pair.elts and isinstance(name := pair.elts[0], ast.Name)
    ]
    return tuple(dict.fromkeys(found))


def names_called(source: str) -> frozenset[str]:
    """Return the names of all functions that a function calls without a module's name."""
    return frozenset(
        call.func.id for call in _calls(ast.parse(textwrap.dedent(source))) if isinstance(call.func, ast.Name)
    )


def instrumented(
    source: str, *, first_line: int, open_loops: bool, kinds_of: Callable[[str], frozenset[Kind]]
) -> tuple[str, dict[str, Kind | None]]:
    """Return a function's source with scopes, and each scope's kind (None: a loop) by its name: function, kind, line.

    first_line: of the source in its file, for the names of scopes. kinds_of: what a function called by name does.
    """
    tree = ast.parse(textwrap.dedent(source))
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    scopes: dict[str, Kind | None] = {}
    writer = _Scopes(function.name, first_line - 1, open_loops, kinds_of, scopes)
    function.body = list(writer.block(function.body))
    function.decorator_list = []
    return ast.unparse(ast.fix_missing_locations(tree)), scopes


class _Scopes:
    """Write scopes around the statements of a function."""

    def __init__(
        self,
        function: str,
        offset: int,
        open_loops: bool,
        kinds_of: Callable[[str], frozenset[Kind]],
        scopes: dict[str, Kind | None],
    ) -> None:
        self.function, self.offset = function, offset
        self.open_loops, self.kinds_of, self.scopes = open_loops, kinds_of, scopes

    def block(self, body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
        """Yield the statements of a block, those of one kind in a row within one scope."""
        for (compound, kind), group in groupby(body, key=self._key):
            statements = list(group)
            if compound:
                for statement in statements:
                    yield from self._compound(statement)
            elif kind is None:
                yield from statements
            else:
                yield from self._scope(kind, kind, statements[0].lineno, statements)

    def _key(self, statement: ast.stmt) -> tuple[bool, Kind | None]:
        if isinstance(statement, _COMPOUND):
            return True, None
        kinds = _kinds(statement, self.kinds_of)
        called = {_called(call) for call in _calls(statement)}
        # The code of other warps, and functions with phases of their own, have scopes of their own.
        if isinstance(statement, ast.Return) or "warp_specialize" in called or any(map(self._has_phases, called)):
            return False, None
        return False, next((kind for kind in _ORDER if kind in kinds), None)

    def _has_phases(self, name: str) -> bool:
        return has_phases(self.kinds_of(name))

    def _compound(self, statement: ast.stmt) -> Iterator[ast.stmt]:
        if isinstance(statement, (ast.For, ast.While)):
            if not _kinds(statement, self.kinds_of):
                yield statement
                return
            if self.open_loops:
                statement.body = list(self.block(statement.body))
            yield from self._scope("loop", None, statement.lineno, [statement])
            return
        if isinstance(statement, ast.If):
            # A branch that returns would leave a scope around it open.
            statement.body = list(self.block(statement.body))
            statement.orelse = list(self.block(statement.orelse))
        yield statement

    def _scope(self, word: str, kind: Kind | None, line: int, body: list[ast.stmt]) -> Iterator[ast.stmt]:
        name = f"{self.function} {word} {line + self.offset}"
        self.scopes[name] = kind
        yield _record("enter_scope", name)
        yield from body
        yield _record("exit_scope", name)


def _record(function: str, name: str) -> ast.stmt:
    return ast.parse(f"{MODULE}.{function}({name!r})").body[0]


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (one for one in ast.walk(node) if isinstance(one, ast.Call))


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _kinds(node: ast.AST, kinds_of: Callable[[str], frozenset[Kind]]) -> frozenset[Kind]:
    found: set[Kind] = set()
    for call in _calls(node):
        if isinstance(call.func, ast.Name):
            found |= kinds_of(call.func.id)
        if (kind := _CALLS.get(_called(call))) is not None:
            found.add(kind)
    return frozenset(found)
