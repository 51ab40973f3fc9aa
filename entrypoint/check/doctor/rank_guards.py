"""Find code that only some processes run: what stands behind a condition on the rank, the chief or the task."""

import ast
import functools
from collections.abc import Iterator

from entrypoint.check.doctor.source import Source, Use

_ONLY_WHO = {
    "rank",
    "local_rank",
    "is_chief",
    "chief",
    "task_index",
    "task_id",
    "task_type",
    "job_name",
    "is_master",
    "master",
    "is_main",
    "current_host",
    "worker_index",
    "worker_number",
}
_WHO = _ONLY_WHO | {"index", "first", "writes"}  # ambiguous: a variable set from one of these is not taken for a rank
_SAID = ("print", "info", "warning", "debug", "log", "say", "error")
LEAVES = ("sys.exit", "exit", "quit", "os._exit")


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
    if isinstance(node, ast.Call) and source.dotted(node.func).rpartition(".")[2] not in _SAID:
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
    return not _names_of_who(source).isdisjoint(_last_words(source, test))


@functools.lru_cache(maxsize=500)
def _names_of_who(source: Source) -> frozenset[str]:
    """Return the names that identify a process in a file: the usual ones, and those that the file assigns from them."""
    found = set(_ONLY_WHO)
    for _ in range(2):  # twice, since a name may be assigned from a name that was
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Assign) and _is_answer(source, node.value, found):
                found |= {source.last(target) for target in node.targets}
            elif isinstance(node, ast.FunctionDef):
                ends = (each.value for each in ast.walk(node) if isinstance(each, ast.Return) and each.value)
                found |= {node.name for end in ends if _is_answer(source, end, found)}
    return frozenset(found | _WHO)


def _is_answer(source: Source, value: ast.AST, names: set[str]) -> bool:
    """Return whether a value identifies the process: a rank, a comparison with one, or `not`, `and`, `or` of these."""
    if isinstance(value, ast.BoolOp):
        return any(_is_answer(source, each, names) for each in value.values)
    if isinstance(value, ast.UnaryOp):
        return _is_answer(source, value.operand, names)
    if isinstance(value, ast.Compare | ast.Subscript):
        return any(word in names for word in _last_words(source, value))
    called = value.func if isinstance(value, ast.Call) else value
    return isinstance(called, ast.Name | ast.Attribute) and source.last(called) in names


def _last_words(source: Source, node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name | ast.Attribute):
            yield source.last(each)
        elif isinstance(each, ast.Subscript):
            yield _key(each.slice)
        elif isinstance(each, ast.Call) and each.args and source.dotted(each.func).endswith((".get", ".getenv")):
            yield _key(each.args[0])


def _key(node: ast.AST) -> str:
    """Return the word of _WHO that a key stands for, as in `task["index"]` or `os.environ["OMPI_COMM_WORLD_RANK"]`."""
    key = str(node.value) if isinstance(node, ast.Constant) else ""
    if key in ("index", "type"):
        return f"task_{key}"
    return "current_host" if key == "SM_CURRENT_HOST" else "rank" if key.lower().endswith("rank") else ""


def _is_said(source: Source, node: ast.stmt) -> bool:
    match node:
        case ast.Pass() | ast.Assign(value=ast.Constant()):  # verbose = 1
            return True
        case ast.Expr(value=ast.Call() as call):
            return source.last(call) in _SAID
    return False
