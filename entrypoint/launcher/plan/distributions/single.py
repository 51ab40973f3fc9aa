"""Plan the script on every host; nothing is shared."""

from entrypoint.launcher.job.job import Job
from entrypoint.launcher.plan.distributions import common
from entrypoint.launcher.plan.plan import Duty, Plan, ProcessSpec, Role


def plan(job: Job) -> Plan:
    rows = [
        ProcessSpec(
            host=host.name,
            name="script",
            role=Role.SCRIPT,
            duty=Duty.SCRIPT,
            program=common.program(job),
            cwd=job.paths.code,
            needs=common.rendezvous(job.cluster),
        )
        for host in job.cluster.training
    ]
    hosts = len(job.cluster.hosts)
    title = "single: the script alone" + ("" if hosts == 1 else f" on each of {hosts} hosts")
    return common.whole(job, title, rows, hosts_meet=False)
