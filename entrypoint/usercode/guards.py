"""Find places where a value is only checked for, tried, set by the program, or used as a default."""

import ast
from collections.abc import Iterator

from entrypoint.usercode.reader import UserProgram
from entrypoint.usercode.source import SourceFile, UseKind, value_of

_ASK_WHETHER_THERE = (".exists", ".isdir", ".is_dir", ".isfile", ".is_file", ".glob", ".iglob")


def tried(source: SourceFile, node: ast.AST) -> bool:
    """Return whether a node is in a condition or a `try`, or is assigned to a path that the script checks for."""
    if next(source.guards(node), None):
        return True
    assigns = (outer for outer in source.around(node) if isinstance(outer, ast.Assign))
    names = {target.id for each in assigns for target in each.targets if isinstance(target, ast.Name)}
    asks = (use.node for use in source.uses if use.kind is UseKind.CALL and use.name.endswith(_ASK_WHETHER_THERE))
    return any(isinstance(each, ast.Name) and each.id in names for ask in asks for each in ast.walk(ask))


def sets(code: UserProgram, variable: str) -> Iterator[tuple[SourceFile, ast.AST]]:
    """Yield each place where a program sets an environment variable: as an item, by a call, or among others."""
    for source, node in code.nodes(ast.Constant):
        if node.value != variable:
            continue
        outer = source.parents.get(node)
        call = source.parents.get(outer) if isinstance(outer, ast.Dict) else outer
        if isinstance(outer, ast.Subscript) and isinstance(outer.ctx, ast.Store):
            yield source, outer
        elif isinstance(call, ast.Call) and source.last(call) in ("putenv", "setdefault", "update"):
            yield source, call
    for source, call in code.nodes(ast.Call):
        if source.last(call) == "update" and any(keyword.arg == variable for keyword in call.keywords):
            yield source, call


def set_or_asked(code: UserProgram, variable: str) -> bool:
    """Return whether a program sets an environment variable itself, or checks that it is set."""
    compares = (node for _, node in code.nodes(ast.Compare) if isinstance(node.ops[0], ast.In | ast.NotIn))
    return any(sets(code, variable)) or any(value_of(node.left) == variable for node in compares)


def fallback(source: SourceFile, node: ast.AST) -> ast.expr | None:
    """Return the expression in which a node is the default: `get(name, NODE)`, `default=NODE`, `... or NODE`."""
    for outer, inner in source.way_up(node):
        if isinstance(outer, ast.Call):
            if source.last(outer) in ("get", "getenv", "pop", "setdefault") and inner in outer.args[1:]:
                return outer
        elif isinstance(outer, ast.keyword) and outer.arg == "default":
            call = source.parents[outer]
            return call if isinstance(call, ast.Call) else None
        elif isinstance(outer, ast.BoolOp) and isinstance(outer.op, ast.Or) and inner is not outer.values[0]:
            return outer
        elif isinstance(outer, ast.stmt):
            return None
    return None
