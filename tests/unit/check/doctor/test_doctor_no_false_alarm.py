"""Test that what only looks like a fault gives no finding."""

from pathlib import Path
from typing import Any

import pytest
from looking import HOROVOD, IMAGE, MPI, MWMS, SCRIPT, WORKERS, found, look

from entrypoint.base.severity import Severity
from entrypoint.check.doctor.doctor import sort_out
from entrypoint.check.doctor.subject import tensorflow_of

pytestmark = pytest.mark.usefixtures("looks_here")

FIT = 'model.fit(x, y, epochs=3)\nmodel.save(os.environ["SM_MODEL_DIR"])\n'
KERAS = f"import os\nimport tensorflow as tf\nmodel = tf.keras.Sequential()\n{FIT}"
EXPORTS = (
    "import tensorflow as tf\nstrategy = tf.distribute.MultiWorkerMirroredStrategy()\n"
    "estimator = tf.estimator.Estimator(f)\ntf.estimator.train_and_evaluate(estimator, a, b)\n{}\n"
)
UNEVEN = "import horovod.tensorflow.keras as hvd\nimport tensorflow as tf\nhvd.init()\nmodel.fit(*{})\n"
PLACE = {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/rows/", "S3DataDistributionType": "ShardedByS3Key"}
SHARDED = {"InputDataConfig": [{"ChannelName": "training", "DataSource": {"S3DataSource": PLACE}}]}
ALONE: dict[str, Any] = {}
GPUS = {"ResourceConfig": {"InstanceType": "ml.p3.8xlarge"}}
ON_A_GPU = {
    "ResourceConfig": {"InstanceType": "ml.p3.2xlarge"},
    "AlgorithmSpecification": {"TrainingImage": IMAGE.replace("-cpu-", "-gpu-")},
}


def worse(script: str, change: dict[str, Any] | None, folder: Path) -> list[str]:
    return [each.check for each in look(folder, script, change).findings if each.severity > Severity.NOTE]


@pytest.mark.parametrize(
    ("script", "change"),
    [
        pytest.param(KERAS, None, id="Keras, and no job"),
        pytest.param(KERAS, ALONE, id="Keras on one host"),
        pytest.param(KERAS, ON_A_GPU, id="Keras on one host with GPUs"),
        pytest.param(HOROVOD, ALONE, id="Horovod on one host, alone"),
        pytest.param(HOROVOD, None, id="Horovod, and no job"),
        pytest.param(WORKERS, None, id="workers, and no job"),
        pytest.param("import os\nprint(os.environ)\n", ALONE, id="no training"),
        pytest.param(
            "import horovod.tensorflow as hvd\nhvd.init()\nprint(hvd.rank())\n", MPI, id="Horovod, no training"
        ),
        pytest.param("from mpi4py import MPI\nprint(MPI.COMM_WORLD.rank)\n", MPI, id="MPI without Horovod"),
    ],
)
def test_nothing_is_wrong(script: str, change: dict[str, Any] | None, tmp_path: Path) -> None:
    assert worse(script, change, tmp_path) == []


@pytest.mark.parametrize(
    ("script", "check", "change"),
    [
        ('"""Reads /home/me."""\n' + SCRIPT, "path", ALONE),
        (SCRIPT + 'print("/home/me is not there")\n', "path", ALONE),
        (SCRIPT + "# tf.Session\n", "tf1-name", ALONE),
        (SCRIPT + 'config = tf.ConfigProto() if tf.__version__ < "2" else None\n', "tf1-name", ALONE),
        (SCRIPT + "try:\n    tf.Session()\nexcept AttributeError:\n    pass\n", "tf1-name", ALONE),
        (SCRIPT + "session = tf.compat.v1.Session()\n", "tf1-name", ALONE),
        (
            SCRIPT.replace("parse_args()", "parse_known_args()[0]"),
            "argument-unknown",
            {"HyperParameters": {"rate": "1"}},
        ),
        (
            SCRIPT + 'for name in names:\n    parser.add_argument(f"--{name}")\n',
            "argument-unknown",
            {"HyperParameters": {"rate": "1"}},
        ),
        (SCRIPT + 'where = os.environ.get("SM_CHANNEL_TEST")\n', "channel-missing", ALONE),
        (
            SCRIPT + 'if "SM_CHANNEL_TEST" in os.environ:\n    where = os.environ["SM_CHANNEL_TEST"]\n',
            "channel-missing",
            ALONE,
        ),
        (SCRIPT + 'open("/opt/ml/input/data/training/a.csv")\n', "channel-missing", ALONE),
        (SCRIPT + "try:\n    go()\nexcept KeyboardInterrupt:\n    sys.exit(0)\n", "failure-hidden", ALONE),
        # Who saves is decided by a folder, an early return, a callback that only rank 0 has.
        (
            HOROVOD.replace("if hvd.rank() == 0:\n    model", "folder = here if hvd.rank() == 0 else there\nmodel"),
            "all-save",
            MPI,
        ),
        (
            HOROVOD.replace(
                "if hvd.rank() == 0:\n    model.save",
                "def save():\n    if hvd.rank() != 0:\n        return\n    model.save",
            ),
            "all-save",
            MPI,
        ),
        (
            HOROVOD
            + 'if hvd.rank() == 0:\n    back.append(tf.keras.callbacks.ModelCheckpoint("/opt/ml/checkpoints"))\n',
            "all-save",
            MPI,
        ),
        (WORKERS, "chief-saves-alone", MWMS),
        # Rows are cut by rank, or made up.
        (
            HOROVOD.replace(
                'shard(tf.data.TFRecordDataset(file_names("training")))',
                "tf.data.TFRecordDataset(paths[hvd.rank() :: hvd.size()])",
            ).replace(", shard", ""),
            "no-shards",
            MPI,
        ),
        (
            HOROVOD.replace(
                'shard(tf.data.TFRecordDataset(file_names("training")))', "tf.data.Dataset.from_tensor_slices(noise)"
            )
            .replace("file_names, ", "")
            .replace(", shard", ""),
            "no-shards",
            MPI,
        ),
        (
            HOROVOD.replace("pin_gpu()", 'os.environ["CUDA_VISIBLE_DEVICES"] = str(hvd.local_rank())').replace(
                "pin_gpu, ", ""
            ),
            "hvd-no-pin",
            MPI,
        ),
        (WORKERS.replace("strategy.num_replicas_in_sync", "num_workers"), "batch-size", MWMS),
        (KERAS, "gpus-idle", {**GPUS, "Environment": {"CUDA_VISIBLE_DEVICES": "-1"}}),
        (KERAS + "with training_args.strategy.scope():\n    build()\n", "gpus-idle", GPUS),
        # The chief by the name of its job; a function that is told who calls it; Keras's callback among workers.
        (EXPORTS.format('if context.job_name == "chief":\n    estimator.export_saved_model(to, f)'), "all-save", MWMS),
        (EXPORTS.format("if is_chief:\n    estimator.export_saved_model(to, f)"), "chief-saves-alone", MWMS),
        (EXPORTS.format('ours.export_saved_model(estimator, to, task["type"] == "chief")'), "all-save", MWMS),
        (EXPORTS.format("tf.keras.callbacks.ModelCheckpoint(to)"), "all-save", MWMS),
        (EXPORTS.format('to = "/opt/ml/model/" + str(task_id)\nmodel.save(to)'), "all-save", MWMS),
        # It reads no channel, so that a channel's parts are no matter.
        (UNEVEN.format("tf.keras.datasets.mnist.load_data()"), "uneven-ranks", {**MPI, **SHARDED}),
        # argparse has the option of a subcommand required only where that is run.
        (
            SCRIPT.replace(
                "args = ",
                'export = parser.add_subparsers().add_parser("export")\n'
                'export.add_argument("--to", required=True)\nargs = ',
            ),
            "argument-missing",
            ALONE,
        ),
    ],
)
def test_no_false_alarm(script: str, check: str, change: dict[str, Any], tmp_path: Path) -> None:
    assert not [severity for severity, _ in found(look(tmp_path, script, change), check) if severity != "note"]


def test_modules_beside_the_script_are_read_with_it(tmp_path: Path) -> None:
    """What the script lacks is in a module of its folder; what is wrong in that module is found there."""
    (tmp_path / "saving.py").write_text('import os\ndef save(model):\n    model.save(os.environ["SM_MODEL_DIR"])\n')
    (tmp_path / "unused.py").write_text("print 'x'\n")
    script = "import tensorflow as tf\nimport saving\nmodel.fit(x)\nsaving.save(model)\n"
    assert worse(script, None, tmp_path) == []
    (tmp_path / "saving.py").write_text("import tensorflow as tf\n\ntf.Session()\n")
    report = look(tmp_path, script)
    (place,) = {each.place for each in report.findings if each.check == "tf1-name"}
    assert (Path(place.file).name, place.line) == ("saving.py", 3)


def test_a_training_script_is_never_taken_for_a_launch(tmp_path: Path) -> None:
    """A launch script would be run. This one talks to SageMaker, or has an Estimator of TensorFlow's."""
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
def test_the_version_that_an_image_is_tagged_with(image: str, version: tuple[int, int] | None) -> None:
    assert tensorflow_of(image) == version
