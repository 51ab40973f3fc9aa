"""Plan MultiWorkerMirroredStrategy: `worker` tasks in rank order, of which the first is TensorFlow's chief."""

import json

from entrypoint.launcher.job.job import Job
from entrypoint.launcher.plan.distributions import common
from entrypoint.launcher.plan.plan import Plan, Role

FIRST_PORT = 8890  # AWS's toolkit uses it, so security groups that were opened for that still fit


def plan(job: Job) -> Plan:
    tasks = [(host, local) for host in job.cluster.training for local in range(job.processes_per_host)]
    addresses = [host.at(host.port(FIRST_PORT + local)) for host, local in tasks]
    cluster = json.dumps({"worker": addresses})
    rows = [
        common.script(
            job,
            host.name,
            f"worker/{index}",
            Role.WORKER,
            task=f"worker {index} of {len(tasks)}",
            env=(common.tf_config("worker", index),),
            cluster=cluster,
            ports=(host.port(FIRST_PORT + local),),
        )
        for index, (host, local) in enumerate(tasks)
    ]
    rows += common.evaluator(job, cluster)
    return common.whole(job, f"MultiWorkerMirrored: {common.count(len(tasks), 'worker')} {common.where(job)}", rows)
