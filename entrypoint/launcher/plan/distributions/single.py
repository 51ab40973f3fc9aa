"""Plan the script on every host; nothing is shared."""

from entrypoint.launcher.job.job import Job
from entrypoint.launcher.plan.distributions import common
from entrypoint.launcher.plan.plan import Plan, Role


def plan(job: Job) -> Plan:
    rows = [common.script(job, host.name, "script", Role.SCRIPT) for host in job.cluster.training]
    hosts = len(job.cluster.hosts)
    title = "single: the script alone" + ("" if hosts == 1 else f" on each of {hosts} hosts")
    return common.whole(job, title, rows, hosts_meet=False)
