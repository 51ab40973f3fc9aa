"""Parse a training script and the modules beside it that it imports. The code is read and never run."""

import ast
import copy
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from entrypoint.base.python310 import StrEnum
from entrypoint.check.doctor.notebooks import with_cells, without_magics
from entrypoint.check.finding import Place

MOST_FILES = 500
_TELLS = ("print", "info", "warning", "error", "debug", "exit", "SystemExit", "say", "log")
Node = TypeVar("Node", bound=ast.AST)


@dataclass(frozen=True, kw_only=True)
class Source:
    """Hold one file of Python. If Python cannot parse it, its tree is empty and `problem` has the reason."""

    path: Path
    shown: str
    text: str
    tree: ast.Module
    problem: str = ""
    line: int = 0  # of the problem

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def aliases(self) -> dict[str, str]:
        """Return the full name of each imported name: `hvd` is horovod.tensorflow, `Path` is pathlib.Path."""
        found = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for name in node.names:
                    whole = name.name if name.asname else name.name.split(".")[0]
                    found[name.asname or whole] = whole
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                found |= {name.asname or name.name: f"{node.module}.{name.name}" for name in node.names}
        return found

    @cached_property
    def uses(self) -> tuple["Use", ...]:
        """Return all calls, names and imports, in the order of their lines."""
        found = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                found.append(Use(source=self, node=node, name=self.dotted(node.func), kind=UseKind.CALL))
            elif isinstance(node, ast.Attribute | ast.Name):
                found.append(Use(source=self, node=node, name=self.dotted(node), kind=UseKind.NAME))
            elif isinstance(node, ast.Import):
                found += [Use(source=self, node=node, name=name.name, kind=UseKind.IMPORT) for name in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                names = (f"{node.module}.{name.name}" for name in node.names)
                found += [Use(source=self, node=node, name=name, kind=UseKind.IMPORT) for name in names]
        return tuple(sorted(found, key=lambda use: use.line))

    @cached_property
    def plain(self) -> str:
        """Return the file's code without comments and docstrings."""
        return ast.unparse(_NoDocstrings().visit(copy.deepcopy(self.tree)))

    def dotted(self, node: ast.AST) -> str:
        """Return the full name of an expression: `hvd.init` is horovod.tensorflow.init, `f().save` is .save."""
        words: list[str] = []
        while isinstance(node, ast.Attribute):
            words.append(node.attr)
            node = node.value
        first = self.aliases.get(node.id, node.id) if isinstance(node, ast.Name) else ""
        return ".".join([first, *reversed(words)])

    def last(self, node: ast.AST) -> str:
        """Return the last word of an expression's full name; of a call, that of its function."""
        return self.dotted(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]

    def at(self, node: ast.AST) -> Place:
        return Place(file=self.shown, line=getattr(node, "lineno", 0))

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes that contain a node, the innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node


class UseKind(StrEnum):
    CALL = "call"
    NAME = "name"
    IMPORT = "import"


@dataclass(frozen=True, kw_only=True)
class Use:
    """Describe a call, a name or an import, with the full name of what it uses."""

    source: Source
    node: ast.AST
    name: str
    kind: UseKind

    @property
    def line(self) -> int:
        return int(getattr(self.node, "lineno", 0))

    @property
    def place(self) -> Place:
        return self.source.at(self.node)

    @property
    def written(self) -> str:
        """Return the code as written, cut to 80 characters."""
        text = " ".join(ast.unparse(self.node).split())
        return text if len(text) <= 80 else f"{text[:77]}..."

    def argument(self, name: str, at: int | None = None) -> ast.AST | None:
        """Return the expression of an argument of a call, by its name or else its position; None if it is not given."""
        if not isinstance(self.node, ast.Call):
            return None
        for given in self.node.keywords:
            if given.arg == name:
                return given.value
        return self.node.args[at] if at is not None and len(self.node.args) > at else None


@dataclass(frozen=True, kw_only=True)
class Code:
    """Hold a program's files, the main one first."""

    sources: tuple[Source, ...]
    folder: Path  # the one that would hold requirements.txt

    @property
    def main(self) -> Source:
        return self.sources[0]

    def uses(self, *patterns: str, kind: UseKind | None = None) -> Iterator[Use]:
        """Yield uses whose full name matches a pattern, file by file.

        `horovod.*` is a pattern of the whole name; `.shard` matches every name that ends with it. Imports are left out
        unless `kind` is IMPORT.
        """
        for source in self.sources:
            for use in source.uses:
                if (use.kind is kind if kind else use.kind is not UseKind.IMPORT) and matches(use.name, patterns):
                    yield use

    def calls(self, *patterns: str) -> Iterator[Use]:
        return self.uses(*patterns, kind=UseKind.CALL)

    def made(self, *patterns: str) -> Iterator[Use]:
        """Yield calls and base classes of the program's own classes. A mere import or mention has no effect."""
        for source in self.sources:
            bases = {base for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef) for base in node.bases}
            for use in source.uses:
                if (use.kind is UseKind.CALL or use.node in bases) and matches(use.name, patterns):
                    yield use

    def first(self, *patterns: str, kind: UseKind | None = None) -> Use | None:
        return next(self.uses(*patterns, kind=kind), None)

    def call(self, *patterns: str) -> Use | None:
        return self.first(*patterns, kind=UseKind.CALL)

    def imports(self, *patterns: str) -> bool:
        return self.has(*patterns, kind=UseKind.IMPORT)

    def has(self, *patterns: str, kind: UseKind | None = None) -> bool:
        return self.first(*patterns, kind=kind) is not None

    def nodes(self, kind: type[Node]) -> Iterator[tuple[Source, Node]]:
        """Yield the nodes of a kind, file by file, each with its file."""
        for source in self.sources:
            yield from ((source, node) for node in ast.walk(source.tree) if isinstance(node, kind))

    def strings(self, expression: str) -> Iterator[tuple[Source, ast.Constant, re.Match[str]]]:
        """Yield string constants that match, except docstrings and texts that are only printed, logged or raised."""
        for source, node in self.nodes(ast.Constant):
            found = re.search(expression, text_of(node))
            if found and isinstance(node.value, str) and not _is_told(source, node):
                yield source, node, found

    def mentions(self, expression: str) -> bool:
        """Return whether any name, argument or text of the program matches."""
        pattern = re.compile(expression)
        return any(pattern.search(source.plain) for source in self.sources)


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


def calls_in(*nodes: ast.AST) -> Iterator[ast.Call]:
    return (each for node in nodes for each in ast.walk(node) if isinstance(each, ast.Call))


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(
        name.endswith(pattern) if pattern.startswith(".") else fnmatchcase(name, pattern) for pattern in patterns
    )


def read_code(program: Path, shown: str = "", exported: bool = False) -> Code:
    """Return a program with the modules of its folder that it imports, directly or through other modules.

    `exported`: the program may be an export of a notebook, with lines and cells that only IPython understands.
    """
    folder = program.absolute().parent
    shown = shown or str(program)
    prefix = shown[: -len(program.name)] if shown.endswith(program.name) else f"{folder}/"
    found = {program.absolute(): _read(program, shown, exported)}
    left = [program.absolute()]
    while left and len(found) < MOST_FILES:
        source = found[left.pop()]
        for name in _modules(source):
            for path in _files_of(folder, source.path.absolute().parent, name):
                if path not in found:
                    inside = path.relative_to(folder) if path.is_relative_to(folder) else path
                    found[path] = _read(path, f"{prefix}{inside}")
                    left.append(path)
    main, *modules = found.values()
    return Code(sources=(main, *_as_imported(main, modules)), folder=folder)


def _as_imported(main: Source, modules: list[Source]) -> Iterator[Source]:
    """Yield modules without what runs only when they are the main program, behind `if __name__ == "__main__":`."""
    bodies = {each.path: [node for node in each.tree.body if not _is_main_guard(node)] for each in modules}
    words = {path: _words(body) for path, body in {main.path: main.tree.body, **bodies}.items()}
    for source in modules:
        body = bodies[source.path]
        called = _words([node for node in source.tree.body if _is_main_guard(node)])
        elsewhere = set().union(*(each for path, each in words.items() if path != source.path))
        for node in [node for node in body if isinstance(node, ast.FunctionDef) and node.name in called - elsewhere]:
            others = [each for each in body if each is not node]
            body = body if node.name in _words(others) else others
        yield replace(source, tree=ast.Module(body=body, type_ignores=[]))


def _is_main_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in _words([node.test]) and not node.orelse


def _words(nodes: Sequence[ast.AST]) -> set[str]:
    """Return the names that occur anywhere in these nodes."""
    found = set()
    for node in (each for top in nodes for each in ast.walk(top)):
        if isinstance(node, ast.Name | ast.Attribute):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.alias):
            found.add(node.name)
    return found


def _read(path: Path, shown: str, exported: bool = False) -> Source:
    """Read and parse a file; raise OSError if it cannot be read."""
    text = path.read_text("utf-8", errors="replace")
    text = without_magics(text) if exported else text
    nothing = ast.Module(body=[], type_ignores=[])
    if path.suffix != ".py":
        return Source(path=path, shown=shown, text=text, tree=nothing)
    try:
        tree = ast.parse(text)
        return Source(path=path, shown=shown, text=text, tree=with_cells(tree) if exported else tree)
    except SyntaxError as error:
        problem, line = error.msg, error.lineno or 0
    except (ValueError, RecursionError) as error:
        problem, line = str(error), 0
    return Source(path=path, shown=shown, text=text, tree=nothing, problem=problem, line=line)


def _modules(source: Source) -> Iterator[tuple[int, str]]:
    """Yield (number of leading dots, name) of each module that a file may import."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from ((0, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if base:
                yield node.level, base
            yield from ((node.level, f"{base}.{name.name}".strip(".")) for name in node.names)


def _files_of(folder: Path, here: Path, name: tuple[int, str]) -> Iterator[Path]:
    level, dotted = name
    base = folder
    if level:
        base = here
        for _ in range(level - 1):
            base = base.parent
    words = dotted.split(".")
    for end in range(1, len(words) + 1):
        path = base.joinpath(*words[:end])
        for each in (path.with_suffix(".py"), path / "__init__.py"):
            if each.is_file():
                yield each


def _is_told(source: Source, node: ast.Constant) -> bool:
    """Return whether a string is a docstring, printed, logged, raised, or the help of an option."""
    for outer in source.around(node):
        match outer:
            case ast.keyword(arg="help" | "description" | "epilog") | ast.Raise():
                return True
            case ast.Call() if source.last(outer) in _TELLS:
                return True
            case ast.Expr():
                return outer.value is node
            case ast.Subscript() | ast.stmt():  # a key is used, even if the value that it finds is only printed
                return False
    return False


class _NoDocstrings(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if hasattr(node, "body") and node.body == []:
            node.body = [ast.Pass()]
        return node
