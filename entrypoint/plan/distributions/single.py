"""The script on every host; nothing is shared."""

from entrypoint.job.job import Job
from entrypoint.plan.distributions import common
from entrypoint.plan.plan import Duty, Plan, ProcessSpec, Role


def plan(job: Job) -> Plan:
    rows = [common.prepare(job, host) for host in job.cluster.hosts]
    for host in job.cluster.training:
        rows.append(
            ProcessSpec(
                host=host.name,
                name="script",
                role=Role.SCRIPT,
                duty=Duty.SCRIPT,
                program=common.program(job),
                cwd=job.paths.code,
                needs=common.rendezvous(job.cluster),
            )
        )
    rows += common.outside(job)
    hosts = tuple(host.name for host in job.cluster.hosts)
    title = "single: the script alone" + ("" if len(hosts) == 1 else f" on each of {len(hosts)} hosts")
    return Plan(title=title, hosts=hosts, processes=tuple(rows), notes=job.warnings, hosts_meet=False)
