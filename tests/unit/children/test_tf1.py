"""entrypoint/children/prepare/tf1.py: which names of TensorFlow 1 a script is told of, by file and line."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from findings import texts
from tf1 import MODULES, TABLE, _table, _tensorflow, _version, told

TENSORFLOW = """renames = {
    'tf.ConfigProto':
        'tf.compat.v1.ConfigProto',
    'tf.Session':
        'tf.compat.v1.Session',
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

'''tf.Session'''
config = tf.ConfigProto()  # tf.log
print("#", tf.Session(config=config))
step = tf.train.AdamOptimizer(0.1).minimize(tf.log(2.0))
step = tf.train.AdamOptimizer(0.2)
tf.summary.scalar("loss", 1.0, step=1)
"""


@pytest.fixture
def say(tmp_path: Path):
    def say(text: str, version: str = "2.14.1", shim: bool = False, name: str = "train.py") -> list[str]:
        code, packages = tmp_path / "code", tmp_path / "packages"
        (packages / "tensorflow" / TABLE.parent).mkdir(parents=True)
        (packages / "tensorflow/__init__.py").write_text("raise ImportError('nobody is to import it')")
        (packages / "tensorflow" / TABLE).write_text(TENSORFLOW)
        (packages / f"tensorflow_cpu-{version}.dist-info").mkdir()
        (packages / "tensorflow_datasets-4.9.0.dist-info").mkdir()
        (code / name).parent.mkdir(parents=True)
        (code / name).write_text(text)
        return told(list(texts(code)), [str(packages)], shim=shim)

    return say


def test_names_are_told_by_file_and_line(say):
    found, remedy = say(SCRIPT, name="models/deepfm.py")
    assert found == (
        "models/deepfm.py uses what TensorFlow 2.14.1 has under other names: "
        "tf.ConfigProto (line 5; now tf.compat.v1.ConfigProto), tf.Session (line 6; now tf.compat.v1.Session), "
        "tf.train.AdamOptimizer (line 7, 8; now tf.compat.v1.train.AdamOptimizer), tf.log (line 7; now tf.math.log)"
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
    ],
)
def test_nothing_is_said_of_code_for_this_tensorflow(say, text):
    assert say(text) == []


def test_other_ways_to_import(say):
    found, _ = say("from tensorflow import Session, function\nimport tensorflow\ntensorflow.gfile.Exists('x')\n")
    assert "tf.Session (line 1; now tf.compat.v1.Session), tf.gfile (line 3; now tf.compat.v1.gfile)" in found


def test_the_shim_solves_all_but_what_has_gone(say):
    text = f"{SCRIPT}from tensorflow.contrib import slim\nimport tensorflow.contrib.layers\n"
    assert say(text, shim=True) == ["train.py uses tf.contrib (line 10, 11), which ended with TensorFlow 1"]


def test_an_estimator_where_there_is_none_any_more(say):
    (found,) = say("import tensorflow as tf\ntf.estimator.RunConfig()\n", "2.21.0")
    assert found == (
        "train.py uses tf.estimator (line 2), which ended with TensorFlow 2.15: line 2.14 of this image has it"
    )


def test_many_names_make_a_short_list(say):
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
def test_tensorflow_lacks_all_that_it_is_said_to_lack():
    """And has them under the new names."""
    folder = _tensorflow(sys.path)
    assert folder
    table = _table(folder, _version(folder))
    assert len(table) > 500
    looked = subprocess.run([sys.executable, "-c", LOOK], input=json.dumps(table), capture_output=True, text=True)
    assert looked.returncode == 0, looked.stderr
    assert json.loads(looked.stdout.splitlines()[-1]) == [_version(folder), [], []]


def test_comments_go_and_lines_stay(tmp_path):
    text = "#!/usr/bin/env python\n\n# one\nx = 1  # two\n    # three\ny = '#'\n"
    (tmp_path / "train.py").write_text(text)
    ((_, found),) = texts(tmp_path)
    assert found.split("\n")[3].rstrip() == "x = 1" and found.count("\n") == text.count("\n")
    assert ast.parse(found).body[1].lineno == 6
