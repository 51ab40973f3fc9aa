"""Test that every check finds its fault, at its line, and nothing where there is none."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from corpus_programs import pairs
from looking import HOROVOD, IMAGE, MPI, MWMS, PS, REQUEST, SCRIPT, SERVERS, WORKERS, found, look, merged

from entrypoint.check.doctor.rules import rules

pytestmark = pytest.mark.usefixtures("looks_here")
AWS_IMAGE = "763104351884.dkr.ecr.eu-west-1.amazonaws.com/tensorflow-training:2.14.1-cpu-py310-ubuntu20.04-sagemaker"
ESTIMATOR = "import tensorflow as tf\nestimator = tf.estimator.Estimator(f)\n"
GPUS = {"ResourceConfig": {"InstanceType": "ml.p3.8xlarge"}}
SHARDED = {
    "InputDataConfig": [
        {
            "ChannelName": "training",
            "DataSource": {
                "S3DataSource": {
                    "S3DataType": "S3Prefix",
                    "S3Uri": "s3://bucket/rows/",
                    "S3DataDistributionType": "ShardedByS3Key",
                }
            },
        }
    ]
}
LOOP = (
    "for x, y in rows:\n    with tf.GradientTape() as tape:\n        loss = model(x)\n"
    "    sgd.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))"
)
JAX = "import jax\nfrom sagemaker_tf_data import initialize_jax\ninitialize_jax()\nstep = jax.grad(loss)\n"
PROCESSES = {"Environment": {"ENTRYPOINT_MODE": "jax"}, "ResourceConfig": {"InstanceCount": 2}}
SPOT = {"EnableManagedSpotTraining": True, "StoppingCondition": {"MaxWaitTimeInSeconds": 7200}}
KEPT = {"CheckpointConfig": {"S3Uri": "s3://bucket/checkpoints"}}
DRIVERS = {
    "InputDataConfig": [
        {
            "ChannelName": name,
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://bucket/{name}/"}},
        }
        for name in ("training-1", "sm_drivers")
    ],
    "AlgorithmSpecification": {"ContainerEntrypoint": ["/bin/bash"], "ContainerArguments": ["-c", "sm_train.sh"]},
}


@dataclass(frozen=True, kw_only=True)
class Ill:
    """A job with a fault. `line`: the first line of the script, or else of the request, that has this text."""

    script: str = ""
    change: dict[str, Any] | None = None
    line: str = ""
    severity: str = "error"
    well: dict[str, Any] = field(default_factory=dict)  # what of this is otherwise where it is well
    options: dict[str, Any] = field(default_factory=dict)
    requirements: str = ""


def with_(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


def without(text: str, *words: str) -> str:
    """Return the script without the lines that have one of these words."""
    assert all(word in text for word in words)
    return "\n".join(line for line in text.splitlines() if not any(word in line for word in words))


def and_(line: str, text: str = SCRIPT) -> str:
    return f"{text}\n{line}\n"


TRAINS = "model.fit(rows)\n"
CHECKPOINTS = ("checkpoints", "saver")
CASES: dict[str, Ill] = {
    # --- requests ---
    "api": Ill(change={"RoleArn": None, "ResourceConfig": {"InstanceType": "ml.c5.huge"}}, well={"change": {}}),
    "job-refused": Ill(
        change={"Environment": {"ENTRYPOINT_MODE": "both"}}, line="ENTRYPOINT_MODE", well={"change": {}}
    ),
    "job-warning": Ill(change={"Environment": {"ENTRYPOINT_MODE": "ps"}}, severity="warning", well={"change": PS}),
    "plan-note": Ill(
        change={
            **MPI,
            "Environment": {"ENTRYPOINT_MODE": "mpi", "ENTRYPOINT_PROCESSES_PER_HOST": "2"},
            "AlgorithmSpecification": {"TrainingInputMode": "Pipe"},
        },
        severity="note",
        well={"change": MPI},
    ),
    "not-our-entrypoint": Ill(
        change={"AlgorithmSpecification": {"ContainerEntrypoint": ["/bin/bash", "x.sh"]}, **MPI},
        line="ContainerEntrypoint",
        well={"change": MPI},
    ),
    "sdk-script-breaks": Ill(
        change={**DRIVERS, "HyperParameters": {"name": "it's"}},
        line="name",
        well={"change": {"HyperParameters": {"name": "it's"}}},
    ),
    "nothing-shared": Ill(
        change={"ResourceConfig": {"InstanceCount": 2}},
        line="InstanceCount",
        well={"change": {"ResourceConfig": {"InstanceCount": 2}, "Environment": {"ENTRYPOINT_MODE": "single"}}},
    ),
    "no-code": Ill(
        change={"HyperParameters": {"sagemaker_submit_directory": None}},
        line="HyperParameters",
        severity="warning",
        well={"change": {}},
    ),
    "image": Ill(
        change={"AlgorithmSpecification": {"TrainingImage": AWS_IMAGE}},
        line="TrainingImage",
        severity="note",
        well={"change": {}},
    ),
    "image-and-gpus": Ill(
        change=GPUS, line="InstanceType", severity="warning", well={"options": {"image": IMAGE.replace("-cpu", "-gpu")}}
    ),
    "hyperparameter-dropped": Ill(
        change={"HyperParameters": {"sagemaker_s3_output": "s3://bucket/out"}},
        line="sagemaker_s3_output",
        severity="warning",
        well={"change": {"HyperParameters": {"sagemaker_region": "eu-west-1"}}},
    ),
    "hyperparameter-as-argv": Ill(
        change={"HyperParameters": {"name": "a; b"}},
        line="name",
        severity="note",
        well={"change": {"HyperParameters": {"name": "ab"}}},
    ),
    "no-checkpoint-config": Ill(
        change=SPOT, line="EnableManagedSpotTraining", severity="warning", well={"change": {**SPOT, **KEPT}}
    ),
    "metric-anchored": Ill(
        change={"AlgorithmSpecification": {"MetricDefinitions": [{"Name": "loss", "Regex": "^loss=(.*)"}]}},
        line="loss",
        severity="warning",
        well={"change": {"AlgorithmSpecification": {"MetricDefinitions": [{"Name": "loss", "Regex": "loss=(.*)"}]}}},
    ),
    "debugger": Ill(
        change={"DebugHookConfig": {"S3OutputPath": "s3://bucket/"}},
        line="DebugHookConfig",
        severity="note",
        well={"change": {}},
    ),
    "isolated-install": Ill(
        script=SCRIPT,
        change={"EnableNetworkIsolation": True},
        requirements="numpy\n",
        severity="warning",
        well={"change": {}},
    ),
    # --- requirements ---
    "requirement-refused": Ill(
        script=SCRIPT,
        change={},
        requirements="six\nnumpy==2.3.5\n",
        line="numpy",
        well={"change": {"AlgorithmSpecification": {"TrainingImage": f"{IMAGE.rpartition(':')[0]}:2.21"}}},
    ),
    "requirements-unresolved": Ill(
        script=SCRIPT,
        change={},
        requirements="no-such-package\n",
        severity="note",
        well={"change": {"EnableNetworkIsolation": True}},  # which has a warning of its own
    ),
    # --- whether the script runs ---
    "syntax": Ill(script="import os\nprint 'x'\n", line="print", well={"script": SCRIPT}),
    "tf1-name": Ill(
        script=and_("with tf.Session() as session: pass"),
        line="tf.Session",
        well={
            "script": with_(
                and_("with tf.Session() as session: pass"), "import tensorflow as", "import tensorflow.compat.v1 as"
            )
        },
    ),
    "tf-gone": Ill(script=and_("tf.contrib.layers.xavier()"), line="tf.contrib", well={"script": SCRIPT}),
    "keras-3-fit": Ill(
        script=WORKERS,
        change=MWMS,
        line="model.fit",
        options={"image": "ours:2.21"},
        well={"options": {"image": "ours:2.14"}},
    ),
    "estimator-never-ends": Ill(
        script=ESTIMATOR + "estimator.train(rows)\n",
        change=PS,
        line="estimator.train(",
        well={"script": ESTIMATOR + "tf.estimator.train_and_evaluate(estimator)\n"},
    ),
    "ps-xla": Ill(
        script=SERVERS,
        change=merged(PS, GPUS),
        line="model.compile",
        well={"script": with_(SERVERS, '"sgd"', "tf.keras.optimizers.SGD(jit_compile=False)")},
    ),
    "module-missing": Ill(
        script=and_("import smdebug.tensorflow as smd"),
        line="smdebug",
        well={"script": and_("try:\n    import smdebug\nexcept ImportError:\n    smdebug = None")},
    ),
    "command-missing": Ill(
        script=and_('import subprocess\nsubprocess.run(["aws", "s3", "cp", "a", "b"], check=True)'),
        line='"aws"',
        well={"script": and_('import shutil\nif shutil.which("aws"):\n    print("there")')},
    ),
    "notebook-left": Ill(
        script=and_("get_ipython().system('pip list')"),
        line="get_ipython",
        well={"script": and_("try:\n    get_ipython()\nexcept NameError:\n    pass")},
    ),
    "bool-flag": Ill(
        script=and_('from absl import flags\nflags.DEFINE_boolean("fp16", False, "half")'),
        change={"HyperParameters": {"fp16": "false"}},
        line="DEFINE_boolean",
        severity="warning",
        well={"change": {"HyperParameters": {"rate": "1"}}},
    ),
    "encoded-twice": Ill(
        change={"HyperParameters": {"optimizer": '"\\"adam\\""'}},
        line="optimizer",
        severity="warning",
        well={"change": {"HyperParameters": {"optimizer": '"adam"'}}},
    ),
    "argument-unknown": Ill(
        script=SCRIPT,
        change={"HyperParameters": {"rate": "0.1"}},
        line="parse_args",
        well={"script": with_(SCRIPT, "args = parser.parse_args()", "args, _ = parser.parse_known_args()")},
    ),
    "argument-refused": Ill(
        script=with_(SCRIPT, "args =", 'parser.add_argument("--flag", action="store_true")\nargs ='),
        change={"HyperParameters": {"flag": "True"}},
        line="--flag",
        well={"change": {"HyperParameters": {"epochs": "3"}}},
    ),
    "argument-missing": Ill(
        script=with_(SCRIPT, "default=1", "required=True"),
        change={},
        line="--epochs",
        well={"change": {"HyperParameters": {"epochs": "3"}}},
    ),
    "bool-argument": Ill(
        script=with_(SCRIPT, "type=int", "type=bool"), line="type=bool", severity="warning", well={"script": SCRIPT}
    ),
    "channel-missing": Ill(
        script=and_('files = os.environ["SM_CHANNEL_TEST"]'),
        change={},
        line="SM_CHANNEL_TEST",
        well={"script": and_('files = os.environ["SM_CHANNEL_TRAINING"]')},
    ),
    "variable-missing": Ill(
        script=and_('where = os.environ["SM_MASTER_ADDR"]'),
        line="SM_MASTER_ADDR",
        well={"script": and_('where = os.environ.get("SM_MASTER_ADDR")')},
    ),
    "failure-hidden": Ill(
        script=and_("try:\n    run()\nexcept Exception:\n    sys.exit(0)"),
        line="sys.exit",
        well={"script": and_("try:\n    run()\nexcept Exception:\n    sys.exit(1)")},
    ),
    # --- whether it trains on all hosts ---
    "strategy-of-another-mode": Ill(
        script=SERVERS,
        change={"Environment": {"ENTRYPOINT_MODE": "single"}},
        line="ParameterServerStrategy",
        well={"change": PS},
    ),
    "no-strategy": Ill(script=SCRIPT, change=MWMS, well={"script": WORKERS}),
    "model-outside-scope": Ill(
        script=with_(WORKERS, "with strategy.scope():", "if True:"),
        change=MWMS,
        line="Sequential(",
        well={"script": WORKERS},
    ),
    "metric-outside-scope": Ill(
        script=with_(
            with_(WORKERS, '    model.compile("sgd", "mse")\n', ""),
            "model.fit",
            'model.compile("sgd", "mse", metrics=[tf.keras.metrics.AUC()])\nmodel.fit',
        ),
        change=MWMS,
        line="AUC()",
        well={"script": with_(WORKERS, '"mse")', '"mse", metrics=[tf.keras.metrics.AUC()])')},
    ),
    "no-strategy-run": Ill(
        script=with_(WORKERS, "model.fit(rows)", LOOP),
        change=MWMS,
        line="apply_gradients",
        well={"script": with_(WORKERS, "model.fit(rows)", f"def step(x, y):\n    pass\nstrategy.run(step)\n{LOOP}")},
    ),
    "jax-own-mesh": Ill(
        script=f"{JAX}mesh = jax.sharding.Mesh(jax.local_devices(), 'data')\n",
        change=PROCESSES,
        line="Mesh(",
        well={"script": f"{JAX}mesh = jax.sharding.Mesh(jax.devices(), 'data')\n"},
    ),
    "jax-nothing-shared": Ill(
        script=JAX,
        change=PROCESSES,
        line="jax.grad",
        well={"script": f"{JAX}jax.pmap(step, axis_name='data')\n"},
    ),
    "hvd-no-init": Ill(
        script=without(HOROVOD, "hvd.init"), change=MPI, line="import horovod", well={"script": HOROVOD}
    ),
    "hvd-no-average": Ill(
        script=with_(HOROVOD, "hvd.DistributedOptimizer(", "str("),
        change=MPI,
        line="model.fit",
        well={"script": HOROVOD},
    ),
    "hvd-no-broadcast": Ill(
        script=with_(HOROVOD, "hvd.callbacks.BroadcastGlobalVariablesCallback(0)", ""),
        change=MPI,
        line="import horovod",
        severity="warning",
        well={"script": HOROVOD},
    ),
    "hvd-no-pin": Ill(
        script=with_(HOROVOD, "pin_gpu", "other"),
        change=merged(MPI, GPUS),
        line="import horovod",
        well={"script": HOROVOD},
    ),
    "ranks-and-gpus": Ill(
        script=HOROVOD,
        change=merged(merged(MPI, GPUS), {"Environment": {"ENTRYPOINT_PROCESSES_PER_HOST": "8"}}),
        line="import horovod",
        well={"change": merged(merged(MPI, GPUS), {"Environment": {"ENTRYPOINT_PROCESSES_PER_HOST": "4"}})},
    ),
    "gpus-idle": Ill(
        script=SCRIPT,
        change=GPUS,
        line="model.fit",
        severity="warning",
        well={"script": with_(SCRIPT, "model = ", "strategy = tf.distribute.MirroredStrategy()\nmodel = ")},
    ),
    "tf-config-written": Ill(
        script=and_('os.environ["TF_CONFIG"] = "{}"', WORKERS),
        change=MWMS,
        line='["TF_CONFIG"]',
        severity="note",
        well={"script": WORKERS},
    ),
    "host-name": Ill(
        script=and_('first = "algo-1"', HOROVOD),
        change=MPI,
        line="algo-1",
        severity="warning",
        well={"script": HOROVOD},
    ),
    # --- its data ---
    "no-shards": Ill(
        script=without(HOROVOD, "sagemaker_tf_data", "pin_gpu", "rows = ", "saver").replace(
            "model = ", "rows = tf.data.TFRecordDataset(paths).batch(32)\nmodel = "
        ),
        change=MPI,
        line="TFRecordDataset",
        severity="warning",
        well={"script": HOROVOD},
    ),
    "attributes-missing": Ill(
        script='from sagemaker_tf_data import pipe_dataset\nrows = pipe_dataset("train", "RecordIO").shard(2, 0)\n',
        change=pairs("source-ref", "label"),
        line="pipe_dataset(",
        severity="warning",
        well={"change": pairs("source-ref")},
    ),
    "shards-twice": Ill(
        script=with_(
            HOROVOD,
            'shard(tf.data.TFRecordDataset(file_names("training")))',
            "tf.data.TFRecordDataset(paths).shard(hvd.size(), hvd.rank())",
        ).replace(", shard", ""),
        change={**MPI, **SHARDED},
        line=".shard(",
        severity="warning",
        well={"change": MPI},
    ),
    "uneven-ranks": Ill(
        script=with_(HOROVOD, "end_together", "tuple"),
        change={**MPI, **SHARDED},
        line="model.fit",
        severity="warning",
        well={"script": HOROVOD},
    ),
    "batch-size": Ill(
        script=with_(WORKERS, " * strategy.num_replicas_in_sync", ""),
        change=MWMS,
        line=".batch(",
        severity="note",
        well={"script": WORKERS},
    ),
    "learning-rate": Ill(
        script=with_(HOROVOD, " * hvd.size()", ""),
        change=MPI,
        line="DistributedOptimizer",
        severity="note",
        well={"script": HOROVOD},
    ),
    # --- what it leaves ---
    "all-save": Ill(
        script=with_(HOROVOD, "if hvd.rank() == 0:", "if True:"),
        change=MPI,
        line="model.save",
        severity="warning",
        well={"script": HOROVOD},
    ),
    "chief-saves-alone": Ill(
        script=with_(
            without(WORKERS, "folder ="),
            "model.save(folder)",
            'if is_chief:\n    model.save(os.environ["SM_MODEL_DIR"])',
        ),
        change=MWMS,
        line="model.save",
        severity="warning",
        well={"script": WORKERS},
    ),
    "no-checkpoint": Ill(
        script=without(SCRIPT, "saver", "checkpoints"),
        change={**SPOT, **KEPT},
        line="model.fit",
        severity="warning",
        well={"script": SCRIPT},
    ),
    "no-resume": Ill(
        script=without(SCRIPT, "saver.restore"),
        change=KEPT,
        line="checkpoints.manager(",
        severity="warning",
        well={"script": SCRIPT},
    ),
    "checkpoint-elsewhere": Ill(
        script=and_('saver = tf.train.CheckpointManager(state, "/tmp/here")', without(SCRIPT, "saver", "checkpoints")),
        change=KEPT,
        line="CheckpointManager",
        severity="warning",
        well={
            "script": and_(
                'saver = tf.train.CheckpointManager(state, "/opt/ml/checkpoints")',
                without(SCRIPT, "saver", "checkpoints"),
            )
        },
    ),
    "no-sigterm": Ill(script=without(SCRIPT, "signal"), line="model.fit", severity="note", well={"script": SCRIPT}),
    "no-model": Ill(
        script=without(SCRIPT, "model.save"), line="model.fit", severity="warning", well={"script": SCRIPT}
    ),
    "model-dir-s3": Ill(
        script=with_(SCRIPT, 'os.path.join(os.environ["SM_MODEL_DIR"], "1")', "args.model_dir")
        .replace("checkpoints, ", "")
        .replace("checkpoints.manager", "tf.train.CheckpointManager"),
        change={"HyperParameters": {"model_dir": "s3://bucket/job/model"}},
        line="model.save(",
        severity="warning",
        well={"change": {"HyperParameters": {"model_dir": "/opt/ml/model"}}},
    ),
    "s3-path": Ill(
        script=and_('rows = tf.data.TFRecordDataset("s3://bucket/rows")', SCRIPT.replace("checkpoints, ", "")),
        line="s3://",
        severity="warning",
        well={"script": and_('import tensorflow_io\nrows = tf.data.TFRecordDataset("s3://bucket/rows")')},
    ),
    "path": Ill(script=and_('open("/home/me/rows")'), line="/home/me", severity="warning", well={"script": SCRIPT}),
}
# These take a launch script; test_doctor_launches.py and tests/sdk/test_doctor_of_sdks.py have them.
OF_LAUNCHES = {
    "argument-renamed",
    "no-sdk",
    "launch-failed",
    "no-request",
    "distribution-dropped",
    "argument-dropped",
    "local-mode",
    "command-keeps-sigterm",
    "entry-missing",
    "requirements-long",  # test_doctor_requirements.py has it
    # Of shell scripts: test_doctor_shell.py has them.
    "interpreter-missing",
    "line-ends",
}


def test_each_check_has_a_case():
    assert {*CASES, *OF_LAUNCHES} == {name for name in rules() if "/" not in name}


@pytest.mark.parametrize("check", CASES)
def test_an_illness_is_found_where_it_is(check: str, tmp_path: Path) -> None:
    ill = CASES[check]
    report = look(tmp_path, ill.script, ill.change, ill.requirements, **ill.options)
    seen = found(report, check)
    assert seen, [each.check for each in report.findings]
    assert {severity for severity, _ in seen} == {ill.severity}
    places = {each.place for each in report.findings if each.check == check}
    if ill.line:
        texts = {path.name: path.read_text().splitlines() for path in tmp_path.iterdir()}
        told = [texts[Path(place.file).name][place.line - 1] for place in places]
        assert any(ill.line in line for line in told), told
    assert ill.severity in rules()[check].severity


@pytest.mark.parametrize("check", CASES)
def test_nothing_is_found_where_it_is_not(check: str, tmp_path: Path) -> None:
    ill = CASES[check]
    well = {"script": ill.script, "change": ill.change, "options": ill.options, **ill.well}
    report = look(tmp_path, well["script"], well["change"], ill.requirements, **well["options"])
    assert found(report, check) == []


@pytest.mark.parametrize(
    ("change", "image", "severity"),
    [
        (merged(PS, GPUS), "ours:2.14-gpu", "error"),
        (merged(PS, GPUS), "ours:2.21-gpu", None),  # Keras 3, which has another error to tell
        (merged(merged(PS, GPUS), {"Environment": {"TF_USE_LEGACY_KERAS": "1"}}), "ours:2.21-gpu", "error"),
        (merged(merged(PS, GPUS), {"Environment": {"CUDA_VISIBLE_DEVICES": "-1"}}), "ours:2.14-gpu", None),
        # Beside workers, a chief that coordinates sees no GPU.
        (
            merged(
                merged(PS, GPUS),
                {"Environment": {"ENTRYPOINT_PS_WORKERS": "server", "ENTRYPOINT_PROCESSES_PER_HOST": "4"}},
            ),
            "ours:2.14-gpu",
            None,
        ),
        (PS, "ours:2.14", None),  # no GPUs
        (None, "", "note"),  # nobody knows
    ],
)
def test_xla_meets_parameter_servers_where_the_chief_has_gpus(change, image, severity, tmp_path: Path) -> None:
    report = look(tmp_path, SERVERS, change, **({"image": image} if image else {}))
    assert [each for each, _ in found(report, "ps-xla")] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("script", "change"),
    [(SCRIPT, {}), (HOROVOD, MPI), (WORKERS, MWMS), (SERVERS, PS)],
    ids=["single", "mpi", "mwms", "ps"],
)
def test_a_healthy_job_is_left_alone(script: str, change: dict[str, Any], tmp_path: Path) -> None:
    assert look(tmp_path, script, change).findings == ()
    assert merged(REQUEST, {}) == REQUEST


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ("import keras", True),
        ("import keras\nfrom sagemaker_tf_data import initialize_jax\ninitialize_jax()", False),
        ("import jax, keras\njax.distributed.initialize()", False),
        ("import keras\nkeras.distribution.initialize()", False),
    ],
)
def test_processes_of_jax_that_do_not_join_train_alone(lines: str, wrong: bool, tmp_path: Path) -> None:
    script = (
        f"import os\n{lines}\nmodel = keras.Sequential()\nmodel.fit(x, y)\nmodel.export(os.environ['SM_MODEL_DIR'])\n"
    )
    jax = {"Environment": {"ENTRYPOINT_MODE": "jax"}, "ResourceConfig": {"InstanceCount": 2}}
    report = look(tmp_path, script, jax)
    assert [severity for severity, _ in found(report, "no-strategy")] == ["error"] * wrong
    assert not found(report, "keras-3-fit")
    if wrong:
        (finding,) = [each for each in report.findings if each.check == "no-strategy"]
        assert "initialize_jax(), first of all" in str(finding)
