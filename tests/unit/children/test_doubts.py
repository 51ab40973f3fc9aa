"""entrypoint/children/prepare/doubts.py: which scripts are told before they train that they will not."""

from pathlib import Path

import pytest
from doubts import doubts
from findings import texts

FIT = "import tensorflow as tf\nmodel = tf.keras.Sequential()\nmodel.fit(data)\n"
LOOP = "import keras\nwith tf.GradientTape() as tape:\n    loss = step(model)\n"
OTHERS_FIT = "from sklearn.svm import SVC\nSVC().fit(x, y)\n"
HOROVOD_FIT = f"import horovod.tensorflow.keras as hvd\nhvd.init()\n{FIT}"
ESTIMATOR = "tf.estimator.train_and_evaluate(estimator, train, test)\n"


def of(tmp_path: Path, text: str, mode: str, tensorflow: str = "2.21.0", workers: str = "script", **env: str) -> str:
    (tmp_path / "lib").mkdir()
    (tmp_path / "train.py").write_text("from lib import models\n")
    (tmp_path / "lib/models.py").write_text(text)
    found = doubts(list(texts(tmp_path)), mode, workers, tensorflow, env)
    assert len(found) <= 1
    return found[0] if found else ""


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        (FIT, "ps", "lib/models.py calls fit, and that of Keras 3, which TensorFlow 2.21.0 has, knows no parameter"),
        (FIT, "mwms", "lib/models.py calls fit, and that of Keras 3, which TensorFlow 2.21.0 has, does not train on"),
    ],
)
def test_what_keras_3_does_not_do(tmp_path: Path, text: str, mode: str, says: str) -> None:
    found = of(tmp_path, text, mode)
    assert found.startswith(says) and "Set TF_USE_LEGACY_KERAS=1" in found


@pytest.mark.parametrize(
    ("text", "mode"),
    [(LOOP, "ps"), (LOOP, "mwms"), (OTHERS_FIT, "ps"), (HOROVOD_FIT, "mpi"), (FIT, "mpi"), (FIT, "single")],
)
def test_what_it_does(tmp_path: Path, text: str, mode: str) -> None:
    assert of(tmp_path, text, mode) == ""


@pytest.mark.parametrize("version", ["2.14.1", "2.15.0", ""])
def test_an_older_tensorflow_has_keras_2(tmp_path: Path, version: str) -> None:
    assert of(tmp_path, FIT, "ps", version) == ""


@pytest.mark.parametrize("version", ["2.16.1", "2.21.0rc1", "3.0"])
def test_a_newer_one_has_keras_3(tmp_path: Path, version: str) -> None:
    assert of(tmp_path, FIT, "ps", version)


@pytest.mark.parametrize("value", ["1", "true", "True"])
def test_keras_2_is_chosen_by_the_environment(tmp_path: Path, value: str) -> None:
    assert of(tmp_path, FIT, "mwms", TF_USE_LEGACY_KERAS=value) == ""


@pytest.mark.parametrize("line", ["os.environ['TF_USE_LEGACY_KERAS'] = '1'\n", "import tf_keras as keras\n"])
def test_keras_2_is_chosen_by_the_script(tmp_path: Path, line: str) -> None:
    assert of(tmp_path, line + FIT, "mwms") == ""


def test_an_estimator_beside_worker_servers(tmp_path: Path) -> None:
    assert "Set ENTRYPOINT_PS_WORKERS=script" in of(tmp_path, ESTIMATOR, "ps", "2.14.1", workers="server")


def test_an_estimator_whose_workers_run_the_script(tmp_path: Path) -> None:
    assert of(tmp_path, ESTIMATOR, "ps", "2.14.1") == ""
