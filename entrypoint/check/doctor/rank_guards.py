"""Find code that only some processes run: what stands behind a condition on the rank, the chief or the task."""

import ast
import functools
import re

from entrypoint.check.doctor.api_names import LEAVES, LOGS
from entrypoint.check.doctor.source import Source, Use

# Names and keys that identify a process, in code as ast.unparse writes it.
_WHO = (
    r"(\w+_)?(rank|RANK)|(is_)?(chief|master)|is_main|task_(index|id|type)|job_name|current_host|SM_CURRENT_HOST"
    r"|worker_(index|number)|(?<=\[')(index|type)(?='\])"
)
_AMBIGUOUS = "index|first|writes"  # a variable set from one of these is not taken for a rank


def guarded(use: Use) -> bool:
    """Return whether only some of the processes reach a call."""
    inner: ast.AST = use.node
    for outer in use.source.around(use.node):
        if isinstance(outer, ast.If | ast.IfExp | ast.While):
            if inner is not outer.test and _asks_who(use.source, outer.test):
                return True
        elif isinstance(outer, ast.BoolOp):
            before = outer.values[: outer.values.index(inner)] if inner in outer.values else []
            if any(_asks_who(use.source, each) for each in before):
                return True
        elif isinstance(outer, ast.FunctionDef | ast.Module) and _leaves_early(use, outer.body):
            return True
        inner = outer
    return False


def on_every_branch(uses: list[Use]) -> bool:
    """Return whether calls stand on both branches of one condition, so that every process reaches one of them."""
    sides: dict[ast.AST, set[bool]] = {}
    for use in uses:
        inner: ast.AST = use.node
        for outer in use.source.around(use.node):
            if isinstance(outer, ast.If):
                sides.setdefault(outer, set()).add(inner in outer.body)
            inner = outer
    return any(len(each) == 2 and isinstance(node, ast.If) and node.orelse for node, each in sides.items())


def decides(source: Source) -> bool:
    """Return whether a file does more by rank than print: choose or name a folder, return, or call a function."""
    for node in ast.walk(source.tree):
        if _passes_who(source, node):
            return True
        if isinstance(node, ast.If | ast.IfExp) and _asks_who(source, node.test):
            if isinstance(node, ast.If):
                prints = all(_is_said(source, each) for each in node.body)
            else:
                prints = isinstance(node.body, ast.Constant) and isinstance(node.orelse, ast.Constant)
            if not prints:
                return True
    return False


def _passes_who(source: Source, node: ast.AST) -> bool:
    """Return whether a function is told who calls it, `save(model, to, me == "chief")`, or a path names the process."""
    if isinstance(node, ast.Call) and source.dotted(node.func).rpartition(".")[2] not in LOGS:
        return any(isinstance(each, ast.Compare) and _asks_who(source, each) for each in node.args)
    if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp | ast.JoinedStr)):
        return False
    is_text = any(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in ast.walk(node.value))
    return is_text and _asks_who(source, node.value)


def _leaves_early(use: Use, body: list[ast.stmt]) -> bool:
    return any(
        isinstance(each, ast.If) and _asks_who(use.source, each.test) and _leaves(use.source, each.body[-1])
        for each in body
        if each.lineno < use.line
    )


def _leaves(source: Source, node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return source.dotted(node.value.func) in LEAVES
    return isinstance(node, ast.Return | ast.Raise)


def _asks_who(source: Source, test: ast.AST) -> bool:
    return bool(re.search(_names_of_who(source), ast.unparse(test)))


@functools.lru_cache(maxsize=500)
def _names_of_who(source: Source) -> str:
    """Return a pattern of what identifies a process in a file: the usual names, and those assigned from them."""
    who, names = _WHO, set[str]()
    for _ in range(2):  # twice, since a name may be assigned from a name that was
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Assign) and _is_answer(node.value, who):
                names |= {source.last(target) for target in node.targets}
            elif isinstance(node, ast.FunctionDef):
                ends = (each.value for each in ast.walk(node) if isinstance(each, ast.Return) and each.value)
                names |= {node.name for end in ends if _is_answer(end, who)}
        who = "|".join([_WHO, *(names - {""})])
    return rf"\b({who}|{_AMBIGUOUS})\b"


def _is_answer(value: ast.AST, who: str) -> bool:
    """Return whether a value identifies the process: a rank, a comparison with one, or `not`, `and`, `or` of these."""
    answer = value.func if isinstance(value, ast.Call) else value
    kinds = ast.Name | ast.Attribute | ast.Subscript | ast.Compare | ast.UnaryOp | ast.BoolOp
    return isinstance(answer, kinds) and re.search(rf"\b({who})\b", ast.unparse(answer)) is not None


def _is_said(source: Source, node: ast.stmt) -> bool:
    match node:
        case ast.Pass() | ast.Assign(value=ast.Constant()):  # verbose = 1
            return True
        case ast.Expr(value=ast.Call() as call):
            return source.last(call) in LOGS
    return False
