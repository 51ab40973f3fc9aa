"""Plan modes in which all processes are alike: the script alone, MultiWorkerMirroredStrategy, JAX."""

import json

from entrypoint.launcher.job.cluster import Host
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.plan.distributions import common
from entrypoint.launcher.plan.plan import ADDRESS, Plan, Role

MIRRORED_PORT = 8890  # AWS's toolkit uses it, so security groups that were opened for that still fit
JAX_PORT = 8476  # jax's own, where it finds its hosts by itself
# Where the job's environment has no other value. TensorFlow, which reads the data, would take all of a GPU's memory.
JAX_DEFAULTS = (
    ("KERAS_BACKEND", "jax"),
    ("JAX_CPU_COLLECTIVES_IMPLEMENTATION", "gloo"),
    ("TF_FORCE_GPU_ALLOW_GROWTH", "true"),
)


def single(job: Job) -> Plan:
    """Plan the script on every host; nothing is shared."""
    rows = [common.script(job, host.name, "script", Role.SCRIPT) for host in job.cluster.training]
    hosts = len(job.cluster.hosts)
    title = "single: the script alone" + ("" if hosts == 1 else f" on each of {hosts} hosts")
    return common.whole(job, title, rows, hosts_meet=False)


def _workers(job: Job) -> list[tuple[Host, int]]:
    """Return host and local index of each worker, in rank order."""
    return [(host, local) for host in job.cluster.training for local in range(job.processes_per_host)]


def mirrored(job: Job) -> Plan:
    """Plan MultiWorkerMirroredStrategy: `worker` tasks in rank order; the first one is TensorFlow's chief."""
    workers = _workers(job)
    tasks = {"worker": [host.at(host.port(MIRRORED_PORT + local)) for host, local in workers]}
    cluster = json.dumps(tasks)
    rows = [
        common.script(
            job,
            host.name,
            f"worker/{index}",
            Role.WORKER,
            task=f"worker {index} of {len(workers)}",
            env=(common.tf_config("worker", index),),
            cluster=cluster,
            ports=(host.port(MIRRORED_PORT + local),),
        )
        for index, (host, local) in enumerate(workers)
    ]
    # The strategy looks for its own task in the cluster. In an evaluator it has one worker, which nobody connects to.
    rows += common.evaluator(job, json.dumps({**tasks, "evaluator": ["localhost:0"]}))
    return common.whole(job, f"MultiWorkerMirrored: {common.count(len(workers), 'worker')} {common.where(job)}", rows)


def jax(job: Job) -> Plan:
    """Plan JAX on several hosts: processes in rank order; the first one runs jax's coordination service.

    jax and Keras 3 find the coordinator, the number of processes and their own number in the environment, by
    `programs/as_jax.py`. `jax.distributed.initialize()` reads them there. A program that raises ends at once.
    """
    workers, each = _workers(job), job.processes_per_host
    first, count = job.cluster.training[0], len(workers)
    port = first.port(JAX_PORT)
    coordinator = first.at(port)
    interface = (("NCCL_SOCKET_IFNAME", job.cluster.interface),) if job.cluster.interface else ()
    rows = [
        common.script(
            job,
            host.name,
            f"worker/{index}",
            Role.WORKER,
            task=f"process {index} of {count}",
            program=common.program(job, options=(common.AS_JAX,)),
            env=(
                ("JAX_COORDINATOR_ADDRESS", coordinator),
                ("JAX_NUM_PROCESSES", str(count)),
                ("JAX_PROCESS_ID", str(index)),
                ("JAX_LOCAL_NUM_PROCESSES", str(each)),
                ("JAX_LOCAL_PROCESS_ID", str(local)),
                ("KERAS_DISTRIBUTION_JOB_ADDRESSES", coordinator),
                ("KERAS_DISTRIBUTION_NUM_PROCESSES", str(count)),
                ("KERAS_DISTRIBUTION_PROCESS_ID", str(index)),
                (ADDRESS, host.address),
                *interface,
            ),
            env_defaults=JAX_DEFAULTS,
            ports=() if index else (port,),
        )
        for index, (host, local) in enumerate(workers)
    ]
    on_each = f", {each} on each" if each > 1 else ""
    return common.whole(job, f"JAX: {common.count(count, 'process')} {common.where(job, on_each)}", rows)
