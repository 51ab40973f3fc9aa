"""Read imports and dotted names in the syntax trees of the user's code."""

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

Functions = ast.FunctionDef | ast.AsyncFunctionDef
UNREADABLE = (SyntaxError, ValueError, RecursionError)  # ValueError: a NUL


def imported(node: ast.AST, file: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield (name in the file, what it means, module that is loaded) of an import; nothing of other nodes.

    `import a.b` yields (a, a, a.b), and `from a import b as c` yields (c, a.b, a). Relative imports begin at `file`.
    """
    if isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name.partition(".")[0]
            yield alias.asname or top, alias.name if alias.asname else top, alias.name
    elif isinstance(node, ast.ImportFrom):
        folders = PurePosixPath(file).parents
        above = folders[node.level - 1].parts if 0 < node.level <= len(folders) else ()
        module = ".".join([*above, *filter(None, [node.module])])
        for alias in node.names:
            yield alias.asname or alias.name, f"{module}.{alias.name}".strip("."), module


def dotted(node: ast.AST) -> tuple[ast.AST, list[str]]:
    """Return the object at which an expression begins, and the attributes behind it: of `f().a.b`, `f()` and [a, b]."""
    words: list[str] = []
    while isinstance(node, ast.Attribute):
        words.insert(0, node.attr)
        node = node.value
    return node, words


def is_main(test: ast.expr) -> bool:
    """Return whether a condition is `__name__ == ...`."""
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"
