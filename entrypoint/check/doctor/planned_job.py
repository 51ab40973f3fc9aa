"""Turn a request into the Job and the plan that the launcher would make of it, by the launcher's own code."""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from entrypoint.base.errors import ConfigError
from entrypoint.check.doctor.request import Request
from entrypoint.launcher.job.config import read_what_can_be
from entrypoint.launcher.job.groups import Group, groups_of, resource_config
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.plan.plan import Plan, ProcessSpec
from entrypoint.launcher.plan.planner import plan_for

OUR_DRIVER = "distributed_drivers/launch.py"  # the name under which examples/tf_launcher uploads it
SOURCE = "sourcecode.json"
_STARTS = ("ContainerEntrypoint", "ContainerArguments")


@dataclass(frozen=True, kw_only=True)
class Described:
    """Hold a job as the launcher reads it.

    If it cannot make a job or plan, that is None; `problems` has the reasons.
    """

    request: Request
    job: Job | None = None
    plan: Plan | None = None
    problems: tuple[str, ...] = ()

    @property
    def processes(self) -> tuple[ProcessSpec, ...]:
        return self.plan.processes if self.plan else ()

    @property
    def program(self) -> tuple[str, str]:
        """Return (program, folder) as given by the launch script, else the job's program; "" without a program."""
        launch = self.request.launch
        source = json.loads(launch.uploads.get(SOURCE) or "{}")
        program = launch.entry_point or source.get("entry_script") or (self.job.program.name if self.job else "")
        return program, launch.source_dir or source.get("source_dir") or ""


def described(request: Request) -> Described:
    """Return the job and plan that the launcher makes of a request. Nothing is started."""
    environment = {"TRAINING_JOB_NAME": str(request.body.get("TrainingJobName") or "job"), **request.environment}
    environment |= of_our_driver(request)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        try:
            files = _config_files(request)
        except (TypeError, ValueError, AttributeError) as problem:
            return Described(request=request, problems=(f"it cannot be read: {problem}",))
        for name, content in files.items():
            (folder / f"{name}.json").write_text(json.dumps(content))
        job, errors = read_what_can_be(
            Path("/opt/ml"), environment, Path("/run/entrypoint"), request.gpus, config=folder
        )
    problems = [str(error).replace(f"{scratch}/", "") for error in errors]
    plan = None
    if job is not None and not problems:
        try:
            plan = plan_for(job)
        except ConfigError as error:
            problems.append(str(error))
    return Described(request=request, job=job, plan=plan, problems=tuple(problems))


def our_launcher_runs(request: Request) -> bool:
    """Return whether the container starts our launcher: as the image's entrypoint, or from the SDK's script."""
    if not any(request.algorithm.get(key) for key in _STARTS):
        return True
    words = [word for key in _STARTS for word in request.algorithm.get(key) or []]
    started = " ".join(map(str, words)).split()[-1:]  # such as `train`, or the end of `bash -c "exec train"`
    ends = [*started, *request.launch.command.split()[-1:]]
    return bool(of_our_driver(request) or unread_arguments(request)) or any(
        PurePath(each).name == "train" for each in ends
    )


def unread_arguments(request: Request) -> list[str]:
    """Return the arguments with which a container starts our launcher, which reads none."""
    words = [str(word) for word in request.algorithm.get("ContainerArguments") or []]
    is_ours = not request.algorithm.get("ContainerEntrypoint") and words and words[0].startswith("-")
    return words if is_ours else []


def of_our_driver(request: Request) -> dict[str, str]:
    """Return the variables that `tf_launcher.Launcher`'s driver passes to the launcher; {} without that driver."""
    uploads = request.launch.uploads
    if OUR_DRIVER not in uploads:
        return {}
    asked, source = (json.loads(uploads.get(name) or "{}") for name in ("distributed.json", SOURCE))
    found = {"ENTRYPOINT_MODE": asked.get("mode") or "single", "SAGEMAKER_PROGRAM": source.get("entry_script") or ""}
    if asked.get("process_count_per_node"):
        found["ENTRYPOINT_PROCESSES_PER_HOST"] = str(asked["process_count_per_node"])
    return found


def groups_in(request: Request) -> tuple[Group, ...]:
    """Return the instance groups of a request, with the names that their hosts get."""
    return groups_of(
        (
            str(group.get("InstanceGroupName")),
            str(group.get("InstanceType") or ""),
            int(group.get("InstanceCount") or 1),
        )
        for group in request.groups
    )


def _config_files(request: Request) -> dict[str, Mapping[str, Any]]:
    """Return the configuration files that SageMaker writes for a request on the first host, by name."""
    resources = resource_config("algo-1", groups_in(request))
    channels = {name: channel_config(each, request) for name, each in request.channels.items()}
    hyperparameters = written(request.hyperparameters)
    return {"resourceconfig": resources, "hyperparameters": hyperparameters, "inputdataconfig": channels}


def written(hyperparameters: Mapping[str, Any]) -> dict[str, str]:
    """Return hyperparameters as SageMaker writes them: as JSON in strings."""
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in hyperparameters.items()}


def s3_source(channel: Mapping[str, Any]) -> Mapping[str, Any]:
    return (channel.get("DataSource") or {}).get("S3DataSource") or {}


def channel_config(channel: Mapping[str, Any], request: Request) -> dict[str, str]:
    """Return a channel as SageMaker writes it to inputdataconfig.json, where FastFile becomes File."""
    usual = request.algorithm.get("TrainingInputMode") or "File"
    found = {
        "TrainingInputMode": "Pipe" if (channel.get("InputMode") or usual) == "Pipe" else "File",
        "S3DistributionType": str(s3_source(channel).get("S3DataDistributionType") or "FullyReplicated"),
        "RecordWrapperType": str(channel.get("RecordWrapperType") or "None"),
    }
    kind = channel.get("ContentType")
    return {**found, "ContentType": str(kind)} if kind else found
