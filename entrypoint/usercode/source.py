"""Read one file of the user's code: its names, calls, imports and values, with their lines. No code is run."""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import Enum
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from entrypoint.usercode.notebooks import with_cells, without_magics
from entrypoint.usercode.words import without_comments

if TYPE_CHECKING:
    from entrypoint.usercode.known_values import Values

UNREADABLE = (SyntaxError, ValueError, RecursionError)  # ValueError: a NUL
Function = ast.FunctionDef | ast.AsyncFunctionDef
_SHOWN_CHARS = 80  # of an expression
_DEEPEST = 2000  # levels of a tree: Python compiles 3000, and ast.unparse takes five calls for each
sys.setrecursionlimit(max(sys.getrecursionlimit(), 7 * _DEEPEST))


class Place(NamedTuple):
    """Name a line of a file; 0 means the file as a whole."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class Import(NamedTuple):
    """Describe a name that a statement imports."""

    node: ast.Import | ast.ImportFrom
    here: str  # the name that it gets in the file
    meant: str  # what that name means: `a` for `import a.b`, `a.b` for `from a import b`
    module: str  # the module that is loaded: `a.b` for `import a.b`, `a` for `from a import b`
    level: int = 0  # dots in front, of a relative import

    @property
    def whole(self) -> str:
        """Return the full name of the imported object: `a.b` for `import a.b` and for `from a import b`."""
        return self.module if isinstance(self.node, ast.Import) else self.meant


class Assignment(NamedTuple):
    """Describe what a statement assigns to a name, or to an attribute."""

    node: ast.AST
    function: Function | None  # in which it stands
    owner: ast.ClassDef | None  # likewise
    value: ast.AST
    is_part: bool  # it gets one of several things that the value has: which one is not known


class UseKind(Enum):
    CALL = "call"
    NAME = "name"
    IMPORT = "import"


class SourceFile:
    """Hold one file. It is parsed at the first use of its tree, which is empty if Python cannot parse the file."""

    def __init__(
        self, shown: str, text: str, path: Path = Path(), exported: bool = False, body: list[ast.stmt] | None = None
    ) -> None:
        self.shown = shown  # its name in findings
        self.text = text
        self.path = path
        self.exported = exported  # perhaps from a notebook, with cells that only IPython understands
        self._body = body  # the statements that run, if these are not all

    @cached_property
    def _parsed(self) -> tuple[ast.Module, str, int]:
        empty = ast.Module(body=[], type_ignores=[])
        if not self.shown.endswith(".py"):
            return empty, "", 0
        try:
            tree = ast.parse(self.text)
            if _depth(tree) > _DEEPEST:
                raise RecursionError
            return with_cells(tree) if self.exported else tree, "", 0
        except RecursionError:  # from Python 3.12 on also of ast.parse, in words of its own
            return empty, f"it is nested more than {_DEEPEST} levels deep", 0
        except UNREADABLE as error:
            return empty, getattr(error, "msg", str(error)), getattr(error, "lineno", None) or 0

    @cached_property
    def tree(self) -> ast.Module:
        return self._parsed[0] if self._body is None else ast.Module(body=self._body, type_ignores=[])

    def running(self, body: list[ast.stmt]) -> "SourceFile":
        """Return the file as if it had only these statements."""
        made = SourceFile(self.shown, self.text, self.path, self.exported, body)
        made._parsed = self._parsed
        return made

    @property
    def problem(self) -> tuple[str, int]:
        """Return why Python cannot parse the file, and the line; ("", 0) if it can."""
        return self._parsed[1:]

    @cached_property
    def code(self) -> str:
        """Return the text without comments."""
        return without_comments(self.text)

    @cached_property
    def plain(self) -> str:
        """Return the file's code without comments and docstrings."""
        return ast.unparse(_NoDocstrings().visit(ast.parse(ast.unparse(self.tree))))

    @cached_property
    def all_nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in self.all_nodes for child in ast.iter_child_nodes(node)}

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        return tuple(each for node in self.all_nodes for each in imports_of(node))

    @cached_property
    def aliases(self) -> dict[str, str]:
        """Return the full name of each imported name: `hvd` is horovod.tensorflow, `Path` is pathlib.Path."""
        return {each.here: each.meant for each in self.imports if not each.level}

    @cached_property
    def uses(self) -> tuple["Use", ...]:
        """Return all calls, names and imports, in the order of their lines."""
        found = []
        for node in self.all_nodes:
            if isinstance(node, ast.Call):
                found.append(Use(source=self, node=node, name=self.dotted(node.func), kind=UseKind.CALL))
            elif isinstance(node, ast.Attribute | ast.Name):
                found.append(Use(source=self, node=node, name=self.dotted(node), kind=UseKind.NAME))
            found += [
                Use(source=self, node=node, name=each.whole, kind=UseKind.IMPORT)
                for each in imports_of(node)
                if not each.level
            ]
        return tuple(sorted(found, key=lambda use: use.place.line))

    def dotted(self, node: ast.AST) -> str:
        """Return the full name of an expression: `hvd.init` is horovod.tensorflow.init, `f().save` is .save."""
        base, words = attributes(node)
        return ".".join([self.aliases.get(base.id, base.id) if isinstance(base, ast.Name) else "", *words])

    def last(self, node: ast.AST) -> str:
        """Return the last word of an expression's full name; for a call, the last word of its function's name."""
        return self.dotted(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]

    def at(self, node: ast.AST) -> Place:
        return Place(file=self.shown, line=getattr(node, "lineno", 0))

    # --- where a node stands ---

    def way_up(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """Yield (ancestor, its child on the path to the node) for each ancestor of a node, the innermost first."""
        while node in self.parents:
            yield self.parents[node], node
            node = self.parents[node]

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes that contain a node, the innermost first."""
        return (outer for outer, _ in self.way_up(node))

    def guards(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the conditions and `try`s that decide whether a node runs, the innermost first.

        `if __name__ == "__main__":` is none: the job runs the program.
        """
        for outer, inner in self.way_up(node):
            is_guard = isinstance(outer, ast.Try | ast.If | ast.IfExp | ast.BoolOp)
            if is_guard and not (is_main_guard(outer) and inner in outer.body):
                yield outer

    def function_of(self, node: ast.AST) -> Function | None:
        return next((each for each in self.around(node) if isinstance(each, Function)), None)

    def own_function(self, call: ast.Call) -> ast.FunctionDef | None:
        """Return the function at the top level of the file that a call names; None if there is none."""
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        return next((each for each in self.tree.body if isinstance(each, ast.FunctionDef) and each.name == name), None)

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        return next((each for each in self.around(node) if isinstance(each, ast.ClassDef)), None)

    # --- what a name stands for ---

    @cached_property
    def assignments(self) -> dict[str, list[Assignment]]:
        """Return the assignments to each name and attribute, as written."""
        found = defaultdict[str, list[Assignment]](list)
        for node in self.all_nodes:
            for target, value, is_part in _assigned(node):
                made = Assignment(node, self.function_of(node), self.class_of(node), value, is_part)
                found[ast.unparse(target)].append(made)
        return found

    def assigned(self, node: ast.Name | ast.Attribute) -> list[Assignment]:
        """Return the values assigned to a name in its function, else in its module; for `self.x`, in its class."""
        written = ast.unparse(node)
        known = self.assignments.get(written, [])
        if isinstance(node, ast.Attribute):
            owner = self.class_of(node)
            return [each for each in known if each.owner is owner] if owner and written.startswith("self.") else []
        function = self.function_of(node)
        own = [each for each in known if each.function is function]
        if own or (function and written in parameters(function)):
            return own
        return [each for each in known if each.function is None]

    @cached_property
    def values(self) -> "Values":
        """Return the finder of the values that expressions of the file may have: `values.of(node)`."""
        # Imported here, as the prepare step needs no values: with shell.py, 25 ms of each job's start.
        from entrypoint.usercode.known_values import Values
        from entrypoint.usercode.name_scopes import NameScopes

        return Values(NameScopes(self.tree, self.parents, self.dotted, imported=self._body is not None))

    def constant(self, node: ast.AST | None) -> Any:
        """Return the value of an expression if constants of the file lead to one alone; None for anything else."""
        values = self.values.known(node)
        return values[0] if len(values) == 1 else None


class Use(NamedTuple):
    """Describe a call, a name or an import, with the full name of what it uses."""

    source: SourceFile
    node: ast.AST
    name: str
    kind: UseKind

    @property
    def place(self) -> Place:
        return self.source.at(self.node)

    @property
    def written(self) -> str:
        """Return the code as written, cut to 80 characters."""
        text = " ".join(ast.unparse(self.node).split())
        return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 3]}..."

    @property
    def last(self) -> str:
        """Return the last word of the full name: `batch` of `tensorflow.data.Dataset.batch`."""
        return self.name.rpartition(".")[2]

    @property
    def call(self) -> ast.Call:
        assert isinstance(self.node, ast.Call)
        return self.node

    def argument(self, name: str, at: int | None = None) -> ast.AST | None:
        """Return the expression of an argument of a call, by its name or else its position; None if it is not given."""
        if not isinstance(self.node, ast.Call):
            return None
        for given in self.node.keywords:
            if given.arg == name:
                return given.value
        return self.node.args[at] if at is not None and len(self.node.args) > at else None

    @property
    def of(self) -> ast.expr | None:
        """Return the object of which a method is called."""
        function = getattr(self.node, "func", None)
        return function.value if isinstance(function, ast.Attribute) else None


def imports_of(node: ast.AST) -> Iterator[Import]:
    """Yield the names that a statement imports. Other nodes yield nothing."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name.partition(".")[0]
            yield Import(node, alias.asname or top, alias.name if alias.asname else top, alias.name)
    elif isinstance(node, ast.ImportFrom):
        module = node.module or ""
        for alias in node.names:
            meant = f"{module}.{alias.name}".strip(".")
            yield Import(node, alias.asname or alias.name, meant, module, node.level)


def _depth(tree: ast.AST) -> int:
    level, depth = [tree], 0
    while level:
        level, depth = [child for node in level for child in ast.iter_child_nodes(node)], depth + 1
    return depth


def attributes(node: ast.AST) -> tuple[ast.AST, list[str]]:
    """Return the object at which an expression begins, and the attributes after it: `f()` and [a, b] of `f().a.b`."""
    words: list[str] = []
    while isinstance(node, ast.Attribute):
        words.insert(0, node.attr)
        node = node.value
    return node, words


def is_main_guard(node: ast.AST) -> TypeGuard[ast.If]:
    """Return whether a statement is `if __name__ == "__main__":`."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and asks_for_main(node.test)


def asks_for_main(test: ast.expr) -> bool:
    """Return whether a condition can hold only in the main program."""
    match test:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            return "__name__" in (getattr(left, "id", ""), getattr(right, "id", ""))
        case ast.Compare(left=ast.Name("__name__"), ops=[ast.In()]):
            return True
        case ast.BoolOp(op=ast.And(), values=values):
            return any(map(asks_for_main, values))
    return False


def words_of(nodes: Iterable[ast.AST], *, strings: bool = False) -> set[str]:
    """Return the names among some nodes, those of imports whole; `strings`: also texts, which may name attributes."""
    found = set[str]()
    for node in nodes:
        if isinstance(node, ast.Name | ast.Attribute):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.name for alias in node.names} | {getattr(node, "module", None) or ""}
        elif strings and isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def value_of(node: ast.AST | None) -> Any:
    """Return the value of a constant; None for anything else."""
    return node.value if isinstance(node, ast.Constant) else None


def text_of(node: ast.AST | None) -> str:
    """Return the text of a string constant; "" for anything else."""
    value = value_of(node)
    return value if isinstance(value, str) else ""


def texts_of(nodes: Iterable[ast.AST]) -> list[str]:
    """Return the texts of the string constants among some nodes."""
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def values_of(source: SourceFile, node: ast.AST | None) -> list[ast.AST]:
    """Return what an expression may be: itself, or what its name is assigned; nothing if that is not known."""
    if not isinstance(node, ast.Name):
        return [node] if node else []
    known = source.assigned(node)
    return [] if any(each.is_part for each in known) else [each.value for each in known]


def made_by(source: SourceFile, node: ast.AST | None, *names: str) -> bool:
    """Return whether an expression is known to be the result of a call of these names."""
    values = values_of(source, node)
    made = [source.dotted(each.func) for each in values if isinstance(each, ast.Call)]
    return 0 < len(values) == len(made) and all(matches(each, names) or matches(f".{each}", names) for each in made)


def text_behind(source: SourceFile, node: ast.AST | None) -> str:
    """Return an expression as written, with what its names are assigned."""
    return " ".join(ast.unparse(each) for part in (ast.walk(node) if node else ()) for each in values_of(source, part))


def calls_in(*nodes: ast.AST) -> Iterator[ast.Call]:
    return (each for node in nodes for each in ast.walk(node) if isinstance(each, ast.Call))


def given_to(call: ast.Call) -> list[ast.expr]:
    """Return the expressions of a call's arguments."""
    return [*call.args, *(word.value for word in call.keywords)]


def parameters(function: Function) -> list[str]:
    return [each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]


@lru_cache(maxsize=100_000)  # checks ask the same again and again
def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a full name matches a pattern: `.fit` matches the end of a name, `horovod.*` a whole name."""
    return any(
        name.endswith(pattern) if pattern.startswith(".") else fnmatchcase(name, pattern) for pattern in patterns
    )


def plain_text(path: Path, *, most: int = 4 << 20, exported: bool = False) -> str:
    """Return the text of a file, without code that only IPython can parse; "" if it is too large for a program."""
    text = "" if path.stat().st_size > most else path.read_text("utf-8", errors="replace")
    return without_magics(text) if exported else text


def _assigned(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST, bool]]:
    """Yield (target, value, whether it gets a part of the value) of an assignment."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if not isinstance(target, ast.Tuple):
                yield target, node.value, False
            elif isinstance(node.value, ast.Tuple):
                yield from ((*pair, False) for pair in zip(target.elts, node.value.elts, strict=False))
            else:
                yield from ((each, node.value, True) for each in target.elts)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value:
        yield node.target, node.value, False


class _NoDocstrings(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)
