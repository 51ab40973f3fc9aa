"""Check whether a script writes to the folders that SageMaker keeps, by all values that its paths may have."""

import ast
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any

from entrypoint.base.severity import Severity
from entrypoint.check.doctor.job_values import values
from entrypoint.check.doctor.rulebook import finding
from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Finding
from entrypoint.usercode import api_names as api
from entrypoint.usercode import tf1
from entrypoint.usercode.known_values import UNKNOWN
from entrypoint.usercode.source import Use, given_to, matches, text_of

CODE = "/opt/ml/code"  # the working directory
_PATH_NAMES = ("filepath", "export_dir_base", "export_dir", "file_prefix")
_KEPT = ("/opt/ml/model", "/opt/ml/output", "/opt/ml/checkpoints")
# The path among the arguments of calls: its names and its position.
_Table = Mapping[tuple[str, ...], tuple[tuple[str, ...], int]]
_PATHS: _Table = {
    (".saved_model.save", ".save_model", ".simple_save"): (("export_dir", "filepath"), 1),
    (".save", ".export", ".save_weights", ".export_saved_model", ".write"): (_PATH_NAMES, 0),
}
_WRITES: _Table = {
    (".ModelCheckpoint",): (("filepath",), 0),
    (".BackupAndRestore",): (("backup_dir",), 0),
    (".CheckpointManager",): (("directory",), 1),
    (".CheckpointSaverHook",): (("checkpoint_dir",), 0),
}
_READS: _Table = {
    (".latest_checkpoint", ".load_checkpoint"): (("checkpoint_dir", "ckpt_dir_or_file"), 0),
    (".load_weights", ".restore", ".read"): (("filepath", "save_path"), 0),
}
SUMMARIES: _Table = {
    (".TensorBoard",): (("log_dir",), 0),
    (".create_file_writer", ".FileWriter"): (("logdir",), 0),
}
_FOR_PEOPLE: _Table = {
    **SUMMARIES,
    (".CSVLogger",): (("filename",), 0),
    (".savefig",): (("fname",), 0),
    (".to_csv",): (("path_or_buf",), 0),
    ("open",): (("file",), 0),
}
_KERAS_3 = {  # the ends of names that Keras 3 takes
    (".save", ".save_model"): (".keras", ".h5", ".hdf5"),
    (".save_weights",): (".weights.h5",),
}
_FOR_PEOPLE_ALSO = re.compile(
    r"/opt/ml/(?!input|code|model|output|checkpoints)"
)  # where a file is no help to the script


def of_folders(case: Case) -> Iterator[Finding]:
    """Yield files that are lost with the host, and names under which Keras 3 saves nothing."""
    yield from _of_keras_3(case)
    yield from _of_logs(case)


def model_untrained(case: Case, saves: list[Use]) -> Iterator[Finding]:
    """Yield a model that is saved before it is trained, and not again."""
    loops = list(case.code.calls(".GradientTape", ".apply_gradients"))
    learns = [*case.code.calls(".fit", ".train_on_batch", ".minimize", ".train"), *loops]
    if not saves or not learns or case.code.has(".ModelCheckpoint"):
        return
    scopes = {(use.source, use.source.function_of(use.node)) for use in (*saves, *learns)}
    branches = (ast.For, ast.While, ast.AsyncFor, ast.Lambda, ast.If, ast.Try)
    straight = not any(isinstance(each, branches) for use in saves for each in use.source.around(use.node))
    models = {_saved(use) for use in saves} | {_object(use) for use in learns if use not in loops}
    first = max(use.place.line for use in saves) < min(use.place.line for use in learns)
    alone = len(scopes) == len(models) == 1 and "" not in models and straight and first
    if alone and not puts_into(case, "/opt/ml/", min(use.place.line for use in learns)):
        learns_by = learns[0].written.partition("(")[0]
        yield finding("model-untrained", saves[0].place, written=saves[0].written, learns=learns_by)


def _saved(use: Use) -> str:
    """Return the name of the model that a call saves; "" if it has none."""
    model = use.argument("", 0) if use.name.endswith((".saved_model.save", ".save_model")) else None
    return ast.unparse(model) if isinstance(model, ast.Name) else "" if model else _object(use)


def model_elsewhere(case: Case, saves: list[Use]) -> Iterator[Finding]:
    """Yield the save of a model that is sure to go to folders that SageMaker does not keep."""
    own = case.code.has(*api.MOVES) or case.code.mentions(r"SM_MODEL_DIR|SM_OUTPUT|/opt/ml/(model|output)\b")
    paths = [] if own or case.gives("/opt/ml/model") else [folders_of(case, use, _PATHS) for use in saves]
    if paths and not any(may_be_kept(each, (*_KEPT, *shared_folders(case))) for path in paths for each in path):
        folder = " or ".join(map(str, paths[0]))
        yield finding("no-model/folder", saves[0].place, written=saves[0].written, folder=folder)


def checkpoints_elsewhere(case: Case, severity: Severity, where: str) -> Iterator[Finding]:
    """Yield checkpoints that are sure to go elsewhere than to `where`, or to be looked for elsewhere."""
    writing = list(calls_of(case, _WRITES))
    paths = [each for use in writing for each in folders_of(case, use, _WRITES)]
    saves = [use for use in case.code.calls(".save", ".save_weights", ".write") if _may_write(use)]
    others = [each for use in saves for each in folders_of(case, use, _PATHS)]
    own = (
        case.code.has(*api.MOVES, api.OUR_MANAGER, *api.SESSIONS)
        or case.code.mentions(re.escape(where))
        or case.gives(where)
    )
    if paths and not own and not any(may_be_kept(each, (where, *shared_folders(case))) for each in (*paths, *others)):
        folder, place = str(paths[0]), writing[0].place
        yield finding(
            "checkpoint-elsewhere/folder",
            place,
            severity=severity,
            written=writing[0].written,
            folder=folder,
            where=where,
        )
        return
    # What `restore` gets from `latest_checkpoint` is a call of its own.
    reading = [use for use in calls_of(case, _READS) if not any(isinstance(each, ast.Call) for each in use.call.args)]
    for use in reading if len(reading) == 1 else ():
        pairs = [(one, two) for one in folders_of(case, use, _READS) for two in paths]
        if pairs and all(_is_misspelt(one, two) for one, two in pairs):
            folder, where = map(str, pairs[0])
            yield finding(
                "no-resume/elsewhere", use.place, severity=severity, written=use.written, folder=folder, where=where
            )


def writes_into(case: Case, where: str) -> Use | None:
    """Return a call that is sure to write checkpoints to `where`, from which no other call may take them elsewhere."""
    if case.code.has(*api.MOVES):
        return None
    saves = [(use, _PATHS) for use in case.code.calls(".save", ".save_weights", ".write") if _may_write(use)]
    for use, table in (*((use, _WRITES) for use in calls_of(case, _WRITES)), *saves):
        if all(f"{path}/".startswith(f"{where}/") for path in folders_of(case, use, table)):
            return use
    return None


def shared_folders(case: Case) -> list[str]:
    """Return the folders of channels that are file systems, which outlive the job."""
    channels = case.request.channels.items()
    names = [name for name, each in channels if (each.get("DataSource") or {}).get("FileSystemDataSource")]
    return [f"/opt/ml/input/data/{name}" for name in names]


def puts_into(case: Case, path: str, behind: int = 0) -> bool:
    """Return whether a call behind a line that may write has a path that begins so, or is a method of such a path."""
    for use in case.code.calls("*"):
        if use.place.line <= behind:
            continue
        if matches(use.name, api.OPENS_FILES):
            may_write = opens_to_write(use)
        else:
            may_write = not matches(use.name, api.PUTS_NOTHING) and not use.source.own_function(use.call)
        if may_write:
            given = [use.of, *given_to(use.call)] if use.of else given_to(use.call)
            if any(str(each).startswith(path) for node in given for each in values(case, use.source, node)):
                return True
    return False


def opens_to_write(use: Use) -> bool:
    """Return whether a call opens a file in a mode that is known to write."""
    return not {*"wax+"}.isdisjoint(str(use.source.constant(use.argument("mode", 1))))


def _may_write(use: Use) -> bool:
    """Return whether a call has a path, and is none of a CheckpointManager, which has its folder."""
    made = use.source.values.scopes.origins(use.of) if isinstance(use.of, ast.Name) else ()
    of_manager = any(isinstance(each, ast.Call) and use.source.last(each) == "CheckpointManager" for each in made)
    return bool(given_to(use.call)) and not of_manager


def calls_of(case: Case, table: _Table) -> Iterator[Use]:
    return case.code.calls(*(name for names in table for name in names))


def _is_misspelt(one: Any, two: Any) -> bool:
    """Return whether a folder is not another one, nor in it, and has nearly its name."""
    if UNKNOWN in (str(one)[:3], str(two)[:3]) or not (str(one).startswith("/") and str(two).startswith("/")):
        return False
    first, second = str(one).rstrip("/"), str(two).rstrip("/")
    inside = f"{second}/".startswith(f"{first}/") or f"{first}/".startswith(f"{second}/")
    return not inside and SequenceMatcher(None, first, second).ratio() > 0.9


def _of_keras_3(case: Case) -> Iterator[Finding]:
    """Yield names of saved models that Keras 3 refuses."""
    keras_3 = case.tensorflow >= (2, 16) and not tf1.has_keras_2(case.environment, None, shim=False)
    if not keras_3 or case.code.mentions(r"\btf_keras\b|TF_USE_LEGACY_KERAS"):
        return
    for names, ends in _KERAS_3.items():
        uses = (use for use in case.code.calls(*names) if _is_of_keras(case, use) and use.argument("zipped") is None)
        yield from _refused(case, uses, _PATHS, ends)
    for use in case.code.calls(".callbacks.ModelCheckpoint"):
        only = use.argument("save_weights_only")
        weights = use.source.constant(only) if only else False
        if weights is not None:
            yield from _refused(case, [use], _WRITES, (".weights.h5",) if weights else (".keras", ".h5"))


def _refused(case: Case, uses: Iterable[Use], table: _Table, ends: tuple[str, ...]) -> Iterator[Finding]:
    for use in uses:
        path = [str(each) for each in folders_of(case, use, table)]
        if not any(each.endswith((UNKNOWN, *ends)) or "://" in each for each in path):
            yield finding("keras-3-save", use.place, written=use.written, ends=" or ".join(ends[:2]), end=ends[0])


def _is_of_keras(case: Case, use: Use) -> bool:
    """Return whether a call saves a model that the script compiles or fits, by Keras's own functions."""
    if use.name.endswith(".models.save_model"):
        return True
    own = {node.name for _, node in case.code.nodes(ast.FunctionDef)} & {"save", "save_weights", "compile", "fit"}
    trained = {_object(each) for each in case.code.calls(".compile", ".fit")}
    return not own and _object(use) in trained - {""} and case.code.imports("tensorflow*", "keras*")


def _object(use: Use) -> str:
    """Return the name of the object whose method a call is; "" for other calls."""
    return use.of.id if isinstance(use.of, ast.Name) else ""


def _of_logs(case: Case) -> Iterator[Finding]:
    """Yield what is written for people, nowhere named again, and lost with the host."""
    configs = map(case.request.part, ("TensorBoardOutputConfig", "DebugHookConfig", "CheckpointConfig"))
    local = (str(each.get("LocalPath") or "") for each in configs)
    kept = (*_KEPT, *filter(None, local), *shared_folders(case), "/tmp", "/dev")
    if case.job is None or case.code.has(*api.MOVES):
        return
    for use in calls_of(case, _FOR_PEOPLE):
        path = folders_of(case, use, _FOR_PEOPLE)
        if use.name == "open" and not opens_to_write(use):
            continue
        if use.name == "open" and not all(_FOR_PEOPLE_ALSO.match(str(each)) for each in path):
            continue
        if not any(may_be_kept(each, kept) for each in path) and not _is_read(case, use, path):
            yield finding("output-lost", use.place, written=use.written, folder=" or ".join(map(str, path)))


def _is_read(case: Case, use: Use, paths: tuple[Any, ...]) -> bool:
    """Return whether the program names a file or its folder once more: by its text, a variable or an option."""
    given = (each for node in given_to(use.call) for each in ast.walk(node))
    names = {ast.unparse(each) for each in given if isinstance(each, ast.Name | ast.Attribute)}
    found = Counter[str]()
    for source, node in case.code.nodes(ast.expr):
        outer = source.parents.get(node)
        if isinstance(outer, ast.Call) and source.last(outer) in ("makedirs", "mkdir", *api.LOGS):
            continue  # it is only printed, or its folder is made
        text = text_of(node)
        if text and any(str(path).endswith(text) or text.endswith(str(path)) for path in paths):
            found["the text"] += 1
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            is_whole = not isinstance(outer, ast.Attribute) and not (isinstance(outer, ast.Call) and outer.func is node)
            found[ast.unparse(node)] += is_whole and ast.unparse(node) in names
    return any(number > 1 for number in found.values())


def folders_of(case: Case, use: Use, table: _Table) -> tuple[Any, ...]:
    """Return the paths that a call may get; UNKNOWN among them if there may be others."""
    for patterns, (names, at) in table.items():
        if matches(use.name, patterns):
            node = next((each for name in names if (each := use.argument(name))), None) or use.argument("", at)
            return values(case, use.source, node)
    return (UNKNOWN,)


def may_be_kept(path: Any, kept: tuple[str, ...]) -> bool:
    """Return whether a path may lie in one of some folders, or is none of this host's."""
    if not isinstance(path, str) or "://" in path or path.startswith(UNKNOWN):
        return True
    known, unknown, _ = path.partition(UNKNOWN)
    whole = posixpath.normpath(posixpath.join(CODE, known))
    inside = any(f"{whole}/".startswith(f"{folder.rstrip('/')}/") for folder in kept)
    return inside or (bool(unknown) and any(folder.startswith(posixpath.join(CODE, known)) for folder in kept))
