"""Enumerate the words of settings that take one of a few words."""

from entrypoint.base.python310 import StrEnum

OUTSIDE = "outside the distribution"  # task of a script that runs alone beside those that train


class Mode(StrEnum):
    """Name how the work is spread over the hosts."""

    AUTO = "auto"  # by the hyperparameters of the SageMaker SDK: may be asked for, and is no job's mode
    SINGLE = "single"  # the script on every host, nothing shared
    PS = "ps"  # TensorFlow parameter servers, a chief and workers
    MWMS = "mwms"  # MultiWorkerMirroredStrategy
    MPI = "mpi"  # mpirun and Horovod
    JAX = "jax"  # jax.distributed, for JAX, Flax and Keras 3 with the JAX backend


class PsProgram(StrEnum):
    """Name the program that runs as a worker, or as a parameter server."""

    SCRIPT = "script"
    SERVER = "server"


class WorkerEnd(StrEnum):
    """Name when a worker is over: at the end of its script; or at the chief's, if the script only serves."""

    AUTO = "auto"  # its process shows whether it only lets TensorFlow serve, and so never ends by itself
    OWN = "own"
    CHIEF = "chief"


class ChiefName(StrEnum):
    AUTO = "auto"
    CHIEF = "chief"
    MASTER = "master"


class ChannelGroup(StrEnum):
    """Name the content of a group's channels: the same data, or different data; `off`: the channels are no group."""

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
    """Name how the launcher reacts to a fault of the job's hosts."""

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
