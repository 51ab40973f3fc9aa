"""Read a launch's request, and make a job on simulated hosts of it."""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from entrypoint.base.errors import ConfigError
from entrypoint.check.doctor.check_request import folder_said
from entrypoint.check.doctor.context import never_taken
from entrypoint.check.doctor.doctor import jobs_of, program_of, sort_out
from entrypoint.check.doctor.planned_job import Described, of_our_driver, our_launcher_runs
from entrypoint.check.doctor.source import Code, read_code
from entrypoint.check.doctor.subject import Case
from entrypoint.launcher.job import params
from entrypoint.launcher.job.groups import Group
from entrypoint.simulate.channels import Channel
from entrypoint.simulate.fault import Fault
from entrypoint.simulate.spec import LocalJob, host_names

BASE = "/opt/ml"
_SET = ("SAGEMAKER_PROGRAM", "SAGEMAKER_SUBMIT_DIRECTORY", "ENTRYPOINT_MONITOR", "ENTRYPOINT_MONITOR_INTERVAL")
# Names of hyperparameters with places that a script writes to; a rehearsal must not write there.
_WRITTEN = re.compile(r"model_?dir|checkpoint|ckpt|output|out_?dir|log_?dir|save|export|tensorboard", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Hold a request, and the place of its program on this machine."""

    described: Described
    program: str
    source: Path  # the code folder
    others: int = 0  # further requests of the launch, which are not rehearsed

    @property
    def hosts(self) -> int:
        return sum(int(group.get("InstanceCount") or 1) for group in self.described.request.groups)

    @property
    def instance_types(self) -> list[str]:
        return [str(group.get("InstanceType") or "") for group in self.described.request.groups]

    @property
    def keeps_checkpoints(self) -> bool:
        """Return whether /opt/ml/checkpoints is copied to S3 while the job runs."""
        return bool(self.described.request.body.get("CheckpointConfig"))

    @property
    def is_spot(self) -> bool:
        return bool(self.described.request.body.get("EnableManagedSpotTraining"))

    @property
    def ours(self) -> bool:
        return our_launcher_runs(self.described.request)

    @property
    def hyperparameters(self) -> dict[str, str]:
        """Return the hyperparameters as SageMaker writes them: as JSON in strings."""
        given = self.described.request.hyperparameters
        left_out = (params.USER_PROGRAM_PARAM, params.SUBMIT_DIR_PARAM)
        return {
            key: value if isinstance(value, str) else json.dumps(value)
            for key, value in given.items()
            if key not in left_out
        }

    @property
    def moved(self) -> tuple[str, ...]:
        """Return the hyperparameters with a place in S3 to write to, which a rehearsal replaces by folders."""
        return tuple(key for key, value in self.hyperparameters.items() if _WRITTEN.search(key) and _in_s3(value))

    @property
    def unmoved(self) -> tuple[str, ...]:
        """Return hyperparameters and variables with places in S3 that a rehearsal does not replace."""
        values = {**self.hyperparameters, **self.described.request.environment}
        return tuple(key for key, value in values.items() if _in_s3(value) and key not in self.moved)

    @cached_property
    def code(self) -> Code:
        return read_code(self.source / self.program, self.program)

    @property
    def same_epochs(self) -> bool:
        """Return whether the program sets steps_per_epoch without computing it from the data."""
        given = (use.argument("steps_per_epoch") for use in self.code.calls(".fit"))
        return any(isinstance(each, ast.Constant | ast.Attribute) for each in given)

    @property
    def fixed(self) -> tuple[str, ...]:
        """Return the places with a literal /opt/ml that is used: hyperparameters, variables, lines of the program."""
        request, code = self.described.request, self.code
        values = {**self.hyperparameters, **request.environment}
        found = [key for key, value in values.items() if value.strip('"').startswith(BASE)]
        case = Case(code=code, job=self.described.job, described=self.described, environment=request.environment)
        for source, node, _ in code.strings(f"^{BASE}\\b"):
            if not never_taken(case, source, node):
                found.append(str(source.at(node)))
        return tuple(dict.fromkeys(found))

    def kept(self, checkpoints: Path) -> list[Path]:
        """Return the folders whose files outlast the job's hosts, in a run's folder `checkpoints`."""
        return [checkpoints] if self.keeps_checkpoints else [checkpoints / key for key in self.moved]


def asked_for(
    name: str,
    arguments: Sequence[str],
    python: str,
    environment: Mapping[str, str],
    source: Path | None = None,
) -> Asked:
    """Return the request of a launch script, which is run as by `entrypoint doctor`, or of a request file.

    ConfigError, with advice, if there is no job that can be rehearsed.
    """
    files = sort_out([name])
    if files.programs:
        raise ConfigError(
            f"{name} submits no job, as far as can be seen; wanted a launch script that calls SageMaker's SDK or "
            "boto3's create_training_job, or a request (.json). `entrypoint local` runs a training script"
        )
    jobs, found, _ = jobs_of(files, arguments, python, environment)
    if not jobs:
        why = "; ".join(f"{each.found}: {each.instead}" for each in found) or "it has asked for no training job"
        raise ConfigError(f"{name}: {why}")
    job = jobs[0]
    if job.problems:
        raise ConfigError(f"{name}: our launcher refuses the job: {'; '.join(job.problems)}")
    program, folder = _program(job, source)
    return Asked(described=job, program=program, source=folder, others=len(jobs) - 1)


def _program(job: Described, source: Path | None) -> tuple[str, Path]:
    named, folder = folder_said(job.request)
    name = named or (job.job.program.name if job.job else "")
    if source is not None:
        if not (source / name).is_file():
            raise ConfigError(f"there is no program {name} in --source {source}")
        return name, source.absolute()
    found = program_of(job, ())
    path = found[0].absolute() if found else Path(job.request.file).absolute().parent / name
    if not (name and path.is_file()):
        raise ConfigError(
            f"the program of the job, {name or 'which has no name'}, is not found from here"
            f"{f' in {folder}' if folder else ''}; wanted --source FOLDER, the folder with it"
        )
    return name, path.parents[len(Path(name).parts) - 1]


@dataclass(frozen=True, kw_only=True)
class RehearsedJob(LocalJob):
    """Describe a job on simulated hosts with the hyperparameters of a request."""

    requested: tuple[tuple[str, str], ...] = ()  # JSON in strings

    def config_files(self, host: str) -> dict[str, dict[str, Any]]:
        files = super().config_files(host)
        files["hyperparameters.json"] |= dict(self.requested)
        return files


def job_for(
    asked: Asked,
    *,
    hosts: int,
    channels: Sequence[Channel],
    checkpoints: Path,
    output: Path,
    timeout: float,
    faults: Sequence[Fault] = (),
    mounted: bool,
    stop_grace: float | None = None,
    notes_reads: bool = False,
) -> RehearsedJob:
    """Return the job of one run.

    `mounted`: hosts see `checkpoints` only as /opt/ml/checkpoints. `stop_grace`: seconds to stop, in place of the
    request's. `notes_reads`: note which files are read.
    """
    request = asked.described.request
    folder = "/opt/ml/checkpoints" if mounted else str(checkpoints)
    for key in asked.moved:
        (checkpoints / key).mkdir(parents=True, exist_ok=True)
    values = {**asked.hyperparameters, **{key: json.dumps(f"{folder}/{key}") for key in asked.moved}}
    variables = {**request.environment, **of_our_driver(request)}
    environment = {key: value for key, value in variables.items() if key not in _SET} | {"ENTRYPOINT_MONITOR": "true"}
    if stop_grace is not None:
        environment["ENTRYPOINT_STOP_GRACE"] = f"{stop_grace:g}"
    return RehearsedJob(
        program=asked.program,
        source=asked.source,
        hosts=hosts,
        groups=groups_of(asked, hosts),
        channels=tuple(channels),
        checkpoints=checkpoints if asked.keeps_checkpoints or asked.moved else None,
        requested=tuple(values.items()),
        environment=tuple(environment.items()),
        output=output,
        timeout=timeout,
        faults=tuple(faults),
        notes_reads=notes_reads,
    )


def groups_of(asked: Asked, hosts: int) -> tuple[Group, ...]:
    """Return the request's instance groups on so many hosts, at least one in each; () if it has no groups."""
    request = asked.described.request
    if not (request.body.get("ResourceConfig") or {}).get("InstanceGroups"):
        return ()
    counts = [int(group.get("InstanceCount") or 1) for group in request.groups]
    while sum(counts) > max(hosts, len(counts)):
        counts[counts.index(max(counts))] -= 1
    names = iter(f"algo-{number + 1}" for number in range(sum(counts)))
    return tuple(
        Group(
            name=str(group.get("InstanceGroupName")),
            instance_type="local",
            hosts=tuple(next(names) for _ in range(count)),
        )
        for group, count in zip(request.groups, counts, strict=True)
    )


def last_host(hosts: int) -> str:
    """Return the host to kill: with several hosts, it is not the coordinator."""
    return host_names(hosts)[-1]


def _in_s3(value: str) -> bool:
    return value.strip('"').startswith("s3://")
