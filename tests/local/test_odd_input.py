"""Test unusual but valid job descriptions: the script runs and gets the intended values."""

import json
from pathlib import Path

import pytest

MANY = {f"n{number}": f"{number:03}" + "x" * 2497 for number in range(95)}  # SageMaker takes 100 of 2,500 characters
NO_STRINGS = {"count": 3, "rate": 0.5, "flag": True, "nothing": None, "list": [1, "x"], "object": {"k": "v"}}
WORDS = {**MANY, "count": "3", "rate": "0.5", "flag": "True", "nothing": "", "list": "[1, 'x']", "object": "k=v"}
RESOURCES = {
    "current_host": "algo-1",
    "hosts": ["algo-1"],
    "topology": None,
    "instance_groups": None,
    "current_group_name": None,
    "current_instance_type": None,
    "network_interface_name": None,
    "never_seen": {"x": [None]},
}
CHANNELS = {
    "train": {"TrainingInputMode": "File"},
    "eval-set": {"TrainingInputMode": "File", "S3DistributionType": None, "never_seen": 1},
    "a.b": {"TrainingInputMode": "Pipe", "RecordWrapperType": "None"},
    "empty": None,
}


@pytest.mark.parametrize("mode", ["single", "mpi"])
def test_job_with_all_unusual_settings_runs(hosts, mode):
    job = hosts(
        1,
        "tells.py",
        mode=mode,
        hyperparameters={**MANY, **NO_STRINGS, "sagemaker_job_name": None, "sagemaker_never_seen": {"x": None}},
        base_files={
            "input/config/resourceconfig.json": json.dumps(RESOURCES),
            "input/config/inputdataconfig.json": json.dumps(CHANNELS),
            "input/data/train-manifest": "s3://bucket/train/\n",
            "input/data/checkpoints-manifest": "s3://bucket/checkpoints/\n",
        },
    )
    job.must_end(0)
    (told,) = job.json_of("told.json")
    assert told["argv"] == [word for name in sorted(WORDS) for word in (f"--{name}", WORDS[name])]
    env = told["env"]
    for name, text in MANY.items():
        assert env[f"SM_HP_{name.upper()}"] == text
    # Linux starts no program with an entry of more than 128 KiB.
    assert "warning: left out of the environment, as longer than 128 KiB: SM_HPS" in job[1].log
    assert not {"SM_HPS", "SM_USER_ARGS", "SM_TRAINING_ENV"} & set(env)
    # Manifests lie beside the channels and are none.
    assert json.loads(env["SM_CHANNELS"]) == sorted(CHANNELS)
    data = job[1].base / "input" / "data"
    assert (data / "train-manifest").is_file()
    assert {key: Path(value) for key, value in env.items() if key.startswith("SM_CHANNEL_")} == {
        "SM_CHANNEL_TRAIN": data / "train",
        "SM_CHANNEL_EVAL-SET": data / "eval-set",
        "SM_CHANNEL_A.B": data / "a.b",
        "SM_CHANNEL_EMPTY": data / "empty",
    }
    assert (env["SM_CURRENT_INSTANCE_TYPE"], env["SM_NETWORK_INTERFACE_NAME"]) == ("local", "eth0")
