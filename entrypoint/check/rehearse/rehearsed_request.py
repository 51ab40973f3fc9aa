"""Read a launch's request, and turn it into a job on simulated hosts."""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entrypoint.base.errors import ConfigError
from entrypoint.check.doctor.check_checkpoints import handles_sigterm
from entrypoint.check.doctor.doctor import jobs_of, program_of, sort_out, title_of
from entrypoint.check.doctor.planned_job import Described, of_our_driver, our_launcher_runs, written
from entrypoint.check.doctor.requirements import of_requirements, requirements_of
from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Finding
from entrypoint.check.rehearse.rehearsal import RehearsedRequest
from entrypoint.launcher.job import groups, params
from entrypoint.launcher.job.choices import Mode
from entrypoint.launcher.job.groups import Group
from entrypoint.simulate.spec import LocalJob
from entrypoint.usercode import api_names as api
from entrypoint.usercode.reader import read_code
from entrypoint.usercode.source import value_of

BASE = "/opt/ml"
_SET = ("SAGEMAKER_PROGRAM", "SAGEMAKER_SUBMIT_DIRECTORY", "ENTRYPOINT_MONITOR", "ENTRYPOINT_MONITOR_INTERVAL")
# Names of hyperparameters with places that a script writes to; a rehearsal must not write there.
_WRITTEN = re.compile(r"model_?dir|checkpoint|ckpt|output|out_?dir|log_?dir|save|export|tensorboard", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Asked(RehearsedRequest):
    """Describe a request, and the place of its program on this machine."""

    described: Described
    program: str
    source: Path  # the code folder

    def kept(self, checkpoints: Path) -> list[Path]:
        """Return the folders with files that outlast the job's hosts. They lie in a run's folder `checkpoints`."""
        return [checkpoints] if self.keeps_checkpoints else [checkpoints / key for key in self.moved]


def asked_for(
    name: str,
    arguments: Sequence[str],
    python: str,
    environment: Mapping[str, str],
    source: Path | None = None,
) -> Asked:
    """Return the request of a request file, or of a launch script, which runs as under `entrypoint doctor`.

    Raise ConfigError, with advice, if there is no job that can be rehearsed.
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
    return _asked(job, *_program(job, source), others=len(jobs) - 1)


def requirements(asked: Asked) -> list[Finding]:
    """Return the doctor's findings on the requirements, for the request's image."""
    case = Case(code=read_code(asked.source / asked.program, asked.program), described=asked.described)
    return list(of_requirements(case, requirements_of(case)))


def _asked(described: Described, program: str, source: Path, others: int) -> Asked:
    request, job = described.request, described.job
    assert job is not None  # asked_for has checked it
    left_out = (params.USER_PROGRAM_PARAM, params.SUBMIT_DIR_PARAM)
    given = {key: value for key, value in written(request.hyperparameters).items() if key not in left_out}
    values = {**given, **request.environment}
    moved = tuple(key for key, value in given.items() if _WRITTEN.search(key) and _begins(value, "s3://"))
    code = read_code(source / program, program)
    fits = list(code.calls(".fit"))
    steps = (use.argument("steps_per_epoch") for use in fits)
    of_keras = code.imports("tensorflow*", "keras*")
    case = Case(code=code, described=described)
    literal = [str(at.at(node)) for at, node, _ in code.strings(f"^{BASE}\\b") if not case.never_takes(at, node)]
    return Asked(
        described=described,
        program=program,
        source=source,
        title=title_of(described),
        mode=job.mode,
        meant_alone=job.settings.mode is Mode.SINGLE,
        hosts=request.hosts,
        instance_types=tuple(str(group.get("InstanceType") or "") for group in request.groups),
        processes_per_host=job.processes_per_host,
        keeps_checkpoints=bool(request.body.get("CheckpointConfig")),
        spot=bool(request.body.get("EnableManagedSpotTraining")),
        ours=our_launcher_runs(request),
        moved=moved,
        unmoved=tuple(key for key, value in values.items() if _begins(value, "s3://") and key not in moved),
        fixed=tuple(dict.fromkeys([*(key for key, value in values.items() if _begins(value, BASE)), *literal])),
        same_epochs=any(isinstance(each, ast.Constant | ast.Attribute) for each in steps),
        fits=of_keras and any(value_of(use.argument("verbose", 4)) != 0 for use in fits),
        writes_checkpoints=any(code.made(*api.WRITES_CHECKPOINTS)),
        reads_checkpoints=code.has(*api.READS_CHECKPOINTS),
        handles_sigterm=handles_sigterm(code),
        others=others,
        hyperparameters=given,
        environment=request.environment,
        stop_grace=job.settings.stop_grace,
    )


def _program(job: Described, source: Path | None) -> tuple[str, Path]:
    name, folder = job.program
    if source is not None:
        if not (source / name).is_file():
            raise ConfigError(f"there is no program {name} in --source {source}")
        return name, source.absolute()
    found = program_of(job, ())
    path = Path(found).absolute() if found else Path(job.request.file).absolute().parent / name
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
    checkpoints: Path,
    output: Path,
    mounted: bool,
    stop_grace: float | None = None,
) -> RehearsedJob:
    """Return the request's job on simulated hosts, without data.

    `mounted`: hosts see `checkpoints` only as /opt/ml/checkpoints. `stop_grace`: seconds to stop, in place of the
    request's.
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
        checkpoints=checkpoints if asked.keeps_checkpoints or asked.moved else None,
        requested=tuple(values.items()),
        environment=tuple(environment.items()),
        output=output,
    )


def groups_of(asked: Asked, hosts: int) -> tuple[Group, ...]:
    """Return the request's instance groups on `hosts` hosts, at least one in each; () if the request has no groups."""
    request = asked.described.request
    if not (request.body.get("ResourceConfig") or {}).get("InstanceGroups"):
        return ()
    counts = [int(group.get("InstanceCount") or 1) for group in request.groups]
    while sum(counts) > max(hosts, len(counts)):
        counts[counts.index(max(counts))] -= 1
    names = [str(group.get("InstanceGroupName")) for group in request.groups]
    return groups.groups_of((name, "local", count) for name, count in zip(names, counts, strict=True))


def _begins(value: str, beginning: str) -> bool:
    return value.strip('"').startswith(beginning)
