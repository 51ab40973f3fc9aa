"""Plan parameter servers: ps tasks on the CPU, a chief on rank 0, workers elsewhere.

`script`: the user's script runs as chief and as every worker, and does its task of TF_CONFIG, as on AWS's images.
`server`: TensorFlow servers are the workers, and the user's script runs on the chief alone. The parameter servers are
TensorFlow servers, too, unless `ENTRYPOINT_PS_SERVERS=script` has the user's script run them.
"""

import itertools
import json
from collections.abc import Sequence
from typing import Any

from entrypoint.launcher.job.choices import ChiefName, PsProgram, When
from entrypoint.launcher.job.cluster import Host
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.plan.distributions import common
from entrypoint.launcher.plan.plan import PREPARE, Duty, Flag, Need, Plan, ProcessSpec, Ready, Restart, Role

# AWS's toolkit has the script at 2222 and its parameter server at 2223. Further tasks of a host take every second
# port from there.
SCRIPT_PORT = 2222
PS_PORT = 2223
Places = Sequence[tuple[Host, int]]
Env = tuple[tuple[str, str], ...]
CHIEF_FIRST_SECONDS = 60.0  # seconds; a chief that never listens must not hold the workers for ever


def plan(job: Job) -> Plan:
    hosts = job.cluster.training
    servers = job.settings.ps_workers is PsProgram.SERVER
    chief_name = "master" if job.settings.ps_chief_name is ChiefName.MASTER else "chief"
    # Scripts for AWS's images use the name `master`. But a ClusterCoordinator, or an evaluator, belongs to a chief.
    may_be_master = job.settings.ps_chief_name is ChiefName.AUTO and not servers and not job.evaluator
    renamed = (Flag.TF1_MASTER, '"chief"', '"master"') if may_be_master else None
    serving = job.cluster.serving
    ps = _places([serving[index % len(serving)] for index in range(job.settings.ps_count or len(serving))], PS_PORT)
    # The chief is one of the processes of its host.
    worker_hosts = [host for host in hosts for local in range(job.processes_per_host) if (host.rank, local) != (0, 0)]
    if servers and not worker_hosts:  # a strategy needs a worker to train on: beside the chief, on a single host
        worker_hosts = [hosts[0]]
    at_script = _places([hosts[0], *worker_hosts], SCRIPT_PORT)
    chief, workers = at_script[:1], at_script[1:]
    tasks = {chief_name: chief, "worker": workers, "ps": ps}
    cluster = json.dumps({task: [host.at(port) for host, port in places] for task, places in tasks.items() if places})

    def task(role: Role, index: int, places: Places, env: Env = (), **more: Any) -> ProcessSpec:
        """Return a task that runs the user's program, unless `more` has another command."""
        host, port = places[index]
        config = common.tf_config(chief_name if role is Role.CHIEF else role, index, environment="cloud")
        usual: dict[str, Any] = {"task": f"{role} {index} of {len(places)}", "env": (config, *env)}
        shared: dict[str, Any] = {"cluster": cluster, "env_if": renamed, "ports": (port,)}
        return common.script(job, host.name, f"{role}/{index}", role, **usual | shared | more)

    as_server: dict[str, Any] = {
        "duty": Duty.SERVER, "argv": common.child("tf_server"), "program": None, "cwd": None,
    }  # fmt: skip

    needs = common.rendezvous(job.cluster)
    if job.settings.ps_chief_first is not When.NEVER:  # in TF1, a worker that starts first loses 30 s
        only_if = None if job.settings.ps_chief_first is When.ALWAYS else Flag.TF1_SESSIONS
        needs += (Need(host=hosts[0].name, process="chief/0", only_if=only_if, at_most=CHIEF_FIRST_SECONDS),)

    def worker(index: int) -> ProcessSpec:
        if servers:
            # Its imports take as long as the script's, so it does not wait for other hosts. The chief's
            # ClusterCoordinator gives a lost worker's steps to other workers, and takes it back later.
            prepared = Need(host=workers[index][0].name, process=PREPARE)
            return task(Role.WORKER, index, workers, needs=(prepared,), restart=Restart.ALONE, **as_server)
        # TensorFlow 2's tutorial lets a worker's script join its server, which never returns.
        return task(Role.WORKER, index, workers, needs=needs, ends=job.settings.ps_worker_end)

    as_ps = {"duty": Duty.SERVER} if job.settings.ps_servers is PsProgram.SCRIPT else as_server
    # Parameter servers hold variables in main memory. Without this they would take the GPUs' memory, too.
    hide_gpus = (("CUDA_VISIBLE_DEVICES", "-1"),)
    # One starts long before a script has imported TensorFlow, and would take CPU from that before the hosts have met.
    rows = [task(Role.PS, index, ps, hide_gpus, **as_ps) for index in range(len(ps))]
    rows.append(task(Role.CHIEF, 0, chief, task="chief", ready=Ready.LISTENING))
    rows += [worker(index) for index in range(len(workers))]
    rows += common.evaluator(job, cluster)
    title = (
        f"parameter servers: {len(ps)} ps, 1 {chief_name}, {common.count(len(workers), 'worker')} "
        f"({'TensorFlow servers' if servers else 'scripts'}) {common.where(job)}"
    )
    return common.whole(job, title, rows)


def _places(hosts: Sequence[Host], first: int) -> Places:
    """Return a host and a port for each task."""
    ports = {host.name: itertools.count(host.port(first), step=2) for host in hosts}
    return [(host, next(ports[host.name])) for host in hosts]
