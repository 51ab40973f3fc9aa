"""Find where the names of a file get their values: by scope, and in the order in which the statements run."""

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from entrypoint.usercode.api_names import LEAVES

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NAMED = (*_FUNCTIONS, ast.ClassDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_INLINE = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.ClassDef)  # scopes that run where they stand
_BLOCKS = ("body", "orelse", "finalbody")


class Binding(NamedTuple):
    """Describe where a name or an attribute gets a value. Without an origin, the value is not known."""

    node: ast.AST  # a statement that assigns, a target of a loop, a parameter ...
    origins: tuple[ast.AST, ...] = ()  # the expression; several for the items of a loop; a class or function itself


class NameScopes:
    """Hold the bindings of a file. `dotted` returns the full name of an expression; `imported`: others may call it."""

    def __init__(
        self, tree: ast.Module, parents: dict[ast.AST, ast.AST], dotted: Callable[[ast.AST], str], imported: bool
    ) -> None:
        self.tree, self.parents, self.dotted, self.imported = tree, parents, dotted, imported
        self._origins: dict[ast.Name, list[ast.AST | None]] = {}  # those asked for so far

    @cached_property
    def bound(self) -> dict[ast.AST, dict[str, list[Binding]]]:
        """Return all bindings of names, by their scope."""
        found = defaultdict[ast.AST, dict[str, list[Binding]]](lambda: defaultdict(list))
        for node in ast.walk(self.tree):
            for name, binding in self._bound(node):
                found[self._scope_of(node, name)][name].append(binding)
        return found

    @cached_property
    def stores(self) -> dict[str, list[Binding]]:
        """Return all bindings of attributes, by the attribute."""
        found = defaultdict[str, list[Binding]](list)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                found[node.attr].append(self._stored(node))
        return found

    @cached_property
    def loads(self) -> dict[str, list[tuple[ast.Name, ast.AST]]]:
        """Return all places where a name is used, each with the node around it."""
        found = defaultdict[str, list[tuple[ast.Name, ast.AST]]](list)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found[node.id].append((node, self.parents[node]))
        return found

    def times_bound(self, name: str) -> int:
        return sum(len(names.get(name, ())) for names in self.bound.values())

    def origins(self, name: ast.Name) -> list[ast.AST | None]:
        """Return the expressions that a name may stand for where it is used; None for what is not known."""
        if name not in self._origins:
            self._origins[name] = self._origins_at(name)
        return self._origins[name]

    def _origins_at(self, name: ast.Name) -> list[ast.AST | None]:
        here = scope = self.scope(name)
        while not self.bound[scope].get(name.id) and scope is not self.tree:
            scope = self.scope(scope)
            while isinstance(scope, ast.ClassDef):
                scope = self.scope(scope)
        while here is not scope and isinstance(here, _INLINE):
            here = self.scope(here)
        bindings = self.bound[scope].get(name.id, [])
        return self.origins_of(self._reaching(bindings, name) if here is scope else bindings)

    def origins_of(self, bindings: Iterable[Binding]) -> list[ast.AST | None]:
        found = list[ast.AST | None]()
        for node, origins in bindings:
            found += self._passed(node) if isinstance(node, ast.arg) else origins or [None]
        return found or [None]

    def ends(self, function: ast.AST) -> list[ast.Return]:
        """Return the returns of a function; none if it is changed by a decorator, or is a generator."""
        if not isinstance(function, _FUNCTIONS) or function.decorator_list:
            return []
        inside = [each for each in ast.walk(function) if self.scope(each) is function]
        yields = any(isinstance(each, ast.Yield | ast.YieldFrom) for each in inside)
        return [] if yields else [each for each in inside if isinstance(each, ast.Return)]

    def scope(self, node: ast.AST) -> ast.AST:
        """Return the function, class, comprehension or module to which the names at a node belong."""
        passed = None  # a function, since the defaults of its parameters belong to what is around it
        for outer, inner in self._way_up(node):
            if isinstance(outer, ast.arguments):
                if isinstance(inner, ast.arg):
                    return self.parents[outer]
                passed = self.parents[outer]
            elif isinstance(outer, _NAMED):
                if inner in outer.body:
                    return outer
            elif isinstance(outer, (ast.Lambda, *_INLINE)) and outer is not passed:
                return outer
        return self.tree

    def _scope_of(self, node: ast.AST, name: str) -> ast.AST:
        """Return the scope of a name that a node binds, which `global` may change."""
        scope = self.scope(node)
        if isinstance(scope, _FUNCTIONS):
            for each in ast.walk(scope):
                if isinstance(each, ast.Global | ast.Nonlocal) and name in each.names:
                    return self.tree if isinstance(each, ast.Global) else self.scope(scope)
        return scope

    def _bound(self, node: ast.AST) -> Iterator[tuple[str, Binding]]:
        match node:
            case ast.Name(ctx=ast.Store() | ast.Del()):
                yield node.id, self._stored(node)
            case ast.arg():
                yield node.arg, Binding(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, Binding(node, (node,))
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, Binding(node)
            case ast.alias():
                yield (node.asname or node.name).partition(".")[0], Binding(node)

    def _stored(self, target: ast.AST) -> Binding:
        """Return how a name or an attribute gets its value."""
        outer = self.parents[target]
        match outer:
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value) | ast.NamedExpr(value=value):
                return Binding(outer, (value,))
            case ast.AugAssign():
                return Binding(outer, (outer,))
            case ast.For(iter=ast.List(elts) | ast.Tuple(elts)):
                return Binding(target, tuple(elts))
            case ast.Tuple(elts) if not any(isinstance(each, ast.Starred) for each in elts):
                around, at = self.parents[outer], elts.index(target)  # type: ignore[arg-type]
                match around:
                    case ast.Assign(value=ast.Tuple(values)):
                        starred = any(isinstance(each, ast.Starred) for each in values)
                        return Binding(around, () if starred or len(values) != len(elts) else (values[at],))
                    case ast.Assign(value=value):
                        return Binding(around, (ast.Subscript(value, ast.Constant(at), ast.Load()),))
        return Binding(target)

    def _passed(self, parameter: ast.arg) -> list[ast.AST | None]:
        """Return what a parameter gets from the calls of its function, or by default; for `self`, the class."""
        arguments = self.parents[parameter]
        assert isinstance(arguments, ast.arguments)
        function = self.parents[arguments]
        owner, positional = self.parents.get(function), [*arguments.posonlyargs, *arguments.args]
        defaults = dict(zip(reversed(positional), reversed(arguments.defaults), strict=False))
        defaults |= {each: value for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults) if value}  # noqa: B905
        default = defaults.get(parameter)
        unsure: list[ast.AST | None] = [default, None] if default else [None]
        is_plain = isinstance(function, _FUNCTIONS) and not function.decorator_list
        if isinstance(owner, ast.ClassDef) and is_plain:
            if parameter in positional[:1]:
                return [owner]
            is_plain = getattr(function, "name", "") == "__init__"
        called = owner if isinstance(owner, ast.ClassDef) else function
        if not is_plain or not isinstance(called, _NAMED) or self.times_bound(called.name) != 1:
            return unsure
        found = list[ast.AST | None]()
        for load, call in self.loads[called.name]:
            if not (isinstance(call, ast.Call) and call.func is load) or is_spread(call):
                return unsure
            at = positional.index(parameter) - (called is owner) if parameter in positional else len(call.args)
            words = {each.arg: each.value for each in call.keywords}
            found.append(call.args[at] if at < len(call.args) else words.get(parameter.arg, default))
        return [*found, None] if self.imported else found or unsure

    # --- the order of statements ---

    def _way_up(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        while node in self.parents:
            yield self.parents[node], node
            node = self.parents[node]

    def _reaching(self, bindings: list[Binding], use: ast.AST) -> list[Binding]:
        """Return the bindings that may hold at a use in the same scope, the last one first."""
        ways = dict(self._way_up(use))  # each node around the use, with its child on the way
        start = _start(use)
        earlier = [each for each in bindings if _end(each.node) <= start]
        found, covered, around = list[Binding](), set[tuple[ast.AST, str]](), set[ast.AST]()
        for binding in sorted(earlier, key=lambda each: _end(each.node), reverse=True):
            found.append(binding)
            if self._is_sure(binding.node, ways, covered):
                around = {outer for outer, _ in self._way_up(binding.node)}
                break
        # A loop comes back to the use with what is bound later in it.
        loops = [outer for outer in ways if isinstance(outer, _LOOPS) and outer not in around]
        for later in bindings if loops else ():
            if later not in found and any(outer in loops for outer, _ in self._way_up(later.node)):
                found.append(later)
        return found

    def _is_sure(self, node: ast.AST, ways: dict[ast.AST, ast.AST], covered: set[tuple[ast.AST, str]]) -> bool:
        """Return whether each way to a use leads over a binding. `covered`: branches that bind the name, so far."""
        if isinstance(node, ast.arg):
            return True
        around = [node, *(outer for outer, _ in self._way_up(node))]
        outer = next(each for each in around if isinstance(each, ast.stmt | ast.ExceptHandler))
        if isinstance(outer, (ast.ExceptHandler, *_LOOPS)):
            return ways.get(outer) in outer.body
        statement: ast.AST = outer
        while True:
            parent = self.parents[statement]
            field = next((each for each in _BLOCKS if statement in getattr(parent, each, ())), "")
            if not field or ways.get(parent) in getattr(parent, field):
                return bool(field)
            covered.add((parent, field))
            sides = [getattr(parent, "body", []), getattr(parent, "orelse", [])]
            if isinstance(parent, ast.If):
                done = all((parent, name) in covered or self._leaves(side) for name, side in zip(_BLOCKS, sides))  # noqa: B905
            else:
                handlers = [each.body for each in getattr(parent, "handlers", [])]
                done = isinstance(parent, ast.With | ast.Try) and all(map(self._leaves, handlers))
            if not done:
                return False
            statement = parent

    def _leaves(self, block: list[ast.stmt]) -> bool:
        match block[-1:]:
            case [ast.Return() | ast.Raise() | ast.Continue() | ast.Break()]:
                return True
            case [ast.Expr(value=ast.Call(func=func))]:
                return self.dotted(func) in LEAVES
        return False


def is_spread(call: ast.Call) -> bool:
    """Return whether a call passes `*a` or `**b`."""
    return any(isinstance(each, ast.Starred) for each in call.args) or any(each.arg is None for each in call.keywords)


def _start(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _end(node: ast.AST) -> tuple[int, int]:
    """Return where a binding begins to hold: behind a statement that assigns, in the body of others."""
    if isinstance(node, ast.arg | ast.ExceptHandler):
        return _start(node)
    return getattr(node, "end_lineno", 0), getattr(node, "end_col_offset", 0)
