"""Turn exports of notebooks into Python: replace code that only IPython understands, and keep the line numbers."""

import ast
import re
from collections.abc import Iterator
from contextlib import suppress

_CELLS = ("time", "timeit", "capture", "prun")  # whose cells are Python
_CELL = re.compile(r"#\s*(In\s?\[|%%)")  # how exports begin a cell
_LINE = re.compile(r"(\s*)(!|%(?=[A-Za-z])|\?)|(\s*)[\w.]+\?{1,2}\s*$")
_TAKEN = re.compile(r"(\s*[\w, .\[\]]+=\s*)(!|%(?=[A-Za-z]))")


def without_magics(text: str) -> str:
    """Return a script without lines that only IPython can parse. A script that Python can parse stays unchanged."""
    with suppress(SyntaxError, ValueError, RecursionError):
        ast.parse(text)
        return text
    return "\n".join(_lines(text.split("\n")))


def _lines(lines: list[str]) -> Iterator[str]:
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        magic = re.match(r"%%(\w+)(.*)", line)
        if magic and magic[1] in _CELLS:
            yield "# " + line
        elif magic:
            end = next((each for each in range(at, len(lines)) if _CELL.match(lines[each])), len(lines))
            body = "\n".join(lines[at:end]).rstrip() + "\n"
            yield f"get_ipython().run_cell_magic({magic[1]!r}, {magic[2].strip()!r}, {body!r})"
            yield from [""] * (end - at)
            at = end
        elif taken := _TAKEN.match(line):
            yield f"{taken[1]}get_ipython().getoutput()"
        elif found := _LINE.match(line):
            timed = re.match(r"%(?:time|timeit|prun)\s+(?!-)(.+)", line.strip())  # `%time x.fit()` runs x.fit()
            yield f"{found[1] or found[3] or ''}{timed[1] if timed else 'pass'}"
            while lines[at - 1].endswith("\\") and at < len(lines):
                at += 1
                yield ""
        else:
            yield line


def with_cells(tree: ast.Module) -> ast.Module:
    """Return a tree with the code of cells in place of `get_ipython().run_cell_magic("time", ...)`."""
    body = [each for node in tree.body for each in _cell(node) or [node]]
    return ast.Module(body=body, type_ignores=[])


def _cell(node: ast.stmt) -> list[ast.stmt]:
    match node:
        case ast.Expr(ast.Call(func, [ast.Constant(magic), ast.Constant(), ast.Constant(code)])) if magic in _CELLS:
            with suppress(SyntaxError, ValueError):
                if ast.unparse(func) == "get_ipython().run_cell_magic":
                    inside = ast.parse(without_magics(str(code)))
                    for each in ast.walk(inside):
                        if isinstance(each, ast.stmt | ast.expr):
                            each.lineno = each.end_lineno = node.lineno
                    return inside.body
    return []
