"""Test `entrypoint doctor` on code for TensorFlow 1: the name that fails first, however it is imported."""

import pytest
from looking import IMAGE, MWMS, SCRIPT, WORKERS, look, merged

FORMS = (
    "tf.keras.backend.set_session(tf.Session(config=tf.ConfigProto()))",
    "from tensorflow.keras import backend as K\nK.set_session(tf.Session())",
    "from tensorflow.keras.backend import set_session\nset_session(tf.Session())",
    "import tensorflow.keras.backend as K\nK.set_session(tf.Session())",
    "import importlib\nimportlib.import_module('tensorflow.keras.backend').set_session(tf.Session())",
)


@pytest.mark.parametrize("form", FORMS)
def test_the_name_that_fails_first_is_named_first(tmp_path, form):
    found = [each for each in look(tmp_path, f"{SCRIPT}{form}\n").findings if each.check == "tf1-name"]
    assert "tf.keras.backend.set_session is of TensorFlow 1" in found[0].found
    assert "tf.compat.v1.keras.backend.set_session" in found[0].instead
    assert any("tf.Session" in each.found for each in found[1:])


@pytest.mark.parametrize(("version", "environment", "gone"), [
    ("2.21.0", {"TF_USE_LEGACY_KERAS": "0"}, True), ("2.21.0", {}, False), ("2.14.1", {}, False),
])  # fmt: skip
def test_what_the_shim_takes_from_keras_2(tmp_path, version, environment, gone):
    change = {
        "AlgorithmSpecification": {"TrainingImage": IMAGE.replace("2.14.1", version)},
        "Environment": {"ENTRYPOINT_TF1": "shim", **environment},
    }
    found = [
        each
        for each in look(tmp_path, f"{SCRIPT}{FORMS[0]}\n", change).findings
        if each.check in ("tf1-name", "tf-gone")
    ]
    assert ["Keras 3 lacks" in each.found for each in found] == [True] * gone


@pytest.mark.parametrize("shim", [False, True])
def test_the_shim_brings_keras_2_for_fit_too(tmp_path, shim):
    change = merged(MWMS, {
        "AlgorithmSpecification": {"TrainingImage": IMAGE.replace("2.14.1", "2.21.0")},
        "Environment": {"ENTRYPOINT_TF1": "shim"} if shim else {},
    })  # fmt: skip
    checks = {each.check for each in look(tmp_path, WORKERS, change).findings}
    assert ("keras-3-fit" in checks) is not shim
