"""Check that a script trains together on all hosts of its job: strategies, Horovod, parameter servers, JAX's meshes."""

import ast
from collections.abc import Iterator

from entrypoint.base.severity import Severity
from entrypoint.check.doctor.check_checkpoints import saved_alone
from entrypoint.check.doctor.rulebook import finding
from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Finding
from entrypoint.launcher.job.choices import When
from entrypoint.launcher.job.job import Mode
from entrypoint.usercode import api_names as api
from entrypoint.usercode.guards import fallback, sets
from entrypoint.usercode.reader import UserProgram
from entrypoint.usercode.source import Place, Use, UseKind, given_to, made_by, texts_of, value_of, words_of

# Of each mode, names of which a script has one.
_STRATEGIES = {
    Mode.MWMS: (*api.WORKERS, *api.SESSIONS),
    Mode.PS: (*api.SERVERS, *api.SERVERS_OF_TF1, *api.SESSIONS, ".Server", ".ClusterSpec"),
    Mode.JAX: api.JOINS_JAX,
    Mode.MPI: api.HOROVOD,
}
_WRAPS = ("horovod.*.DistributedOptimizer", "horovod.*.DistributedGradientTape")
_JOINS_JAX = ("jax.distributed.initialize", ".distribution.initialize")
_MESHES = (".Mesh", ".make_mesh", ".create_device_mesh", ".DeviceMesh")
_SPREADS = (  # what spreads a computation over JAX's processes
    *(*_MESHES, ".NamedSharding", ".PositionalSharding", ".PartitionSpec", ".shard_map", ".pmap", ".pmean", ".psum"),
    *(".DataParallel", ".ModelParallel", ".set_distribution", "*multihost_utils*", ".process_allgather", ".all_gather"),
)
_LEARNS_JAX = (".grad", ".value_and_grad", ".fit", ".apply_updates")


def of_code(case: Case) -> Iterator[Finding]:
    """Yield faults that keep a job's processes from training together."""
    yield from _of_strategies(case)
    yield from _of_gpus(case)
    imported = case.code.first(*api.HOROVOD, kind=UseKind.IMPORT)
    if case.may_be(Mode.MPI) and imported:
        yield from _of_horovod(case, imported.place)
    if case.together(Mode.JAX):
        yield from _of_meshes(case.code)
        if case.job:
            yield from _of_keras_on_jax(case)
    if case.several or case.job:
        for source, node, found in case.code.strings(r"\balgo-\d+\b"):
            if fallback(source, node) is None:
                yield finding("host-name", source.at(node), name=repr(found[0]))


def _of_strategies(case: Case) -> Iterator[Finding]:
    code = case.code
    if case.mode not in _STRATEGIES or case.processes <= 1 or not any(each.tree.body for each in code.programs):
        return
    other = code.call(*api.ONE_HOST)
    at = other or code.call(*api.TRAINS)
    if at is None:  # the script may train in another program, or not train at all
        return
    has = f"it has {other.written}, which is for one host" if other else "none is in it"
    if case.may_be(Mode.MPI) and code.imports("mpi4py.*", "mpi4py", *api.HOROVOD):
        return
    if code.has(*_STRATEGIES[case.mode]):
        return
    if case.way:
        mode, use = case.way
        if not joins_hosts_itself(code):
            yield finding("no-strategy/other", use.place, mode=case.mode, written=use.written, way=mode)
    else:
        yield finding(f"no-strategy/{case.mode}", at.place, has=has, hosts=case.hosts, processes=case.processes)


def _of_gpus(case: Case) -> Iterator[Finding]:
    code = case.code
    learns = code.call(".fit", ".GradientTape", ".minimize", ".train_and_evaluate")
    # `.strategy.scope` is of an object that chooses one, such as transformers' training arguments.
    spread = code.has(
        *(*api.WORKERS, *api.HOROVOD, ".MirroredStrategy", ".ParameterServerStrategy", ".device", ".multi_gpu_model"),
        ".strategy.scope",
    )
    if case.mode is Mode.SINGLE and (case.gpus or 0) > 1 and learns and not spread and not case.hides_gpus:
        yield finding("gpus-idle", learns.place, gpus=case.gpus)


def _of_horovod(case: Case, first: Place) -> Iterator[Finding]:
    code = case.code
    if not code.call("horovod.*.init", "smdistributed.*.init", "*hvd*.init"):
        yield finding("hvd-no-init", first)
    learns = code.call(".fit", ".GradientTape", ".minimize", ".apply_gradients", ".train")
    if learns and case.processes != 1 and not code.has(*api.AVERAGES):
        yield finding("hvd-no-average", learns.place)
    for use in code.calls(*_WRAPS) if learns and case.processes != 1 else ():
        if _is_unused(code, use):
            yield finding("hvd-no-average/unused", use.place, written=use.written)
    if learns and case.processes != 1 and not code.has(*api.BROADCASTS):
        yield finding("hvd-no-broadcast", first)
    pinned = case.hides_gpus or (case.job is not None and case.job.settings.pin_gpus is When.ALWAYS)
    if pinned or case.gpus == 0 or not (learns or case.gpus):
        return
    if not code.has(*api.PINS_GPUS) and not code.mentions("CUDA_VISIBLE_DEVICES|visible_device_list"):
        severity = Severity.ERROR if (case.gpus or 0) > 1 else Severity.WARNING
        yield finding("hvd-no-pin", first, severity=severity, gpus=case.gpus or "several")


def _is_unused(code: UserProgram, use: Use) -> bool:
    """Return whether nothing reads the result of a call: it is dropped, or its name is read nowhere else."""
    outer = use.source.parents.get(use.node)
    if isinstance(outer, ast.Expr):
        return True
    if not isinstance(outer, ast.Assign) or len(outer.targets) != 1 or not isinstance(outer.targets[0], ast.Name):
        return False
    inside = set(ast.walk(outer))
    names = (node for each in code.sources for node in each.all_nodes if node not in inside)
    return not any(outer.targets[0].id in words_of([node], strings=True) for node in names if _reads(node))


def _reads(node: ast.AST) -> bool:
    return not (isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load))


def _of_meshes(code: UserProgram) -> Iterator[Finding]:
    for use in code.calls(*_MESHES):
        if any(isinstance(each, ast.expr) and use.source.last(each) == "local_devices" for each in ast.walk(use.node)):
            yield finding("jax-own-mesh", use.place, written=use.written)
            return
    joins, learns = code.call(".initialize_jax", "jax.distributed.initialize"), code.call(*_LEARNS_JAX)
    spreads = code.has(*_SPREADS) or code.imports(*_SPREADS)
    if joins and learns and code.imports("jax", "jax.*", "keras", "keras.*") and not spreads:
        yield finding("jax-nothing-shared", learns.place)


def _of_keras_on_jax(case: Case) -> Iterator[Finding]:
    code = case.code
    if not code.imports("keras", "keras.*") or not code.call(".fit"):
        return
    if not code.imports("jax", "jax.*"):
        yield from _of_backend(case)
    if not code.has(".set_distribution"):
        return
    alone = saved_alone([use for use in code.calls(".save", ".save_weights", ".save_model") if _is_keras(use)])
    if alone:
        yield finding("chief-saves-alone/jax", alone.place, written=alone.written)
    # Our library's shard turns the sharding of TensorFlow off, which is Keras's.
    by_hand = (use for use in code.calls(".shard") if not use.name.startswith("sagemaker_tf_data."))
    shards = next(by_hand, None) if code.has("tensorflow.data.*") and not code.has(*api.OUR_SHARDS) else None
    for use in code.calls(".DataParallel") if shards else ():
        given = use.argument("auto_shard_dataset")
        if shards and (given is None or value_of(given) is True):
            yield finding("shards-twice/keras", use.place, written=shards.written)


def _of_backend(case: Case) -> Iterator[Finding]:
    others, own = ("tensorflow", "torch"), list(sets(case.code, "KERAS_BACKEND"))
    for source, node in own:
        outer = source.parents.get(node)
        backend = value_of(outer.value) if isinstance(outer, ast.Assign) and case.is_plain(source, node) else None
        if backend in others:
            yield finding("keras-backend", source.at(node), backend=backend)
    backend = case.environment.get("KERAS_BACKEND")
    if backend in others and not own:
        yield finding("keras-backend", case.request.at("KERAS_BACKEND"), backend=backend)


def _is_keras(use: Use) -> bool:
    in_file = use.name.endswith(".save") and any(".keras" in each for each in texts_of(ast.walk(use.node)))
    is_model = made_by(use.source, use.of, ".Sequential", ".Model", ".load_model")
    return in_file or is_model or use.name.endswith(".save_model")


def joins_hosts_itself(code: UserProgram) -> bool:
    """Return whether a script makes a cluster of the job's hosts by itself, so that it needs no mode for that."""
    starts = r"\b(mpirun|mpiexec|horovodrun|torchrun|torch\.distributed\.(run|launch))\b"
    return (
        any(sets(code, "TF_CONFIG"))
        or code.call(".ClusterSpec", "horovod.run", "horovod.*.run", ".init_process_group") is not None
        or any(given_to(use.call) for use in code.calls(*_JOINS_JAX))
        or next(code.strings(starts), None) is not None
    )
