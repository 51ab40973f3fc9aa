"""List jobs as SageMaker describes them to a container, in the shapes of real jobs and the SDKs' local modes."""

import json
from dataclasses import dataclass, field
from typing import Any

ABSENT = object()  # there is no such file


@dataclass(frozen=True, kw_only=True)
class Described:
    """The contents of the config files, and the container's environment."""

    resources: dict[str, Any]
    hyperparameters: Any = field(default_factory=dict)
    channels: Any = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


def resources(hosts: list[str], me: str, type_: str = "ml.c5.xlarge") -> dict[str, Any]:
    """Return the resourceconfig.json of an ordinary job, in the form that it has since 2022."""
    group = {"instance_group_name": "homogeneousCluster", "instance_type": type_, "hosts": hosts}
    return {
        "current_group_name": "homogeneousCluster",
        "current_host": me,
        "current_instance_type": type_,
        "hosts": hosts,
        "instance_groups": [group],
        "network_interface_name": "eth0",
        "topology": None,
    }


TWO_GROUPS = {
    "hosts": ["algo-1", "algo-2", "algo-3"],
    "network_interface_name": "eth0",
    "instance_groups": [
        {"instance_group_name": "data", "instance_type": "ml.c5.18xlarge", "hosts": ["algo-2"]},
        {"instance_group_name": "train", "instance_type": "ml.p3.2xlarge", "hosts": ["algo-3", "algo-1"]},
    ],
    "topology": None,
}
GROUP_OF = {
    "algo-2": {"current_host": "algo-2", "current_group_name": "data", "current_instance_type": "ml.c5.18xlarge"},
    "algo-3": {"current_host": "algo-3", "current_group_name": "train", "current_instance_type": "ml.p3.2xlarge"},
}
SDK2 = {  # what the SDK's framework estimators add
    "sagemaker_submit_directory": '"s3://bucket/job/source/sourcedir.tar.gz"',
    "sagemaker_program": '"train.py"',
    "sagemaker_container_log_level": "20",
    "sagemaker_job_name": '"job-2025-11-21"',
    "sagemaker_region": '"eu-west-1"',
}
VALUES = {
    "flag": True, "off": False, "none": None, "text": "a b", "quoted": '"it\'s"', "object": {"x": 1, "y": [1, "b"]},
    "count": 3, "big-name": 0.001, "dotted.name": -2, "list": [1, "x", None], "nested": {"a": {"b": [{"c": 1.5}]}},
    "path": "s3://bucket/a=b c", "empty": "", "b": 7, "Z": "one letter", "UPPER_lower": "x", "words": "--flag -x",
    "umlaut": "é😀", "lines": "1\n2\t3", "tiny": 1e-12, "large": 10**20, "empty_list": [], "empty_object": {},
}  # fmt: skip
TYPED = {  # by people, in the console or with boto3
    "a": "1e-3", "b": "true", "c": "True", "d": "null", "e": "None", "f": "a b", "g": '"a b"', "h": "'a b'", "i": "007",
    "j": "0x10", "k": "[1, 2", "l": "{'x': 1}", "m": '{"x": {"y": null}}', "n": "NaN", "o": "-Infinity", "p": "",
    "q": " ", "r": "1_000", "s": "1.0", "t": "$(id) `id` ; *", "u": "\\n", "v": '"\\u00e9\\n"', "w": "[]", "x": "3 ",
    "learning-rate": ".5", "data.dir": "s3://b/k", "_x": "1", "0": "zero", "ein wort": "zwei", "9" * 30: "9" * 5000,
}  # fmt: skip
RESERVED = {
    "sagemaker_enable_cloudwatch_metrics": "false", "sagemaker_s3_output": '"s3://bucket/rl"',
    "default_user_module_name": '"x"', "sagemaker_instance_type": '"ml.p3.2xlarge"', "sagemaker_mpi_num_processes": "4",
    "sagemaker_estimator_module": '"sagemaker.tensorflow.estimator"', "sagemaker_estimator_class_name": '"TensorFlow"',
    "sagemaker_recipe_local_path": '"/x"', "sagemaker_pytorch_ddp_enabled": "false", "model_dir": '"/opt/ml/model"',
    "sagemaker_entrypoint_stop_grace": "50", "sagemaker_never_seen": "null", "_tuning_objective_metric": '"loss"',
}  # fmt: skip
FILE = {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}
CHANNELS = {
    "train": {**FILE, "ContentType": "application/x-recordio"},
    "eval-uation": FILE,
    "a.b": {"TrainingInputMode": "File"},
    "Piped_1": {"TrainingInputMode": "Pipe", "S3DistributionType": "ShardedByS3Key", "RecordWrapperType": "RecordIO"},
    "augmented": {**FILE, "TrainingInputMode": "Pipe", "RecordWrapperType": "RecordIO", "ContentType": "image/jpeg"},
    "fast": {**FILE, "S3DistributionType": "ShardedByS3Key", "never_seen": {"x": None}},
    "code": FILE,
    "none": None,
}
ONE = resources(["algo-1"], "algo-1")
MPI = {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_custom_mpi_options": '""'}
TWELVE = sorted(f"algo-{number}" for number in range(1, 13))


def as_json(values: dict[str, Any]) -> dict[str, str]:
    return {key: json.dumps(value) for key, value in values.items()}


JOBS = {
    "one host": Described(resources=ONE, hyperparameters=SDK2),
    "local mode": Described(
        resources={"current_host": "algo-1-x7k2p", "hosts": ["algo-1-x7k2p"], "network_interface_name": "eth0"},
        hyperparameters={**SDK2, "sagemaker_submit_directory": '"/opt/ml/code"'},
        channels={"training": {"TrainingInputMode": "File"}},
    ),
    "two hosts, the second": Described(
        resources=resources(["algo-1", "algo-2"], "algo-2"),
        hyperparameters={**SDK2, "sagemaker_parameter_server_enabled": "true", "model_dir": '"s3://bucket/job/model"'},
        channels={"train": FILE},
        environment={"TRAINING_JOB_NAME": "job-2025-11-21", "AWS_REGION": "eu-west-1", "HOSTNAME": "ip-10-0-0-1"},
    ),
    "before 2022": Described(
        resources={"current_host": "algo-2", "hosts": ["algo-1", "algo-2"], "network_interface_name": "eth0"},
        hyperparameters=SDK2,
        environment={"AWS_DEFAULT_REGION": "us-east-1"},
    ),
    "twelve hosts, mpi": Described(resources=resources(TWELVE, "algo-10"), hyperparameters={**SDK2, **MPI}),
    "hosts in no order": Described(resources=resources(TWELVE[::-1], "algo-2"), hyperparameters=SDK2),
    "two groups, one that trains": Described(
        resources={**TWO_GROUPS, **GROUP_OF["algo-3"]},
        hyperparameters={**SDK2, **MPI, "sagemaker_mpi_num_of_processes_per_host": "2",
                         "sagemaker_distribution_instance_groups": '["train"]'},
    ),
    "two groups, one outside": Described(
        resources={**TWO_GROUPS, **GROUP_OF["algo-2"]},
        hyperparameters={**SDK2, **MPI, "sagemaker_mpi_num_of_processes_per_host": "2",
                         "sagemaker_distribution_instance_groups": '["train"]'},
    ),
    "two groups, no distribution": Described(resources={**TWO_GROUPS, **GROUP_OF["algo-2"]}, hyperparameters=SDK2),
    "all input modes": Described(resources=ONE, hyperparameters=SDK2, channels=CHANNELS),
    "SDK v2, framework": Described(resources=ONE, hyperparameters={**SDK2, **as_json(VALUES)}),
    "SDK v2, generic": Described(
        resources=ONE,
        hyperparameters={key: str(value) for key, value in VALUES.items()},
        environment={"SAGEMAKER_PROGRAM": "train.py"},
    ),
    "SDK v3": Described(
        resources=ONE,
        hyperparameters={key: v if isinstance(v, str) else json.dumps(v) for key, v in VALUES.items()},
        environment={"SAGEMAKER_PROGRAM": "train.py"},
    ),
    "typed by people": Described(resources=ONE, hyperparameters={"sagemaker_program": "train.py", **TYPED}),
    "no strings": Described(resources=ONE, hyperparameters={**SDK2, **VALUES, "sagemaker_container_log_level": 10}),
    "reserved names": Described(resources=ONE, hyperparameters={**SDK2, **RESERVED}),
    "nobody's names": Described(
        resources={**ONE, "never_seen": {"x": [None]}, "another": None}, hyperparameters={**SDK2, "unknown": "null"}
    ),
    "an environment of its own": Described(
        resources=ONE,
        hyperparameters={**SDK2, "sagemaker_program": '"other.py"'},
        environment={"SAGEMAKER_PROGRAM": "train.py", "SAGEMAKER_SUBMIT_DIRECTORY": "/nowhere", "CURRENT_HOST": "x",
                     "SAGEMAKER_CONTAINER_LOG_LEVEL": "10", "SAGEMAKER_TRAINING_MODULE": "a.b:main"},
    ),
    "a hundred hyperparameters": Described(
        resources=ONE, hyperparameters={**SDK2, **{f"name-{n}": f"{n} " * 200 for n in range(95)}}
    ),
}  # fmt: skip

OPTIONAL = ("current_instance_type", "current_group_name", "instance_groups", "network_interface_name")
BY_NAME = {"resources": ONE, "environment": {"SAGEMAKER_PROGRAM": "train.py"}}
WORDS = {"a": "two words", "b": "$(echo substituted)", "c": "", "d": "'quoted'", "e": "x; echo and more"}
DEEP = "[" * 200 + "]" * 200


def with_sdk2(**hyperparameters: Any) -> Described:
    return Described(resources=ONE, hyperparameters={**SDK2, **hyperparameters})


# What is different on purpose: the jobs that show it.
DIFFERENT = {
    "null resources": Described(resources={**ONE, **dict.fromkeys(OPTIONAL)}, hyperparameters=SDK2),
    "absent resources": Described(
        resources={key: value for key, value in ONE.items() if key not in OPTIONAL}, hyperparameters=SDK2
    ),
    "null job name": with_sdk2(sagemaker_job_name="null"),
    "a number for a job name": with_sdk2(sagemaker_job_name="2025"),
    "null groups": with_sdk2(sagemaker_distribution_instance_groups="null"),
    "empty files": Described(**BY_NAME),
    "absent hyperparameters": Described(**BY_NAME, hyperparameters=ABSENT),
    "absent channels": Described(**BY_NAME, channels=ABSENT),
    "null hyperparameters": Described(**BY_NAME, hyperparameters=None),
    "null channels": Described(**BY_NAME, channels=None),
    "long": with_sdk2(**{f"n{n}": "x" * 2500 for n in range(95)}),
    "deep": with_sdk2(x=DEEP),
    "False": with_sdk2(sagemaker_mpi_enabled="False"),
    "tuning": Described(
        resources=ONE,
        hyperparameters={**SDK2, "_tuning_objective_metric": '"loss"', "model_dir": '"s3://bucket/tuning"'},
        environment={"TRAINING_JOB_NAME": "trial-1"},
    ),
    "UltraServer": Described(
        resources={**ONE, "topology": [{"hostName": "algo-1", "capacityUnitId": "x"}]}, hyperparameters=SDK2
    ),
    "region": Described(resources=ONE, hyperparameters=SDK2, environment={"AWS_REGION": "eu-west-1"}),
    "words": with_sdk2(**as_json(WORDS)),
    "mpi, algo-1": Described(resources=resources(["algo-1", "algo-2"], "algo-1"), hyperparameters={**SDK2, **MPI}),
    "mpi, algo-2": Described(resources=resources(["algo-1", "algo-2"], "algo-2"), hyperparameters={**SDK2, **MPI}),
    "= in a name": with_sdk2(**{"a=b": "1"}),
    "NUL": with_sdk2(a='"x\\u0000y"'),
    "half a pair": with_sdk2(a='"\\ud800"'),
}
