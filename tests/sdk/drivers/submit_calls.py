"""Run code of the documents with a SageMaker SDK, in the SDK's own Python; print the requests.

Standard input, as JSON: {"commands": [arguments of examples/submit.py, ...], "blocks": [code, ...], "names":
variables for the code}. The blocks are one program, cut in pieces. Standard output: commands and blocks, with a list of
requests in the place of each (for blocks with `SmDrivers`, the files of the SDK's own channel sm_drivers); and
`endpoints`, the other requests of the blocks to SageMaker, with the name of the operation.

Requests of a block to AWS are answered here, in botocore's event `before-call`: by then botocore has checked the
request against its description of the service, and not yet sent it. The commands are dry runs and need no answers.
"""

import contextlib
import functools
import io
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import botocore.loaders
import botocore.session

ROOT = Path(__file__).resolve().parents[3]
JOB = "arn:aws:sagemaker:eu-west-1:123456789012:training-job/job"
real_start = botocore.session.Session.__init__
real_load = botocore.loaders.JSONFileLoader.load_file
requests: list[dict[str, Any]] = []
uploaded: dict[str, str] = {}  # for sm_drivers, since the last request
drivers: list[dict[str, str]] = []  # for each request
endpoints: list[dict[str, Any]] = []


def start(session: botocore.session.Session, *args: Any, **options: Any) -> None:
    real_start(session, *args, **options)
    session.register("before-call", answer)


@functools.cache
def load(path: str) -> Any:
    """Cache the descriptions of AWS's services. SageMaker's has megabytes, and each session would read it again."""
    return real_load(botocore.loaders.JSONFileLoader(), path)


def answer(model: Any, params: Any, **_: Any) -> tuple[Any, dict[str, Any]]:
    """Answer in place of AWS: a job has succeeded as soon as it is requested."""
    if model.service_model.service_name == "iam":
        return SimpleNamespace(status_code=403), {"Error": {"Code": "AccessDenied", "Message": "nobody is told"}}
    ok, now = SimpleNamespace(status_code=200), datetime.now(UTC)
    if model.name == "CreateTrainingJob":
        requests.append(json.loads(params["body"]))
        drivers.append(dict(uploaded))
        uploaded.clear()
        return ok, {"TrainingJobArn": JOB}
    if model.name == "PutObject" and "/sm_drivers/" in params["url_path"]:
        uploaded[params["url_path"].partition("/sm_drivers/")[2]] = params["body"].read().decode()
    if model.service_model.service_name == "sagemaker" and model.name.startswith("Create"):
        endpoints.append({"operation": model.name, **json.loads(params["body"])})
        return ok, {f"{model.name.removeprefix('Create')}Arn": JOB}
    if model.name == "DescribeEndpoint":
        return ok, {"EndpointStatus": "InService"}
    if model.name == "InvokeEndpoint":
        return ok, {"Body": io.BytesIO(b"{}"), "ContentType": "application/json"}
    if model.name == "DescribeTrainingJob":
        times = dict.fromkeys(("CreationTime", "TrainingStartTime", "TrainingEndTime", "LastModifiedTime"), now)
        return ok, {
            **requests[-1],
            **times,
            "TrainingJobArn": JOB,
            "TrainingJobStatus": "Completed",
            "SecondaryStatus": "Completed",
            "SecondaryStatusTransitions": [{"Status": "Completed", "StartTime": now, "StatusMessage": ""}],
            "TrainingTimeInSeconds": 1,
            "BillableTimeInSeconds": 1,
            "ModelArtifacts": {"S3ModelArtifacts": "s3://bucket/model.tar.gz"},
        }
    return ok, {"Account": "123456789012", "Buckets": [], "logStreams": []}


def run_block(code: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    requests.clear()
    drivers.clear()
    exec(code, names)
    return [{**request, "SmDrivers": files} for request, files in zip(requests, drivers, strict=True)]


def dry_run(arguments: list[str]) -> list[dict[str, Any]]:
    import submit

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        submit.main([*arguments, "--dry-run"])
    text = said.getvalue()
    return [json.loads(text[text.index("{\n") :])]


def main() -> None:
    task = json.load(sys.stdin)
    sys.path.insert(0, str(ROOT / "examples"))  # as of a script that lies there
    with contextlib.redirect_stdout(sys.stderr):  # the SDKs print
        botocore.loaders.JSONFileLoader.load_file = lambda loader, path: load(path)
        botocore.session.Session.__init__ = start
        time.sleep = lambda seconds: None  # they ask after a job every ten seconds, though it is over at once
        blocks = [run_block(code, task["names"]) for code in task["blocks"]]
        botocore.session.Session.__init__ = real_start
        commands = [dry_run(arguments) for arguments in task["commands"]]
    json.dump({"blocks": blocks, "commands": commands, "endpoints": endpoints}, sys.stdout)


main()
