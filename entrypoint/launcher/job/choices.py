"""Enumerate the words of those settings that are one of a few words."""

from entrypoint.base.python310 import StrEnum


class AskedMode(StrEnum):
    """Name each Mode, or AUTO: by the hyperparameters of the SageMaker SDK."""

    AUTO = "auto"
    SINGLE = "single"
    PS = "ps"
    MWMS = "mwms"
    MPI = "mpi"
    JAX = "jax"


class PsProgram(StrEnum):
    """Name what runs as a worker, or as a parameter server."""

    SCRIPT = "script"
    SERVER = "server"


class WorkerEnd(StrEnum):
    """Name the end of a worker's script: when it ends itself, or when the chief has ended."""

    AUTO = "auto"
    OWN = "own"
    CHIEF = "chief"


class ChiefName(StrEnum):
    AUTO = "auto"
    CHIEF = "chief"
    MASTER = "master"


class ChannelGroup(StrEnum):
    """Name what the channels of a group hold, or that they are none."""

    OWN = "own"
    SAME = "same"
    OFF = "off"


class When(StrEnum):
    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class Tf1(StrEnum):
    TELL = "tell"
    SHIM = "shim"


class Reaction(StrEnum):
    """Name what a fault of the job's hosts leads to."""

    WARN = "warn"
    FAIL = "fail"
    OFF = "off"


class HangAction(StrEnum):
    WAIT = "wait"
    RESTART = "restart"
    FAIL = "fail"


class LogPrefix(StrEnum):
    ON = "true"
    OFF = "false"
    STREAMS = "streams"


class NoProxy(StrEnum):
    HOSTS = "hosts"
    OFF = "off"
