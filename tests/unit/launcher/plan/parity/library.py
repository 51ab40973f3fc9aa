"""Run sagemaker-training's own code on some jobs: it reads their folders by itself, as on AWS's images.

The program reads a JSON list of [base folder, environment] from stdin, and prints one line of JSON for each. The
library finds the folder when it is imported, so each job has a process of its own.
"""

import contextlib
import io
import json
import os
import sys

import boto3  # noqa: F401  what takes most of the time, once for all


def look(base: str, environment: dict[str, str]) -> dict:
    os.environ.update(environment, SAGEMAKER_BASE_DIR=base)
    from sagemaker_training import environment as library

    try:
        found = library.Environment()
        env, args = found.to_env_vars(), found.to_cmd_args()
    except Exception as error:
        return {"error": type(error).__name__}
    inherited = {name: os.environ[name] for name in ("CURRENT_HOST", "SAGEMAKER_JOB_NAME", "SAGEMAKER_REGION")}
    framework = found.additional_framework_parameters
    return {"env": {**env, **inherited}, "args": args, "mpi": bool(framework.get("sagemaker_mpi_enabled"))}


for base, environment in json.load(sys.stdin):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            answer = json.dumps(look(base, environment))
        print(answer, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
