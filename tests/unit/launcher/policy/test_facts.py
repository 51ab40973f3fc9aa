"""Test that only the policy writes the facts, by their methods."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[4] / "entrypoint"
FACTS = [PACKAGE / "launcher/policy" / f"{name}.py" for name in ("facts", "known")]
PARTS = {"facts", "own", "hosts", "attempt"}  # as those are called that hold the facts
MUTATORS = {"add", "append", "clear", "discard", "extend", "pop", "popitem", "remove", "setdefault", "update"}
WRITES = ("note_", "begin_", "forget_", "excuse_", "blame")
FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if "policy" in path.read_text() and path not in FACTS]


def chain(node: ast.AST) -> list[str]:
    """Return the names of an expression: `facts.own.started[name]` gives facts, own, started."""
    if isinstance(node, ast.Subscript):
        return chain(node.value)
    return [*chain(node.value), node.attr] if isinstance(node, ast.Attribute) else [getattr(node, "id", "")]


def targets(node: ast.AST) -> list[ast.AST]:
    found = [*getattr(node, "targets", []), *filter(None, [getattr(node, "target", None)])]
    return [each for target in found for each in getattr(target, "elts", [target])]


def written(source: str, may_note: bool) -> list[str]:
    """Return a module's writes into the facts that bypass their methods, or that it may not make."""
    found = []
    for node in ast.walk(ast.parse(source)):
        found += [target for target in targets(node) if PARTS & set(chain(target)[:-1])]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            *holder, name = chain(node.func)
            notes = name.startswith(WRITES) and not may_note
            found += [node] if PARTS & set(holder) and (notes or (name in MUTATORS and holder[-1] not in PARTS)) else []
    return [ast.unparse(node) for node in found]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_nobody_else_writes_the_facts(path):
    assert written(path.read_text(), may_note=path.parent.name == "policy") == []


@pytest.mark.parametrize(
    "source",
    ["facts.things = {}", "self.facts.own.started[name] = 1.0", "a, facts.hosts.woke = 1, 2", "del own.asked[name]",
     "facts.attempt.ready |= {1}", "facts.attempt.causes.append(1)", "self.hosts.last_contact.pop(host)",
     "self.facts.hosts.note_contact(host, now)", "facts.blame(now, name)"],
)  # fmt: skip
def test_what_writes_is_found(source):
    assert written(source, may_note=False)
