"""Check that docstrings of modules and functions begin with a verb, as docs/writing.md asks; ruff checks functions."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = [path for package in ("entrypoint", "sagemaker_tf_data") for path in sorted((ROOT / package).rglob("*.py"))]
# No verb: what a docstring began with that had to be read twice.
RIDDLES = {
    *("What", "Which", "Where", "When", "Who", "Whom", "Whose", "How", "Why", "Whether"),
    *("The", "A", "An", "One", "Of"),
}

pytestmark = pytest.mark.unmeasured  # it reads the sources, and runs none


def test_docstrings_begin_with_a_verb():
    assert [f"{path.relative_to(ROOT)}: {riddle}" for path in FILES for riddle in _riddles(path)] == []


def _riddles(path: Path) -> list[str]:
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Module | ast.FunctionDef)]
    texts = [text for node in nodes if (text := ast.get_docstring(node)) and not _is_property(node)]
    return [text.splitlines()[0] for text in texts if text.split()[0].rstrip(",:") in RIDDLES]


def _is_property(node: ast.AST) -> bool:
    return any("property" in ast.unparse(each) for each in getattr(node, "decorator_list", ()))
