"""Test correct scripts as people write them, and some with faults that such code must not hide."""

from pathlib import Path
from typing import Any

import pytest
from looking import HOROVOD, MPI, MWMS, PS, REQUEST, SCRIPT, SERVERS, WORKERS, found, look

pytestmark = pytest.mark.usefixtures("looks_here")

ALONE: dict[str, Any] = {}
PLACE = {**REQUEST["InputDataConfig"][0]["DataSource"]["S3DataSource"], "S3DataDistributionType": "ShardedByS3Key"}
SHARDED = {"InputDataConfig": [{"ChannelName": "training", "DataSource": {"S3DataSource": PLACE}}]}
ESTIMATOR = "import tensorflow as tf\ntf.estimator.train_and_evaluate(tf.estimator.Estimator(f), a, b)\n"
SPOT = {"EnableManagedSpotTraining": True, "CheckpointConfig": {"S3Uri": "s3://bucket/c"}}
TO_S3 = {"HyperParameters": {"model_dir": "s3://bucket/m"}}
BY_LIBRARY = "saver = checkpoints.manager(tf.train.Checkpoint(model=model))\nsaver.restore()\n"
BY_TENSORFLOW = (
    "saver = tf.train.CheckpointManager(tf.train.Checkpoint(model=model), {}, 3)\nsaver.restore_or_initialize()\n"
)
ROWS = 'shard(tf.data.TFRecordDataset(file_names("training")))'


def having(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def option(name: str, more: str = "") -> tuple[str, str]:
    return "args =", f'parser.add_argument("{name}"{more})\nargs ='


def checkpoints_in(where: str) -> str:
    """Return the standard script, with TensorFlow's own checkpoints in a folder."""
    return having(SCRIPT, ("import checkpoints, ", "import "), (BY_LIBRARY, BY_TENSORFLOW.format(where)))


def by_rank(rows: str) -> str:
    return having(HOROVOD, (ROWS, rows), ("file_names, ", ""), (", shard", ""))


def saved_by(who: str) -> str:
    return having(HOROVOD, ("if hvd.rank() == 0:\n", who), ("saver.save()\n", ""))


def elsewhere(*changes: tuple[str, str]) -> str:
    """Return the standard script with weights for checkpoints, which saves its model in another way."""
    weights = (BY_LIBRARY, 'model.load_weights("/opt/ml/checkpoints/w")\n')
    saves = ("saver.save()", 'model.save_weights("/opt/ml/checkpoints/w")')
    return having(
        SCRIPT, ("import checkpoints, ", "import "), weights, saves, ("parse_args()", "parse_known_args()[0]"), *changes
    )


MODEL_DIR = 'os.environ["SM_MODEL_DIR"]'
CHIEF_AND_OTHERS = having(
    WORKERS,
    (
        "model.save(folder)\n",
        'if is_chief:\n    model.save(os.environ["SM_MODEL_DIR"])\nelse:\n    model.save("/tmp/x")\n',
    ),
    ('folder = os.path.join(os.environ["SM_MODEL_DIR"], "1") if is_chief else tempfile.mkdtemp()\n', ""),
)


@pytest.mark.parametrize(
    ("script", "check", "change"),
    [
        # What is only taken where SageMaker says nothing.
        (SCRIPT + 'hosts = os.environ.get("SM_HOSTS", \'["algo-1"]\')\n', "host-name", ALONE),
        (SCRIPT + 'host = os.getenv("SM_CURRENT_HOST", "algo-1")\n', "host-name", ALONE),
        (SCRIPT + 'host = os.environ.get("SM_CURRENT_HOST") or "algo-1"\n', "host-name", ALONE),
        (SCRIPT + 'rows = os.environ.get("SM_CHANNEL_TRAINING", "/home/me/rows")\n', "path", ALONE),
        (having(SCRIPT, option("--rows", ', default="/home/me"')), "path", {"HyperParameters": {"rows": "/opt/x"}}),
        (SCRIPT + 'rows = os.environ.get("SM_CHANNEL_TRAINING", "/opt/ml/input/data/x")\n', "channel-missing", ALONE),
        # What is asked for, tried, or made by the script.
        (SCRIPT + 'if os.path.exists("/opt/ml/input/data/test"):\n    go()\n', "channel-missing", ALONE),
        (SCRIPT + 'test = "/opt/ml/input/data/test"\nif os.path.exists(test):\n    go()\n', "channel-missing", ALONE),
        (SCRIPT + 'os.environ["SM_CHANNEL_TEST"] = "/tmp/x"\n', "channel-missing", ALONE),
        (SCRIPT + 'os.environ["SM_MASTER_ADDR"] = "x"\n', "variable-missing", ALONE),
        (
            SCRIPT + 'a = os.environ["SM_MASTER_ADDR"] if "SM_MASTER_ADDR" in os.environ else ""\n',
            "variable-missing",
            ALONE,
        ),
        (
            SCRIPT + 'try:\n    n = os.environ["SM_HOST_COUNT"]\nexcept KeyError:\n    n = 1\n',
            "variable-missing",
            ALONE,
        ),
        (having(SCRIPT, ("parse_args()", "parse_args([])")), "argument-unknown", {"HyperParameters": {"lr": "1"}}),
        # Values that argparse takes.
        (having(SCRIPT, option("--n", ", type=int, nargs='+'")), "argument-refused", {"HyperParameters": {"n": "1"}}),
        (having(SCRIPT, option("--n", ", type=float")), "argument-refused", {"HyperParameters": {"n": "1e-3"}}),
        (having(SCRIPT, option("--n", ", choices=['a', 'b']")), "argument-refused", {"HyperParameters": {"n": "b"}}),
        # The chief of TensorFlow 1 trains on its host's part.
        (ESTIMATOR, "plan-note", {**PS, **SHARDED}),
        # It trains in what is not read.
        ('import subprocess\nsubprocess.check_call(["python", "-m", "ours.train"])\n', "no-strategy", MWMS),
        ('import runpy\nrunpy.run_module("ours.train")\n', "no-strategy", MPI),
        ("from ours.training import main\nmain()\n", "no-strategy", PS),
        ('subprocess.run(["aws", "s3", "cp", "x", "s3://bucket/y"])\n', "s3-path", ALONE),
        # Who saves has another name.
        (saved_by("root = hvd.rank() == 0\nif root:\n"), "all-save", MPI),
        (saved_by("def leads():\n    return not hvd.rank()\n\nif leads():\n"), "all-save", MPI),
        (saved_by('if int(os.environ["OMPI_COMM_WORLD_RANK"]) == 0:\n'), "all-save", MPI),
        (saved_by("if hvd.rank() != 0:\n    sys.exit(0)\nif True:\n"), "all-save", MPI),
        (having(HOROVOD, ("if hvd.rank() == 0:\n    model", "hvd.rank() == 0 and model")), "all-save", MPI),
        (CHIEF_AND_OTHERS, "all-save", MWMS),
        (CHIEF_AND_OTHERS, "chief-saves-alone", MWMS),
        (having(CHIEF_AND_OTHERS, ("if is_chief", 'if task["index"] == 0')), "all-save", MWMS),
        # Rows are chosen by rank in another way.
        (
            by_rank("tf.data.TFRecordDataset([f for i, f in enumerate(fs) if i % hvd.size() == hvd.rank()])"),
            "no-shards",
            MPI,
        ),
        (by_rank("read(tf.data.TFRecordDataset(fs), hvd.rank(), hvd.size())"), "no-shards", MPI),
        (by_rank("tf.data.TFRecordDataset(fs).skip(hvd.rank() * part).take(part)"), "no-shards", MPI),
        # The folder of checkpoints has another name, or comes from the job.
        (
            having(checkpoints_in("args.kept"), option("--kept")),
            "checkpoint-elsewhere",
            {**SPOT, "HyperParameters": {"kept": "/opt/ml/checkpoints"}},
        ),
        (having(checkpoints_in("args.ckpt_dir"), option("--ckpt-dir")), "checkpoint-elsewhere", SPOT),
        (elsewhere(), "no-checkpoint", SPOT),
        # `model_dir` is not the address that SDK v2's class adds.
        (elsewhere((f"os.path.join({MODEL_DIR}", "os.path.join(args.model_dir")), "model-dir-s3", ALONE),
        (
            having(elsewhere((f"os.path.join({MODEL_DIR}", "os.path.join(args.model_dir")), option("--model-dir")),
            "model-dir-s3",
            TO_S3,
        ),
        (
            elsewhere(("model.save(os.path.join", f"model_dir = {MODEL_DIR}\nmodel.save(model_dir + os.path.join")),
            "model-dir-s3",
            TO_S3,
        ),
        (
            having(SCRIPT, (f'os.path.join({MODEL_DIR}, "1")', "args.export"), option("--export")),
            "no-model",
            {"HyperParameters": {"export": "/opt/ml/model/1"}},
        ),
        # Each attempt of several may fail.
        (
            having(
                SCRIPT,
                ("model.fit(", "for _ in range(3):\n  try:\n    model.fit("),
                ("saver.save", "  except Exception as e:\n    print(e)\nsaver.save"),
            ),
            "failure-hidden",
            ALONE,
        ),
    ],
)
def test_no_false_alarm(script: str, check: str, change: dict[str, Any], tmp_path: Path) -> None:
    assert found(look(tmp_path, script, change), check) == []


@pytest.mark.parametrize(
    ("script", "check", "change"),
    [
        (SCRIPT + 'if os.environ["SM_CURRENT_HOST"] == "algo-1":\n    go()\n', "host-name", ALONE),
        (SCRIPT + 'rows = os.environ.get("SM_CHANNEL_TEST", "/opt/ml/input/data/test")\n', "channel-missing", ALONE),
        (having(SCRIPT, option("--rows", ', default="/home/me"')), "path", ALONE),
        (having(SCRIPT, ('file_names("training")', 'file_names("train")')), "channel-missing", ALONE),
        (
            having(SCRIPT, ("epochs", "n")),
            "argument-refused",
            {"HyperParameters": {"n": "3.0"}},
        ),
        (having(SCRIPT, option("--n", ", choices=['a', 'b']")), "argument-refused", {"HyperParameters": {"n": "c"}}),
        (elsewhere((f"os.path.join({MODEL_DIR}", "os.path.join(args.model_dir")), "model-dir-s3", TO_S3),
        (having(HOROVOD, ("hvd.init()\n", "import wandb\nwandb.init()\n")), "hvd-no-init", MPI),
        # In TensorFlow 2 the chief trains nothing, and its host has a part of the data.
        (SERVERS, "plan-note", {**PS, **SHARDED}),
        # The library is used, and not to shard.
        (
            having(HOROVOD, (ROWS, "tf.data.TFRecordDataset(names)"), ("file_names, ", ""), (", shard", "")),
            "no-shards",
            MPI,
        ),
        (
            having(
                SCRIPT,
                ("model.fit(", "try:\n    model.fit("),
                ("saver.save", "except Exception as e:\n    print(e)\nsaver.save"),
            ),
            "failure-hidden",
            ALONE,
        ),
    ],
)
def test_a_fault_is_not_hidden_by_such_words(script: str, check: str, change: dict[str, Any], tmp_path: Path) -> None:
    assert found(look(tmp_path, script, change), check) != []


def test_what_a_module_does_as_a_program_of_its_own(tmp_path: Path) -> None:
    """The options of a tool beside the script are not the script's, unless the script calls what makes them."""
    options = (
        "import argparse\ndef main():\n    parser = argparse.ArgumentParser()\n"
        '    parser.add_argument("--raw", required=True)\n'
    )
    (tmp_path / "tool.py").write_text(f'{options}    parser.parse_args()\nif __name__ == "__main__":\n    main()\n')
    assert found(look(tmp_path, SCRIPT + "import tool\n", ALONE), "argument-missing") == []
    assert found(look(tmp_path, SCRIPT + "import tool\ntool.main()\n", ALONE), "argument-missing") == [("error", 4)]
