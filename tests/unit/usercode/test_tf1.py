"""Test entrypoint/usercode/tf1.py: the names of TensorFlow 1 that it lists, by file and line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from entrypoint.usercode.reader import UserProgram
from entrypoint.usercode.tf1 import (
    MODULES,
    TABLE,
    _table,
    _tensorflow,
    _version,
    describe,
    has_keras_2,
    listed,
    refused,
)
from entrypoint.usercode.words import without_comments

TENSORFLOW = """renames = {
    'tf.ConfigProto':
        'tf.compat.v1.ConfigProto',
    'tf.Session':
        'tf.compat.v1.Session',
    'tf.keras.backend.set_session':
        'tf.compat.v1.keras.backend.set_session',
    'tf.keras.optimizers.Adam':
        'tf.keras.optimizers.legacy.Adam',
    'tf.layers.dense':
        'tf.compat.v1.layers.dense',
    'tf.log':
        'tf.math.log',
    'tf.summary.scalar':
        'tf.compat.v1.summary.scalar',
    'tf.train.AdamOptimizer':
        'tf.compat.v1.train.AdamOptimizer',
}
"""
SCRIPT = """# The cluster's
import tensorflow as tf
from tensorflow import gfile

'''tf.Session'''
config = tf.ConfigProto()  # tf.log
print("#", tf.Session(config=config))
step = tf.train.AdamOptimizer(0.1).minimize(tf.log(2.0))
step = tf.train.AdamOptimizer(0.2)
tf.summary.scalar("loss", 1.0, step=1)
"""


@pytest.fixture
def path(tmp_path: Path):
    """Return a function that makes a sys.path with the files of that TensorFlow which the code reads."""

    def path(version: str = "2.14.1") -> list[str]:
        packages = tmp_path / "packages"
        (packages / "tensorflow" / TABLE.parent).mkdir(parents=True)
        (packages / "tensorflow/__init__.py").write_text("raise ImportError('nobody is to import it')")
        (packages / "tensorflow" / TABLE).write_text(TENSORFLOW)
        (packages / f"tensorflow_cpu-{version}.dist-info").mkdir()
        (packages / "tensorflow_datasets-4.9.0.dist-info").mkdir()
        return [str(packages)]

    return path


@pytest.fixture
def say(path):
    def say(text: str, version: str = "2.14.1", shim: bool = False, name: str = "train.py") -> list[str]:
        return describe(UserProgram.of([(name, without_comments(text))], name), path(version), shim=shim)

    return say


def test_tensorflow_1_names_are_reported_by_file_and_line(say):
    found, remedy = say(SCRIPT, name="models/deepfm.py")
    assert found == (
        "models/deepfm.py uses what TensorFlow 2.14.1 has under other names: "
        "tf.gfile (line 3; now tf.compat.v1.gfile), tf.ConfigProto (line 6; now tf.compat.v1.ConfigProto), "
        "tf.Session (line 7; now tf.compat.v1.Session), tf.train.AdamOptimizer (line 8, 9; now "
        "tf.compat.v1.train.AdamOptimizer), tf.log (line 8; now tf.math.log)"
    )
    assert "ENTRYPOINT_TF1=shim" in remedy


@pytest.mark.parametrize(
    "text",
    [
        "import tensorflow.compat.v1 as tf\ntf.Session()\n",
        "from tensorflow.compat import v1 as tf\ntf.Session()\n",
        "import tensorflow\ntf = tensorflow.compat.v1\ntf.Session()\n",
        "try:\n    import tensorflow.compat.v1 as tf\nexcept ImportError:\n    import tensorflow as tf\ntf.Session()\n",
        "import tensorflow as tf\ntf.compat.v1.Session()\n",
        "import tensorflow as tf\ntf.estimator.Estimator(f)\n",
        "import keras as tf\ntf.Session()\n",
        "import tensorflow as tf\nprint 'Python 2', tf.Session()\n",
        "import tensorflow as tf\n\0\n",
        "import tensorflow as tf\ntf.keras.optimizers.Adam()\n",
        "from tensorflow.python.keras import backend as K\nK.set_session(s)\n",
        "from tensorflow.compat.v1.keras import backend as K\nK.set_session(s)\n",
        "from tensorflow.compat.v1 import keras\nkeras.backend.set_session(s)\n",
        "import tensorflow.compat.v1.keras.backend as K\nK.set_session(s)\n",
        "from .keras import backend as K\nK.set_session(s)\n",
    ],
)
def test_existing_tensorflow_names_are_not_reported(say, text):
    assert say(text) == []


FORMS = {
    "import a as b": ("import tensorflow as tf", "tf.keras.backend.set_session(s)"),
    "import a": ("import tensorflow", "tensorflow.keras.backend.set_session(s)"),
    "import a.b": ("import os, tensorflow.keras", "tensorflow.keras.backend.set_session(s)"),
    "import a.b as c": ("import tensorflow.keras.backend as K", "K.set_session(s)"),
    "from a import b": ("from tensorflow import keras", "keras.backend.set_session(s)"),
    "from a.b import c": ("from tensorflow.keras import backend", "backend.set_session(s)"),
    "from a.b import c as d": ("from tensorflow.keras import backend as K", "def f():\n    return K.set_session(s)"),
    "from a.b.c import d": ("", "from tensorflow.keras.backend import set_session"),
    "import_module": ("import importlib\nK = importlib.import_module('tensorflow.keras.backend')", "K.set_session(s)"),
    "import_module at once": ("import importlib as i", "i.import_module('tensorflow').keras.backend.set_session(s)"),
    "__import__": ("tf = __import__('tensorflow')", "tf.keras.backend.set_session(s)"),
    "a path of its own": ("import tensorflow as tf\nK = tf.keras.backend", "K.set_session(s)"),
    "in a function": ("def f():\n    from tensorflow.keras import backend as K", "    K.set_session(s)"),
    "keras": ("import keras", "keras.backend.set_session(s)"),
    "from keras": ("from keras import backend as K", "K.set_session(s)"),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_import_is_detected(path, form):
    """The launcher does this at a job's start, and the doctor with the same code."""
    text = "\n".join(FORMS[form])
    line = next(number for number, line in enumerate(text.split("\n"), 1) if "set_session" in line)
    code = UserProgram.of([("train.py", text)], "train.py")
    named = [(code.main, [line], "keras.backend.set_session", "tf.compat.v1.keras.backend.set_session", "")]
    assert listed(code, path(), "2.14.1") == named
    assert listed(code, [], "2.14.1") == named  # where no TensorFlow brings its table


# A program, with ! where it comes to what has gone, ? where it may, and what is beside it.
SURE = [
    "from tensorflow.contrib import slim!",
    "import tensorflow.contrib.slim as slim!",
    "import tensorflow as tf\nx = tf.contrib.layers!",
    "import importlib\nslim = importlib.import_module('tensorflow.contrib.slim')!",
    "from tensorflow.examples.tutorials.mnist import input_data!",
    "import tensorflow as tf\ndef main(_):\n    tf.contrib.f()!\nif __name__ == '__main__':\n    tf.app.run()",
    "import tensorflow as tf\ndef model(x):\n    return tf.contrib.f(x)!\ntf.estimator.Estimator(model_fn=model)",
    "import tensorflow as tf\nclass M:\n    def __init__(self):\n        self.f()\n    def f(self):\n"
    "        tf.contrib.f()!\nM()",
    "import tensorflow as tf\nfor step in range(9):\n    with tf.device('x'):\n        tf.contrib.f()!",
    "import tensorflow as tf\ntry:\n    tf.contrib.f()!\nexcept KeyError:\n    pass",
    "import lib.net",
    "from lib import net",
    "from lib.net import *",
    "from lib.old import f\nf()",
    "import lib.old as old\nold.f()",
]
UNSURE = [
    "try:\n    from tensorflow.contrib import slim?\nexcept ImportError:\n    slim = None",
    "import tensorflow as tf\nif tf.__version__ < '2':\n    tf.contrib.f()?",
    "import tensorflow as tf\nx = tf.contrib.f()? if OLD else 1",
    "import tensorflow as tf\nx = OLD and tf.contrib.f()?",
    "import tensorflow as tf\ndef f():\n    tf.contrib.f()?",
    "import tensorflow as tf\ndef f(x):\n    if x:\n        return 1\n    tf.contrib.f()?\nf(1)",
    "import tensorflow as tf\ndef f():\n    tf.contrib.f()?\nparser.set_defaults(f)\nALL = {'f': f}",
    "import tensorflow as tf\nf = lambda: tf.contrib.f()?",
    "import contextlib\nwith contextlib.suppress(ImportError):\n    from tensorflow.contrib import slim?",
    "import tensorflow as tf\nx = [tf.contrib.f()? for x in y if x]",
    "try:\n    import lib.net\nexcept (KeyError, ImportError):\n    pass",
    "from lib.old import f",
    *(["try:\n    import lib.net\nexcept* ImportError:\n    pass"] if sys.version_info >= (3, 11) else []),
    "if OLD:\n    import lib.net",
]
BESIDE = [
    ("lib/__init__.py", ""),
    ("lib/net.py", "from . import of_net\n"),
    ("lib/of_net.py", "import tensorflow as tf\ntf.contrib.f()\n"),
    ("lib/old.py", "import tensorflow as tf\ndef f():\n    tf.contrib.f()\n"),
]


@pytest.mark.parametrize("program", [*SURE, *UNSURE])
def test_shim_refuses_removed_names_surely_reached(path, program):
    """The refusal names file and line before anything starts. Other removed names are only a warning in the log."""
    files = [("train.py", program.replace("!", "").replace("?", "")), *BESIDE]
    said = refused(UserProgram.of(files, "train.py"), path())
    lines = [number for number, line in enumerate(program.split("\n"), 1) if "!" in line]
    if program in UNSURE:
        assert said == ""
        return
    (place,) = [("train.py", line) for line in lines] or [
        ("lib/of_net.py", 2) if "net" in program else ("lib/old.py", 3)
    ]
    name = "examples" if "examples" in program else "contrib"
    found = f"{place[0]} uses tf.{name} (line {place[1]}), which ended with TensorFlow 1"
    assert said == f"ENTRYPOINT_TF1=shim cannot run the code; {found}"


def test_shim_refuses_keras_2_names_under_keras_3(path):
    text = (
        "import tensorflow as tf\nfrom tensorflow.keras.backend import set_session\ntf.layers.dense(x)\ntf.Session()\n"
    )
    path = path("2.21.0")
    said = refused(UserProgram.of([("train.py", text)], "train.py"), path)
    for name, line in (("keras.backend.set_session", 2), ("layers.dense", 3)):
        assert f"train.py uses tf.{name} (line {line}), which Keras 3 lacks: set TF_USE_LEGACY_KERAS=1" in said
    assert "Session (" not in said
    assert refused(UserProgram.of([("train.py", text)], "train.py"), path, keras_2=True) == ""


def test_shim_uses_keras_2_where_it_is_installed(tmp_path):
    """The shim uses Keras 2 unless TF_USE_LEGACY_KERAS of the job asks for something else."""
    (tmp_path / "tf_keras").mkdir()
    (tmp_path / "tf_keras/__init__.py").write_text("")
    there, nowhere = [str(tmp_path)], [str(tmp_path / "nowhere")]
    for environment, path, shim, has in (
        ({}, there, True, True),
        ({}, nowhere, True, False),
        ({}, there, False, False),
        ({"TF_USE_LEGACY_KERAS": "0"}, there, True, False),
        ({"TF_USE_LEGACY_KERAS": "1"}, there, False, True),
    ):
        assert has_keras_2(environment, path, shim=shim) is has, (environment, path, shim)


def test_shim_solves_all_names_except_removed_ones(say):
    text = f"{SCRIPT}from tensorflow.contrib import slim\nimport tensorflow.contrib.layers\n"
    assert say(text, shim=True) == ["train.py uses tf.contrib (line 11, 12), which ended with TensorFlow 1"]


def test_missing_estimator_is_reported(say):
    (found,) = say("import tensorflow as tf\ntf.estimator.RunConfig()\n", "2.21.0")
    assert found == (
        "train.py uses tf.estimator (line 2), which ended with TensorFlow 2.15: line 2.14 of this image has it"
    )


def test_many_names_are_listed_briefly(say):
    text = "import tensorflow as tf\n" + "".join(f"tf.{name}.x\n" for name in MODULES) + "tf.Session()\n" * 9
    found, _ = say(text)
    assert found.endswith(" and 2 more") and found.count("(line ") == 8


LOOK = """
import json, sys
import tensorflow as tf

def has(dotted):
    place = tf
    for word in dotted.split("."):
        if not hasattr(place, word):
            return False
        place = getattr(place, word)
    return True

table = json.load(sys.stdin)
lacking = [new for old, new in table.items() if new and not has(new.removeprefix("tf."))]
print(json.dumps([tf.__version__, [old for old in table if has(old)], lacking]))
"""


@pytest.mark.more  # the image's TensorFlow is pinned
@pytest.mark.tensorflow
def test_tensorflow_has_only_the_new_names_of_the_table():
    """The table maps old names to new ones. TensorFlow has none of the old names and all of the new ones."""
    folder = _tensorflow(sys.path)
    assert folder
    table = _table(folder, _version(folder))
    assert len(table) > 500
    looked = subprocess.run([sys.executable, "-c", LOOK], input=json.dumps(table), capture_output=True, text=True)
    assert looked.returncode == 0, looked.stderr
    assert json.loads(looked.stdout.splitlines()[-1]) == [_version(folder), [], []]
