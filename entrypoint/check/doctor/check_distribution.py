"""Check that a script trains together on all hosts of its job: strategies, Horovod, parameter servers."""

from collections.abc import Iterator

from entrypoint.base.severity import Severity
from entrypoint.check.doctor.rulebook import finding
from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Finding
from entrypoint.launcher.job.choices import When
from entrypoint.launcher.job.job import Mode
from entrypoint.usercode.api_names import (
    AVERAGES,
    BROADCASTS,
    HOROVOD,
    ONE_HOST,
    PINS_GPUS,
    PROCESSES,
    SERVERS,
    SERVERS_OF_TF1,
    SESSIONS,
    TRAINS,
    WORKERS,
)
from entrypoint.usercode.guards import fallback, sets
from entrypoint.usercode.reader import UserProgram
from entrypoint.usercode.source import Place, UseKind

# Of each mode, names of which a script has one.
_STRATEGIES = {
    Mode.MWMS: (*WORKERS, *SESSIONS),
    Mode.PS: (*SERVERS, *SERVERS_OF_TF1, *SESSIONS, ".Server", ".ClusterSpec"),
    Mode.JAX: PROCESSES,
    Mode.MPI: HOROVOD,
}
_JOINS_JAX = ("jax.distributed.initialize", ".distribution.initialize")


def of_code(case: Case) -> Iterator[Finding]:
    """Yield what prevents the processes of a job from training together."""
    yield from _of_strategies(case)
    yield from _of_gpus(case)
    imported = case.code.first(*HOROVOD, kind=UseKind.IMPORT)
    if case.may_be(Mode.MPI) and imported:
        yield from _of_horovod(case, imported.place)
    yield from _of_tf_config(case)
    if case.several or case.job:
        for source, node, found in case.code.strings(r"\balgo-\d+\b"):
            if fallback(source, node) is None:
                yield finding("host-name", source.at(node), name=repr(found[0]))


def _of_strategies(case: Case) -> Iterator[Finding]:
    code = case.code
    if case.mode not in _STRATEGIES or case.processes <= 1 or not code.main.tree.body:
        return
    other = code.call(*ONE_HOST)
    at = other or code.call(*TRAINS)
    if at is None:  # the script may train in another program, or not train at all
        return
    has = f"it has {other.written}, which is for one host" if other else "none is in it"
    if case.may_be(Mode.MPI) and code.imports("mpi4py.*", "mpi4py", *HOROVOD):
        return
    if not code.has(*_STRATEGIES[case.mode]):
        yield finding(f"no-strategy/{case.mode}", at.place, has=has, hosts=case.hosts, processes=case.processes)


def _of_gpus(case: Case) -> Iterator[Finding]:
    code = case.code
    learns = code.call(".fit", ".GradientTape", ".minimize", ".train_and_evaluate")
    # `.strategy.scope` is of an object that chooses one, such as transformers' training arguments.
    spread = code.has(
        *(*WORKERS, *HOROVOD, ".MirroredStrategy", ".ParameterServerStrategy", ".device", ".multi_gpu_model"),
        ".strategy.scope",
    )
    if case.mode is Mode.SINGLE and (case.gpus or 0) > 1 and learns and not spread and not case.hides_gpus:
        yield finding("gpus-idle", learns.place, gpus=case.gpus)


def _of_horovod(case: Case, first: Place) -> Iterator[Finding]:
    code = case.code
    if not code.call("horovod.*.init", "smdistributed.*.init", "*hvd*.init"):
        yield finding("hvd-no-init", first)
    learns = code.call(".fit", ".GradientTape", ".minimize", ".apply_gradients", ".train")
    if learns and case.processes != 1 and not code.has(*AVERAGES):
        yield finding("hvd-no-average", learns.place)
    if learns and case.processes != 1 and not code.has(*BROADCASTS):
        yield finding("hvd-no-broadcast", first)
    pinned = case.hides_gpus or (case.job is not None and case.job.settings.pin_gpus is When.ALWAYS)
    if pinned or case.gpus == 0 or not (learns or case.gpus):
        return
    if not code.has(*PINS_GPUS) and not code.mentions("CUDA_VISIBLE_DEVICES|visible_device_list"):
        severity = Severity.ERROR if (case.gpus or 0) > 1 else Severity.WARNING
        yield finding("hvd-no-pin", first, severity=severity, gpus=case.gpus or "several")


def _of_tf_config(case: Case) -> Iterator[Finding]:
    if not (case.may_be(Mode.MWMS) or case.may_be(Mode.PS)) or case.mode is Mode.SINGLE:
        return
    for source, node in sets(case.code, "TF_CONFIG"):
        yield finding("tf-config-written", source.at(node))


def joins_hosts_itself(code: UserProgram) -> bool:
    """Return whether a script makes a cluster of the job's hosts by itself, so that it needs no mode for that."""
    starts = r"\b(mpirun|mpiexec|horovodrun|torchrun|torch\.distributed\.(run|launch))\b"
    return (
        any(sets(code, "TF_CONFIG"))
        or code.call(".ClusterSpec", "horovod.run", "horovod.*.run", ".init_process_group") is not None
        or any(vars(use.node)["args"] or vars(use.node)["keywords"] for use in code.calls(*_JOINS_JAX))
        or next(code.strings(starts), None) is not None
    )
