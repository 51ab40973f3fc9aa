"""Test entrypoint/usercode/reader.py and source.py, by which doctor and prepare step read the user's code."""

import ast
from pathlib import Path

import pytest
from builders import write_files

from entrypoint.usercode.reader import UserProgram, read_code
from entrypoint.usercode.source import SourceFile, calls_in
from entrypoint.usercode.words import without_comments

NAMES = """
import a.b
import c.d as e
from f import g as h
from . import near
first = a.x, e.y, h.z, near.w, made().v
"""


def call_of(source: SourceFile, name: str = "seek") -> ast.Call:
    return next(call for call in calls_in(source.tree) if ast.unparse(call.func) == name)


def test_names_resolve_to_full_imported_names() -> None:
    source = SourceFile("train.py", NAMES)
    shown = [source.dotted(node) for node in source.tree.body[-1].value.elts]  # type: ignore[attr-defined]
    assert shown == ["a.x", "c.d.y", "f.g.z", "near.w", ".v"]
    assert [each.whole for each in source.imports] == ["a.b", "c.d", "f.g", "near"]


def test_long_chain_is_read_and_endless_nesting_is_unreadable() -> None:
    long, endless = (SourceFile("train.py", f"x = tf{'.a()' * count}") for count in (800, 5000))
    assert long.plain.endswith(".a()") and long.uses and long.problem == ("", 0)
    assert endless.problem == ("it is nested more than 2000 levels deep", 0) and not endless.uses


@pytest.mark.parametrize(
    ("text", "guards"),
    [
        ("seek()", []),
        ("if __name__ == '__main__':\n    seek()", []),
        ("if '__main__' == __name__:\n    for x in y:\n        seek()", []),
        ("if __name__ == '__main__':\n    pass\nelse:\n    seek()", [ast.If]),
        ("if __name__ == '__main__' and x:\n    seek()", [ast.If]),
        ("if __name__ == '__main__':\n    if x:\n        seek()", [ast.If]),
        ("try:\n    y = seek() if x else 0\nexcept KeyError:\n    pass", [ast.IfExp, ast.Try]),
        ("x or seek()", [ast.BoolOp]),
        ("def f():\n    with x:\n        seek()", []),
    ],
)
def test_main_guard_does_not_count_as_a_guard(text: str, guards: list[type]) -> None:
    source = SourceFile("train.py", text)
    assert [type(each) for each in source.guards(call_of(source))] == guards


def test_comments_are_removed_and_line_numbers_kept() -> None:
    text = "#!python\n\na = 'one # two'  # 'three'\nb = \"\"\"\n# four's\n\"\"\"\n  # five's\nc = '\\'#' #\nd = '' #\n"
    assert without_comments(text) == "\n\na = 'one # two'\nb = \"\"\"\n# four's\n\"\"\"\n\nc = '\\'#'\nd = ''\n"


def test_program_is_read_with_its_imported_modules(tmp_path: Path) -> None:
    files = {
        "train.py": "import lib.net\nimport json\n",
        "lib/__init__.py": "",
        "lib/net.py": "from . import of_net\nif __name__ == '__main__':\n    alone()\nelse:\n    seek()\n",
        "lib/of_net.py": "if __name__ in ('__main__', '__mp_main__') and x:\n    alone()\n",
        "other.py": "",
    }
    read = read_code(write_files(tmp_path, files) / "train.py", "train.py")
    assert [each.shown for each in read.sources] == ["train.py", "lib/__init__.py", "lib/net.py", "lib/of_net.py"]
    assert [use.name for use in read.calls("*")] == ["seek"]
    given = UserProgram.of(files.items(), "train.py")
    net = given.by_name["lib/net.py"]
    assert [each.shown for each in given.module(given.main, "lib.net")] == ["lib/__init__.py", "lib/net.py"]
    assert [each.shown for each in given.module(net, "of_net", level=1)] == ["lib/of_net.py"]
    assert given.module(given.main, "json") == []
