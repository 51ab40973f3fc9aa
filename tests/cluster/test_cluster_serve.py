"""`docker run IMAGE serve`: a model in the folder that SageMaker mounts, asked through a port that Docker publishes."""

import json
import subprocess
import sys
import time
import urllib.request
import uuid
from contextlib import suppress
from pathlib import Path

import pytest
from containers import LABEL, PATIENCE, SESSION, run_alone, sh
from waiting import eventually

MAKES_MODELS = Path(__file__).parents[1] / "local/makes_models.py"
BATCH = {
    "SAGEMAKER_BATCH": "true",
    "SAGEMAKER_MAX_PAYLOAD_IN_MB": "8",
    "SAGEMAKER_BATCH_STRATEGY": "SINGLE_RECORD",
    "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "3",
}


def test_a_container_answers_and_stops(image: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    subprocess.run([sys.executable, MAKES_MODELS, tmp_path], check=True, stdin=subprocess.DEVNULL, timeout=PATIENCE)
    name = f"tfe{uuid.uuid4().hex[:8]}-serve"
    variables = [f"--env={key}={value}" for key, value in {"SAGEMAKER_BIND_TO_PORT": "9000", **BATCH}.items()]
    try:
        sh(
            "docker", "run", "-d", "--name", name, "--label", f"{LABEL}={SESSION}", *variables,
            "-p", "127.0.0.1::9000", "-v", f"{tmp_path / 'saved'}:/opt/ml/model:ro", image, "serve",
        )  # fmt: skip
        url = "http://" + sh("docker", "port", name, "9000/tcp").stdout.strip()

        def is_up() -> bool:
            with suppress(OSError), urllib.request.urlopen(f"{url}/ping", timeout=PATIENCE) as response:
                return response.status == 200
            assert sh("docker", "inspect", "-f", "{{.State.Running}}", name).stdout == "true\n"
            return False

        eventually(is_up, PATIENCE)
        assert ask(f"{url}/invocations", b'{"instances": [[1, 2], [3, 4]]}') == {"predictions": [3, 7]}
        parameters = {"MaxPayloadInMB": 8, "BatchStrategy": "SINGLE_RECORD", "MaxConcurrentTransforms": 3}
        assert ask(f"{url}/execution-parameters") == parameters

        asked = time.monotonic()
        sh("docker", "stop", "-t", "10", name)
        assert time.monotonic() - asked < 10
        assert sh("docker", "inspect", "-f", "{{.State.ExitCode}}", name).stdout == "0\n"
        assert "stopped; all that was asked is answered" in sh("docker", "logs", name).stdout
    except BaseException:
        print(sh("docker", "logs", name, check=False).stdout)
        raise
    finally:
        sh("docker", "rm", "-f", "-v", name, check=False)


def ask(url: str, body: bytes | None = None) -> object:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        return json.load(response)


def test_no_model_ends_the_container(image: str, tmp_path: Path) -> None:
    result = run_alone(image, "serve", mounts={tmp_path: "/opt/ml/model"})
    assert result.returncode == 78, result.stdout
    (line,) = result.stdout.splitlines()
    assert line.startswith("serve: error: found no model in /opt/ml/model, but nothing; wanted a SavedModel")
