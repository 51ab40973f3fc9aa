"""How the processes of each host divide its CPUs and GPUs; for every way of distributing.

Those that train take all there is, in equal parts. What serves, evaluates or coordinates beside them computes now and
then: it gets the threads of one of them and takes none away, and no GPU. A host where nothing trains is divided among
its servers.
"""

from entrypoint.base.values import replace
from entrypoint.launcher.job.job import Job, Mode
from entrypoint.launcher.plan.plan import NO_GPU, Plan, ProcessSpec, Role

_COMPUTES = (Role.SCRIPT, Role.RANK, Role.CHIEF, Role.WORKER, Role.PS, Role.EVALUATOR)


def divided(job: Job, plan: Plan) -> Plan:
    """Return the plan, with each process's part of its host."""
    on_host: dict[str, list[ProcessSpec]] = {}
    for spec in plan.processes:
        if spec.role in _COMPUTES:
            on_host.setdefault(spec.host, []).append(spec)
    # TensorFlow's strategies want as many GPUs for each worker: hosts with fewer workers than others leave some out.
    most = max((sum(trains(job, spec) for spec in rows) for rows in on_host.values()), default=0)
    part = {(spec.host, spec.name): spec for rows in on_host.values() for spec in _divided(job, rows, most)}
    return replace(plan, processes=tuple(part.get((spec.host, spec.name), spec) for spec in plan.processes))


def _divided(job: Job, computing: list[ProcessSpec], most: int) -> list[ProcessSpec]:
    training = [spec.name for spec in computing if trains(job, spec)]
    sharing = len(training) or sum(spec.role is Role.PS for spec in computing) or len(computing)
    cpu_share = sharing if job.settings.threads == "auto" else 0
    # Horovod's scripts choose their GPU among all of the host; where they see only one, they find no second.
    pins = job.settings.pin_gpus == "always" or (job.settings.pin_gpus == "auto" and job.mode is not Mode.MPI)
    rows = []
    for spec in computing:
        gpu_share = spec.gpu_share
        if pins and spec.name in training and most > 1:
            gpu_share = (training.index(spec.name), most)
        elif pins and training and spec.role in (Role.CHIEF, Role.EVALUATOR) and spec.name not in training:
            gpu_share = NO_GPU  # it would take the memory of the GPUs from those that train here
        rows.append(spec.but(cpu_share=cpu_share, gpu_share=gpu_share))
    return rows


def trains(job: Job, spec: ProcessSpec) -> bool:
    """Return whether it computes gradients all the time. Where servers are the workers, no chief does."""
    if spec.role is Role.CHIEF:
        return job.settings.ps_workers == "script"
    return spec.role in (Role.SCRIPT, Role.RANK, Role.WORKER)
