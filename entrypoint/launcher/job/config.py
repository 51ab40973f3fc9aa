"""Read SageMaker's config files and an environment into a Job: mode, hosts and their parts, ranks.

SageMaker Developer Guide, "How Amazon SageMaker Provides Training Information", describes the files. How the SDKs
encode hyperparameters was measured with SageMaker Python SDK 2.257 and 3.20 and sagemaker-training 4.9.
"""

import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from entrypoint.base.errors import ConfigError, ConfigErrors, clip, show
from entrypoint.base.remedies import REMEDIES
from entrypoint.launcher.job import files, params
from entrypoint.launcher.job.channels import Channels, read_channels
from entrypoint.launcher.job.choices import Mode, PsProgram, Tf1
from entrypoint.launcher.job.cluster import Cluster, Host, Part
from entrypoint.launcher.job.groups import SERVERS, accelerators, parts, read_groups
from entrypoint.launcher.job.job import Job, Paths, Program, Tree
from entrypoint.launcher.job.open_mpi import ORTE, major_version
from entrypoint.launcher.job.settings import (
    HOST_NAME,
    MAX_PROCESSES_PER_HOST,
    NOT_GIVEN,
    Settings,
    as_text,
    group_names,
    read_settings,
    truth,
    whole_number,
)

_Kind = TypeVar("_Kind")

MAX_RANKS = 20_000
MAX_TASKS = 2000  # of TensorFlow: TF_CONFIG holds all addresses, and an environment entry holds 128 KiB

SWITCHES = {  # the SDK's hyperparameters that choose a mode
    Mode.PS: params.PARAMETER_SERVER_ENABLED,
    Mode.MWMS: params.MULTI_WORKER_MIRRORED_STRATEGY_ENABLED,
    Mode.MPI: params.MPI_ENABLED,
}
SMDDP_ENABLED = "sagemaker_distributed_dataparallel_enabled"  # selects MPI, too; sagemaker-training has no name for it


def read_job(
    base: Path, environment: Mapping[str, str], run: Path, gpus: int = 0, *, config: Path | None = None
) -> Job:
    """Return the job as `read_what_can_be` reads it. Raise ConfigError, in one line, if it is described wrongly."""
    job, errors = read_what_can_be(base, environment, run, gpus, config=config)
    if errors or job is None:
        raise errors[0]
    return job


def read_what_can_be(
    base: Path, environment: Mapping[str, str], run: Path, gpus: int = 0, *, config: Path | None = None
) -> tuple[Job | None, ConfigErrors]:
    """Return (the job under `base`, the errors of its description). The job is None if its hosts cannot be read.

    A job with errors is complete enough to report them to the other hosts. All hosts that can read the files agree on
    the coordinator, so this host must find the same one.

    `environment`: the container's. `run`: the folder for sockets and keys, unless a setting names another one.
    `gpus`: the number of GPUs of this host. `config`: the folder with the files of a job of another machine; nothing on
    this machine is inspected then.
    """
    here = config is None
    config = config or Tree(base=base).config
    errors, path = ConfigErrors(), config / "resourceconfig.json"
    try:
        resources = files.read_resources(path)
        names = files.host_names(resources, path)
    except ConfigError as error:
        return None, ConfigErrors([error])
    groups = errors.instead((), read_groups, resources, path)
    given = errors.instead({}, files.read_object, config / "hyperparameters.json")
    hyperparameters = _of_one_trial({key: files.decoded(value) for key, value in given.items()}, environment)
    settings, warnings, wrong = read_settings(environment, hyperparameters)
    errors += wrong
    settings = settings.paced(len(names))
    smdistributed = errors.instead(False, _smdistributed, hyperparameters)
    mode, explicit = errors.instead((Mode.SINGLE, False), _mode, settings, hyperparameters, smdistributed)
    training = errors.instead((), _training_groups, mode, hyperparameters)
    serving = errors.instead((), _serving_groups, mode, settings)
    found = errors.instead({}, parts, groups, names, path, training, serving)
    cluster = _cluster(resources, names, found, settings, here)
    if smdistributed:
        warnings.append("Horovod stands in for SageMaker's data-parallel library, smdistributed.dataparallel")
    evaluator = errors.instead("", _evaluator, settings, mode, cluster)
    if mode is Mode.PS and cluster.serving == cluster.training[:1] and settings.ps_workers is PsProgram.SCRIPT:
        warnings.append("parameter servers were asked for on one host: the script runs alone, without TF_CONFIG")
        mode, evaluator = Mode.SINGLE, ""
    elif mode is Mode.SINGLE and len(cluster.hosts) > 1 and not explicit:
        warnings.append(
            f"{len(cluster.hosts)} hosts, but no distribution is configured: each runs the script without TF_CONFIG "
            "and ranks, and trains alone unless the script itself joins the hosts; wanted "
            f"{REMEDIES['nothing-shared']} (of `entrypoint local`: --mode)"
        )
    if cluster.interface is None and len(cluster.hosts) > 1:
        warnings.append(
            f"network interface {_interface(resources)} named in resourceconfig.json does not exist here: "
            "the system's default is used"
        )
    paths = Paths(base=base, run=Path(settings.run_dir) if settings.run_dir else run)
    path = config / "inputdataconfig.json"
    input_data = errors.instead({}, files.read_input_data, path)
    nothing = Program(name="", source="", arguments=())
    program = errors.instead(nothing, files.read_program, hyperparameters, environment, paths)
    if settings.tf1 is Tf1.SHIM and not program.name.endswith(".py"):
        warnings.append(
            f"ENTRYPOINT_TF1 is shim, which is for programs in Python: {show(program.name)} runs without it"
        )
    gpus_of_each = accelerators(groups, cluster, gpus)
    each = errors.instead(1, _processes_per_host, mode, settings, hyperparameters, gpus_of_each)
    options = params.SMDATAPARALLEL_CUSTOM_MPI_OPTIONS if smdistributed else params.MPI_CUSTOM_OPTIONS
    job = Job(
        name=environment.get(params.TRAINING_JOB_ENV, ""),
        mode=mode,
        cluster=cluster,
        program=program,
        paths=paths,
        settings=settings,
        processes_per_host=each,
        mpi_options=errors.instead((), files.read_mpi_options, hyperparameters, options),
        open_mpi=errors.instead(ORTE, major_version, environment) if mode is Mode.MPI and here else ORTE,
        smdistributed=smdistributed,
        evaluator=evaluator,
        warnings=tuple(warnings),
        channels=errors.instead(Channels(), read_channels, input_data, path, settings.channel_groups),
        resource_config=resources,
        input_data_config=input_data,
        hyperparameters=hyperparameters,
    )
    errors.instead(None, _check_size, job)
    return job, errors


def _of_one_trial(hyperparameters: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the hyperparameters with the job's name added to `model_dir`, if a tuning started the job.

    All jobs of a tuning get the same model_dir and would overwrite one another's models. SageMaker's TensorFlow toolkit
    adds the name in the same way. A model_dir on the host itself needs none.
    """
    where, job = hyperparameters.get("model_dir"), environment.get(params.TRAINING_JOB_ENV)
    is_shared = isinstance(where, str) and where not in (*NOT_GIVEN, "False") and not where.startswith("/opt/ml")
    if not (is_shared and job and params.TUNING_METRIC_PARAM in hyperparameters):
        return hyperparameters
    return {**hyperparameters, "model_dir": f"{where}/{job}/model"}


def _evaluator(settings: Settings, mode: Mode, cluster: Cluster) -> str:
    """Return the host that runs the evaluator, or ""."""
    names = [host.name for host in cluster.hosts]
    if not settings.evaluator:
        return ""
    if mode is Mode.JAX:
        raise ConfigError(
            "ENTRYPOINT_EVALUATOR is set, and the mode is jax, in which every process takes part in every step; wanted "
            "no evaluator, or ps or mwms"
        )
    if mode not in (Mode.PS, Mode.MWMS):
        raise ConfigError(f"ENTRYPOINT_EVALUATOR is set, and the mode is {mode}; wanted ps or mwms, or no evaluator")
    name = {"first": names[0], "last": names[-1]}.get(settings.evaluator, settings.evaluator)
    if name not in names:
        found = clip(repr(settings.evaluator))
        raise ConfigError(f"ENTRYPOINT_EVALUATOR is {found}; wanted first, last or one of {show(names)}")
    return name


def this_host(base: Path) -> str | None:
    """Return the name of this host, if the files can be read. Messages about files that cannot be read need it."""
    try:
        name = files.read_object(Tree(base=base).config / "resourceconfig.json").get("current_host")
    except ConfigError:
        return None
    return name if isinstance(name, str) and HOST_NAME.fullmatch(name) else None


def _parsed(hyperparameters: dict[str, Any], key: str, parse: Callable[[str], _Kind]) -> _Kind:
    try:
        return parse(as_text(hyperparameters[key]))
    except ValueError as wanted:
        raise ConfigError(f"hyperparameter {key} is {show(hyperparameters[key])}; wanted {wanted}") from None


def _training_groups(mode: Mode, hyperparameters: dict[str, Any]) -> tuple[str, ...]:
    """Return the groups that the distribution is for; () without a distribution, or if it is for all groups."""
    key = params.DISTRIBUTION_INSTANCE_GROUPS
    is_given = hyperparameters.get(key) not in (*NOT_GIVEN, [])
    names = _parsed(hyperparameters, key, group_names) if is_given else ()
    return () if mode is Mode.SINGLE else names


def _serving_groups(mode: Mode, settings: Settings) -> tuple[str, ...]:
    """Return the names of the groups of parameter servers, if they have groups of their own."""
    if settings.ps_groups and mode is not Mode.PS:
        raise ConfigError(f"{SERVERS} is set, and the mode is {mode}; wanted ps, or no groups for parameter servers")
    return settings.ps_groups


def _cluster(
    resources: dict[str, Any], names: Sequence[str], found: Mapping[str, Part], settings: Settings, here: bool
) -> Cluster:
    """Return all hosts in rank order. `found`: the part of each host, if some hosts do not train."""
    order = list(Part)
    ordered = sorted(names, key=lambda name: (order.index(found.get(name, Part.TRAINS)), name))
    addresses = dict(settings.host_addresses)
    hosts = tuple(
        Host(
            name=name,
            rank=rank,
            address=addresses.get(name, name),
            ports_from=settings.port_base + rank * settings.port_stride,
            part=found.get(name, Part.TRAINS),
        )
        for rank, name in enumerate(ordered)
    )
    mine = next(host for host in hosts if host.name == resources["current_host"])
    # Simulated hosts use loopback, whatever interface the file names.
    interface = "lo" if hosts[0].address.startswith("127.") else _interface(resources)
    present = {name for _, name in socket.if_nameindex()} if here else {interface}
    return Cluster(hosts=hosts, me=mine, interface=interface if interface in present else None)


def _interface(resources: dict[str, Any]) -> str:
    return clip(str(resources.get("network_interface_name") or "eth0"))


def _smdistributed(hyperparameters: dict[str, Any]) -> bool:
    """Return whether the script is for smdistributed.dataparallel. Raise ConfigError for modelparallel."""
    if hyperparameters.get("mp_parameters") not in (*NOT_GIVEN, {}):
        raise ConfigError(
            "hyperparameter mp_parameters asks for SageMaker's model-parallel library, which does not exist for this "
            "image's TensorFlow; wanted a job without smdistributed.modelparallel"
        )
    return SMDDP_ENABLED in hyperparameters and _parsed(hyperparameters, SMDDP_ENABLED, truth)


def _mode(settings: Settings, hyperparameters: dict[str, Any], smdistributed: bool) -> tuple[Mode, bool]:
    """Return (mode, whether it was set by name): from our setting, else from the switches of SageMaker's SDK."""
    switches = {**SWITCHES, Mode.MPI: SMDDP_ENABLED} if smdistributed else SWITCHES
    asked: dict[Mode, str] = {} if settings.mode is Mode.AUTO else {settings.mode: f"ENTRYPOINT_MODE={settings.mode}"}
    for mode, key in switches.items():
        if key in hyperparameters and _parsed(hyperparameters, key, truth):
            asked.setdefault(mode, f"hyperparameter {key}")
    if len(asked) > 1:
        raise ConfigError(f"two modes at once: {' and '.join(asked.values())}; wanted one of them")
    return next(iter(asked), Mode.SINGLE), bool(asked)


def _processes_per_host(mode: Mode, settings: Settings, hyperparameters: dict[str, Any], gpus: int | None) -> int:
    """Return the number of processes on each host: our setting, if it is given.

    Otherwise, mpi takes the SDK's hyperparameter or the GPUs of a host, jax the GPUs of a host, and other modes 1.
    """
    if settings.processes_per_host:
        return settings.processes_per_host
    if mode not in (Mode.MPI, Mode.JAX):
        return 1
    key = params.MPI_PROCESSES_PER_HOST
    if mode is Mode.MPI and hyperparameters.get(key) not in NOT_GIVEN:
        return _parsed(hyperparameters, key, whole_number(1, MAX_PROCESSES_PER_HOST))
    if gpus is None:
        other = f"hyperparameter {key} (the SDK's processes_per_host), or "
        raise ConfigError(
            "the instance groups are of different types, and no host can see how many GPUs another one has; wanted "
            f"{other if mode is Mode.MPI else ''}ENTRYPOINT_PROCESSES_PER_HOST"
        )
    return max(1, gpus)


def _check_size(job: Job) -> None:
    """Raise ConfigError if the job is too large to start: each task's environment names all tasks."""
    hosts, each = len(job.cluster.training), job.processes_per_host
    count = hosts * each
    if job.mode is Mode.PS:
        count += job.settings.ps_count or len(job.cluster.serving)
    most = {Mode.MPI: MAX_RANKS, Mode.JAX: MAX_RANKS, Mode.PS: MAX_TASKS, Mode.MWMS: MAX_TASKS}.get(job.mode, count)
    if count > most:
        raise ConfigError(f"{count} processes in all ({each} on each of {hosts} hosts); wanted at most {most}")
