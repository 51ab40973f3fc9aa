"""Test on_path/entrypoint_tf1.py with TensorFlow: every form of import, for names of TensorFlow 1.

One process runs all cases, each as a user's module. To use another TensorFlow (2.21 with tf_keras; with
TF_USE_LEGACY_KERAS=0 it has Keras 3): TEST_TF1_PYTHON=/path/to/its/python.
"""

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[3] / "entrypoint/programs/as_tf1.py"
# {m}: the module; {b}: it up to its last dot; {p}: what is behind that; {n}: the name in it; {t}: {m} without {top}.
FORMS = {
    "import a as b": "import {top} as m\nfound = m.{t}.{n}",
    "import a": "import {top}\nfound = {m}.{n}",
    "import a.b": "import os, {m}\nfound = {m}.{n}",
    "import a.b as c": "import {m} as m\nfound = m.{n}",
    "from a import b": "from {b} import {p}\nfound = {p}.{n}",
    "from a import b as c": "from {b} import {p} as m\nfound = m.{n}",
    "from a.b import c": "from {m} import {n}\nfound = {n}",
    "from a.b import c as d": "from {m} import ({n} as found)",
    "from a.b import *": "from {m} import *\nfound = {n}",
    "import_module of a.b": "import importlib\nfound = importlib.import_module('{m}').{n}",
    "import_module of a": "from importlib import import_module as load\nfound = load('{top}').{t}.{n}",
    "__import__": "found = __import__('{m}').{t}.{n}",
    "__import__ with names": "found = __import__('{m}', globals(), locals(), ['{n}']).{n}",
    "in a function": "def load():\n    import {m}\n    from {m} import {n}\n    return {n}\nfound = load()",
    "in a method": "class A:\n    def load(self):\n        import {m} as m\n        return m.{n}\nfound = A().load()",
    "in a try": "try:\n    from {m} import {n}\nexcept ImportError:\n    {n} = None\nfound = {n}",
    "of another module": "from used import m, {n}\nfound = {n}",
}
NAMES = (
    "app.run", "contrib.layers", "flags.DEFINE_string", "gfile.Exists", "keras.backend.get_session",
    "keras.backend.set_session", "keras.layers.CuDNNLSTM", "keras.optimizers.Adam", "layers.dense",
    "logging.set_verbosity", "losses.get_total_loss", "nn.rnn_cell.LSTMCell", "summary.FileWriter",
    "train.AdamOptimizer", "train.Saver",
)  # fmt: skip
OTHERS = {
    "keras": "from keras import backend as K\nimport keras.backend\nassert keras.backend is K\nfound = K.set_session",
    "older keras": "from keras.backend.tensorflow_backend import set_session as found",
    "keras's sources": "import keras.engine.base_layer as b\nfrom keras.src.engine.base_layer import Layer as found\n"
    "assert b.Layer is found",
    "python.keras": "from tensorflow.python.keras import backend\nfound = backend.set_session",
    "python.keras.layers": "from tensorflow.python.keras.layers import Dense as found",
    "python.keras's sources": "from tensorflow.python.keras.utils import conv_utils, Sequence as found",
    "import of python.keras": "import tensorflow.python.keras.layers, tensorflow.python.keras.backend as K\n"
    "assert tensorflow.python.keras.backend.set_session is K.set_session and tensorflow.python.framework\n"
    "found = tensorflow.python.keras.layers.Dense",
    "__import__ of python.keras": "found = __import__('tensorflow.python.keras.layers').python.keras.layers.Dense",
    "python": "import tensorflow as tf, tensorflow.python.framework.ops\nfrom tensorflow.python.framework import ops\n"
    "assert tensorflow is tf and tf.python.framework.ops is ops\nfound = tensorflow.placeholder",
    "compat": "import tensorflow.compat.v1 as a, tensorflow as b\nfrom tensorflow.compat import v1 as c\n"
    "assert a is b is c is b.compat.v1\nfound = a.Session",
}  # fmt: skip
EXPECTED = {
    "keras": "keras.backend.set_session", "older keras": "keras.backend.set_session",
    "python.keras": "keras.backend.set_session", "python.keras.layers": "keras.layers.Dense",
    "import of python.keras": "keras.layers.Dense", "__import__ of python.keras": "keras.layers.Dense",
    "python.keras's sources": "keras.utils.Sequence", "python": "placeholder", "compat": "Session",
}  # fmt: skip
# What Keras 3 has under no name, of NAMES and of OTHERS.
OF_KERAS_2 = ("keras.backend.get_session", "keras.backend.set_session", "keras.layers.CuDNNLSTM", "layers.dense",
              "nn.rnn_cell.LSTMCell", "keras", "older keras", "keras's sources", "python.keras's sources")  # fmt: skip
RUNS = """import functools, importlib, json, sys
import tensorflow as tf
keras_3 = "_tf_keras" in sys.modules["tensorflow.compat.v1"].keras.layers.__name__
print("CASE", json.dumps(["Keras 3", "", str(keras_3)]))
for line in open("cases.json"):
    case, module, expected = json.loads(line)
    try:
        found = importlib.import_module(module).found
        if not expected or keras_3 and "python.keras" in case:
            meant = found
        else:
            meant = functools.reduce(getattr, expected.split("."), tf)
        print("CASE", json.dumps([case, "" if found is meant else "another", f"{found} {meant}"]))
    except Exception as error:
        print("CASE", json.dumps([case, type(error).__name__, str(error)]))
with tf.Session(config=tf.ConfigProto()) as session:
    keras_3 or tf.keras.backend.set_session(session)
    y = tf.keras.layers.Dense(1, kernel_initializer="ones")(tf.placeholder_with_default([[2.0, 3.0]], [1, 2]))
    session.run(tf.global_variables_initializer())
    print("CASE", json.dumps(["runs", "", str(session.run(y).tolist())]))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> dict[str, tuple[str, str]]:
    """Run all cases; return the type of error and the output of each case."""
    code = tmp_path_factory.mktemp("code")
    cases = [(name, text, EXPECTED.get(name, "")) for name, text in OTHERS.items()]
    for (form, text), dotted in product(FORMS.items(), NAMES):
        whole = f"tensorflow.{dotted}"
        module, _, name = whole.rpartition(".")
        before, _, last = module.rpartition(".")
        words = {"m": module, "b": before, "p": last, "n": name, "t": module.partition(".")[2], "top": "tensorflow"}
        used = f"used_{dotted.replace('.', '_')}"
        (code / f"{used}.py").write_text(f"import {module} as m\nfrom {module} import {name}\n")
        cases.append(
            (f"{form}: {dotted}", text.format(**words).replace("used", used), "" if "contrib" in dotted else dotted)
        )
    lines = []
    for number, (case, text, expected) in enumerate(cases):
        (code / f"case{number}.py").write_text(f"{text}\n")
        lines.append(json.dumps([case, f"case{number}", expected]))
    (code / "cases.json").write_text("\n".join(lines))
    (code / "train.py").write_text(RUNS)
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [os.environ.get("TEST_TF1_PYTHON", sys.executable), "-W", "ignore", str(PROGRAM), "train.py"],
        cwd=code, env=environment, capture_output=True, text=True, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = (json.loads(line[len("CASE ") :]) for line in done.stdout.splitlines() if line.startswith("CASE "))
    return {case: (kind, said) for case, kind, said in found}


@pytest.mark.tensorflow
def test_each_import_form_finds_tensorflow_1_names(told):
    assert len(told) == len(FORMS) * len(NAMES) + len(OTHERS) + 2
    gone = ("contrib.layers", *(OF_KERAS_2 if told["Keras 3"][1] == "True" else ()))
    assert {case: said for case, said in told.items() if said[0] and case.rpartition(": ")[2] not in gone} == {}
    assert told["runs"][1] == "[[5.0]]"


@pytest.mark.tensorflow
def test_removed_name_raises_error_with_that_name(told):
    gone = {case: said for case, said in told.items() if ": contrib" in case}
    assert len(gone) == len(FORMS)
    for case, (kind, said) in gone.items():
        if case != "in a try: contrib.layers":
            assert kind in ("ImportError", "ModuleNotFoundError", "AttributeError") and "contrib" in said, (case, said)
