"""Check how a script saves its model and its checkpoints, and how it reacts to SIGTERM."""

import ast
import functools
import posixpath
import re
from collections.abc import Iterator

from entrypoint.base.severity import Severity
from entrypoint.check.doctor.check_folders import (
    checkpoints_elsewhere,
    model_elsewhere,
    model_untrained,
    puts_into,
    shared_folders,
    writes_into,
)
from entrypoint.check.doctor.job_values import values
from entrypoint.check.doctor.rulebook import finding
from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Finding
from entrypoint.launcher.job.job import Mode
from entrypoint.usercode import api_names as api
from entrypoint.usercode.datasets import stands_for
from entrypoint.usercode.known_values import is_known
from entrypoint.usercode.reader import UserProgram
from entrypoint.usercode.source import SourceFile, Use

# Names and keys that identify a process, in code as ast.unparse writes it.
_WHO = (
    r"(\w+_)?(rank|RANK)|(is_)?(chief|master)|is_main|task_(index|id|type)|job_name|current_host|SM_CURRENT_HOST"
    r"|worker_(index|number)|(?<=\[')(index|type)(?='\])"
)
_AMBIGUOUS = "index|first|writes"  # a variable set from one of these is not taken for a rank
_FOLDER = (
    r"(?i)/opt/ml/checkpoints|(checkpoint|ckpt)s?_?(dir|path|s3|local|folder|root|uri)|SM_CHECKPOINT|checkpoint_?config"
)


def of_keeping(case: Case) -> Iterator[Finding]:
    """Yield models and checkpoints that would be overwritten, lost, or never written."""
    by_shell = case.code.main.path.suffix == ".sh" and re.search(r"/opt/ml|SM_", case.code.main.text)
    if by_shell or not any(each.tree.body for each in case.code.programs):
        return
    writing = [use for use in case.code.calls(*api.SAVES) if not re.match(api.NOT_MODELS, use.name)]
    saves = [use for use in writing if not _is_manager(use)]
    yield from _of_saves(case, saves, [use for use in writing if _is_manager(use)])
    learns = case.code.call(".fit", ".GradientTape", ".minimize", ".train_and_evaluate", ".apply_gradients")
    if learns:
        yield from _of_checkpoints(case, learns)
        yield from _of_model(case, learns, saves)
        yield from model_untrained(case, saves)


def _of_saves(case: Case, saves: list[Use], managers: list[Use]) -> Iterator[Finding]:
    code = case.code
    ranks = case.together(Mode.MPI) and code.imports(*api.HOROVOD)
    # Our library's checkpoint manager lets only the right process write, and so does Keras's callback among workers.
    callbacks = code.calls(".ModelCheckpoint") if ranks else ()
    writing = [*saves, *callbacks, *([] if code.has(api.OUR_MANAGER) else managers)]
    workers = case.together(Mode.MWMS) and code.has(*api.WORKERS)
    bare = [use for use in writing if not is_guarded(use)]
    if (ranks or workers) and bare and not any(_decides(case, source) for source in code.sources):
        of_callback = next((use for use in bare if use.name.endswith(".ModelCheckpoint")), bare[0])
        for use in dict.fromkeys((bare[0], of_callback)):
            yield finding("all-save" if ranks else "all-save/workers", use.place, written=use.written)
    if workers and not ranks and not (case.may_be(Mode.PS) and case.job is None):
        # An Estimator exports from a checkpoint, and exchanges nothing.
        together = [use for use in saves if not use.name.endswith(".export_saved_model")]
        alone = next((use for use in together if is_guarded(use)), None)
        if alone and not bare and not is_on_every_branch(saves):
            yield finding("chief-saves-alone", alone.place, written=alone.written)


def _is_manager(use: Use) -> bool:
    """Return whether a call saves by a checkpoint manager, judged by the words of its name."""
    words = use.name.lower().split(".")[:-1]
    return any(part in word for word in words for part in ("saver", "manager", "checkpoint"))


def _of_checkpoints(case: Case, learns: Use) -> Iterator[Finding]:
    code, body = case.code, case.request.body
    spot, kept = bool(body.get("EnableManagedSpotTraining")), body.get("CheckpointConfig") or {}
    severity = Severity.WARNING if spot or kept else Severity.NOTE
    written = next(code.made(*api.WRITES_CHECKPOINTS), None)
    where = str(kept.get("LocalPath") or "/opt/ml/checkpoints")
    folder = (
        code.has(api.OUR_MANAGER)
        or code.mentions(_FOLDER)
        or code.mentions(re.escape(where))
        or case.gives(where)
        or shared_folders(case)
    )
    estimators = code.has(*api.SESSIONS)
    named = code.mentions(re.escape(posixpath.basename(where))) or case.gives(where)
    if written is None and not estimators and not (named and puts_into(case, where)):
        why = "and an interruption of spot instances, or a failure, loses all of it"
        if not spot:
            why = "and nothing is ever put there" if kept else "and a failure loses all of it"
        why = f"for which the job has a CheckpointConfig, {why}" if kept else why
        yield finding("no-checkpoint", learns.place, severity=severity, why=why)
    elif elsewhere := list(checkpoints_elsewhere(case, severity, where)):
        yield from elsewhere
    elif written is not None and not folder:
        yield finding("checkpoint-elsewhere", written.place, severity=severity, written=written.written)
    if written is not None and not code.has(*api.READS_CHECKPOINTS) and not estimators:
        yield finding("no-resume", written.place, severity=severity)
    if case.job and not (spot or kept) and (lost := writes_into(case, where)):
        yield finding("no-checkpoint-config/uncopied", lost.place, severity=Severity.NOTE, written=lost.written)
    if kept and case.mode is Mode.SINGLE and case.hosts > 1:
        yield from _of_shared_checkpoints(case, where)
    if not handles_sigterm(code):
        yield finding("no-sigterm", learns.place)


def handles_sigterm(code: UserProgram) -> bool:
    return code.has("signal.SIGTERM", ".reached_preemption_sync_point") or bool(code.mentions("SIGTERM"))


def _of_shared_checkpoints(case: Case, where: str) -> Iterator[Finding]:
    """Yield calls by which hosts that share nothing write checkpoints to one folder in S3, under the same names."""
    if any(is_guarded(use) for use in case.code.calls(*api.SAVES) if _is_manager(use)):
        return
    for use in case.code.made(*api.WRITES_CHECKPOINTS):
        names = [each for each in ast.walk(use.node) if isinstance(each, ast.Name)]
        values = [stands_for(use.source, each) for each in names]
        text = " ".join(ast.unparse(each) for each in (use.node, *values) if each)
        ours = use.name.endswith("checkpoints.manager") and use.argument("directory", 1) is None
        if (ours or f"'{where}" in text) and not is_guarded(use) and not re.search(r"(?i)host|rank|node|\{\w*id", text):
            yield finding("checkpoints-shared", use.place, written=use.written, hosts=case.hosts, where=where)


def _of_model(case: Case, learns: Use, saves: list[Use]) -> Iterator[Finding]:
    code = case.code
    names_folder = code.mentions(r"SM_MODEL_DIR|/opt/ml/model|model_dir") or case.gives("/opt/ml/model")
    if not saves and not code.has(".ModelCheckpoint", ".copytree", ".copy") and not names_folder:
        yield finding("no-model", learns.place)
    elif elsewhere := list(model_elsewhere(case, saves)):
        yield from elsewhere
    elif saves and not names_folder and not code.has(*api.MOVES) and not shared_folders(case):
        yield finding("no-model/elsewhere", saves[0].place, written=saves[0].written)
    where = str(case.hyperparameters.get("model_dir") or "")
    if where.startswith("s3://") and not code.imports("tensorflow_io*") and not code.has(api.OUR_MANAGER):
        for use in [*saves, *code.calls(".ModelCheckpoint")]:
            if any(_is_model_dir(case, use.source, each) for each in ast.walk(use.node)):
                yield finding("model-dir-s3", use.place, written=use.written, where=where)
                break


def _is_model_dir(case: Case, source: SourceFile, node: ast.AST) -> bool:
    """Return whether a node is the value of option --model_dir, not of --model-dir or of another folder's variable."""
    if isinstance(node, ast.Name) and node.id == "model_dir":
        return all("model_dir" in ast.unparse(each.value) for each in source.assignments.get(node.id, ()))
    if not (isinstance(node, ast.Attribute) and node.attr == "model_dir"):
        return False
    options = [ast.unparse(use.node) for use in case.code.calls(".add_argument")]
    others = any("--model-dir" in each or "dest='model_dir'" in each for each in options)
    return not others or any("'--model_dir'" in each for each in options)


# --- which processes reach a call ---


def saved_alone(saves: list[Use]) -> Use | None:
    """Return the first of some calls if only some processes reach them, and the others reach none of them."""
    alone = all(is_guarded(use) for use in saves) and not is_on_every_branch(saves)
    return saves[0] if saves and alone else None


def is_guarded(use: Use) -> bool:
    """Return whether only some of the processes reach a call."""
    for outer, inner in use.source.way_up(use.node):
        if isinstance(outer, ast.If | ast.IfExp | ast.While):
            if inner is not outer.test and _parts_workers(use.source, outer.test):
                return True
        elif isinstance(outer, ast.BoolOp):
            before = outer.values[: outer.values.index(inner)] if inner in outer.values else []
            if any(_parts_workers(use.source, each) for each in before):
                return True
        elif isinstance(outer, ast.FunctionDef | ast.Module) and _leaves_early(use, outer.body):
            return True
    return False


def is_on_every_branch(uses: list[Use]) -> bool:
    """Return whether calls stand on both branches of one condition, so that every process reaches one of them."""
    sides: dict[ast.AST, set[bool]] = {}
    for use in uses:
        for outer, inner in use.source.way_up(use.node):
            if isinstance(outer, ast.If):
                sides.setdefault(outer, set()).add(inner in outer.body)
    return any(len(each) == 2 and isinstance(node, ast.If) and node.orelse for node, each in sides.items())


def _decides(case: Case, source: SourceFile) -> bool:
    """Return whether a file uses the rank for more than printing: to name a folder, return, or call a function."""
    for node in source.all_nodes:
        if isinstance(node, ast.IfExp):
            sides = [values(case, source, side) for side in (node.body, node.orelse)]
            if sides[0] == sides[1] and all(map(is_known, sides[0])):
                continue
        if _passes_who(source, node):
            return True
        if isinstance(node, ast.If | ast.IfExp) and _asks_who(source, node.test):
            if isinstance(node, ast.If):
                prints = all(_is_said(source, each) for each in node.body)
            else:
                prints = isinstance(node.body, ast.Constant) and isinstance(node.orelse, ast.Constant)
            if not prints:
                return True
    return False


def _passes_who(source: SourceFile, node: ast.AST) -> bool:
    """Return whether the process's identity is passed to a call (`save(model, me == "chief")`), or names a path."""
    if isinstance(node, ast.Call) and source.dotted(node.func).rpartition(".")[2] not in api.LOGS:
        return any(isinstance(each, ast.Compare) and _asks_who(source, each) for each in node.args)
    if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp | ast.JoinedStr)):
        return False
    is_text = any(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in ast.walk(node.value))
    return is_text and _asks_who(source, node.value)


def _leaves_early(use: Use, body: list[ast.stmt]) -> bool:
    return any(
        isinstance(each, ast.If) and _parts_workers(use.source, each.test) and _leaves(use.source, each.body[-1])
        for each in body
        if each.lineno < use.place.line
    )


def _leaves(source: SourceFile, node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return source.dotted(node.value.func) in api.LEAVES
    return isinstance(node, ast.Return | ast.Raise)


def _parts_workers(source: SourceFile, test: ast.AST) -> bool:
    """Return whether a condition asks for the process, and not for one that trains with no other."""
    return _asks_who(source, test) and not re.search(r"'(evaluator|ps)'", ast.unparse(test))


def _asks_who(source: SourceFile, test: ast.AST) -> bool:
    return bool(re.search(_names_of_who(source), ast.unparse(test)))


@functools.lru_cache(maxsize=500)
def _names_of_who(source: SourceFile) -> str:
    """Return a pattern of a file's names for the process's identity: usual ones, and those assigned from them."""
    who, names = _WHO, set[str]()
    for _ in range(2):  # twice, since a name may be assigned from a name that was
        for name, made in source.assignments.items():
            last = name.rpartition(".")[2]
            if last.isidentifier() and any(_is_answer(each.value, who) and not each.is_part for each in made):
                names.add(last)
        for node in source.all_nodes:
            if isinstance(node, ast.FunctionDef):
                ends = (each.value for each in ast.walk(node) if isinstance(each, ast.Return) and each.value)
                names |= {node.name for end in ends if _is_answer(end, who)}
        who = "|".join([_WHO, *names])
    return rf"\b({who}|{_AMBIGUOUS})\b"


def _is_answer(value: ast.AST, who: str) -> bool:
    """Return whether a value identifies the process: a rank, a comparison with one, or `not`, `and`, `or` of these."""
    answer = value.func if isinstance(value, ast.Call) else value
    kinds = ast.Name | ast.Attribute | ast.Subscript | ast.Compare | ast.UnaryOp | ast.BoolOp
    return isinstance(answer, kinds) and re.search(rf"\b({who})\b", ast.unparse(answer)) is not None


def _is_said(source: SourceFile, node: ast.stmt) -> bool:
    match node:
        case ast.Pass() | ast.Assign(value=ast.Constant()):  # verbose = 1
            return True
        case ast.Expr(value=ast.Call() as call):
            return source.last(call) in api.LOGS
    return False
