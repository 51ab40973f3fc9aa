"""Make the engine that a command names."""

from collections.abc import Mapping, Sequence

from entrypoint.base.errors import ConfigError
from entrypoint.launcher.host.machine import count_gpus
from entrypoint.simulate.docker_engine import DockerEngine
from entrypoint.simulate.engine import Engine, EngineName
from entrypoint.simulate.fault import Fault
from entrypoint.simulate.netns_engine import NetnsEngine
from entrypoint.simulate.process_engine import ProcessEngine
from entrypoint.simulate.spec import LocalJob

ENGINES: dict[str, type[Engine]] = {kind.name: kind for kind in (ProcessEngine, NetnsEngine, DockerEngine)}


def engine_for(
    name: str, job: LocalJob, environment: Mapping[str, str], image: str, shm_size: str | None = None, ip: str = "4"
) -> Engine:
    """Return the engine `name` for a job. `image` and `shm_size` are Docker's, `ip` is of netns."""
    match EngineName(name):
        case EngineName.PROCESS:
            return ProcessEngine(job, environment, count_gpus())
        case EngineName.NETNS:
            return NetnsEngine(job, environment, count_gpus(), ip)
        case EngineName.DOCKER:
            return DockerEngine(job, environment, image, shm_size)


def refuse_faults(faults: Sequence[Fault], name: str) -> None:
    """Raise ConfigError for a fault that the engine `name` cannot inject, with the names of engines that can."""
    for fault in faults:
        able = [f"--engine {other}" for other, kind in ENGINES.items() if fault.action in kind.faults]
        if f"--engine {name}" not in able:
            raise ConfigError(f"--fault '{fault}': engine {name} cannot {fault.action}; wanted {' or '.join(able)}")
