"""Find this process's place among the training processes: from Horovod, the launcher's variables or TF_CONFIG."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sagemaker_tf_data.errors import DataError

LAUNCHERS = (  # variables of mpirun, horovodrun and mode jax for size, rank, local size, local rank
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("HOROVOD_SIZE", "HOROVOD_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_LOCAL_RANK"),
    ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_LOCAL_NUM_PROCESSES", "JAX_LOCAL_PROCESS_ID"),
)


@dataclass(frozen=True, kw_only=True)
class Place:
    """One of `size` processes that train, `local_size` of them on this host, which is the `host`-th of `hosts`."""

    size: int = 1
    rank: int = 0
    local_size: int = 1
    local_rank: int = 0
    hosts: int = 1
    host: int = 0


def here(environ: Mapping[str, str] = os.environ) -> Place:
    """Return the place of this process. One that does not train with others, such as an evaluator, is one of one.

    Raises:
        DataError: TF_CONFIG has another form than TensorFlow's.
    """
    if (hvd := horovod()) is not None:
        return _of_ranks(hvd.size(), hvd.rank(), hvd.local_size(), hvd.local_rank())
    for names in LAUNCHERS:
        if all(environ.get(name, "").isdigit() for name in names):
            return _of_ranks(*(int(environ[name]) for name in names))
    return _of_task(tf_config(environ))


def reads_elsewhere(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether other processes may read this one's datasets, as on the chief of parameter servers.

    Its ClusterCoordinator sends them to the workers, which do not run the script's Python.
    """
    config = tf_config(environ)
    return "ps" in config.get("cluster", {}) and config["task"]["type"] == "chief"


def are_mirrored(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether this process is one of several workers of MultiWorkerMirroredStrategy."""
    config = tf_config(environ)
    return "ps" not in config.get("cluster", {}) and _of_task(config).size > 1


def horovod() -> Any:
    """Return `horovod.tensorflow` if the script has imported and initialised it, else None."""
    hvd = sys.modules.get("horovod.tensorflow")
    return hvd if hvd is not None and hvd.is_initialized() else None


def ranks(environ: Mapping[str, str] = os.environ) -> int:
    """Return how many ranks mpirun or horovodrun has started; 1 without them."""
    return max((int(environ[names[0]]) for names in LAUNCHERS if environ.get(names[0], "").isdigit()), default=1)


def tf_config(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return TF_CONFIG; {} if it is not set or names no cluster. Only what is used here is checked."""
    text = environ.get("TF_CONFIG") or "{}"
    try:
        config = json.loads(text)
        if not config.get("cluster"):
            return {}
        task = {"type": str(config["task"]["type"]), "index": int(config["task"]["index"])}
        cluster = {str(job): [str(address) for address in found] for job, found in config["cluster"].items()}
    except (ValueError, TypeError, AttributeError, KeyError):
        raise DataError(f"TF_CONFIG is {text[:200]!r}; wanted a JSON object with cluster and task") from None
    return {"cluster": cluster, "task": task}


def _of_ranks(size: int, rank: int, local_size: int, local_rank: int) -> Place:
    return Place(
        size=size,
        rank=rank,
        local_size=local_size,
        local_rank=local_rank,
        hosts=max(1, size // local_size),
        host=rank // local_size,
    )


def _of_task(config: dict[str, Any]) -> Place:
    if not config:
        return Place()
    cluster, task = config["cluster"], config["task"]
    # With parameter servers a chief coordinates, and TF1's master trains like a worker. Otherwise a chief is a worker.
    first = "master" if "ps" in cluster else "chief"
    training = [(job, index) for job in (first, "worker") for index in range(len(cluster.get(job, ())))]
    if (task["type"], task["index"]) not in training:
        return Place()
    hosts = [cluster[job][index].rpartition(":")[0] for job, index in training]
    rank = training.index((task["type"], task["index"]))
    mine = hosts[rank]
    return Place(
        size=len(training),
        rank=rank,
        local_size=hosts.count(mine),
        local_rank=hosts[:rank].count(mine),
        hosts=len(set(hosts)),
        host=list(dict.fromkeys(hosts)).index(mine),
    )
