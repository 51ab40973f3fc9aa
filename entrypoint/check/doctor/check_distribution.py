"""Check that a script trains together on all hosts of its job: strategies, Horovod, parameter servers."""

import ast
from collections.abc import Iterator

from entrypoint.check.doctor.api_names import (
    AVERAGES,
    BROADCASTS,
    HOROVOD,
    ONE_HOST,
    PINS_GPUS,
    PROCESSES,
    SERVERS,
    SESSIONS,
    TRAINS,
    WORKERS,
)
from entrypoint.check.doctor.context import fallback
from entrypoint.check.doctor.program import Code
from entrypoint.check.doctor.source import Source, UseKind
from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Finding, Place, error, note, warning
from entrypoint.launcher.job.choices import When
from entrypoint.launcher.job.job import Mode

# Of each mode: names of which a script has one, what happens without them, and what to put there.
_STRATEGIES = {
    Mode.MWMS: (
        (*WORKERS, *SESSIONS),
        "the mode is mwms, on {hosts} hosts, and the script makes no MultiWorkerMirroredStrategy ({has}): each worker "
        "trains alone",
        "strategy = tf.distribute.MultiWorkerMirroredStrategy(), first of all, and the model in strategy.scope()",
    ),
    Mode.PS: (
        (*SERVERS, *SESSIONS, ".Server", ".ClusterSpec"),
        "the mode is ps, and the script uses no parameter servers ({has}): each host trains alone",
        "tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())",
    ),
    Mode.JAX: (
        PROCESSES,
        "the mode is jax, with {processes} processes, and the script does not join them ({has}): each process trains "
        "alone",
        "sagemaker_tf_data.initialize_jax(), first of all; with Keras, after it "
        "keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))",
    ),
    Mode.MPI: (
        HOROVOD,
        "the mode is mpi, with {processes} ranks, and the script imports no Horovod ({has}): each rank trains alone",
        "import horovod.tensorflow.keras as hvd; hvd.init(); hvd.DistributedOptimizer(optimizer)",
    ),
}


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
                yield warning(
                    "host-name",
                    f"{found[0]!r}: SageMaker advises not to rely on host names",
                    'json.loads(os.environ["SM_HOSTS"])[0]',
                    place=source.at(node),
                )


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
    names, found, instead = _STRATEGIES[case.mode]
    if not code.has(*names):
        yield error(
            "no-strategy",
            found.format(has=has, hosts=case.hosts, processes=case.processes),
            instead,
            place=at.place,
        )


def _of_gpus(case: Case) -> Iterator[Finding]:
    code = case.code
    learns = code.call(".fit", ".GradientTape", ".minimize", ".train_and_evaluate")
    # `.strategy.scope` is of an object that chooses one, such as transformers' training arguments.
    spread = code.has(
        *(*WORKERS, *HOROVOD, ".MirroredStrategy", ".ParameterServerStrategy", ".device", ".multi_gpu_model"),
        ".strategy.scope",
    )
    if case.mode is Mode.SINGLE and (case.gpus or 0) > 1 and learns and not spread and not case.hides_gpus:
        yield warning(
            "gpus-idle",
            f"each host has {case.gpus} GPUs, and one process without a strategy trains on one of them",
            "strategy = tf.distribute.MirroredStrategy(), and the model in strategy.scope(); or "
            'environment={"ENTRYPOINT_MODE": "mpi"} with Horovod',
            place=learns.place,
        )


def _of_horovod(case: Case, first: Place) -> Iterator[Finding]:
    code = case.code
    if not code.call("horovod.*.init", "smdistributed.*.init", "*hvd*.init"):
        yield error(
            "hvd-no-init",
            "Horovod is imported but never initialised: rank() and size() raise ValueError",
            "hvd.init(), before any other call of Horovod",
            place=first,
        )
    learns = code.call(".fit", ".GradientTape", ".minimize", ".apply_gradients", ".train")
    if learns and case.processes != 1 and not code.has(*AVERAGES):
        yield error(
            "hvd-no-average",
            "gradients are not averaged over the ranks: each trains a model of its own",
            "optimizer = hvd.DistributedOptimizer(optimizer), or tape = hvd.DistributedGradientTape(tape)",
            place=learns.place,
        )
    if learns and case.processes != 1 and not code.has(*BROADCASTS):
        yield warning(
            "hvd-no-broadcast",
            "nothing is broadcast from rank 0: ranks begin with different weights, and after a "
            "restore from rank 0's checkpoint",
            "hvd.callbacks.BroadcastGlobalVariablesCallback(0), or hvd.broadcast_variables([*model.variables, "
            "*optimizer.variables], root_rank=0)",
            place=first,
        )
    pinned = case.hides_gpus or (case.job is not None and case.job.settings.pin_gpus is When.ALWAYS)
    if pinned or case.gpus == 0 or not (learns or case.gpus):
        return
    if not code.has(*PINS_GPUS) and not code.mentions("CUDA_VISIBLE_DEVICES|visible_device_list"):
        yield (error if (case.gpus or 0) > 1 else warning)(
            "hvd-no-pin",
            f"on hosts with {case.gpus or 'several'} GPUs, each rank takes the memory of all of them, or all ranks "
            "take the first",
            "from sagemaker_tf_data import pin_gpu; pin_gpu(), behind hvd.init()",
            place=first,
        )


def _of_tf_config(case: Case) -> Iterator[Finding]:
    if not (case.may_be(Mode.MWMS) or case.may_be(Mode.PS)) or case.mode is Mode.SINGLE:
        return
    for source, node in _writes_of_tf_config(case.code):
        yield note(
            "tf-config-written",
            "the script writes TF_CONFIG over the launcher's, in which roles and ports are those of the processes "
            "that really run",
            "no TF_CONFIG of its own, unless it only renames a task",
            place=source.at(node),
        )


def _writes_of_tf_config(code: Code) -> Iterator[tuple[Source, ast.AST]]:
    """Yield the statements that set TF_CONFIG: as an item, by a call, or as one of several variables."""
    for source, node in code.nodes(ast.Constant):
        if node.value != "TF_CONFIG":
            continue
        outer = source.parents.get(node)
        call = source.parents.get(outer) if isinstance(outer, ast.Dict) else outer
        if isinstance(outer, ast.Subscript) and isinstance(outer.ctx, ast.Store):
            yield source, outer
        elif isinstance(call, ast.Call) and source.last(call) in ("putenv", "setdefault", "update"):
            yield source, call
    for source, call in code.nodes(ast.Call):
        if source.last(call) == "update" and any(keyword.arg == "TF_CONFIG" for keyword in call.keywords):
            yield source, call


_JOINS_JAX = ("jax.distributed.initialize", ".distribution.initialize")


def joins_hosts_itself(code: Code) -> bool:
    """Return whether a script makes a cluster of the job's hosts by itself, so that it needs no mode for that."""
    starts = r"\b(mpirun|mpiexec|horovodrun|torchrun|torch\.distributed\.(run|launch))\b"
    return (
        any(_writes_of_tf_config(code))
        or code.call(".ClusterSpec", "horovod.run", "horovod.*.run", ".init_process_group") is not None
        or any(vars(use.node)["args"] or vars(use.node)["keywords"] for use in code.calls(*_JOINS_JAX))
        or next(code.strings(starts), None) is not None
    )
