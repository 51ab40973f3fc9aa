"""Test entrypoint/usercode/known_values.py and name_scopes.py, which follow expressions to their constants."""

import ast
from pathlib import Path
from typing import Any

import pytest
from builders import write_files

from entrypoint.usercode.reader import read_code
from entrypoint.usercode.source import SourceFile, calls_in

HEAD = "import os\nfrom dataclasses import dataclass, field\nfrom pathlib import Path\n"
CONFIG = "@dataclass\nclass Config:\n    a: str = '/a'\n    b: str = field(default='/b')\n"
NET = "class Net:\n    def __init__(self, x='/a'):\n        self.x = x\n    def go(self):\n        seek(self.x)\n"
CASES: dict[str, list[Any]] = {
    # expressions
    "seek('a')": ["a"],
    "seek(os.path.join('/a', 'b', name))": ["/a/b/..."],
    "seek(str(Path('/a') / 'b' / name))": ["/a/b/..."],
    "seek(Path('/a').joinpath('b').as_posix())": ["/a/b"],
    "seek(f'/a/{2 * 3}/{n:03d}')": ["/a/6/..."],
    "seek('%s/%d' % ('a', n))": ["a/..."],
    "seek('{}/{:03d}'.format('a', n))": ["a/..."],
    "seek('/a' if chief else '/b')": ["/a", "/b"],
    "seek('/a' if 1 == 1 else '/b')": ["/a"],
    "seek(os.environ.get('A') or '/a')": ["...", "/a"],
    "seek(os.environ.get('A', '/a') + '/b')": [".../b", "/a/b"],
    "seek('a' or name)": ["a"],
    "seek(size / 2)": ["..."],
    "seek(int('3') - 1)": [2],
    # names, in the order of statements
    "x = 'a'\nseek(x)": ["a"],
    "x: str = 'a'\nseek(x)": ["a"],
    "x, y = 'a', 'b'\nseek(y)": ["b"],
    "x = 'a'\ndef f():\n    seek(x)": ["a"],
    "x = 'a'\nx = 'b'\nseek(x)": ["b"],
    "x = 'a'\nx += 'b'\nseek(x)": ["ab"],
    "x = 'a'\nif y:\n    x = 'b'\nseek(x)": ["b", "a"],
    "x = None\nif y:\n    x = 'a'\nelse:\n    raise ValueError\nseek(x)": ["a"],
    "try:\n    x = 'a'\nexcept KeyError:\n    x = 'b'\nseek(x)": ["b", "a"],
    "with strategy.scope():\n    x = 'a'\nseek(x)": ["a"],
    "x = 'a'\nwhile y:\n    seek(x)\n    x = 'b'": ["a", "b"],
    "x = 'a'\nfor y in z:\n    x = 'b'\n    seek(x)\n    x = 'c'": ["b"],
    "for x in ('a', 'b'):\n    seek(x)": ["a", "b"],
    "for x in y:\n    seek(x)": ["..."],
    "with open(y) as x:\n    seek(x)": ["..."],
    "x = y\nseek(x)": ["..."],
    "x = 'a'\ndel x\nseek(x)": ["..."],
    "x = 'a'\ndef f():\n    global x\n    x = 'b'\nseek(x)": ["b", "a"],
    "x = x\nseek(x)": ["..."],
    # parameters
    "x = 'a'\ndef f(x):\n    seek(x)": ["..."],
    "def f(x='a'):\n    seek(x)\nf()": ["a"],
    "def f(x='a', *, y='b'):\n    seek(x + y)\nf('c')\nf(y='d')": ["cb", "cd", "ab", "ad"],
    "def f(x='a'):\n    seek(x)\nf(**y)": ["a", "..."],
    "def f(x='a'):\n    seek(x)\nrun(f)": ["a", "..."],
    "@command\ndef f(x='a'):\n    seek(x)\nf()": ["a", "..."],
    "x = 'a'\ndef f(y=x):\n    seek(y)\nf()": ["a"],
    "def f():\n    return '/a'\nseek(f())": ["/a"],
    "def f():\n    yield '/a'\nseek(f())": ["..."],
    # objects and tables
    f"{CONFIG}seek(Config().a + Config.b)": ["/a/b"],
    f"{CONFIG}config = Config(a='/c')\nseek(config.a)": ["/c"],
    f"{CONFIG}config = Config()\nconfig.a = name\nseek(config.a)": ["/a", "..."],
    f"{CONFIG}config = parse(Config)\nseek(config.a)": ["..."],
    f"{CONFIG}config = Config(**read())\nseek(config.a)": ["..."],
    f"{NET}Net().go()": ["/a"],
    f"{NET}Net('/b').go()": ["/b"],
    "x = {'a': '/a'}\nseek(x['a'])": ["/a"],
    "x = {'a': '/a'}\nx['a'] = '/b'\nseek(x['a'])": ["..."],
    "x = {'a': '/a'}\nx.update(read())\nseek(x['a'])": ["..."],
    # what would take long
    "x = 'a' + y.upper()\n" + "x = x + x\n" * 30 + "seek(x)": ["..."],
    "x = None\nseek(x.upper())": ["..."],
}


@pytest.mark.parametrize("text", CASES)
def test_expression_has_all_values_that_its_constants_allow(text: str) -> None:
    source = SourceFile("train.py", HEAD + text)
    call = next(call for call in calls_in(source.tree) if ast.unparse(call.func) == "seek")
    values = source.values.of(call.args[0])
    assert sorted(map(repr, values)) == sorted(map(repr, CASES[text]))
    known = len(values) == 1 and "..." not in str(values[0])
    assert source.constant(call.args[0]) == (values[0] if known else None)


def test_values_follow_imports_and_what_is_given(tmp_path: Path) -> None:
    files = {
        "train.py": "from lib import settings as s\nfrom lib.settings import KEPT\nseek(s.OUT, KEPT, q['A'])\n",
        "lib/__init__.py": "",
        "lib/settings.py": "from .names import NAME\nOUT = '/tmp/' + NAME\nKEPT = os.environ['A']\n",
        "lib/names.py": "NAME = 'model'\n",
    }
    code = read_code(write_files(tmp_path, files) / "train.py", "train.py")

    def given(_: SourceFile, node: ast.AST) -> tuple[Any, ...] | None:
        return ("/opt/ml",) if isinstance(node, ast.Subscript) else None

    call = next(calls_in(code.main.tree))
    values = [code.values(code.main, each, given) for each in call.args]
    assert values == [("/tmp/model",), ("/opt/ml",), ("/opt/ml",)]
    assert code.values(code.main, call.args[1]) == ("...",)
