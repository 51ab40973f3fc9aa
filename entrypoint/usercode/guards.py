"""Classify where an expression stands: in a condition or a `try`, behind a check that it exists, or as a default."""

import ast

from entrypoint.usercode.reader import UserCode
from entrypoint.usercode.source import SourceFile, UseKind

_ASK_WHETHER_THERE = (".exists", ".isdir", ".is_dir", ".isfile", ".is_file", ".glob", ".iglob")


def tried(source: SourceFile, node: ast.AST) -> bool:
    """Return whether a node is in a condition or a `try`, or is assigned to a path that the script checks for."""
    if next(source.guards(node), None):
        return True
    names = {
        each
        for outer in source.around(node)
        if isinstance(outer, ast.Assign)
        for each in map(ast.unparse, outer.targets)
    }
    asks = (use.node for use in source.uses if use.kind is UseKind.CALL and use.name.endswith(_ASK_WHETHER_THERE))
    return any(isinstance(each, ast.Name) and each.id in names for ask in asks for each in ast.walk(ask))


def set_or_asked(code: UserCode, variable: str) -> bool:
    """Return whether a program sets an environment variable itself, or checks that it is set."""
    for source, node in code.nodes(ast.Constant):
        match source.parents.get(node) if node.value == variable else None:
            case ast.Compare(ops=[ast.In() | ast.NotIn(), *_]) | ast.Subscript(ctx=ast.Store()):
                return True
            case ast.Call(func=name) if source.dotted(name).endswith(".setdefault"):
                return True
    return False


def fallback(source: SourceFile, node: ast.AST) -> ast.expr | None:
    """Return the expression in which a node is the default: `get(name, NODE)`, `default=NODE`, `... or NODE`."""
    inner = node
    for outer in source.around(node):
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
        inner = outer
    return None
