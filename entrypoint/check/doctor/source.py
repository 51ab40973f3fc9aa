"""Parse one file of a program: its names, calls and imports, and where they stand. The code is read and never run."""

import ast
import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

from entrypoint.base.errors import clip
from entrypoint.base.python310 import StrEnum
from entrypoint.check.doctor.notebooks import with_cells, without_magics
from entrypoint.check.finding import Place


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
            for alias, name in _imported(node):
                whole = name if alias.asname or isinstance(node, ast.ImportFrom) else name.split(".")[0]
                found[alias.asname or whole.rpartition(".")[2]] = whole
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
            found += [Use(source=self, node=node, name=name, kind=UseKind.IMPORT) for _, name in _imported(node)]
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


MOST_BYTES = 4 << 20  # of a file that is read


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
        return clip(" ".join(ast.unparse(self.node).split()), 80)

    def argument(self, name: str, at: int | None = None) -> ast.AST | None:
        """Return the expression of an argument of a call, by its name or else its position; None if it is not given."""
        if not isinstance(self.node, ast.Call):
            return None
        for given in self.node.keywords:
            if given.arg == name:
                return given.value
        return self.node.args[at] if at is not None and len(self.node.args) > at else None


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


def read_source(path: Path, shown: str, exported: bool = False) -> Source:
    """Read and parse a file; raise OSError if it cannot be read."""
    large = path.stat().st_size > MOST_BYTES  # no program, as its name may be
    text = "" if large else path.read_text("utf-8", errors="replace")
    text = without_magics(text) if exported else text
    tree, problem, line = ast.Module(body=[], type_ignores=[]), "", 0
    if path.suffix == ".py":
        try:
            tree = with_cells(ast.parse(text)) if exported else ast.parse(text)
        except (SyntaxError, ValueError, RecursionError) as error:
            problem, line = getattr(error, "msg", str(error)), getattr(error, "lineno", None) or 0
    return Source(path=path, shown=shown, text=text, tree=tree, problem=problem, line=line)


def _imported(node: ast.AST) -> Iterator[tuple[ast.alias, str]]:
    """Yield (alias, full name) of each name that a statement imports by an absolute name."""
    if isinstance(node, ast.Import):
        yield from ((alias, alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
        yield from ((alias, f"{node.module}.{alias.name}") for alias in node.names)


class _NoDocstrings(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)
