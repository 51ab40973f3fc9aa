"""Turn a request into the Job and the plan that the launcher would make of it, by the launcher's own code."""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entrypoint.base.errors import ConfigError
from entrypoint.check.doctor.request import Request
from entrypoint.launcher.job.config import read_what_can_be
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.plan.plan import Plan
from entrypoint.launcher.plan.planner import plan_for

# GPUs of instance types, by AWS's documentation. A type of families p and g that is not listed here has one.
_GPUS = {
    "p2": {"8xlarge": 8, "16xlarge": 16},
    "p3": {"8xlarge": 4, "16xlarge": 8},
    "p3dn": {"24xlarge": 8},
    "p4d": {"24xlarge": 8},
    "p4de": {"24xlarge": 8},
    "p5": {"48xlarge": 8},
    "p5e": {"48xlarge": 8},
    "p5en": {"48xlarge": 8},
    "p6-b200": {"48xlarge": 8},
    "g4dn": {"12xlarge": 4, "metal": 8},
    "g5": {"12xlarge": 4, "24xlarge": 4, "48xlarge": 8},
    "g6": {"12xlarge": 4, "24xlarge": 4, "48xlarge": 8},
    "g6e": {"12xlarge": 4, "24xlarge": 4, "48xlarge": 8},
}
OUR_DRIVER = "distributed_drivers/launch.py"  # the name under which examples/tf_launcher uploads it
SOURCE = "sourcecode.json"


@dataclass(frozen=True, kw_only=True)
class Described:
    """Hold a job as the launcher reads it. Job or plan is None if it cannot make one; `problems` has the reasons."""

    request: Request
    job: Job | None
    plan: Plan | None
    gpus: int  # of each host
    problems: tuple[str, ...]


def described(request: Request) -> Described:
    """Return the job and plan that the launcher makes of a request. Nothing is started."""
    environment = {"TRAINING_JOB_NAME": str(request.body.get("TrainingJobName") or "job"), **request.environment}
    environment |= of_our_driver(request)
    gpus = max((gpus_of(str(group.get("InstanceType") or "")) for group in request.groups), default=0)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        try:
            files = _config_files(request)
        except (TypeError, ValueError, AttributeError) as problem:
            return Described(
                request=request, job=None, plan=None, gpus=gpus, problems=(f"it cannot be read: {problem}",)
            )
        for name, content in files.items():
            (folder / f"{name}.json").write_text(json.dumps(content))
        job, errors = read_what_can_be(Path("/opt/ml"), environment, Path("/run/entrypoint"), gpus, config=folder)
    problems = [str(error).replace(f"{scratch}/", "") for error in errors]
    plan = None
    if job is not None and not problems:
        try:
            plan = plan_for(job)
        except ConfigError as error:
            problems.append(str(error))
    return Described(request=request, job=job, plan=plan, gpus=gpus, problems=tuple(problems))


def gpus_of(instance_type: str) -> int:
    """Return how many GPUs an instance type has; `ml.p3.8xlarge` has 4."""
    family, _, size = instance_type.removeprefix("ml.").partition(".")
    return _GPUS.get(family, {}).get(size, 1 if family[:1] in ("p", "g") and family[1:2].isdigit() else 0)


def our_launcher_runs(request: Request) -> bool:
    """Return whether the container starts our launcher: as the image's entrypoint, or from the SDK's script."""
    if not (request.algorithm.get("ContainerEntrypoint") or request.algorithm.get("ContainerArguments")):
        return True
    launch = request.launch
    command = launch.command if launch else ""
    words = [
        *(request.algorithm.get("ContainerEntrypoint") or []),
        *(request.algorithm.get("ContainerArguments") or []),
    ]
    return bool(of_our_driver(request)) or command.split()[-1:] == ["train"] or words == ["train"]


def of_our_driver(request: Request) -> dict[str, str]:
    """Return the variables that `tf_launcher.Launcher`'s driver passes to the launcher; {} without that driver."""
    uploads = request.launch.uploads if request.launch else {}
    if OUR_DRIVER not in uploads:
        return {}
    asked, source = (json.loads(uploads.get(name) or "{}") for name in ("distributed.json", SOURCE))
    found = {"ENTRYPOINT_MODE": asked.get("mode") or "single", "SAGEMAKER_PROGRAM": source.get("entry_script") or ""}
    if asked.get("process_count_per_node"):
        found["ENTRYPOINT_PROCESSES_PER_HOST"] = str(asked["process_count_per_node"])
    return found


def _config_files(request: Request) -> dict[str, Mapping[str, Any]]:
    """Return the configuration files that SageMaker writes for a request on the first host, by name."""
    count = sum(int(group.get("InstanceCount") or 1) for group in request.groups)
    names = [f"algo-{number + 1}" for number in range(count)]
    left = iter(names)
    groups = [
        {
            "instance_group_name": str(group.get("InstanceGroupName")),
            "instance_type": str(group.get("InstanceType") or ""),
            "hosts": [next(left) for _ in range(int(group.get("InstanceCount") or 1))],
        }
        for group in request.groups
    ]
    resources = {
        "current_host": names[0],
        "hosts": sorted(names),
        "network_interface_name": "eth0",
        "current_instance_type": groups[0]["instance_type"],
        "current_group_name": groups[0]["instance_group_name"],
        "instance_groups": groups,
    }
    channels = {str(each.get("ChannelName")): channel_config(each, request) for each in request.channels}
    hyperparameters = {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in request.hyperparameters.items()
    }
    return {"resourceconfig": resources, "hyperparameters": hyperparameters, "inputdataconfig": channels}


def channel_config(channel: Mapping[str, Any], request: Request) -> dict[str, str]:
    """Return a channel as SageMaker writes it to inputdataconfig.json, which has File for FastFile."""
    usual = request.algorithm.get("TrainingInputMode") or "File"
    source = (channel.get("DataSource") or {}).get("S3DataSource") or {}
    found = {
        "TrainingInputMode": "Pipe" if (channel.get("InputMode") or usual) == "Pipe" else "File",
        "S3DistributionType": str(source.get("S3DataDistributionType") or "FullyReplicated"),
        "RecordWrapperType": str(channel.get("RecordWrapperType") or "None"),
    }
    kind = channel.get("ContentType")
    return {**found, "ContentType": str(kind)} if kind else found
