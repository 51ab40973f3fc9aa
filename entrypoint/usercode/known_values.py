"""Work out which values an expression of one file may have, as far as its constants reach. No code is run.

A value that is not known is UNKNOWN, as is the unknown part of a text or a path: `/opt/ml/model/...`.
"""

import ast
import itertools
import operator
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from entrypoint.usercode.name_scopes import NameScopes, is_spread

UNKNOWN = "..."
Given = Callable[[ast.AST], "tuple[Any, ...] | None"]  # values that are known from elsewhere
_MOST = 16  # values of an expression
_MOST_STEPS = 300  # to work out one
_DEEPEST = 40  # names between an expression and its constants
_JOIN = ("os.path.join", "pathlib.Path", "pathlib.PurePath", "pathlib.PosixPath", "pathlib.PurePosixPath")
_SAME = ("os.fspath", "os.path.normpath", "os.path.realpath", "os.path.abspath")
_SAME_METHODS = ("as_posix", "resolve", "absolute", "strip")
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}  # fmt: skip


def is_known(value: object) -> bool:
    return not (isinstance(value, str) and UNKNOWN in value)


class Values:
    """Follow the names of a file: through assignments and conditions, parameters through the calls in the file."""

    def __init__(self, scopes: NameScopes) -> None:
        self.scopes = scopes
        self._given: Given = lambda _: None
        self._open: list[ast.AST] = []  # the expressions that are being worked out
        self._left = _MOST_STEPS

    def of(self, node: ast.AST | None, given: Given | None = None) -> tuple[Any, ...]:
        """Return the values that an expression may have. `given` is asked first, for each part of it."""
        return self._with(given, lambda: self._of(node))

    def known(self, node: ast.AST | None) -> tuple[Any, ...]:
        """Return the values that an expression may have; none if one of them is not known."""
        values = self.of(node)
        return values if all(map(is_known, values)) else ()

    def named(self, name: str, given: Given | None = None) -> tuple[Any, ...]:
        """Return the values that a name of the module may have."""
        origins = self.scopes.origins_of(self.scopes.bound[self.scopes.tree].get(name, []))
        return self._with(given, lambda: _distinct(self._any_of(origins)))

    def _with(self, given: Given | None, work: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        before = self._given
        self._given = given or before
        if not self._open:
            self._left = _MOST_STEPS
        try:
            return work()
        finally:
            self._given = before

    def _of(self, node: ast.AST | None) -> tuple[Any, ...]:
        self._left -= 1
        if node is None or self._left < 0 or node in self._open or len(self._open) > _DEEPEST:
            return (UNKNOWN,)
        self._open.append(node)
        try:
            known = self._given(node)
            return _distinct(self._worked_out(node) if known is None else known)
        finally:
            self._open.pop()

    def _any_of(self, nodes: Iterable[ast.AST | None]) -> list[Any]:
        return [value for node in nodes for value in self._of(node)]

    def _combined(self, nodes: Iterable[ast.AST], by: Callable[..., Any], *, whole: bool = False) -> Iterator[Any]:
        """Yield what `by` makes of each combination of values; UNKNOWN if it raises. `whole`: only of known values."""
        for values in itertools.islice(itertools.product(*map(self._of, nodes)), _MOST + 1):
            try:
                yield UNKNOWN if whole and not all(map(is_known, values)) else by(*values)
            except (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError):
                yield UNKNOWN

    def _worked_out(self, node: ast.AST) -> Iterable[Any]:
        match node:
            case ast.Constant():
                return (node.value,)
            case ast.Name():
                return self._any_of(self.scopes.origins(node))
            case ast.NamedExpr():
                return self._of(node.value)
            case ast.IfExp():
                tests = self._of(node.test)
                unsure = len(tests) > 1 or not is_known(tests[0])
                return self._any_of([node.body, node.orelse] if unsure else [node.body if tests[0] else node.orelse])
            case ast.BoolOp(op=ast.Or()):
                return self._of_or(node.values)
            case ast.JoinedStr():
                return self._combined(node.values, lambda *parts: "".join(map(str, parts)))
            case ast.FormattedValue(conversion=-1, format_spec=None):
                return self._of(node.value)
            case ast.BinOp(op=ast.Mod()):
                given = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
                return self._combined([node.left, *given], _percent)
            case ast.BinOp(left=left, right=right) | ast.AugAssign(target=left, value=right):
                return self._combined([left, right], lambda *two: _computed(node.op, *two))
            case ast.UnaryOp(op=ast.USub()):
                return self._combined([node.operand], operator.neg)
            case ast.Compare(ops=[ast.Eq() | ast.NotEq() as asked], comparators=[right]):
                same = isinstance(asked, ast.Eq)
                return self._combined([node.left, right], lambda *two: (two[0] == two[1]) is same, whole=True)
            case ast.Subscript():
                return self._of_item(node.value, node.slice)
            case ast.Attribute():
                return self._of_attribute(node)
            case ast.Call() if not is_spread(node):
                return self._of_call(node)
        return (UNKNOWN,)

    def _of_or(self, nodes: list[ast.expr]) -> Iterator[Any]:
        for node in nodes:
            values = self._of(node)
            yield from (value for value in values if value or node is nodes[-1])
            if all(value and is_known(value) for value in values):
                return

    def _of_call(self, call: ast.Call) -> Iterable[Any]:
        name, on = self.scopes.dotted(call.func), call.func.value if isinstance(call.func, ast.Attribute) else call
        if name in _JOIN and call.args:
            return self._combined(call.args, _joined)
        if name in _SAME and call.args:
            return self._of(call.args[0])
        if name in ("str", "int", "float") and len(call.args) == 1:
            return self._combined(call.args, {"str": str, "int": int, "float": float}[name], whole=name != "str")
        if name in ("os.environ.get", "os.getenv"):
            return (UNKNOWN, *self._any_of(call.args[1:] or [ast.Constant(None)]))
        match name.rpartition(".")[2] if on is not call else "":
            case "joinpath":
                return self._combined([on, *call.args], _joined)
            case "format" if not call.keywords:
                return self._combined([on, *call.args], _formatted)
            case method if method in _SAME_METHODS and not call.args:
                return self._of(on)
            case "upper" | "lower" as method:
                return self._combined([on], lambda text: getattr(text, method)())
        for own in self.scopes.origins(call.func) if isinstance(call.func, ast.Name) else ():
            if own and (ends := self.scopes.ends(own)):
                return self._any_of(each.value for each in ends)
        return (UNKNOWN,)

    def _of_item(self, table: ast.AST, key: ast.AST) -> Iterable[Any]:
        """Return the values of an item of a dictionary that is written in the file, and only read there."""
        keys = self._of(key)
        if isinstance(table, ast.Name) and self.scopes.times_bound(table.id) == 1 and len(keys) == 1:
            uses = [use for _, use in self.scopes.loads[table.id]]
            reads = all(isinstance(use, ast.Subscript) and isinstance(use.ctx, ast.Load) for use in uses)
            origin = self.scopes.origins(table)[0]
            if reads and isinstance(origin, ast.Dict):
                items = zip([getattr(each, "value", each) for each in origin.keys], origin.values, strict=True)
                return self._of(dict(items).get(keys[0]))
        return (UNKNOWN,)

    def _of_attribute(self, node: ast.Attribute) -> Iterable[Any]:
        """Return the values of an attribute of a class of the file or of its object, as in `Config().folder`."""
        owners = self._classes(node.value)
        for owner, makes in owners:
            given = [word.value for call in makes for word in call.keywords if word.arg == node.attr]
            defaults = self.scopes.bound[owner].get(node.attr, []) if len(given) == 0 or len(given) < len(makes) else []
            bindings = [*defaults, *self.scopes.stores[node.attr]]
            for each in [*given, *(self.scopes.origins_of(bindings) if bindings or not given else ())]:
                if isinstance(each, ast.Call) and self.scopes.dotted(each.func) == "dataclasses.field":
                    yield from self._any_of([word.value for word in each.keywords if word.arg == "default"] or [None])
                else:
                    yield from self._of(each)
        yield from () if owners else (UNKNOWN,)

    def _classes(self, node: ast.AST) -> list[tuple[ast.ClassDef, list[ast.Call]]]:
        """Return the class of an object with the calls that make it, for each object that an expression may be.

        Return none if one of them is not known, or the class may get values that the file does not show.
        """
        if isinstance(node, ast.ClassDef):
            return self._of_class(node)
        if isinstance(node, ast.Call):
            node = node.func
        self._left -= 1
        if not isinstance(node, ast.Name) or node in self._open or self._left < 0:
            return []
        self._open.append(node)
        try:
            found = [self._classes(origin) if origin else [] for origin in self.scopes.origins(node)]
            return list(itertools.chain(*found)) if all(found) else []
        finally:
            self._open.pop()

    def _of_class(self, owner: ast.ClassDef) -> list[tuple[ast.ClassDef, list[ast.Call]]]:
        calls = []
        for load, use in self.scopes.loads[owner.name]:
            called = isinstance(use, ast.Call) and use.func is load and not is_spread(use)
            if isinstance(use, ast.Call) and called and (not use.args or "__init__" in self.scopes.bound[owner]):
                calls.append(use)
            elif not isinstance(use, ast.arg | ast.AnnAssign | ast.Attribute):
                return []
        return [(owner, calls)]


def _distinct(values: Iterable[Any]) -> tuple[Any, ...]:
    known = [value if isinstance(value, str | int | float | bytes | None) else UNKNOWN for value in values]
    known = [UNKNOWN if value == UNKNOWN * 2 else value for value in known]
    found = {(type(value), value): value for value in known}
    return tuple(found.values()) if 0 < len(found) <= _MOST else (UNKNOWN,)


def _joined(first: Any, *parts: Any) -> str:
    if not all(isinstance(each, str) for each in (first, *parts)):
        raise TypeError
    return posixpath.join(first, *parts)


def _computed(kind: ast.operator, left: Any, right: Any) -> Any:
    both_texts = isinstance(left, str) and isinstance(right, str)
    if isinstance(kind, ast.Div) and both_texts:
        return UNKNOWN if left == right == UNKNOWN else _joined(left, right)  # of pathlib
    if not both_texts and not all(isinstance(each, int | float) for each in (left, right)):
        return UNKNOWN  # also of bytes, which could be very many
    return _OPERATORS[type(kind)](left, right)


def _percent(text: Any, *given: Any) -> Any:
    if not isinstance(text, str) or text == UNKNOWN:
        return UNKNOWN if not isinstance(text, int) or UNKNOWN in given else text % given[0]
    return (re.sub(r"%[^a-zA-Z%]*[a-zA-Z]", "%s", text) if UNKNOWN in given else text) % given


def _formatted(text: Any, *given: Any) -> str:
    return (re.sub(r":[^}]*}", "}", text) if UNKNOWN in given else text).format(*given)
