"""Test that SageMaker Debugger and its profiler, on by default with SDK v2, change nothing: docs/debugger.md."""

import json
import shutil

import pytest
from builders import read
from variants import variants

from entrypoint.launcher.plan.planner import plan_for

TRACES = {"LocalPath": "/opt/ml/output/profiler", "RotateMaxFileSizeInBytes": "10485760", "FileOpenFailThreshold": "50"}
CONFIGS = {
    "debughookconfig": {
        "LocalPath": "/opt/ml/output/tensors",
        "S3OutputPath": "s3://bucket/job/debug-output",
        "HookParameters": {"save_interval": "100", "include_workers": "all", "save_all": "true"},
        "CollectionConfigurations": [
            {"CollectionName": "losses", "CollectionParameters": None},
            {
                "CollectionName": "weights",
                "CollectionParameters": {"train.save_interval": "1", "reductions": "min,max"},
            },
        ],
    },
    "profilerconfig": {
        "S3OutputPath": "s3://bucket/job/profiler-output",
        "ProfilingIntervalInMilliseconds": 500,
        "ProfilingParameters": {
            **TRACES,
            "PythonProfilingConfig": json.dumps({"StartStep": 9, "ProfilerName": "cprofile"}),
        },
        "DisableProfiler": False,
    },
    "tensorboardoutputconfig": {"S3OutputPath": "s3://bucket/tb", "LocalPath": "/opt/ml/output/tensorboard/"},
}
NULLS = {name: dict.fromkeys(config) for name, config in CONFIGS.items()}
KINDS = {
    "as the SDK sends it": {name: json.dumps(config) for name, config in CONFIGS.items()},
    "null for every value": {name: json.dumps(config) for name, config in NULLS.items()},
    "null": dict.fromkeys(CONFIGS, "null"),
    "broken": dict.fromkeys(CONFIGS, '{"LocalPath": "/opt/ml/out'),
    "empty": dict.fromkeys(CONFIGS, ""),
}
# Of smdebug, and of the metrics that it writes.
VARIABLES = {
    "USE_SMDEBUG": "1",
    "SMDEBUG_CONFIG_FILE_PATH": "/opt/ml/input/config/debughookconfig.json",
    "TENSORBOARD_CONFIG_FILE_PATH": "/opt/ml/input/config/tensorboardoutputconfig.json",
    "SMPROFILER_CONFIG_PATH": "/opt/ml/input/config/profilerconfig.json",
    "SAGEMAKER_METRICS_DIRECTORY": "/opt/ml/output/metrics/sagemaker",
}
MPI = {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "2"}
MODES = {"single": {}, "mpi": MPI, "ps": {"sagemaker_parameter_server_enabled": "true"}}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
def test_the_plan_is_the_one_without(tmp_path, kind, mode):
    hyperparameters = {name: json.dumps(text) for name, text in MODES[mode].items()}
    without = read(tmp_path, 2, hyperparameters)
    for name, text in KINDS[kind].items():
        (tmp_path / "input/config" / f"{name}.json").write_text(text)
    with_them = read(tmp_path, 2, hyperparameters, VARIABLES)
    assert plan_for(with_them) == plan_for(without)
    assert with_them.warnings == without.warnings
    assert with_them.program == without.program


@pytest.mark.parametrize("mode", variants({"single": {}, "mpi": MPI}, "single"))
@pytest.mark.parametrize("kind", variants({kind: kind for kind in KINDS}, "as the SDK sends it", "broken"))
def test_the_job_runs_as_without(hosts, kind, mode):
    if mode and not shutil.which("mpirun"):
        pytest.skip("needs Open MPI")
    job = hosts(
        1,
        "tells.py",
        hyperparameters={**mode, "rate": "0.5"},
        environment=VARIABLES,
        base_files={f"input/config/{name}.json": text for name, text in KINDS[kind].items()},
    )
    assert job.end() == [0]
    (told,) = job.json_of("told.json")
    assert told["argv"] == ["--rate", "0.5"]
    assert VARIABLES.items() <= told["env"].items(), "a library of the user's finds them"
    assert not [name for name in CONFIGS if name in job[1].log], "nothing is said of files that nobody reads"
    for name, text in KINDS[kind].items():
        assert (job[1].base / "input/config" / f"{name}.json").read_text() == text
