"""Test that only the policy changes the facts, which the supervisor and others read."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[4] / "entrypoint"
PARTS = {"facts", "own", "hosts", "attempt"}  # as those are called that hold the facts
MUTATORS = {"add", "append", "clear", "discard", "extend", "pop", "popitem", "remove", "setdefault", "update", "blame"}
FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if path.parent.name != "policy"]
READERS = [path for path in FILES if "policy" in path.read_text() and "facts" in path.read_text()]


def chain(node: ast.AST) -> list[str]:
    """Return the names of an expression: `facts.own.started[name]` gives facts, own, started."""
    if isinstance(node, ast.Subscript):
        return chain(node.value)
    return [*chain(node.value), node.attr] if isinstance(node, ast.Attribute) else [getattr(node, "id", "")]


def writes(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        *holder, name = chain(node.func)
        return bool(PARTS & set(holder)) and (name in MUTATORS or name.startswith(("note_", "begin_", "forget_")))
    is_target = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
    return is_target and bool(PARTS & set(chain(node)[:-1]))


@pytest.mark.parametrize("path", READERS, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_only_the_policy_changes_the_facts(path):
    assert [ast.unparse(node) for node in ast.walk(ast.parse(path.read_text())) if writes(node)] == []
