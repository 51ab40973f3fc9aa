"""Check what a script saves: its model, its checkpoints, and what it does at SIGTERM."""

import ast
import re
from collections.abc import Iterator

from entrypoint.check.doctor.rank_guards import decides, guarded, on_every_branch
from entrypoint.check.doctor.source import Source, Use
from entrypoint.check.doctor.subject import HOROVOD, SESSIONS, WORKERS, Case
from entrypoint.check.finding import Finding, note, warning
from entrypoint.launcher.job.job import Mode

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
_NOT_MODELS = (
    "numpy.",
    "np.",
    "PIL.",
    "plt.",
    "matplotlib.",
    "torch.",
    "pickle.",
    "joblib.",
    "Image.",
    "fig.",
    "img.",
    "image.",
    "tensorflow.io",
    "json",
)
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
    ".save_weights",
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
_FOLDER = (
    r"(?i)/opt/ml/checkpoints|(checkpoint|ckpt)s?_?(dir|path|s3|local|folder|root|uri)|SM_CHECKPOINT|checkpoint_?config"
)


def of_keeping(case: Case) -> Iterator[Finding]:
    """Yield models and checkpoints that would be overwritten, lost, or never written."""
    if not case.code.main.tree.body:
        return
    writing = [use for use in case.code.calls(*_SAVES) if not use.name.startswith(_NOT_MODELS)]
    saves = [use for use in writing if not _is_manager(use)]
    yield from _of_saves(case, saves, [use for use in writing if _is_manager(use)])
    learns = case.code.call(".fit", ".GradientTape", ".minimize", ".train_and_evaluate", ".apply_gradients")
    if learns:
        yield from _of_checkpoints(case, learns)
        yield from _of_model(case, learns, saves)


def _of_saves(case: Case, saves: list[Use], managers: list[Use]) -> Iterator[Finding]:
    code = case.code
    ranks = case.together(Mode.MPI) and code.imports(*HOROVOD)
    # Our library's checkpoint manager lets only the right process write, and so does Keras's callback among workers.
    callbacks = code.calls(".ModelCheckpoint") if ranks else ()
    writing = [*saves, *callbacks, *([] if code.has(_OUR_MANAGER) else managers)]
    workers = case.together(Mode.MWMS) and code.has(*WORKERS)
    bare = [use for use in writing if not guarded(use)]
    decided = any(decides(source) for source in code.sources)
    if (ranks or workers) and bare and not decided:
        use = bare[0]
        yield warning(
            "all-save",
            f"{use.written} is called by every process under the same name: hosts' models are "
            "merged into one model.tar.gz, and on one host ranks write into one another's files",
            "if hvd.rank() == 0: ..."
            if ranks
            else "another folder, such as a temporary one, on all workers but the "
            "first: all must call save, and one's is kept",
            place=use.place,
        )
    if workers and not ranks and not (case.may_be(Mode.PS) and not case.known):
        # An Estimator exports from a checkpoint, and exchanges nothing.
        together = [use for use in saves if not use.name.endswith(".export_saved_model")]
        alone = next((use for use in together if guarded(use)), None)
        if alone and not bare and not on_every_branch(saves):
            yield warning(
                "chief-saves-alone",
                f"{alone.written} is called by one worker alone, but saving may exchange variables of all: that worker "
                "then waits forever for the others",
                "save on all workers, to a temporary folder on all but the first",
                place=alone.place,
            )


def _is_manager(use: Use) -> bool:
    """Return whether a checkpoint manager saves, by the words of the call's name."""
    words = use.name.lower().split(".")[:-1]
    return any(part in word for word in words for part in ("saver", "manager", "checkpoint"))


def _of_checkpoints(case: Case, learns: Use) -> Iterator[Finding]:
    code, body = case.code, case.request.body
    spot, kept = bool(body.get("EnableManagedSpotTraining")), body.get("CheckpointConfig") or {}
    make = warning if spot or kept else note
    written = next(code.made(*_WRITES), None)
    where = str(kept.get("LocalPath") or "/opt/ml/checkpoints")
    folder = code.has(_OUR_MANAGER) or code.mentions(_FOLDER) or code.mentions(re.escape(where)) or _gives(case, where)
    estimators = code.has(*SESSIONS)
    if written is None and not estimators:
        why = "and an interruption of spot instances, or a failure, loses all of it"
        if not spot:
            why = "and nothing is ever put there" if kept else "and a failure loses all of it"
        yield make(
            "no-checkpoint",
            f"the training makes no checkpoints{', for which the job has a CheckpointConfig' if kept else ''}, {why}",
            "saver = checkpoints.manager(tf.train.Checkpoint(...)) of sagemaker_tf_data; saver.restore(); saver.save() "
            'after each epoch; or tf.keras.callbacks.BackupAndRestore("/opt/ml/checkpoints/backup")',
            place=learns.place,
        )
    elif written is not None and not folder:
        yield make(
            "checkpoint-elsewhere",
            f"{written.written} writes to a folder that SageMaker does not keep",
            "/opt/ml/checkpoints, with checkpoint_s3_uri= in the launch script",
            place=written.place,
        )
    if written is not None and not code.has(*_READS) and not estimators:
        yield make(
            "no-resume",
            "checkpoints are written but never read: a restarted job starts from the beginning",
            "saver.restore(), or model.load_weights(tf.train.latest_checkpoint(folder)), before the training",
            place=written.place,
        )
    if not code.has("signal.SIGTERM", ".reached_preemption_sync_point") and not code.mentions("SIGTERM"):
        yield note(
            "no-sigterm",
            "SIGTERM, which StopTrainingJob and the end of max_run send, is not handled: what "
            "was learned since the last checkpoint is lost",
            "signal.signal(signal.SIGTERM, lambda *_: sys.exit(...)) around a save, or a flag that the loop looks at",
            place=learns.place,
        )


def _of_model(case: Case, learns: Use, saves: list[Use]) -> Iterator[Finding]:
    code = case.code
    names_folder = code.mentions(r"SM_MODEL_DIR|/opt/ml/model|model_dir") or _gives(case, "/opt/ml/model")
    if not saves and not code.has(".ModelCheckpoint", ".copytree", ".copy") and not names_folder:
        yield warning(
            "no-model",
            "the training saves no model to SM_MODEL_DIR: model.tar.gz is empty",
            'model.save(os.path.join(os.environ["SM_MODEL_DIR"], "1"))',
            place=learns.place,
        )
    elif saves and not names_folder:
        yield warning(
            "no-model",
            f"{saves[0].written}: the script never uses SM_MODEL_DIR, so the model may stay on the host",
            'os.path.join(os.environ["SM_MODEL_DIR"], "1")',
            place=saves[0].place,
        )
    where = str(case.hyperparameters.get("model_dir") or "")
    if where.startswith("s3://") and not code.imports("tensorflow_io*") and not code.has(_OUR_MANAGER):
        for use in [*saves, *code.calls(".ModelCheckpoint")]:
            if any(_is_model_dir(case, use.source, each) for each in ast.walk(use.node)):
                yield warning(
                    "model-dir-s3",
                    f"{use.written}: --model_dir is {where}, and TensorFlow since 2.6 has no file system for s3://",
                    'os.environ["SM_MODEL_DIR"], or model_dir=False in the launch script, or `import tensorflow_io`',
                    place=use.place,
                )
                break


def _gives(case: Case, folder: str) -> bool:
    """Return whether the job passes a folder to the script, in a hyperparameter or an environment variable."""
    given = [*case.hyperparameters.values(), *case.environment.values()]
    return any(str(each).startswith(folder) for each in given)


def _is_model_dir(case: Case, source: Source, node: ast.AST) -> bool:
    """Return whether a node is the value of option --model_dir, not of --model-dir or of another folder's variable."""
    if isinstance(node, ast.Name) and node.id == "model_dir":
        assigned = (each for each in ast.walk(source.tree) if isinstance(each, ast.Assign))
        made = [each.value for each in assigned if node.id in (getattr(target, "id", "") for target in each.targets)]
        return all("model_dir" in ast.unparse(each) for each in made)
    if not (isinstance(node, ast.Attribute) and node.attr == "model_dir"):
        return False
    options = [ast.unparse(use.node) for use in case.code.calls(".add_argument")]
    others = any("--model-dir" in each or "dest='model_dir'" in each for each in options)
    return not others or any("'--model_dir'" in each for each in options)
