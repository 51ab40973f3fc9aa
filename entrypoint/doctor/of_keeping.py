"""What a script leaves: models, checkpoints, and what it does when it is stopped."""

import ast
from collections.abc import Iterator

from entrypoint.doctor.case import HOROVOD, SESSIONS, WORKERS, Case
from entrypoint.doctor.code import Source, Use
from entrypoint.doctor.finding import Finding, note, warning
from entrypoint.job.job import Mode

_SAVES = (
    ".save",
    ".export_saved_model",
    ".saved_model.save",
    ".save_weights",
    ".save_model",
    ".write_out",
    ".simple_save",
    ".export",
)
_NOT_MODELS = ("numpy", "np", "PIL", "plt", "matplotlib", "torch", "pickle", "joblib", "Image", "fig", "img", "image")
_OUR_MANAGER = "sagemaker_tf_data.checkpoints*"
_WRITES = (
    ".ModelCheckpoint",
    ".BackupAndRestore",
    ".CheckpointManager",
    ".MonitoredTrainingSession",
    ".Saver",
    "sagemaker_tf_data.checkpoints*",
    ".train.Checkpoint",
    ".CheckpointSaverHook",
)
_READS = (
    ".restore",
    ".latest_checkpoint",
    ".load_weights",
    ".BackupAndRestore",
    ".load_model",
    ".restore_or_initialize",
    ".MonitoredTrainingSession",
    ".load_checkpoint",
    ".read",
)
_FOLDER = r"/opt/ml/checkpoints|checkpoint_?(dir|path|s3|local|folder)|SM_CHECKPOINT|checkpointconfig"
_WHO = (
    "rank",
    "local_rank",
    "is_chief",
    "chief",
    "task_index",
    "task_id",
    "task_type",
    "index",
    "first",
    "writes",
    "is_master",
    "master",
    "is_main",
    "current_host",
    "worker_index",
)
_SAID = ("print", "info", "warning", "debug", "log", "say", "error")


def of_keeping(case: Case) -> Iterator[Finding]:
    """Yield what would be written over, lost, or never written."""
    if not case.code.main.tree.body:
        return
    writing = [use for use in case.code.calls(*_SAVES) if _is_of_a_model(use)]
    saves = [use for use in writing if not _is_manager(use)]
    yield from _of_saves(case, saves, [use for use in writing if _is_manager(use)])
    yield from _of_checkpoints(case, saves)
    yield from _of_model(case, saves)


def _is_of_a_model(use: Use) -> bool:
    first = use.name.partition(".")[0]
    return not (first in _NOT_MODELS and "." in use.name) and not use.name.startswith(("tensorflow.io", "json"))


def _of_saves(case: Case, saves: list[Use], managers: list[Use]) -> Iterator[Finding]:
    code = case.code
    # A manager of our library knows who writes.
    writing = [*saves, *code.calls(".ModelCheckpoint"), *([] if code.has(_OUR_MANAGER) else managers)]
    ranks = case.together(Mode.MPI) and code.has(*HOROVOD, kind="import")
    workers = case.together(Mode.MWMS) and code.has(*WORKERS)
    bare = [use for use in writing if not _guarded(use)]
    decided = any(_decides(source) for source in code.sources)
    if (ranks or workers) and bare and not decided:
        use = bare[0]
        yield warning(
            "all-save",
            use.place,
            f"{use.written} is called by every process under the same name: hosts' models are "
            "merged into one model.tar.gz, and on one host ranks write into one another's files",
            "if hvd.rank() == 0: ..."
            if ranks
            else "another folder, such as a temporary one, on all workers but the "
            "first: all must call save, and one's is kept",
        )
    if workers and not ranks and not (case.may_be(Mode.PS) and not case.known):
        for use in saves:
            if _guarded(use) and not any(_same_call(use, other) for other in bare) and not bare:
                yield warning(
                    "chief-saves-alone",
                    use.place,
                    f"{use.written} is called by one worker alone, and saving may exchange "
                    "variables of all: that worker then waits for the others for ever",
                    "save on all workers, to a temporary folder on all but the first",
                )
                break


def _same_call(use: Use, other: Use) -> bool:
    return use.name.rpartition(".")[2] == other.name.rpartition(".")[2]


def _is_manager(use: Use) -> bool:
    """Return whether what saves is a manager of checkpoints, by the words that it has."""
    words = use.name.lower().split(".")[:-1]
    return any(part in word for word in words for part in ("saver", "manager", "checkpoint"))


def _guarded(use: Use) -> bool:
    """Return whether a call stands where only some process comes by."""
    inner: ast.AST = use.node
    for outer in use.source.around(use.node):
        if (
            isinstance(outer, ast.If | ast.IfExp | ast.While)
            and inner is not outer.test
            and _asks_who(use.source, outer.test)
        ):
            return True
        if isinstance(outer, ast.FunctionDef) and _leaves_early(use, outer):
            return True
        inner = outer
    return False


def _leaves_early(use: Use, function: ast.FunctionDef) -> bool:
    return any(
        isinstance(each, ast.If)
        and _asks_who(use.source, each.test)
        and isinstance(each.body[-1], ast.Return | ast.Raise)
        for each in function.body
        if getattr(each, "lineno", 0) < use.line
    )


def _asks_who(source: Source, test: ast.AST) -> bool:
    names = (
        source.dotted(each).rpartition(".")[2] for each in ast.walk(test) if isinstance(each, ast.Name | ast.Attribute)
    )
    return any(name in _WHO for name in names)


def _decides(source: Source) -> bool:
    """Return whether a file does more by rank than print: chooses a folder, returns, calls."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.IfExp) and _asks_who(source, node.test):
            if not (isinstance(node.body, ast.Constant) and isinstance(node.orelse, ast.Constant)):
                return True
        elif (
            isinstance(node, ast.If)
            and _asks_who(source, node.test)
            and not all(_is_said(source, s) for s in node.body)
        ):
            return True
    return False


def _is_said(source: Source, node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
        return True  # verbose = 1
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return isinstance(node, ast.Pass)
    return source.dotted(node.value.func).rpartition(".")[2] in _SAID


def _of_checkpoints(case: Case, saves: list[Use]) -> Iterator[Finding]:
    code = case.code
    body = case.described.request.body if case.described else {}
    spot, kept = bool(body.get("EnableManagedSpotTraining")), body.get("CheckpointConfig") or {}
    learns = code.first(".fit", ".GradientTape", ".minimize", ".train_and_evaluate", ".apply_gradients", kind="call")
    if learns is None:
        return
    written = code.first(*_WRITES)
    folder = (
        code.has(_OUR_MANAGER)
        or code.says(_FOLDER)
        or bool(kept.get("LocalPath") and code.says(str(kept["LocalPath"])))
    )
    estimators = code.has(*SESSIONS)
    if written is None and not estimators:
        make = warning if spot or kept else note
        why = "and an interruption of spot instances, or a failure, loses all of it"
        if not spot:
            why = "and nothing is ever put there" if kept else "and a failure loses all of it"
        yield make(
            "no-checkpoint",
            learns.place,
            f"the training makes no checkpoints{', for which the job has a CheckpointConfig' if kept else ''}, {why}",
            "saver = checkpoints.manager(tf.train.Checkpoint(...)) of sagemaker_tf_data; saver.restore(); saver.save() "
            'after each epoch; or tf.keras.callbacks.BackupAndRestore("/opt/ml/checkpoints/backup")',
        )
    elif written is not None and not folder:
        make = warning if spot or kept else note
        yield make(
            "checkpoint-elsewhere",
            written.place,
            f"{written.written} writes to a folder that SageMaker does not keep",
            "/opt/ml/checkpoints, with checkpoint_s3_uri= in the launch script",
        )
    if written is not None and not code.has(*_READS) and not estimators:
        make = warning if spot or kept else note
        yield make(
            "no-resume",
            written.place,
            "checkpoints are written and never read: a job that starts again begins anew",
            "saver.restore(), or model.load_weights(tf.train.latest_checkpoint(folder)), before the training",
        )
    if not code.has("signal.SIGTERM") and not code.says("SIGTERM"):
        yield note(
            "no-sigterm",
            learns.place,
            "nothing is done at SIGTERM, by which StopTrainingJob and the end of max_run come: "
            "what was learned since the last checkpoint is lost",
            "signal.signal(signal.SIGTERM, lambda *_: sys.exit(...)) around a save, or a flag that the loop looks at",
        )


def _of_model(case: Case, saves: list[Use]) -> Iterator[Finding]:
    code = case.code
    learns = code.first(".fit", ".GradientTape", ".minimize", ".train_and_evaluate", ".apply_gradients", kind="call")
    if learns is None:
        return
    says_where = code.says(r"SM_MODEL_DIR|/opt/ml/model|model_dir")
    if not saves and not code.has(".ModelCheckpoint", ".copytree", ".copy") and not says_where:
        yield warning(
            "no-model",
            learns.place,
            "the training ends and nothing is saved: model.tar.gz is empty",
            'model.save(os.path.join(os.environ["SM_MODEL_DIR"], "1"))',
        )
    elif saves and not says_where:
        yield warning(
            "no-model",
            saves[0].place,
            f"{saves[0].written}: nowhere does the script name SM_MODEL_DIR, so the model may stay on the host",
            'os.path.join(os.environ["SM_MODEL_DIR"], "1")',
        )
    _ = case
    where = str((case.job.hyperparameters if case.job else {}).get("model_dir") or "")
    if where.startswith("s3://") and not code.has("tensorflow_io*", kind="import") and not code.has(_OUR_MANAGER):
        for use in [*saves, *code.calls(".ModelCheckpoint")]:
            if any(_is_model_dir(each) for each in ast.walk(use.node)):
                yield warning(
                    "model-dir-s3",
                    use.place,
                    f"{use.written}: --model_dir is {where}, and TensorFlow since 2.6 has no file system for s3://",
                    'os.environ["SM_MODEL_DIR"], or model_dir=False in the launch script, or `import tensorflow_io`',
                )
                break


def _is_model_dir(node: ast.AST) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == "model_dir") or (
        isinstance(node, ast.Name) and node.id == "model_dir"
    )
