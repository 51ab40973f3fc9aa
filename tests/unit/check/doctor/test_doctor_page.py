"""Test that docs/doctor.md lists the checks that the code has."""

import ast
from pathlib import Path

from looking import checks

PACKAGE = Path(__file__).resolve().parents[4] / "entrypoint"
MAKERS = ("error", "warning", "note", "make", "Doubt", "IfExp")


def test_the_page_has_every_check() -> None:
    texts, made = set(), set()
    for path in [*(PACKAGE / "check/doctor").glob("*.py"), *(PACKAGE / "programs/prepare").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            texts |= {node.value} if isinstance(node, ast.Constant) else set()
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                made |= {node.args[0].value} if getattr(node.func, "id", type(node.func).__name__) in MAKERS else set()
    assert len(checks()) > 60
    assert made <= checks().keys() <= texts
