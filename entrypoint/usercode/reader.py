"""Read the user's code as one program: the program's file and the files that it imports, from texts or a folder."""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from entrypoint.usercode.api_names import LOGS
from entrypoint.usercode.source import (
    SourceFile,
    Use,
    UseKind,
    asks_for_main,
    attributes,
    is_main_guard,
    matches,
    plain_text,
    text_of,
    words_of,
)

MOST_FILES = 500
_TELLS = (*LOGS, "exit", "SystemExit")
Node = TypeVar("Node", bound=ast.AST)
GivenIn = Callable[[SourceFile, ast.AST], "tuple[Any, ...] | None"]


class UserProgram:
    """Hold files of the user's, the program first if it is one of them."""

    def __init__(
        self, sources: Iterable[SourceFile], program: str, folder: Path = Path(), started: Iterable[SourceFile] = ()
    ) -> None:
        self.sources = tuple(sources)
        self.program = program  # its name; a shell script or a package is none of the files
        self.folder = folder  # the one that would hold requirements.txt
        self.started = tuple(started)  # the Python programs that a shell script starts

    @classmethod
    def of(cls, files: Iterable[tuple[str, str]], program: str) -> "UserProgram":
        """Return all files of a code folder, each by its name in the folder and its text."""
        name = str(PurePosixPath(program))
        sources = [SourceFile(shown, text) for shown, text in files]
        return cls(sorted(sources, key=lambda each: each.shown != name), name)

    @property
    def main(self) -> SourceFile:
        return self.sources[0]

    @property
    def programs(self) -> tuple[SourceFile, ...]:
        """Return the files that run as programs: the program, else those that a shell script starts."""
        return self.started or tuple(each for each in self.sources if each.shown == self.program)

    @cached_property
    def by_name(self) -> dict[str, SourceFile]:
        return {source.shown: source for source in self.sources}

    # --- what is used ---

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
        """Yield calls and base classes of the program's own classes. Imports and mentions alone do not count."""
        bases = {base for _, node in self.nodes(ast.ClassDef) for base in node.bases}
        return (use for use in self.uses(*patterns) if use.kind is UseKind.CALL or use.node in bases)

    def first(self, *patterns: str, kind: UseKind | None = None) -> Use | None:
        return next(self.uses(*patterns, kind=kind), None)

    def call(self, *patterns: str) -> Use | None:
        return self.first(*patterns, kind=UseKind.CALL)

    def imports(self, *patterns: str) -> bool:
        return self.has(*patterns, kind=UseKind.IMPORT)

    def has(self, *patterns: str, kind: UseKind | None = None) -> bool:
        return self.first(*patterns, kind=kind) is not None

    def nodes(self, kind: type[Node]) -> Iterator[tuple[SourceFile, Node]]:
        """Yield the nodes of a kind, file by file, each with its file."""
        for source in self.sources:
            yield from ((source, node) for node in source.all_nodes if isinstance(node, kind))

    def strings(self, expression: str) -> Iterator[tuple[SourceFile, ast.Constant, re.Match[str]]]:
        """Yield string constants that match, except docstrings and texts that are only printed, logged or raised."""
        for source, node in self.nodes(ast.Constant):
            found = re.search(expression, text_of(node))
            if found and isinstance(node.value, str) and not _is_told(source, node):
                yield source, node, found

    def mentions(self, expression: str) -> bool:
        """Return whether any name, argument or text of the program matches."""
        pattern = re.compile(expression)
        return any(pattern.search(source.plain) for source in self.sources)

    # --- what expressions stand for ---

    def values(self, source: SourceFile, node: ast.AST | None, given: GivenIn = lambda *_: None) -> tuple[Any, ...]:
        """Return the values that an expression may have, and follow imports of the user's files.

        `given`: what is known of an expression from outside of the code, such as a variable of the job.
        """
        return source.values.of(node, partial(self._known, source, given=given))

    def _known(self, source: SourceFile, node: ast.AST, given: GivenIn) -> tuple[Any, ...] | None:
        values = given(source, node)
        if values is None and isinstance(node, ast.Name | ast.Attribute):
            values = self._imported(source, node, given)
        return values

    def _imported(self, source: SourceFile, node: ast.Name | ast.Attribute, given: GivenIn) -> tuple[Any, ...] | None:
        """Return the values of a name of another file: `folder` or `settings.folder`, as it was imported."""
        base, words = attributes(node)
        here = base.id if isinstance(base, ast.Name) else ""
        for each in source.imports if len(words) < 3 else ():
            if each.here == here and source.values.scopes.times_bound(here) == 1:
                *module, name = [*each.meant.split("."), *words]
                files = self.module(source, ".".join(module), each.level)
                if files and name in files[-1].values.scopes.bound[files[-1].tree]:
                    return files[-1].values.named(name, partial(self._known, files[-1], given=given))
        return None

    # --- what is imported ---

    def module(self, source: SourceFile, name: str, level: int = 0) -> list[SourceFile]:
        """Return the files that run when a file imports a module: the packages around it, then its own.

        Return none if the module is not the user's. `level`: the dots of a relative import.
        """
        program = PurePosixPath(self.program).parent
        words = [word for word in name.split(".") if word]
        for base in [_above(source.shown, level)] if level else (program, PurePosixPath()):
            found = [self.by_name.get(str(base / path)) for path in files_of(words)]
            if words and any(found[-2:]):
                return [each for each in found if each and each is not source]
        return []


def _started(text: str) -> dict[str, None]:
    from entrypoint.usercode.shell import started  # takes milliseconds that only the doctor needs

    return dict.fromkeys(each.program or "" for each in started(text))


def read_code(program: Path, shown: str = "", exported: bool = False) -> UserProgram:
    """Return a program with the modules of its folder that it imports, directly or through other modules.

    Of a shell script, add the Python programs that it starts. `exported`: the program may be an export of a notebook,
    with lines and cells that only IPython understands.
    """
    folder = program.absolute().parent
    shown = shown or str(program)
    prefix = shown[: -len(program.name)] if shown.endswith(program.name) else f"{folder}/"
    text = plain_text(program, exported=exported)

    def imported(source: SourceFile) -> Iterator[SourceFile]:
        for each in source.imports:
            base = Path(_above(str(source.path), each.level)) if each.level else folder
            for path in filter(Path.is_file, (base / path for path in files_of(each.whole.split(".")))):
                inside = path.relative_to(folder) if path.is_relative_to(folder) else path
                yield SourceFile(f"{prefix}{inside}", plain_text(path), path)

    main = SourceFile(shown, text, program.absolute(), exported)
    names = _started(text) if program.suffix == ".sh" else ()
    paths = [folder / name for name in names if (folder / name).is_file()]
    begun = [SourceFile(f"{prefix}{path.relative_to(folder)}", plain_text(path), path) for path in paths]
    programs = [main, *begun] if len(begun) == len(names) else [main]
    modules = followed(programs, imported)[len(programs) :]
    return UserProgram([*programs, *_as_imported(programs, modules)], shown, folder, programs[1:])


def followed(
    programs: Iterable[SourceFile], imported: Callable[[SourceFile], Iterable[SourceFile]], most: int = MOST_FILES
) -> list[SourceFile]:
    """Return the programs' files, the files that these import, and so on."""
    found = {source.shown: source for source in programs}
    left = list(found.values())
    for source in left:  # which grows by what each imports
        for each in imported(source):
            if each.shown not in found and len(found) < most:
                found[each.shown] = each
                left.append(each)
    return left


def files_of(words: list[str]) -> Iterator[str]:
    """Yield the paths that a module and the packages around it may have: `a.py`, `a/__init__.py`, `a/b.py` ..."""
    for end in range(1, len(words) + 1):
        path = "/".join(words[:end])
        yield from (f"{path}.py", f"{path}/__init__.py")


def _above(file: str, level: int) -> PurePosixPath:
    """Return the folder at which a relative import of a file begins."""
    folders = PurePosixPath(file).parents
    return folders[min(level, len(folders)) - 1]


def _as_imported(programs: list[SourceFile], modules: list[SourceFile]) -> Iterator[SourceFile]:
    """Yield modules without the code behind `if __name__ == "__main__":`, which only a main program runs."""
    bodies = {
        each.shown: [
            inner
            for node in each.tree.body
            for inner in (node.orelse if isinstance(node, ast.If) and asks_for_main(node.test) else [node])
        ]
        for each in modules
    }
    own = {each.shown: each.tree.body for each in programs}
    words = {shown: _words(body) for shown, body in {**own, **bodies}.items()}
    for source in modules:
        body: list[ast.stmt] = bodies[source.shown]
        called = _words(node for node in source.tree.body if is_main_guard(node))
        elsewhere = set[str]().union(*(each for shown, each in words.items() if shown != source.shown))
        for node in [node for node in body if isinstance(node, ast.FunctionDef) and node.name in called - elsewhere]:
            others = [each for each in body if each is not node]
            body = body if node.name in _words(others) else others
        yield source.running(body)


def _words(nodes: Iterable[ast.AST]) -> set[str]:
    return words_of(each for node in nodes for each in ast.walk(node))


def _is_told(source: SourceFile, node: ast.Constant) -> bool:
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
