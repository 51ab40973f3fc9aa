"""Test which files the doctor reads with a program, and that it finds nothing in right programs."""

from pathlib import Path
from typing import Any

import pytest
from looking import SCRIPT, look, look_at

from entrypoint.base.severity import Severity
from entrypoint.check.doctor.doctor import DoctorReport, sort_out
from entrypoint.check.doctor.subject import tensorflow_of

pytestmark = pytest.mark.usefixtures("resolves_here")


def worse(report: DoctorReport) -> list[str]:
    return [each.check for each in report.findings if each.severity > Severity.NOTE]


RIGHT = {
    "Keras, and no job": {"script": "keras", "job": "none"},
    "Keras on one host with a GPU": {"script": "keras", "instance": "ml.p3.2xlarge", "tag": "2.14.1-gpu-py311"},
    "Horovod on one host, alone": {"script": "mpi"},
    "Horovod, and no job": {"script": "mpi", "job": "none"},
    "workers, and no job": {"script": "mwms", "job": "none"},
    "no training": {"text": "import os\nprint(os.environ)\n"},
    "Horovod, no training": {"text": "import horovod.tensorflow as hvd\nhvd.init()\nprint(hvd.rank())\n", "job": "mpi"},
    "MPI without Horovod": {"text": "from mpi4py import MPI\nprint(MPI.COMM_WORLD.rank)\n", "job": "mpi"},
}


@pytest.mark.parametrize("example", RIGHT.values(), ids=RIGHT)
def test_correct_program_has_neither_errors_nor_warnings(example: dict[str, Any], tmp_path: Path) -> None:
    assert worse(look_at(tmp_path, example)) == []


def test_first_failing_tensorflow_1_name_is_listed_first(tmp_path: Path) -> None:
    line = "tf.keras.backend.set_session(tf.Session(config=tf.ConfigProto()))\n"
    first, *more = [each for each in look(tmp_path, SCRIPT + line).findings if each.check == "tf1-name"]
    assert "tf.keras.backend.set_session is of TensorFlow 1" in first.found
    assert "tf.compat.v1.keras.backend.set_session" in first.instead
    assert any("tf.Session" in each.found for each in more)


def test_training_script_is_not_taken_for_a_launch_script(tmp_path: Path) -> None:
    """The doctor would run a launch script. These scripts only call SageMaker or use TensorFlow's Estimator."""
    path = tmp_path / "train.py"
    path.write_text(
        "import boto3\nimport sagemaker\nimport tensorflow as tf\nfrom sagemaker.experiments import Run\n"
        'boto3.client("s3")\nmodel.fit(x)\ntf.estimator.Estimator(f).train(rows)\n'
    )
    assert sort_out([str(path)]).launches == []
    path.write_text("import sagemaker\nsagemaker.estimator.Estimator().fit()\n")
    assert len(sort_out([str(path)]).launches) == 1


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("ours:2.21", (2, 21)),
        ("ours:2.14-gpu", (2, 14)),
        ("ours:2.14.1-cpu-py311-debian12-0.1.0", (2, 14)),
        ("763104351884.dkr.ecr.us-east-1.amazonaws.com/tensorflow-training:2.16.2-gpu-py310", (2, 16)),
        ("123456789012.dkr.ecr.eu-west-1.amazonaws.com/my-training:1", None),
        ("mine:2.0", None),
        ("localhost:5000/mine", None),
        ("ours:latest", None),
    ],
)
def test_image_tag_gives_tensorflow_version(image: str, version: tuple[int, int] | None) -> None:
    assert tensorflow_of(image) == version
