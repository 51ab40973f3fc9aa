"""Plan JAX on several hosts: processes in rank order, of which the first runs jax's coordination service.

jax and Keras 3 find the coordinator, the number of processes and their own number in the environment, by
`programs/as_jax.py`: `jax.distributed.initialize()` reads that there, and a program that raises ends at once.
"""

from entrypoint.launcher.job.job import Job
from entrypoint.launcher.plan.distributions import common
from entrypoint.launcher.plan.plan import ADDRESS, Plan, Role

COORDINATOR_PORT = 8476  # jax's own, where it finds its hosts by itself
# Where the job's environment has no other value. TensorFlow, which reads the data, would take all of a GPU's memory.
DEFAULTS = (
    ("KERAS_BACKEND", "jax"),
    ("JAX_CPU_COLLECTIVES_IMPLEMENTATION", "gloo"),
    ("TF_FORCE_GPU_ALLOW_GROWTH", "true"),
)


def plan(job: Job) -> Plan:
    first, each = job.cluster.training[0], job.processes_per_host
    processes = [(host, local) for host in job.cluster.training for local in range(each)]
    port, count = first.port(COORDINATOR_PORT), len(processes)
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
            env_defaults=DEFAULTS,
            ports=() if index else (port,),
        )
        for index, (host, local) in enumerate(processes)
    ]
    on_each = f", {each} on each" if each > 1 else ""
    return common.whole(job, f"JAX: {common.count(count, 'process')} {common.where(job, on_each)}", rows)
