"""Test that SageMaker Debugger and its profiler, on by default in SDK v2, do not change a job (docs/debugger.md)."""

import json

import pytest
from builders import read

from entrypoint.launcher.plan.planner import plan_for

CONFIGS = {
    "debughookconfig": {
        "LocalPath": "/opt/ml/output/tensors",
        "S3OutputPath": "s3://bucket/job/debug-output",
        "HookParameters": {"save_interval": "100", "include_workers": "all", "save_all": "true"},
        "CollectionConfigurations": [{"CollectionName": "losses", "CollectionParameters": None}],
    },
    "profilerconfig": {
        "S3OutputPath": "s3://bucket/job/profiler-output",
        "ProfilingIntervalInMilliseconds": 500,
        "ProfilingParameters": {"LocalPath": "/opt/ml/output/profiler", "RotateMaxFileSizeInBytes": "10485760"},
        "DisableProfiler": False,
    },
    "tensorboardoutputconfig": {"S3OutputPath": "s3://bucket/tb", "LocalPath": "/opt/ml/output/tensorboard/"},
}
KINDS = {
    "as the SDK sends it": {name: json.dumps(config) for name, config in CONFIGS.items()},
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


@pytest.mark.parametrize("kind", KINDS)
def test_debugger_does_not_change_the_plan(tmp_path, kind):
    without = read(tmp_path, 2, {"sagemaker_mpi_enabled": "true"})
    for name, text in KINDS[kind].items():
        (tmp_path / "input/config" / f"{name}.json").write_text(text)
    with_them = read(tmp_path, 2, {"sagemaker_mpi_enabled": "true"}, VARIABLES)
    assert plan_for(with_them) == plan_for(without)
    assert with_them.warnings == without.warnings
    assert with_them.program == without.program


@pytest.mark.parametrize("kind", ["as the SDK sends it", "broken"])
def test_debugger_does_not_change_the_run(hosts, kind):
    files = {f"input/config/{name}.json": text for name, text in KINDS[kind].items()}
    job = hosts(1, "tells.py", hyperparameters={"rate": "0.5"}, environment=VARIABLES, base_files=files)
    job.must_end(0)
    (told,) = job.json_of("told.json")
    assert told["argv"] == ["--rate", "0.5"]
    assert VARIABLES.items() <= told["env"].items(), "a library of the user's finds them"
    assert not [name for name in CONFIGS if name in job[1].log], "nothing is said of files that nobody reads"
    for path, text in files.items():
        assert (job[1].base / path).read_text() == text
