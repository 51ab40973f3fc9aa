"""Build the parts that every way of distributing needs: the prepare step, the user's command, and TF_CONFIG."""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from entrypoint.base.python310 import SAFE_PATH
from entrypoint.launcher.job import params
from entrypoint.launcher.job.choices import OUTSIDE, PsProgram, Tf1, When
from entrypoint.launcher.job.cluster import Cluster, Host
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.job.settings import TOKEN_PARAMETER
from entrypoint.launcher.plan.plan import (
    ALL_HOSTS,
    CLUSTER,
    PREFLIGHT,
    PREPARE,
    Command,
    Duty,
    Need,
    Plan,
    ProcessSpec,
    Ready,
    Restart,
    Role,
)

PACKAGE = Path(__file__).resolve().parents[3]
PROGRAMS = PACKAGE / "programs"
STAND_INS = PACKAGE / "stand_ins"
AS_JAX = str(PROGRAMS / "as_jax.py")
# The scripts' library, if our packages lie in a folder that only we see. container/onto/install.py makes both.
LIBRARY = PACKAGE.parent.parent / "library"


def child(name: str, suffix: str = ".py", options: tuple[str, ...] = SAFE_PATH) -> tuple[str, ...]:
    """Return the command of a helper program: a file, or without suffix a folder with a `__main__.py`.

    It runs by path and with -P or stricter options, so that a module of the user's cannot replace one of ours by its
    name. (Python 3.10 has no -P, but searches the file's own folder first.)
    """
    return (sys.executable, *options, str(PROGRAMS / f"{name}{suffix}"))


def _prepare(job: Job, host: Host, rows: Sequence[ProcessSpec]) -> ProcessSpec:
    """Return the step that fetches and installs the code and computes SM_*. Only this host's step has its input."""
    return ProcessSpec(
        host=host.name,
        name=PREPARE,
        role=Role.PREPARE,
        duty=Duty.STEP,
        argv=child("prepare", suffix=""),
        env=(("SAGEMAKER_BASE_DIR", str(job.paths.base)),),
        stdin=_to_prepare(job, rows) if host.name == job.cluster.me.name else "",
        ready=Ready.ENDED,
        restart=Restart.KEEP,
    )


def _to_prepare(job: Job, rows: Sequence[ProcessSpec]) -> str:
    here = [row for row in rows if row.host == job.cluster.me.name]
    given = {key: value for key, value in job.hyperparameters.items() if key != TOKEN_PARAMETER}
    return json.dumps(
        {
            "program": job.program.name,
            "source": job.program.source,
            "code": str(job.paths.code),
            "channel": str(job.paths.input_data / "code"),
            "result": str(job.paths.prepared),
            "modules": modules(here),
            "servers": _servers_of_gpus(job, rows),
            "ranks": sum(row.role is Role.RANK for row in here),
            "is_coordinator": job.cluster.is_coordinator,
            "mode": job.mode,
            "ps_workers": job.settings.ps_workers,
            "tf1": job.settings.tf1,
            "replace": job.settings.replace,
            "more_path": [
                *([str(STAND_INS)] if job.smdistributed else []),
                *([str(LIBRARY)] if LIBRARY.is_dir() else []),
            ],
            "resource_config": {**job.resource_config, "current_host": job.cluster.me.name},
            "input_data_config": job.input_data_config,
            "hyperparameters": given,
            "of_the_script": params.of_the_script(given),
            "of_frameworks": params.of_frameworks(given),
            "arguments": job.program.arguments,
        }
    )


def _servers_of_gpus(job: Job, rows: Sequence[ProcessSpec]) -> int:
    """Return the number of parameter servers of a chief that may see GPUs; planner.py may hide the GPUs from it."""
    chief = next((row.host for row in rows if row.role is Role.CHIEF), "")
    hides = job.settings.ps_workers is PsProgram.SERVER and job.settings.pin_gpus is not When.NEVER
    if hides and any(row.role is Role.WORKER and row.host == chief for row in rows):
        return 0
    return sum(row.role is Role.PS for row in rows)


def modules(specs: Iterable[ProcessSpec]) -> list[str]:
    """Return the Python modules that the launcher itself starts these processes with."""
    found = set()
    for spec in specs:
        if spec.role in (Role.PS, Role.WORKER) and not spec.program:
            found.add("tensorflow")
        elif spec.program and spec.program.file.endswith(".py"):
            if spec.role is Role.RANK:
                found.add("mpi4py")
            elif AS_JAX in spec.program.python:
                found.add("jax")
    return sorted(found)


def program(job: Job, options: tuple[str, ...] = ()) -> Command:
    """Return the user's command. `options` are Python's; the last may be a module or a file that runs the program."""
    shim = (str(PROGRAMS / "as_tf1.py"),) if job.settings.tf1 is Tf1.SHIM else ()
    return Command(file=job.program.name, arguments=job.program.arguments, python=(sys.executable, *options, *shim))


def script(job: Job, host: str, name: str, role: Role, duty: Duty = Duty.SCRIPT, **more: Any) -> ProcessSpec:
    """Return a process that runs the user's program, once all hosts have met."""
    usual: dict[str, Any] = {"program": program(job), "cwd": job.paths.code, "needs": rendezvous(job.cluster)}
    return ProcessSpec(host=host, name=name, role=role, duty=duty, **usual | more)


def rendezvous(cluster: Cluster) -> tuple[Need, ...]:
    """Return the needs of the user's programs: all hosts have installed the code and reached one another.

    This costs two messages. A host that cannot install its requirements then fails the job before it trains.
    """
    if len(cluster.hosts) == 1:
        return (Need(host=cluster.me.name, process=PREPARE),)
    return (Need(host=ALL_HOSTS, process=PREPARE), Need(host=ALL_HOSTS, process=PREFLIGHT))


def evaluator(job: Job, cluster: str) -> list[ProcessSpec]:
    """Return the script as task `evaluator`, if the job has one. Nobody connects to it."""
    if not job.evaluator:
        return []
    more: dict[str, Any] = {
        "env": (tf_config("evaluator", 0, environment="cloud"),),
        "lingers": job.settings.evaluator_grace,
    }
    return [script(job, job.evaluator, "evaluator/0", Role.EVALUATOR, Duty.SIDECAR, cluster=cluster, **more)]


def whole(job: Job, title: str, rows: Sequence[ProcessSpec], **more: Any) -> Plan:
    """Return the plan of these rows, with the steps that all ways of distributing have."""
    hosts = tuple(host.name for host in job.cluster.hosts)
    steps = [_prepare(job, host, rows) for host in job.cluster.hosts]
    # Hosts outside of the distribution run the script alone, as with AWS's toolkit. The job is over when the
    # distribution is: programs that serve it, such as tf.data workers, would never end.
    alone: dict[str, Any] = {"task": OUTSIDE, "lingers": job.settings.outside_grace}
    outside = [
        script(job, host.name, "script", Role.SCRIPT, Duty.SIDECAR, **alone)
        for host in job.cluster.outside
        if host.name != job.evaluator
    ]
    return Plan(title=title, hosts=hosts, processes=(*steps, *rows, *outside), notes=job.warnings, **more)


def where(job: Job, detail: str = "") -> str:
    """Return the number of hosts in words, for the title of a plan."""
    others = len(job.cluster.outside)
    inside = count(len(job.cluster.hosts) - others, "host")
    return f"on {inside}{detail}" + (f"; {count(others, 'host')} outside" if others else "")


def tf_config(task_type: str, index: int, **more: str) -> tuple[str, str]:
    """Return TF_CONFIG as an environment entry, for a process with a `cluster`."""
    rest = json.dumps({**more, "task": {"type": task_type, "index": index}})
    return ("TF_CONFIG", f'{{"cluster": {CLUSTER}, {rest[1:]}')


def count(number: int, noun: str) -> str:
    if number == 1 or noun == "ps":
        return f"{number} {noun}"
    return f"{number} {noun}" + ("es" if noun.endswith("s") else "s")
