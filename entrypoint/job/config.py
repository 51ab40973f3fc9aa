"""SageMaker's config files and a given environment -> Job. Complaints about input live here (and in settings.py).

What the files hold: SageMaker Developer Guide, "How Amazon SageMaker Provides Training Information". How the
SDKs encode hyperparameters was measured with SageMaker Python SDK 2.257 and 3.20 and sagemaker-training 4.9.
"""

import json
import shlex
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sagemaker_training import mapping, params

from entrypoint.errors import ConfigError, ConfigErrors, shorten, show
from entrypoint.job.channels import Channels, read_channels
from entrypoint.job.cluster import Cluster, Host, Part
from entrypoint.job.groups import DISTRIBUTION, SERVERS, accelerators, parts, read_groups
from entrypoint.job.job import Job, Mode, Paths, Program, Tree
from entrypoint.job.limits import STRING, limit_of_all, size, size_of_all
from entrypoint.job.settings import (
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

MAX_HOSTS = 1000
MAX_RANKS = 20_000
MAX_TASKS = 2000  # of TensorFlow: TF_CONFIG holds the addresses of all, and an environment entry 128 KiB
MAX_DEPTH = 100

_SWITCHES = {
    Mode.PS: params.PARAMETER_SERVER_ENABLED,
    Mode.MWMS: params.MULTI_WORKER_MIRRORED_STRATEGY_ENABLED,
    Mode.MPI: params.MPI_ENABLED,
}
SMDDP_ENABLED = "sagemaker_distributed_dataparallel_enabled"  # MPI, too; sagemaker-training has no name for it


def read_job(
    base: Path, environment: Mapping[str, str], run: Path, gpus: int = 0, *, config: Path | None = None
) -> Job:
    """Return the job, as `read_what_can_be` reads it; ConfigError in one line if it is described wrongly."""
    job, errors = read_what_can_be(base, environment, run, gpus, config=config)
    if errors or job is None:
        raise errors[0]
    return job


def read_what_can_be(
    base: Path, environment: Mapping[str, str], run: Path, gpus: int = 0, *, config: Path | None = None
) -> tuple[Job | None, ConfigErrors]:
    """(the job described under `base`, what is wrong with its description); no job if its hosts are not to be found.

    Of a job that is described wrongly there is enough to tell its other hosts so: hosts that can read it all agree on
    who coordinates, and so should we.

    `environment` is the container's; `run` the folder for sockets and keys, unless a setting names another one;
    `gpus` the number of GPUs here.
    With `config`, the files lie there instead, and the job is another machine's: nobody looks what this one has.
    """
    here = config is None
    config = config or Tree(base=base).config
    errors, path = ConfigErrors(), config / "resourceconfig.json"
    try:
        resources = _resources(path)
        names = _host_names(resources, path)
    except ConfigError as error:
        return None, ConfigErrors([error])
    groups = errors.instead((), read_groups, resources, path)
    given = errors.instead({}, _read_object, config / "hyperparameters.json")
    hyperparameters = _of_one_trial({key: _decode(value) for key, value in given.items()}, environment)
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
    if mode is Mode.PS and cluster.serving == cluster.training[:1] and settings.ps_workers == "script":
        warnings.append("parameter servers were asked for on one host: the script runs alone, without TF_CONFIG")
        mode, evaluator = Mode.SINGLE, ""
    elif mode is Mode.SINGLE and len(cluster.hosts) > 1 and not explicit:
        warnings.append(
            f"{len(cluster.hosts)} hosts but no way of distributing was asked for: each runs the script alone and "
            "nothing is shared. Set ENTRYPOINT_MODE or a hyperparameter such as "
            f"{params.PARAMETER_SERVER_ENABLED} to change that"
        )
    if cluster.interface is None and len(cluster.hosts) > 1:
        warnings.append(
            f"network interface {_interface(resources)} named in resourceconfig.json does not exist here: "
            "the system's default is used"
        )
    paths = Paths(base=base, run=Path(settings.run_dir) if settings.run_dir else run)
    path = config / "inputdataconfig.json"
    input_data = errors.instead({}, _input_data, path)
    nothing = Program(name="", source="", arguments=())
    program = errors.instead(nothing, _program, hyperparameters, environment, paths)
    gpus_of_each = accelerators(groups, cluster, gpus)
    each = errors.instead(1, _processes_per_host, mode, settings, hyperparameters, gpus_of_each)
    options = params.SMDATAPARALLEL_CUSTOM_MPI_OPTIONS if smdistributed else params.MPI_CUSTOM_OPTIONS
    job = Job(
        mode=mode,
        cluster=cluster,
        program=program,
        paths=paths,
        settings=settings,
        processes_per_host=each,
        mpi_options=errors.instead((), _mpi_options, hyperparameters, options),
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
    """The jobs of a hyperparameter tuning are sent the same model_dir; each has its name added to it.

    As in SageMaker's TensorFlow toolkit, unless it is on the host: else they would overwrite one another's models.
    """
    where, job = hyperparameters.get("model_dir"), environment.get(params.TRAINING_JOB_ENV)
    is_shared = isinstance(where, str) and where not in (*NOT_GIVEN, "False") and not where.startswith("/opt/ml")
    if not (is_shared and job and params.TUNING_METRIC_PARAM in hyperparameters):
        return hyperparameters
    return {**hyperparameters, "model_dir": f"{where}/{job}/model"}


def _evaluator(settings: Settings, mode: Mode, cluster: Cluster) -> str:
    """Return the host that runs the evaluator, or nothing."""
    names = [host.name for host in cluster.hosts]
    if not settings.evaluator:
        return ""
    if mode not in (Mode.PS, Mode.MWMS):
        raise ConfigError(f"ENTRYPOINT_EVALUATOR is set, and the mode is {mode}; wanted ps or mwms, or no evaluator")
    name = {"first": names[0], "last": names[-1]}.get(settings.evaluator, settings.evaluator)
    if name not in names:
        found = repr(settings.evaluator)
        raise ConfigError(f"ENTRYPOINT_EVALUATOR is {found}; wanted first, last or one of {show(names)}")
    return name


def this_host(base: Path) -> str | None:
    """Return the name of this host, as far as the files can be read: for messages about those that cannot."""
    try:
        name = _read_object(Tree(base=base).config / "resourceconfig.json").get("current_host")
    except ConfigError:
        return None
    return name if isinstance(name, str) and HOST_NAME.fullmatch(name) else None


def _read_object(path: Path, required: bool = False) -> dict[str, Any]:
    """Return a JSON object from a file; a file that may be absent reads as {}."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        if not required:
            return {}
        raise ConfigError(
            f"{path} is missing; SageMaker mounts it on every host. To try an image by hand, use `entrypoint local`"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    if not text.strip():
        raise ConfigError(f"{path} is empty; wanted a JSON object")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON ({error}); wanted a JSON object") from None
    if value is None and not required:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{path} holds a JSON {type(value).__name__}; wanted an object")
    if _is_deep(value):
        raise ConfigError(f"{path} holds values inside of values, more than {MAX_DEPTH} deep; wanted fewer")
    return value


def _is_deep(value: Any) -> bool:
    """Return whether a JSON value is nested so deep that it could not be written again."""
    level = [value]
    for _ in range(MAX_DEPTH):
        groups = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [each for group in groups for each in group]
        if not level:
            break
    return bool(level)


def _decode(value: object) -> Any:
    """A hyperparameter is JSON text, or plain text where it is not JSON (as sagemaker-training reads it)."""
    if not isinstance(value, str):
        return value
    try:
        decoded = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return value if _is_deep(decoded) else decoded


def _input_data(path: Path) -> dict[str, Any]:
    found = _read_object(path)
    _check_texts(found, path)
    return found


def _resources(path: Path) -> dict[str, Any]:
    """resourceconfig.json. Of what sagemaker-training reads, null is as good as absent, and it takes no null."""
    found = _read_object(path, required=True)
    optional = ("current_instance_type", "current_group_name", "instance_groups", "network_interface_name")
    return {key: value for key, value in found.items() if value is not None or key not in optional}


def _host_names(resources: dict[str, Any], path: Path) -> list[str]:
    """Return the hosts as they are listed, this one among them."""
    names = resources.get("hosts")
    me = resources.get("current_host")
    if not isinstance(names, list) or not names or not all(isinstance(n, str) and n for n in names):
        raise ConfigError(f"{path} has hosts = {show(names)}; wanted a list of at least one host name")
    odd = [name for name in names if not HOST_NAME.fullmatch(name)]
    if odd:
        raise ConfigError(f"{path} has {show(odd[0])} in hosts; wanted names of letters, digits, - . and _")
    doubles = sorted(name for name, count in Counter(names).items() if count > 1)
    if doubles:
        found = show(names)
        raise ConfigError(
            f"{path} names {shorten(', '.join(doubles))} more than once in hosts {found}; wanted each once"
        )
    if len(names) > MAX_HOSTS:
        raise ConfigError(f"{path} names {len(names)} hosts; wanted at most {MAX_HOSTS}")
    if me not in names:
        raise ConfigError(f"{path} has current_host = {show(me)}; wanted one of its hosts {show(sorted(names))}")
    _check_texts(resources, path)
    return names


def _training_groups(mode: Mode, hyperparameters: dict[str, Any]) -> tuple[str, ...]:
    """Return names of the groups that the distribution is for; none where there is none, or it is for all."""
    given = hyperparameters.get(params.DISTRIBUTION_INSTANCE_GROUPS)
    try:
        names = () if given in (*NOT_GIVEN, []) else group_names(as_text(given))
    except ValueError as wanted:
        raise ConfigError(f"{DISTRIBUTION} is {show(given)}; wanted {wanted}") from None
    return () if mode is Mode.SINGLE else names


def _serving_groups(mode: Mode, settings: Settings) -> tuple[str, ...]:
    """Return names of the groups of parameter servers, if they have groups of their own."""
    if settings.ps_groups and mode is not Mode.PS:
        raise ConfigError(f"{SERVERS} is set, and the mode is {mode}; wanted ps, or no groups for parameter servers")
    return settings.ps_groups


def _cluster(
    resources: dict[str, Any], names: Sequence[str], found: Mapping[str, Part], settings: Settings, here: bool
) -> Cluster:
    """Everybody in rank order; `found` says which part a host takes, where not all train."""
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
    # Simulated hosts talk over loopback, whatever interface the file names.
    interface = "lo" if hosts[0].address.startswith("127.") else _interface(resources)
    present = {name for _, name in socket.if_nameindex()} if here else {interface}
    return Cluster(hosts=hosts, me=mine, interface=interface if interface in present else None)


def _interface(resources: dict[str, Any]) -> str:
    return shorten(str(resources.get("network_interface_name") or "eth0"))


def _is_on(hyperparameters: dict[str, Any], key: str) -> bool:
    try:
        return truth(as_text(hyperparameters.get(key, False)))
    except ValueError as wanted:
        raise ConfigError(f"hyperparameter {key} is {show(hyperparameters[key])}; wanted {wanted}") from None


def _smdistributed(hyperparameters: dict[str, Any]) -> bool:
    """Return whether the script is for SageMaker's data-parallel library; the model-parallel one is not to be had."""
    if hyperparameters.get("mp_parameters") not in (*NOT_GIVEN, {}):
        raise ConfigError(
            "hyperparameter mp_parameters asks for SageMaker's model-parallel library, which does not exist for this "
            "image's TensorFlow; wanted a job without smdistributed.modelparallel"
        )
    return _is_on(hyperparameters, SMDDP_ENABLED)


def _mode(settings: Settings, hyperparameters: dict[str, Any], smdistributed: bool) -> tuple[Mode, bool]:
    """(mode, was it asked for by name): by our setting, else by the switches that SageMaker's SDK sends."""
    switches = {**_SWITCHES, Mode.MPI: SMDDP_ENABLED} if smdistributed else _SWITCHES
    asked = [mode for mode, key in switches.items() if _is_on(hyperparameters, key)]
    if settings.mode != "auto":
        mode = Mode(settings.mode)
        if any(other is not mode for other in asked):
            raise ConfigError(
                f"two modes at once: ENTRYPOINT_MODE={settings.mode} and hyperparameter "
                f"{switches[next(o for o in asked if o is not mode)]}; wanted one of them"
            )
        return mode, True
    if len(asked) > 1:
        raise ConfigError(
            "two modes at once: hyperparameters "
            + " and ".join(switches[m] for m in asked)
            + " are true; wanted one of them"
        )
    return (asked[0], True) if asked else (Mode.SINGLE, False)


def _processes_per_host(mode: Mode, settings: Settings, hyperparameters: dict[str, Any], gpus: int | None) -> int:
    """Our setting, else (mpi) the SDK's hyperparameter, else (mpi) the GPUs of the host, else 1."""
    if settings.processes_per_host:
        return settings.processes_per_host
    if mode is not Mode.MPI:
        return 1
    given = hyperparameters.get(params.MPI_PROCESSES_PER_HOST)
    if given in NOT_GIVEN and gpus is None:
        raise ConfigError(
            "the instance groups are of different types, and no host can see how many GPUs another one has; wanted "
            f"hyperparameter {params.MPI_PROCESSES_PER_HOST} (the SDK's processes_per_host), or "
            "ENTRYPOINT_PROCESSES_PER_HOST"
        )
    if given in NOT_GIVEN:
        return max(1, gpus or 0)
    try:
        return whole_number(1, MAX_PROCESSES_PER_HOST)(as_text(given))
    except ValueError as wanted:
        raise ConfigError(f"hyperparameter {params.MPI_PROCESSES_PER_HOST} is {show(given)}; wanted {wanted}") from None


def _mpi_options(hyperparameters: dict[str, Any], key: str) -> tuple[str, ...]:
    options = hyperparameters.get(key)
    try:
        words = tuple(shlex.split(as_text(options))) if options not in NOT_GIVEN else ()
    except ValueError as error:  # the options are not shown: there can be secrets in them
        raise ConfigError(
            f"hyperparameter {key} does not fall into words: {error}; wanted mpirun options as a shell would take them"
        ) from None
    for word in words:
        _check_word(word, f"hyperparameter {key}")
        _check_length(word, f"hyperparameter {key}, or a word of it,")
    return words


def _program(hyperparameters: dict[str, Any], environment: Mapping[str, str], paths: Paths) -> Program:
    name = environment.get(params.USER_PROGRAM_ENV) or hyperparameters.get(params.USER_PROGRAM_PARAM)
    if not name:
        raise ConfigError(
            f"no program: neither hyperparameter {params.USER_PROGRAM_PARAM} nor environment variable "
            f"{params.USER_PROGRAM_ENV} is set; wanted the name of a file in {paths.code}, such as train.py"
        )
    source = hyperparameters.get(params.SUBMIT_DIR_PARAM) or environment.get(params.SUBMIT_DIR_ENV)
    # The same split and mapping as sagemaker-training's, so that scripts see the arguments they know.
    users = mapping.split_by_criteria(
        hyperparameters, keys=params.SAGEMAKER_HYPERPARAMETERS, prefix=params.SAGEMAKER_PREFIX
    ).excluded
    for key, value in users.items():
        if "=" in key:
            raise ConfigError(f"hyperparameter {show(key)} has a = in its name; wanted none: it becomes SM_HP_<NAME>")
        for word in mapping.to_cmd_args({key: value}):
            _check_word(word, f"hyperparameter {show(key)}")
            _check_length(word, f"hyperparameter {show(key)}")
    for key, value in hyperparameters.items():
        if isinstance(value, str):
            _check_word(key + value, f"hyperparameter {show(key)}")
    _check_word(str(name), "the program's name")
    if str(name).startswith("-"):
        raise ConfigError(f"the program is {show(name)}; wanted a name that Python or a shell takes for no option")
    arguments = tuple(mapping.to_cmd_args(users))
    _check_all(arguments, users, environment)
    return Program(name=str(name), source=str(source or paths.code), arguments=arguments)


def _check_length(word: str, where: str) -> None:
    """ConfigError if Linux starts no program with this argument."""
    if size(word) > STRING:
        raise ConfigError(
            f"{where} is an argument of {size(word)} bytes, and Linux takes none of more than {STRING}; wanted a "
            "shorter one: put it into a file, in a channel or beside the code, and pass the file's name"
        )


def _check_all(arguments: Sequence[str], users: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """ConfigError if Linux starts no program with all of these; each hyperparameter is in there twice."""
    entries = [f"SM_HP_{key}={arguments[2 * at + 1]}" for at, key in enumerate(sorted(users))]
    entries = [entry for entry in entries if size(entry) <= STRING]  # longer ones are left out of the environment
    entries += [f"{key}={value}" for key, value in environment.items()]
    found, most = size_of_all([*arguments, *entries]), limit_of_all()
    if found > most:
        raise ConfigError(
            f"{len(users)} hyperparameters and the environment make arguments and variables of {found} bytes, and "
            f"Linux starts no program with more than {most}; wanted fewer or shorter ones: put them into a file, in a "
            "channel or beside the code"
        )


def _check_word(word: str, where: str) -> None:
    """ConfigError if `word` can be no argument and no environment entry of a program."""
    bad = next((character for character in word if character == "\0" or "\ud800" <= character <= "\udfff"), None)
    if bad is not None:
        raise ConfigError(
            f"{where} holds {bad!r}; wanted text without NUL characters and halves of surrogate pairs, which no "
            "program argument can hold"
        )


def _check_texts(value: Any, path: Path) -> None:
    """ConfigError if a text anywhere in `value` cannot be part of the environment that is made of it."""
    todo = [value]
    while todo:
        each = todo.pop()
        if isinstance(each, str):
            _check_word(each, str(path))
        elif isinstance(each, dict):
            todo += [*each, *each.values()]
        elif isinstance(each, list):
            todo += each


def _check_size(job: Job) -> None:
    """ConfigError if the job is so large that nothing could start it: each task's environment names all tasks."""
    hosts, each = len(job.cluster.training), job.processes_per_host
    count = hosts * each
    if job.mode is Mode.PS:
        count += job.settings.ps_count or len(job.cluster.serving)
    most = {Mode.MPI: MAX_RANKS, Mode.PS: MAX_TASKS, Mode.MWMS: MAX_TASKS}.get(job.mode, count)
    if count > most:
        raise ConfigError(f"{count} processes in all ({each} on each of {hosts} hosts); wanted at most {most}")
