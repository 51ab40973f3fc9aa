"""Read a program: its script and the modules beside it that it imports. Search all of these files as one."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from entrypoint.check.doctor.api_names import LOGS
from entrypoint.check.doctor.source import Source, Use, UseKind, matches, read_source, text_of

MOST_FILES = 500
_TELLS = (*LOGS, "exit", "SystemExit")
Node = TypeVar("Node", bound=ast.AST)


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


def read_code(program: Path, shown: str = "", exported: bool = False) -> Code:
    """Return a program with the modules of its folder that it imports, directly or through other modules.

    `exported`: the program may be an export of a notebook, with lines and cells that only IPython understands.
    """
    folder = program.absolute().parent
    shown = shown or str(program)
    prefix = shown[: -len(program.name)] if shown.endswith(program.name) else f"{folder}/"
    found = {program.absolute(): read_source(program, shown, exported)}
    left = [program.absolute()]
    while left and len(found) < MOST_FILES:
        source = found[left.pop()]
        for level, name in _modules(source):
            for path in _files_of(folder, source.path.absolute().parent, level, name):
                if path not in found:
                    inside = path.relative_to(folder) if path.is_relative_to(folder) else path
                    found[path] = read_source(path, f"{prefix}{inside}")
                    left.append(path)
    main, *modules = found.values()
    return Code(sources=(main, *_as_imported(main, modules)), folder=folder)


def _as_imported(main: Source, modules: list[Source]) -> Iterator[Source]:
    """Yield modules without what runs only when they are the main program, behind `if __name__ == "__main__":`."""
    bodies = {each.path: [node for node in each.tree.body if not is_main_guard(node)] for each in modules}
    words = {path: _words(body) for path, body in {main.path: main.tree.body, **bodies}.items()}
    for source in modules:
        body = bodies[source.path]
        called = _words([node for node in source.tree.body if is_main_guard(node)])
        elsewhere = set().union(*(each for path, each in words.items() if path != source.path))
        for node in [node for node in body if isinstance(node, ast.FunctionDef) and node.name in called - elsewhere]:
            others = [each for each in body if each is not node]
            body = body if node.name in _words(others) else others
        yield replace(source, tree=ast.Module(body=body, type_ignores=[]))


def is_main_guard(node: ast.AST) -> bool:
    """Return whether a statement is `if __name__ == "__main__":`, without an `else`."""
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


def _modules(source: Source) -> Iterator[tuple[int, str]]:
    """Yield (number of leading dots, name) of each module that a file may import."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from ((0, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.level, f"{node.module or ''}.{name.name}".strip(".")) for name in node.names)


def _files_of(folder: Path, here: Path, level: int, name: str) -> Iterator[Path]:
    """Yield the files of a module and of the packages that it is in."""
    base = here if level else folder
    for _ in range(level - 1):
        base = base.parent
    words = name.split(".")
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
