"""Test entrypoint/programs/as_tf1.py with a short stand-in for `tensorflow`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders import write_files

PROGRAM = Path(__file__).resolve().parents[3] / "entrypoint/programs/as_tf1.py"
V1 = """import os
from types import SimpleNamespace
from tensorflow import errors
compat = SimpleNamespace()
Session = "Session of version 1"


def disable_v2_behavior():
    print("switched off, and the script has set", os.environ.get("OF_THE_SCRIPT"))
"""
PACKAGES = {
    "tensorflow/__init__.py": "from types import SimpleNamespace\nerrors = SimpleNamespace(OpError=OSError)\n",
    "tensorflow/compat/__init__.py": "",
    "tensorflow/python/__init__.py": "",
    "tensorflow/compat/v1/__init__.py": V1,
    "library.py": "import tensorflow as tf\nprint('a library sees', hasattr(tf, 'Session'))\n",
    "partial/__init__.py": "WHOLE = False\n",
    # As setuptools has it for `distutils`, of which Debian's Python has a part.
    "sitecustomize.py": """import importlib.abc, importlib.util, os, sys
if "EARLY" in os.environ:
    import multiprocessing
    sys.modules["early"] = multiprocessing


class First(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name == "partial" else None

    def exec_module(self, module):
        module.WHOLE = True


sys.meta_path.insert(0, First())
""",
}
CODE = {
    "train.py": """import os, pickle, sys
os.environ["OF_THE_SCRIPT"] = "its variables"
import library, partial, tensorflow as tf
from lib.layers import S
from tensorflow import Session as T


class Mine:
    pass


assert isinstance(pickle.loads(pickle.dumps(Mine())), Mine)
print(tf.Session == S == T, partial.WHOLE, sys.argv, __name__, os.path.basename(sys.path[0]))
""",
    "spawns.py": """import multiprocessing, os
import tensorflow as tf
from lib.layers import S


class Found(str):
    pass


def look(number):
    return Found(f"{number} {tf.Session == S} {os.path.isabs(__file__)} {os.path.basename(__file__)}")


if __name__ == "__main__":
    assert os.path.isabs(__file__) and "train.py" in os.listdir(os.path.dirname(__file__)), __file__
    for method in ("spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(method, *pool.map(look, [1]))
""",
    "starts.py": """import os, subprocess, sys
os.environ["OF_THE_SCRIPT"] = "its variables"
for words in (["started.py"], ["-m", "started"], ["-c", "import tensorflow as tf; print(tf.Session)"]):
    print(subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True).stdout.splitlines()[-1])
""",
    "started.py": """import sys, library, tensorflow.compat.v1, tensorflow as tf
from importlib import import_module
from lib.layers import S
print(S == tf.Session == import_module("tensorflow").Session, __import__("tensorflow") is tf, "early" in sys.modules)
""",
    "lib/__init__.py": "",
    "lib/layers.py": "import tensorflow\nS = tensorflow.Session\n",
}


@pytest.fixture
def run(tmp_path: Path):
    packages, code = write_files(tmp_path / "packages", PACKAGES), write_files(tmp_path / "code", CODE)

    def run(*words: str, **more: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(packages), **more}
        command = [sys.executable, str(PROGRAM), *words]
        done = subprocess.run(command, cwd=code, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


SAID = "a library sees False\nswitched off, and the script has set its variables\n"


def test_script_gets_tensorflow_1_and_libraries_get_tensorflow_2(run):
    assert run("train.py", "--a", "b c") == f"{SAID}True True ['train.py', '--a', 'b c'] __main__ code\n"


def test_module_runs_with_tensorflow_1_names(run, tmp_path):
    said = run("-m", "train", "--a")
    assert said.startswith(f"{SAID}True True [") and said.endswith("/code/train.py', '--a'] __main__ code\n")


def test_child_python_programs_get_tensorflow_1_names(run):
    """A program is started by file, as a module or as text, and keeps its own `sitecustomize`."""
    assert run("starts.py", EARLY="yes").splitlines() == ["True True True", "True True True", "Session of version 1"]


def test_shim_leaves_no_compiled_files(run, tmp_path):
    run("-m", "train")
    assert not [*(tmp_path / "code").rglob("*.pyc")]


@pytest.mark.timeout(120)  # a pool whose processes cannot begin starts others for ever
@pytest.mark.parametrize(
    ("words", "more"),
    [(["spawns.py"], {}), (["-m", "spawns"], {"EARLY": "yes"})],
    ids=["a file", "a module, multiprocessing imported at the start"],
)
def test_multiprocessing_children_get_tensorflow_1_names(run, words, more):
    """The program's `__file__` is the same as without the shim."""
    told = run(*words, **more).splitlines()
    assert [line for line in told if not line.startswith("switched off")] == [
        "spawn 1 True True spawns.py", "forkserver 1 True True spawns.py"
    ]  # fmt: skip
