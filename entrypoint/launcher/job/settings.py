"""Define the launcher's own settings: few, typed, read once.

Each is an environment variable ENTRYPOINT_<NAME> or a hyperparameter sagemaker_entrypoint_<name>; the environment wins.
settings.md explains them; `entrypoint settings` and docs/settings.md show it.
"""

import contextlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from entrypoint.base.errors import ConfigError, ConfigErrors, did_you_mean
from entrypoint.base.python310 import StrEnum
from entrypoint.base.values import Default, Value, replace
from entrypoint.launcher.job import choices
from entrypoint.launcher.job.choices import ChannelGroup, LogPrefix, Mode
from entrypoint.launcher.job.rules import parse_rules

ENVIRONMENT_PREFIX = "ENTRYPOINT_"
HYPERPARAMETER_PREFIX = "sagemaker_entrypoint_"
TOKEN, TOKEN_PARAMETER = f"{ENVIRONMENT_PREFIX}TOKEN", f"{HYPERPARAMETER_PREFIX}token"
LISTED = " `entrypoint settings` lists all"
MAX_PROCESSES_PER_HOST = 512
LONGEST_TOKEN = 4096
# The launcher sets these for the programs that it starts. They are no settings, and need no warning inside of a job.
SET_BY_US = {
    f"{ENVIRONMENT_PREFIX}{name}"
    for name in ("SHARDS", "RESTART_COUNT", "PROCESS", "RANKS", "MARKS", "MPI_OPTIONS", "ADDRESS")
}
_ALSO_CALLED = {
    "parameter_server": Mode.PS, "multi_worker_mirrored": Mode.MWMS, "horovod": Mode.MPI,
}  # fmt: skip
HEARTBEATS = 250  # a second that the coordinator of a large job reads
END_SECONDS = 20.0  # for the hosts to end, after the scripts' grace and before SageMaker kills them

_Kind = TypeVar("_Kind")
_Word = TypeVar("_Word", bound=StrEnum)
# A name that DNS, /etc/hosts and Docker accept. It becomes part of commands and of ssh's files.
HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?", re.ASCII)

_TRUE = {"true", "1", "yes", "on"}
NOT_GIVEN = (None, "", "None")  # JSON null, an empty variable, and Python's None as the SDK's Estimator sends it
_FALSE = {"false", "0", "no", "off", "none", "null", ""}


def truth(value: object) -> bool:
    """Return the boolean that SDKs, consoles and people write in many ways. Raise ValueError for anything else."""
    text = str(value).strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError("true or false")


def _wanting(wanted: str) -> Callable[[Callable[[str], _Kind | None]], Callable[[str], _Kind]]:
    """Make a parser raise ValueError, with what is wanted, when it fails or returns None."""

    def checked(parse: Callable[[str], _Kind | None]) -> Callable[[str], _Kind]:
        def read(text: str) -> _Kind:
            with contextlib.suppress(Exception):  # such as RecursionError, of deep brackets
                if (value := parse(text)) is not None:
                    return value
            raise ValueError(wanted)

        return read

    return checked


def _prefix(text: str) -> LogPrefix:
    if text.strip().lower() == LogPrefix.STREAMS:
        return LogPrefix.STREAMS
    try:
        return LogPrefix.ON if truth(text) else LogPrefix.OFF
    except ValueError:
        raise ValueError(f"true, false or streams{did_you_mean(text, LogPrefix)}") from None


def mode_named(text: str) -> Mode:
    """Return the mode called `text`: by our name or another common one, in any case, with - or _ or neither.

    `MultiWorkerMirroredStrategy` is such a name, too. Raise ValueError for an unknown name.
    """
    names = {re.sub("[-_]", "", name): name for name in (*Mode, *_ALSO_CALLED)}
    name = names.get(re.sub("[-_ ]|strategy$", "", text.strip().lower()))
    if name is None:
        known = f"one of {', '.join(Mode)} (or {', '.join(_ALSO_CALLED)})"
        raise ValueError(known + did_you_mean(text, names.values()))
    return _ALSO_CALLED.get(name) or Mode(name)


@_wanting("letters, digits and ._/#:- , 255 at most, and no beginning with AWS/")
def _namespace(text: str) -> str | None:
    return text if re.fullmatch(r"[A-Za-z0-9._/#:-]{1,255}", text) and not text.startswith("AWS/") else None


def whole_number(least: int, most: int) -> Callable[[str], int]:
    return _number(int, least, most, f"a whole number from {least} to {most}")


def _seconds(least: float, most: float) -> Callable[[str], float]:
    return _number(float, least, most, f"seconds from {least:g} to {most:g}")


def _number(kind: Callable[[str], Any], least: float, most: float, wanted: str) -> Callable[[str], Any]:
    return _wanting(wanted)(lambda text: number if least <= (number := kind(text)) <= most else None)


@_wanting("exit codes from 1 to 255, with commas between them")
def _codes(text: str) -> tuple[int, ...] | None:
    """Return exit codes such as `75,99` as numbers."""
    codes = tuple(sorted({int(word) for word in text.split(",") if word.strip()}))
    return codes if all(0 < code < 256 for code in codes) else None


@_wanting("names of instance groups with commas between them, each once")
def group_names(text: str) -> tuple[str, ...] | None:
    """Return instance groups: `a,b`, `["a", "b"]` or Python's `['a', 'b']`. Raise ValueError for anything else."""
    import ast  # here, since few jobs name groups in brackets

    names = ast.literal_eval(text) if text.lstrip().startswith("[") else text.split(",")
    names = [name.strip() for name in names]
    return tuple(names) if all(names) and len(set(names)) == len(names) else None


@_wanting("names of packages with commas between them, such as tensorflow,numpy")
def _packages(text: str) -> tuple[str, ...] | None:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    return names if all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) for name in names) else None


@_wanting("own, same or off, or of single groups train=same,evaluation=off, each once")
def _channel_groups(text: str) -> tuple[tuple[str, ChannelGroup], ...] | None:
    """Return `same`, or `train=same,evaluation=off`, as pairs. A kind without a stem has the stem ""."""
    words = [word.strip().rpartition("=") for word in text.split(",")]
    pairs = {stem.strip(): ChannelGroup(kind.strip()) for stem, _, kind in words}
    return tuple(pairs.items()) if len(pairs) == len(words) else None


@_wanting('a JSON array of {"Name": ..., "Regex": an expression with one group}')
def _metric_definitions(text: str) -> tuple[tuple[str, str], ...] | None:
    """Return (name, expression) of each definition in SageMaker's JSON array. Each expression has a group."""
    pairs = tuple((each["Name"], each["Regex"]) for each in json.loads(text))
    good = all(isinstance(name, str) and re.compile(expression).groups for name, expression in pairs)
    return pairs if good else None


@_wanting(f"at most {LONGEST_TOKEN} printable ASCII characters, not blanks alone")
def _token(text: str) -> str | None:
    token = text.strip()  # HTTP headers hold no blanks at their ends, and files end with a newline
    good = token.isascii() and token.isprintable() and len(token) <= LONGEST_TOKEN and bool(token) == bool(text)
    return token if good else None


@_wanting("a JSON object of host name to address")
def _addresses(text: str) -> tuple[tuple[str, str], ...] | None:
    pairs = sorted(json.loads(text).items())
    return tuple(pairs) if all(HOST_NAME.fullmatch(address.replace(":", "")) for _, address in pairs) else None


class Setting(Default):
    """Hold a setting's default and its parser, and whether users may change it.

    `fixed`: the setting is not for users, so no page shows it. Our tests change it by its variable. `machine`: the same
    as `fixed`, but the value may differ between hosts.
    """

    def __init__(
        self,
        default: Any,
        parse: Callable[[str], Any],
        secret: bool = False,
        fixed: bool = False,
        machine: bool = False,
    ) -> None:
        super().__init__(lambda: default)
        self.default, self.parse, self.secret, self.machine = default, parse, secret, machine
        self.for_users = not (fixed or machine)


_setting: Any = Setting  # as a field's default, which has the field's type


def _word(default: _Word, *others: _Word, fixed: bool = False) -> Any:
    """Return the Setting of a word: `default` or one of `others`. Without `others`, take any word of the enum."""
    words = (default, *(others or (word for word in type(default) if word is not default)))

    def parse(text: str) -> _Word:
        found = next((word for word in words if word == text), None)
        if found is None:
            raise ValueError("one of " + ", ".join(words) + did_you_mean(text, words))
        return found

    return _setting(default, parse, fixed=fixed)


class Settings(Value):
    """Hold every setting with its default. Field names are the setting names in lower case; settings.md explains them.

    The order is that of settings.md.
    """

    mode: Mode = _setting(Mode.AUTO, mode_named)
    processes_per_host: int = _setting(0, whole_number(1, MAX_PROCESSES_PER_HOST))
    ps_workers: choices.PsProgram = _word(choices.PsProgram.SCRIPT)
    ps_servers: choices.PsProgram = _word(choices.PsProgram.SERVER)
    ps_worker_end: choices.WorkerEnd = _word(choices.WorkerEnd.AUTO)
    ps_quiet: float = _setting(60.0, _seconds(2, 86_400), fixed=True)  # until such a worker is taken to do nothing
    ps_count: int = _setting(0, whole_number(1, 2000))
    ps_groups: tuple[str, ...] = _setting((), group_names)
    channel_groups: tuple[tuple[str, ChannelGroup], ...] = _setting((), _channel_groups)
    ps_chief_name: choices.ChiefName = _word(choices.ChiefName.AUTO)
    # ps with scripts: whether workers wait until the chief's port answers; by default, with TF1 sessions.
    ps_chief_first: choices.When = _word(choices.When.AUTO, fixed=True)
    tf1: choices.Tf1 = _word(choices.Tf1.TELL)
    replace: tuple[str, ...] = _setting((), _packages)
    control_port: int = _setting(7979, whole_number(1, 65535))
    ssh_port: int = _setting(7922, whole_number(1, 65535), fixed=True)  # mpi: of the job's own ssh daemon
    token: str = _setting("", _token, secret=True)
    heartbeat: float = _setting(1.0, _seconds(0.05, 60), fixed=True)  # seconds between two of a host; see `paced`
    peer_timeout: float = _setting(5.0, _seconds(0.5, 3600))
    start_timeout: float = _setting(1200.0, _seconds(1, 86_400))
    stop_grace: float = _setting(100.0, _seconds(0, 86_400))
    failure_grace: float = _setting(2.0, _seconds(0, 86_400))
    kill_timeout: float = _setting(10.0, _seconds(0, 3600), fixed=True)  # after SIGKILL, until a process is left behind
    max_runtime: float = _setting(0.0, _seconds(0, 28 * 86_400))
    restarts: int = _setting(0, whole_number(0, 1000))
    restart_backoff: float = _setting(3.0, _seconds(0, 3600), fixed=True)  # before the first one; doubled each time
    restart_codes: tuple[int, ...] = _setting((75,), _codes)
    pin_gpus: choices.When = _word(choices.When.AUTO)
    gpu_check: choices.Reaction = _word(choices.Reaction.WARN)
    evaluator: str = _setting("", str)
    evaluator_grace: float = _setting(300.0, _seconds(0, 86_400), fixed=True)  # for its last work, after all others
    outside_grace: float = _setting(30.0, _seconds(0, 86_400), fixed=True)  # of scripts outside, after the others
    differences: choices.Reaction = _word(choices.Reaction.FAIL, choices.Reaction.WARN)
    log_prefix: LogPrefix = _setting(LogPrefix.ON, _prefix)
    no_proxy: choices.NoProxy = _word(choices.NoProxy.HOSTS)
    monitor: bool = _setting(True, truth)
    monitor_interval: float = _setting(1.0, _seconds(0.1, 60), fixed=True)  # between two looks of the monitor
    metrics: tuple[tuple[str, str], ...] = _setting((), _metric_definitions)
    emf: str = _setting("", _namespace)
    hang_after: float = _setting(600.0, _seconds(0, 28 * 86_400))
    hang_action: choices.HangAction = _word(choices.HangAction.WAIT)
    require_distributed: bool = _setting(False, truth)
    rules: tuple[tuple[str, float], ...] = _setting((), parse_rules)
    price: float = _setting(0.0, _number(float, 0, 1e6, "USD from 0 to 1e6"))
    run_dir: str = _setting("", str, machine=True)  # for keys and sockets; /run/entrypoint, else a temporary one
    summary: str = _setting("", str, machine=True)  # file for a JSON summary at the end, for `entrypoint local`
    host_addresses: tuple[tuple[str, str], ...] = _setting((), _addresses, machine=True)  # of names unknown to DNS
    port_stride: int = _setting(0, whole_number(0, 5000), machine=True)  # added to each port, times the host's rank
    port_base: int = _setting(0, whole_number(0, 60_000), machine=True)  # added to each port of all hosts

    @property
    def stop_early_seconds(self) -> float:
        """Return how many seconds before the maximum runtime the job is stopped, so that scripts save and hosts end."""
        return self.stop_grace + END_SECONDS

    def paced(self, hosts: int) -> "Settings":
        """Return the settings with heartbeats rare enough for `hosts` hosts.

        A coordinator then reads at most HEARTBEATS heartbeats a second. Rarer heartbeats need a longer peer_timeout.
        """
        heartbeat = max(self.heartbeat, hosts / HEARTBEATS)
        patience = self.peer_timeout if heartbeat == self.heartbeat else max(self.peer_timeout, 3 * heartbeat)
        return replace(self, heartbeat=heartbeat, peer_timeout=patience)


SETTINGS: dict[str, Setting] = {name: vars(Settings)[name] for name in Settings.fields}
FOR_USERS = [name for name, setting in SETTINGS.items() if setting.for_users]


def read_settings(
    environment: Mapping[str, str], hyperparameters: Mapping[str, Any]
) -> tuple[Settings, list[str], ConfigErrors]:
    """Return (settings, warnings, errors) from an environment and decoded hyperparameters. Bad values are left out."""
    values: dict[str, Any] = {}
    warnings, errors = [], ConfigErrors()
    for key, value in hyperparameters.items():
        if key.startswith(HYPERPARAMETER_PREFIX):
            name = key.removeprefix(HYPERPARAMETER_PREFIX)
            if name not in FOR_USERS:
                near = did_you_mean(name, FOR_USERS, HYPERPARAMETER_PREFIX + "{}")
                wanted = "; wanted one of " + ", ".join(HYPERPARAMETER_PREFIX + name for name in FOR_USERS)
                errors.append(ConfigError(f"unknown hyperparameter {key}{near + LISTED if near else wanted}"))
            elif value not in NOT_GIVEN:
                values[name] = errors.instead(None, _parse, SETTINGS[name], as_text(value), f"hyperparameter {key}")
    variables = {ENVIRONMENT_PREFIX + name.upper(): name for name in SETTINGS}
    for key, text in environment.items():
        if not key.startswith(ENVIRONMENT_PREFIX) or text in NOT_GIVEN or key in SET_BY_US:
            continue
        if key in variables:
            name = variables[key]
            found = errors.instead(values.get(name), _parse, SETTINGS[name], text, f"environment variable {key}")
            values[name] = found
        else:
            names = [name.upper() for name in SETTINGS]
            near = did_you_mean(key.removeprefix(ENVIRONMENT_PREFIX), names, ENVIRONMENT_PREFIX + "{}")
            near += near and LISTED
            warnings.append(f"environment variable {key} is not a setting of the launcher; ignored{near}")
    settings = Settings(**{name: value for name, value in values.items() if value is not None})
    errors.instead(None, _check_together, settings)
    return settings, warnings, errors


def of_programs(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for other programs: without the token, with which a program could act as the launcher."""
    return {name: value for name, value in environment.items() if name != TOKEN}


def _check_together(settings: Settings) -> None:
    """Raise ConfigError if two settings do not fit each other."""
    if settings.peer_timeout < 2 * settings.heartbeat:
        raise ConfigError(
            f"ENTRYPOINT_PEER_TIMEOUT is {settings.peer_timeout:g}, and a host sends a heartbeat every "
            f"{settings.heartbeat:g} s; wanted at least twice that, or one late heartbeat is taken for a lost host"
        )
    if 0 < settings.max_runtime <= settings.stop_early_seconds:
        raise ConfigError(
            f"ENTRYPOINT_MAX_RUNTIME is {settings.max_runtime:g}, ENTRYPOINT_STOP_GRACE {settings.stop_grace:g}; "
            f"wanted a runtime more than {END_SECONDS:g} s longer, or the job would be stopped before it starts"
        )


def as_text(value: object) -> str:
    """Return a decoded hyperparameter as the text that the user wrote."""
    return value if isinstance(value, str) else json.dumps(value)


def _parse(setting: Setting, text: str, where: str) -> Any:
    try:
        return setting.parse(text)
    except ValueError as wanted:
        shown = "a secret not shown here" if setting.secret else repr(text[:200])
        raise ConfigError(f"{where} is {shown}; wanted {wanted}") from None
