"""Make the engine that a command names."""

from collections.abc import Mapping

from entrypoint.launcher.host.machine import count_gpus
from entrypoint.simulate.docker_engine import DockerEngine
from entrypoint.simulate.engine import Engine, EngineName
from entrypoint.simulate.netns_engine import NetnsEngine
from entrypoint.simulate.process_engine import ProcessEngine
from entrypoint.simulate.spec import LocalJob

ENGINE_TYPES = (ProcessEngine, NetnsEngine, DockerEngine)


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
