"""Check names of TensorFlow, paths, notebook calls and hidden failures, and run the launcher's own check of scripts."""

import ast
import contextlib
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from entrypoint.base.errors import nearest
from entrypoint.base.severity import Severity
from entrypoint.check.doctor.check_folders import puts_into
from entrypoint.check.doctor.requirements import folders_of
from entrypoint.check.doctor.rulebook import finding, read_table, variant
from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Finding
from entrypoint.launcher.job.choices import PsProgram, Tf1
from entrypoint.launcher.job.job import Mode
from entrypoint.launcher.plan.plan import NO_GPU, Role
from entrypoint.usercode import shell, tf1
from entrypoint.usercode.api_names import HOROVOD, LEAVES, LOGS, READS_FILES, REPORTS, STARTS_PROGRAMS, TRAINS
from entrypoint.usercode.guards import tried
from entrypoint.usercode.reader import MOST_FILES, UserProgram, read_code
from entrypoint.usercode.source import (
    Place,
    SourceFile,
    Use,
    UseKind,
    calls_in,
    matches,
    plain_text,
    texts_of,
    value_of,
)
from entrypoint.usercode.unsupported import doubts
from entrypoint.usercode.words import flags

_PATHS = r"^(/home/|/Users/|/content/|/mnt/|/data/|/kaggle/|[A-Za-z]:\\)"
_MAY_BE_THERE = ("/mnt/", "/data/")  # an image of the user's own may have these
_READ_S3 = ("boto3*", "s3fs*", "fsspec*", "smart_open*", "awswrangler*", "sagemaker_tf_data.checkpoints*")
_OF_LFS = b"version https://git-lfs.github.com/spec/"
_DEFINES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_BINDS: type[ast.AST] = ast.FunctionDef | ast.ClassDef | ast.arg  # type: ignore[assignment]
_MOVES_FILES = (".chdir", ".extractall", ".extract", "shutil.*", "os.symlink", "os.rename", "os.replace", "*gfile.copy")
_READS_PATH = ("read_text", "read_bytes")  # of a Path
_DEBUGGERS = ("breakpoint", "pdb.set_trace", "ipdb.set_trace")
_REPORT = ast.Expr | ast.Pass | ast.With | ast.Try
_TELL = ("echo", "printf", "date")  # commands of a shell that succeed
_SUCCEED = (*_TELL, "true", ":", "ls", "sync", "exit", "df", "du", "free")
_PIPES_TO = ("tee", "cat", "ts", "sed", "awk", "grep")
# Names of TensorFlow 1 that do nothing, or raise, where TensorFlow 2 executes eagerly.
_OF_GRAPHS = re.compile(
    r"((Interactive)?Session|placeholder|global_variables_initializer|layers\.\w+|train\.\w*Optimizer)$"
)
_ESTIMATORS = (".train_and_evaluate", ".Estimator")


def of_names(case: Case) -> Iterator[Finding]:
    """Yield names, paths and calls that fail when the script reaches them, and failures that it hides."""
    for source in case.code.sources:
        problem, line = source.problem
        if problem:
            yield finding("syntax", Place(file=source.shown, line=line), problem=problem)
    left = next((use for use in case.code.calls("get_ipython") if not tried(use.source, use.node)), None)
    if left:
        yield finding("notebook-left", left.place)
    yield from _of_gone(case)
    yield from _of_questions(case)
    yield from _of_pointers(case)
    yield from _of_paths(case)
    yield from _of_files(case)
    yield from _of_hidden_failures(case)
    yield from _of_shell_failures(case)
    yield from _of_job_start(case)


def _of_gone(case: Case) -> Iterator[Finding]:
    """Yield each row of gone.toml that the script uses, unless the script handles that the name is missing."""
    keras_3 = case.tensorflow >= (2, 16) and not tf1.has_keras_2(case.environment, None, shim=False)
    for row in read_table("gone")["names"]:
        if row.get("keras", "any") not in ("any", "3" if keras_3 else "2"):
            continue
        is_call = "argument" in row or row.get("called")
        kinds = (UseKind.IMPORT,) if row.get("imported") else (UseKind.CALL,) if is_call else (UseKind.IMPORT, None)
        for use in (use for kind in kinds for use in case.code.uses(*row["names"], kind=kind)):
            given = use.argument(row.get("argument", ""))
            is_usual = "usual" in row and use.source.constant(given) in (None, row["usual"])
            has = "argument" not in row or (given is not None and not is_usual)
            if has and not _is_prepared(case.code, use):
                severity = Severity.WARNING if row.get("only_warns") else Severity.ERROR
                words = {"written": use.written, "gone": row["gone"], "new": row["new"]}
                yield finding("name-gone", use.place, severity=severity, **words)
                break


def _is_prepared(code: UserProgram, use: Use) -> bool:
    """Return whether a script checks for a name, sets it, or has one of its own."""
    source, last = use.source, use.last
    sets = any(name.rpartition(".")[2] == last for name in source.assignments)
    defines = any(isinstance(node, _DEFINES) and node.name == last for _, node in code.nodes(ast.stmt))
    guarded = any(each.here == last and next(source.guards(each.node), None) for each in source.imports)
    asks = code.mentions(rf"hasattr\([\w.]+, ['\"]{re.escape(last)}")
    return sets or defines or guarded or asks or tried(source, use.node) or _is_asked_first(source, use.place.line)


def _of_questions(case: Case) -> Iterator[Finding]:
    """Yield calls that wait for a person and that the program is sure to reach: a job has no terminal."""
    if case.code.mentions(r"isatty|sys\.stdin"):
        return
    for use in case.code.calls("input", *_DEBUGGERS, "getpass.getpass"):
        tries = any(isinstance(outer, ast.Try) for outer in use.source.around(use.node))
        own = use.name in use.source.assignments or any(
            use.name in (getattr(node, "name", ""), getattr(node, "arg", "")) for _, node in case.code.nodes(_BINDS)
        )
        if case.is_sure(use.source, use.node) and not tries and not own:
            kind = "/debugger" if use.name in _DEBUGGERS else ""
            yield finding(f"waits-for-person{kind}", use.place, written=use.written)


def _of_pointers(case: Case) -> Iterator[Finding]:
    folder, named = case.code.folder, [source.text for source in case.code.sources]
    if case.job is None:
        return
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir())[:MOST_FILES]:
            if path.is_file() and path.stat().st_size < 1000 and path.read_bytes().startswith(_OF_LFS):
                severity = Severity.ERROR if any(path.name in text for text in named) else Severity.WARNING
                yield finding("pointer-left", Place(file=str(path), line=1), severity=severity, name=path.name)
        modules = folder / ".gitmodules"
        for name in re.findall(r"^\s*path\s*=\s*(.+?)\s*$", plain_text(modules), re.M) if modules.is_file() else ():
            if not any(folder.joinpath(name).glob("*")):
                severity = Severity.ERROR if any(name in text for text in named) else Severity.WARNING
                yield finding("pointer-left/submodule", Place(file=str(modules)), severity=severity, name=name)


def _of_paths(case: Case) -> Iterator[Finding]:
    seen = set()
    for source, node, found in case.code.strings(_PATHS):
        if (source.shown, found[0]) not in seen and not case.never_takes(source, node):
            seen.add((source.shown, found[0]))
            severity = Severity.NOTE if found[0] in _MAY_BE_THERE else Severity.WARNING
            yield finding("path", source.at(node), severity=severity, value=repr(node.value))
    if case.code.imports("tensorflow_io*") or case.code.has(*_READ_S3):
        return
    for source, node, _ in case.code.strings(r"^s3://\w"):
        if not any(isinstance(outer, ast.Compare) or _starts(source, outer) for outer in source.around(node)):
            yield finding("s3-path", source.at(node), value=repr(node.value))
            return


def _of_files(case: Case) -> Iterator[Finding]:
    """Yield files that the program is sure to read from the code's folder, which has none of this name."""
    by_shell = case.code.main.path.suffix == ".sh"
    if case.job is None or by_shell or case.code.has(*_MOVES_FILES, *STARTS_PROGRAMS):
        return
    folders = folders_of(case)
    texts = [text for source in case.code.sources for text in texts_of(source.all_nodes)]
    for use in case.code.calls(*READS_FILES):
        name, mode = (use.source.constant(use.argument(*each)) for each in (("", 0), ("mode", 1)))
        is_path = isinstance(name, str) and re.fullmatch(r"([\w-]+/)*[\w.-]+\.\w+", name)
        writes = use.name in ("open", "tensorflow.io.gfile.GFile") and mode not in (None, "r", "rt", "rb")
        only_names = use.name == "pathlib.Path" and use.source.last(use.source.parents[use.node]) not in _READS_PATH
        if not is_path or writes or only_names or not case.is_sure(use.source, use.node):
            continue
        made = sum(Path(name).stem in text for text in texts) > 1  # perhaps the program itself writes it
        there = made or puts_into(case, str(Path(name).with_suffix(""))) or tried(use.source, use.node)
        if not there and not any(any(each.glob(f"{name}*")) for each in folders):
            beside = [str(path.relative_to(each)) for each in folders for path in (each / name).parent.glob("*.*[!y]")]
            near = nearest(name, beside)
            severity = Severity.ERROR if near else Severity.WARNING
            words = {"name": name, "near": f"; did you mean {near}?" if near else ""}
            yield finding("file-missing", use.place, severity=severity, **words)


def _starts(source: SourceFile, node: ast.AST) -> bool:
    """Return whether a call starts another program, such as `aws s3 cp`."""
    return isinstance(node, ast.Call) and matches(source.dotted(node.func), STARTS_PROGRAMS)


def _of_hidden_failures(case: Case) -> Iterator[Finding]:
    for source, node in case.code.nodes(ast.ExceptHandler):
        if node.type and source.dotted(node.type) not in ("", "Exception", "BaseException"):
            continue
        for call in calls_in(node):
            if source.dotted(call.func) in LEAVES and not any(
                value_of(each) or not isinstance(each, ast.Constant) for each in call.args[:1]
            ):
                yield finding("failure-hidden/exits", source.at(call))
        if _only_reports(source, node.body) and _trains(source, source.parents[node]):
            yield finding("failure-hidden", source.at(node), severity=Severity.WARNING)


def _of_shell_failures(case: Case) -> Iterator[Finding]:
    """Yield where a shell script starts the training and ends with success whatever becomes of it."""
    main = case.code.main
    listed = shell.commands(main.text) if case.code.started else []
    if re.search(r"\btrap\b|PIPESTATUS|\bwait\s+[-$\"%\d]|\bfg\b", shell.without_comments(main.text)):
        return
    names = {each.path.name for each in case.code.started if read_code(each.path).has(*TRAINS)}
    for at, each in enumerate(listed):
        later = listed[at + 1 :]
        if each.inside or Path(each.program or "").name not in names or _looks_at_codes(later):
            continue
        hides = _hides(each, later, main.text)
        if hides:
            place, written = Place(file=main.shown, line=each.line), main.text.splitlines()[each.line - 1].strip()
            yield finding(f"shell-hides-failure/{hides}", place, written=written, program=each.program)


def _looks_at_codes(later: Sequence[shell.ShellCommand]) -> bool:
    """Return whether commands ask how the one before them ended, or end with a code of their own."""
    texts = [" ".join(each.words) for each in later]
    return any("$?" in text or re.match(r"(exit|return) +[^0 ]|false\b", text) for text in texts)


def _hides(command: shell.ShellCommand, later: Sequence[shell.ShellCommand], text: str) -> str:
    """Return how a failure of the command is hidden: the variant of the rule; "" if it is not, or that is unknown."""
    following = later[0].words if later else ("",)
    if command.ends == "&":
        return "background"
    if command.ends == "|":
        return "" if "pipefail" in text or following[0] not in _PIPES_TO else "pipe"
    succeeds = following[0] in ("true", ":") or following == ("exit", "0") or (following[0] in _TELL and not later[1:])
    if command.ends == "||":
        return "or" if succeeds else ""
    goes_on = later and not shell.is_strict(text) and command.words[0] != "exec"
    return "goes-on" if goes_on and command.ends in ("", ";") and later[-1].words[0] in _SUCCEED else ""


def _only_reports(source: SourceFile, body: Sequence[ast.stmt], depth: int = 2) -> bool:
    """Return whether statements only report: they print, log, write a file, or call a function that does no more."""
    # A reporting function's assignments are local to it. What the handler itself assigns, later code may read.
    allowed = _REPORT if depth == 2 else _REPORT | ast.Assign
    for node in (each for stmt in body for each in ast.walk(stmt)):
        if isinstance(node, ast.stmt) and not isinstance(node, allowed):
            return False
        if isinstance(node, ast.Call) and source.last(node) not in (*LOGS, *REPORTS):
            own = source.own_function(node)
            if not (own and depth and _only_reports(source, own.body, depth - 1)):
                return False
    return True


def _trains(source: SourceFile, attempt: ast.AST) -> bool:
    """Return whether a `try` trains, directly or in a function of the file, and is not one of several attempts."""
    again = any(isinstance(outer, ast.For | ast.While) for outer in source.around(attempt))
    if again or getattr(attempt, "finalbody", None):
        return False
    calls = list(calls_in(*getattr(attempt, "body", [])))
    calls += calls_in(*(own for call in calls if (own := source.own_function(call))))
    return any(source.dotted(each.func).endswith((".fit", ".train_and_evaluate")) for each in calls)


def _of_job_start(case: Case) -> Iterator[Finding]:
    """Yield reports that the launcher would make at the job's start, found by the launcher's own functions."""
    settings = case.job.settings if case.job else None
    shim = bool(settings and settings.tf1 is Tf1.SHIM)
    environment = dict(case.environment)
    keras_2 = tf1.has_keras_2(environment, None, shim=shim)
    if keras_2:  # the shim sets it
        environment["TF_USE_LEGACY_KERAS"] = "1"
    version = ".".join(map(str, case.tensorflow))
    for source, lines, old, new, gone in tf1.listed(case.code, sys.path, version, keras_2=keras_2):
        for line in [line for line in lines if not _is_asked_first(source, line)][:1]:
            more = f" (and in {len(lines) - 1} more lines)" if len(lines) > 1 else ""
            place = Place(file=source.shown, line=line)
            if gone:
                yield finding(variant("tf-gone", old), place, old=old, more=more, gone=gone)
            elif not shim:
                rule = "tf1-name/graph" if _OF_GRAPHS.match(old) else "tf1-name"
                yield finding(rule, place, old=old, more=more, new=new)
    mode = str(case.mode) if case.several and case.mode else ""
    ps_workers = settings.ps_workers if settings else PsProgram.SCRIPT
    for each in doubts(case.code, mode, ps_workers, version, environment, **_on_gpus(case)):
        if each.check == "strategy-of-another-mode" and case.mode is not Mode.SINGLE:
            continue  # no-strategy says it
        severity = Severity.NOTE if each.check == "ps-xla" and case.gpus is None else Severity.ERROR
        instead = each.instead[:1].lower() + each.instead[1:]
        yield finding(each.check, _place(case.code, each.place), severity=severity, found=each.found, instead=instead)
    text = "\n".join(source.code for source in case.code.sources)
    if "tf1-train" in flags(text) and case.job and case.together(Mode.PS):
        use = case.code.call(".train")
        yield finding("estimator-never-ends", use.place if use else Place(file=case.code.main.shown))


def _place(code: UserProgram, place: Place | None) -> Place:
    """Return a place that has a line.

    Without a line, use the file's Estimator; without a place, the import of Horovod.
    """
    if place and place.line:
        return place
    if place:
        use = next((use for use in code.by_name[place.file].uses if use.name.endswith(_ESTIMATORS)), None)
    else:
        use = code.first(*HOROVOD, kind=UseKind.IMPORT)
    return use.place if use else place or Place(file=code.main.shown)


def _is_asked_first(source: SourceFile, line: int) -> bool:
    """Return whether a line runs only in an older TensorFlow, because a check of the version stands around it."""
    for outer in (outer for use in source.uses if use.place.line == line for outer in source.around(use.node)):
        if isinstance(outer, ast.If | ast.IfExp):
            if re.search(r"version|hasattr|\btf2\b", ast.unparse(outer.test), re.IGNORECASE):
                return True
        elif isinstance(outer, ast.Try):
            caught = " ".join(ast.unparse(each.type) for each in outer.handlers if each.type)
            if re.search("AttributeError|ImportError|ModuleNotFoundError", caught):
                return True
    return False


def _on_gpus(case: Case) -> dict[str, int]:
    """Return the numbers of GPUs, parameter servers and ranks on the first host; one GPU if that is unknown."""
    rows = case.described.processes
    sees = not any(row.role is Role.CHIEF and row.gpu_share == NO_GPU for row in rows)
    servers = sum(row.role is Role.PS for row in rows) if rows else 2 * case.may_be(Mode.PS)
    return {
        "gpus": 0 if case.hides_gpus else 1 if case.gpus is None else case.gpus,
        "servers": servers if sees else 0,
        "ranks": sum(row.role is Role.RANK and row.host == rows[0].host for row in rows),
    }
