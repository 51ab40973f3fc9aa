"""Test `docker run IMAGE serve` with a model where SageMaker mounts it, through a port that Docker publishes."""

import subprocess
import sys
from pathlib import Path

import pytest
from containers import PATIENCE, sh
from endpoint import ask, serving

MAKES_MODELS = Path(__file__).parents[1] / "local/makes_models.py"
BATCH = {
    "SAGEMAKER_BATCH": "true",
    "SAGEMAKER_MAX_PAYLOAD_IN_MB": "8",
    "SAGEMAKER_BATCH_STRATEGY": "SINGLE_RECORD",
    "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "3",
}


def test_serving_container_answers_and_stops(image: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    subprocess.run([sys.executable, MAKES_MODELS, tmp_path], check=True, stdin=subprocess.DEVNULL, timeout=PATIENCE)
    environment = {"SAGEMAKER_BIND_TO_PORT": "9000", **BATCH}
    with serving(image, tmp_path / "saved", 9000, environment) as (name, url):
        assert ask(f"{url}/invocations", b'{"instances": [[1, 2], [3, 4]]}') == {"predictions": [3, 7]}
        parameters = {"MaxPayloadInMB": 8, "BatchStrategy": "SINGLE_RECORD", "MaxConcurrentTransforms": 3}
        assert ask(f"{url}/execution-parameters") == parameters

        sh("docker", "stop", "-t", "60", name)  # then Docker kills it, which the exit code shows
        assert sh("docker", "inspect", "-f", "{{.State.ExitCode}}", name).stdout == "0\n"
        assert "stopped; all requests are answered" in sh("docker", "logs", name).stdout
