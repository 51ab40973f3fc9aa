"""Check that a script trains together on all hosts of its job: strategies, Horovod, parameter servers."""

import ast
from collections.abc import Iterator

from entrypoint.check.doctor.context import fallback
from entrypoint.check.doctor.source import UseKind
from entrypoint.check.doctor.subject import HOROVOD, PROCESSES, SERVERS, SESSIONS, WORKERS, Case
from entrypoint.check.finding import Finding, error, note, warning
from entrypoint.launcher.job.choices import PsProgram, When
from entrypoint.launcher.job.job import Mode

_AVERAGES = (
    ".DistributedOptimizer",
    ".DistributedGradientTape",
    ".DistributedAdasumOptimizer",
    ".allreduce",
    ".grouped_allreduce",
    ".allreduce_async",
    ".allreduce_",
    ".oob_allreduce",
    ".PartialDistributedGradientTape",
    ".PartialDistributedOptimizer",
)
_BROADCASTS = (
    ".broadcast_variables",
    ".broadcast_global_variables",
    ".BroadcastGlobalVariablesCallback",
    ".broadcast",
    ".BroadcastGlobalVariablesHook",
    ".broadcast_object",
    ".broadcast_weights",
    ".load_model",
)
_PINS = (".pin_gpu", ".set_visible_devices", ".visible_device_list", ".share_gpus")
_TRAINS = (".fit", ".GradientTape", ".minimize", ".train", ".train_on_batch", ".apply_gradients")
_ANY_STRATEGY = (".MirroredStrategy", ".OneDeviceStrategy", ".get_strategy", ".CentralStorageStrategy")


def of_code(case: Case) -> Iterator[Finding]:
    """Yield what prevents the processes of a job from training together."""
    yield from _of_strategies(case)
    yield from _of_gpus(case)
    if case.may_be(Mode.MPI) and case.code.has(*HOROVOD, kind=UseKind.IMPORT):
        yield from _of_horovod(case)
    yield from _of_tf_config(case)
    yield from _of_servers(case)
    if case.several or case.known:
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
    if not case.known or case.processes <= 1 or not code.main.tree.body:
        return
    other = code.first(*_ANY_STRATEGY, kind=UseKind.CALL)
    at = other or code.first(*_TRAINS, kind=UseKind.CALL)
    if at is None:  # the script may train in another program, or not train at all
        return
    place = at.place
    has = f"it has {other.written}, which is for one host" if other else "none is in it"
    if case.may_be(Mode.MWMS) and not code.has(*WORKERS) and not code.has(*SESSIONS):
        yield error(
            "no-strategy",
            f"the mode is mwms, on {case.hosts} hosts, and the script makes no "
            f"MultiWorkerMirroredStrategy ({has}): each worker trains alone",
            "strategy = tf.distribute.MultiWorkerMirroredStrategy(), first of all, and the model in strategy.scope()",
            place=place,
        )
    if case.may_be(Mode.PS) and not code.has(*SERVERS, *SESSIONS, ".Server", ".ClusterSpec"):
        yield error(
            "no-strategy",
            f"the mode is ps, and the script uses no parameter servers ({has}): each host trains alone",
            "tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())",
            place=place,
        )
    if case.may_be(Mode.JAX) and not code.has(*PROCESSES):
        yield error(
            "no-strategy",
            f"the mode is jax, with {case.processes} processes, and the script does not join them ({has}): each "
            "process trains alone",
            "sagemaker_tf_data.initialize_jax(), first of all; with Keras, after it "
            "keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))",
            place=place,
        )
    ranks = (*HOROVOD, "mpi4py.*", "mpi4py")
    if case.may_be(Mode.MPI) and not code.has(*ranks, kind=UseKind.IMPORT) and not code.has(*HOROVOD):
        yield error(
            "no-strategy",
            f"the mode is mpi, with {case.processes} ranks, and the script imports no Horovod ({has}): "
            "each rank trains alone",
            "import horovod.tensorflow.keras as hvd; hvd.init(); hvd.DistributedOptimizer(optimizer)",
            place=place,
        )


def _of_gpus(case: Case) -> Iterator[Finding]:
    code = case.code
    learns = code.first(".fit", ".GradientTape", ".minimize", ".train_and_evaluate", kind=UseKind.CALL)
    spread = code.has(
        *WORKERS, *HOROVOD, ".MirroredStrategy", ".ParameterServerStrategy", ".device", ".multi_gpu_model"
    )
    if case.mode is Mode.SINGLE and (case.gpus or 0) > 1 and learns and not spread and not case.hides_gpus:
        yield warning(
            "gpus-idle",
            f"each host has {case.gpus} GPUs, and one process without a strategy trains on one of them",
            "strategy = tf.distribute.MirroredStrategy(), and the model in strategy.scope(); or "
            'environment={"ENTRYPOINT_MODE": "mpi"} with Horovod',
            place=learns.place,
        )


def _of_horovod(case: Case) -> Iterator[Finding]:
    code = case.code
    imported = code.first(*HOROVOD, kind=UseKind.IMPORT)
    assert imported is not None
    first = imported.place
    if not code.has("horovod.*.init", "smdistributed.*.init", "*hvd*.init", kind=UseKind.CALL):
        yield error(
            "hvd-no-init",
            "Horovod is imported but never initialised: rank() and size() raise ValueError",
            "hvd.init(), before any other call of Horovod",
            place=first,
        )
    learns = code.first(".fit", ".GradientTape", ".minimize", ".apply_gradients", ".train", kind=UseKind.CALL)
    if learns and case.processes != 1 and not code.has(*_AVERAGES):
        yield error(
            "hvd-no-average",
            "gradients are not averaged over the ranks: each trains a model of its own",
            "optimizer = hvd.DistributedOptimizer(optimizer), or tape = hvd.DistributedGradientTape(tape)",
            place=learns.place,
        )
    if learns and case.processes != 1 and not code.has(*_BROADCASTS):
        yield warning(
            "hvd-no-broadcast",
            "nothing is broadcast from rank 0: ranks begin with different weights, and after a "
            "restore from rank 0's checkpoint",
            "hvd.callbacks.BroadcastGlobalVariablesCallback(0), or hvd.broadcast_variables([*model.variables, "
            "*optimizer.variables], root_rank=0)",
            place=first,
        )
    if (
        (learns or case.gpus)
        and case.gpus != 0
        and not code.has(*_PINS)
        and not code.mentions("CUDA_VISIBLE_DEVICES|visible_device_list")
    ):
        pinned = bool(case.job and case.job.settings.pin_gpus is When.ALWAYS)
        if not pinned and not case.hides_gpus:
            make = error if (case.gpus or 0) > 1 else warning
            on = f"on hosts with {case.gpus} GPUs, each rank" if case.gpus else "on hosts with several GPUs, each rank"
            yield make(
                "hvd-no-pin",
                f"{on} takes the memory of all of them, or all ranks take the first",
                "from sagemaker_tf_data import pin_gpu; pin_gpu(), behind hvd.init()",
                place=first,
            )


def _of_tf_config(case: Case) -> Iterator[Finding]:
    if not (case.may_be(Mode.MWMS) or case.may_be(Mode.PS)):
        return
    for source in case.code.sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Assign) and any(_is_tf_config(target) for target in node.targets):
                yield note(
                    "tf-config-written",
                    "the script writes TF_CONFIG over the launcher's, in which roles "
                    "and ports are those of the processes that really run",
                    "no TF_CONFIG of its own, unless it only renames a task",
                    place=source.at(node),
                )


def _is_tf_config(node: ast.AST) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == "TF_CONFIG"


def _of_servers(case: Case) -> Iterator[Finding]:
    if not case.may_be(Mode.PS) or (case.job and case.job.settings.ps_servers is PsProgram.SCRIPT):
        return
    serving = next((use for use in case.code.calls(".Server") if use.name.startswith("tensorflow")), None)
    compared = next(((s, n) for s, n, _ in case.code.strings(r"^ps$") if _is_compared(s.parents.get(n))), None)
    if serving and compared and not case.code.has(*SESSIONS):
        source, node = compared
        yield note(
            "ps-branch",
            "by default the launcher runs the ps tasks itself, so this branch never runs",
            "nothing; or ENTRYPOINT_PS_SERVERS=script, if the servers need options of their own",
            place=source.at(node),
        )


def _is_compared(outer: ast.AST | None) -> bool:
    return isinstance(outer, ast.Compare | ast.Tuple | ast.List | ast.Set)
