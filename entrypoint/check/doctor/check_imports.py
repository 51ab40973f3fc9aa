"""Check names of TensorFlow, paths, notebook calls and hidden failures, and run the launcher's own check of scripts."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from entrypoint.check.doctor.api_names import HOROVOD, LEAVES, LOGS, REPORTS, STARTS_PROGRAMS
from entrypoint.check.doctor.context import never_taken, tried
from entrypoint.check.doctor.source import Source, UseKind, calls_in, matches, value_of
from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Finding, Place, error, note, warning
from entrypoint.launcher.job.choices import PsProgram, Tf1
from entrypoint.launcher.job.job import Mode
from entrypoint.launcher.plan.plan import NO_GPU, Role

LOOK = Path(__file__).resolve().parents[2] / "programs" / "prepare" / "look.py"
SHIM = 'import tensorflow.compat.v1 as tf; tf.disable_v2_behavior(); or environment={"ENTRYPOINT_TF1": "shim"}'
_PATHS = r"^(/home/|/Users/|/content/|/mnt/|/data/|/kaggle/|[A-Za-z]:\\)"
_MAY_BE_THERE = ("/mnt/", "/data/")  # an image of the user's own may have these
_READ_S3 = ("boto3*", "s3fs*", "fsspec*", "smart_open*", "awswrangler*", "sagemaker_tf_data.checkpoints*")
_REPORT = ast.Expr | ast.Pass | ast.With | ast.Try
_ESTIMATORS = (".train_and_evaluate", ".Estimator")
_INSTEAD = {
    "contrib": "what TensorFlow 2 has: tensorflow_addons, tf_slim, tf.keras.layers",
    "examples": "what TensorFlow 2 has: tf.keras.datasets, tensorflow_datasets",
}


def of_names(case: Case) -> Iterator[Finding]:
    """Yield names, paths and calls that fail when the script reaches them, and failures that it hides."""
    for source in case.code.sources:
        if source.problem:
            yield error(
                "syntax",
                f"Python 3 cannot parse it: {source.problem}",
                "Python 3 (`2to3` makes most of Python 2)",
                place=Place(file=source.shown, line=source.line),
            )
    yield from _of_notebooks(case)
    yield from _of_paths(case)
    yield from _of_hidden_failures(case)
    yield from _of_job_start(case)


def _of_notebooks(case: Case) -> Iterator[Finding]:
    for use in case.code.calls("get_ipython"):
        if not tried(use.source, use.node):
            yield error(
                "notebook-left",
                "get_ipython() exists only in a notebook: NameError",
                "no such line; list what it installs in requirements.txt",
                place=use.place,
            )
            return


def _of_paths(case: Case) -> Iterator[Finding]:
    seen = set()
    for source, node, found in case.code.strings(_PATHS):
        if (source.shown, found[0]) not in seen and not never_taken(case, source, node):
            seen.add((source.shown, found[0]))
            make = note if found[0] in _MAY_BE_THERE else warning
            yield make(
                "path",
                f"{node.value!r} is a path of one machine, and does not exist in the container",
                'os.environ["SM_CHANNEL_TRAINING"] to read, SM_MODEL_DIR or SM_OUTPUT_DATA_DIR to write',
                place=source.at(node),
            )
    if case.code.imports("tensorflow_io*") or case.code.has(*_READ_S3):
        return
    for source, node, _ in case.code.strings(r"^s3://\w"):
        if not any(isinstance(outer, ast.Compare) or _starts(source, outer) for outer in source.around(node)):
            yield warning(
                "s3-path",
                f"{node.value!r}: TensorFlow since 2.6 has no file system for s3://",
                "a channel, whose files lie in SM_CHANNEL_...; or `import tensorflow_io` (TensorFlow 2.14)",
                place=source.at(node),
            )
            return


def _starts(source: Source, node: ast.AST) -> bool:
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
                yield error(
                    "failure-hidden",
                    "an exception is caught, and the script exits with 0: the job counts as completed",
                    "raise",
                    place=source.at(call),
                )
        if _only_reports(source, node.body) and _trains(source, source.parents[node]):
            yield warning(
                "failure-hidden",
                "an exception of the training is caught and printed, and the script continues as if there was none",
                "raise, after what is printed",
                place=source.at(node),
            )


def _only_reports(source: Source, body: Sequence[ast.stmt], depth: int = 2) -> bool:
    """Return whether statements only report: they print, log, write a file, or call a function that does no more."""
    # A reporting function's assignments are local to it. What the handler itself assigns, later code may read.
    allowed = _REPORT if depth == 2 else _REPORT | ast.Assign
    for node in (each for stmt in body for each in ast.walk(stmt)):
        if isinstance(node, ast.stmt) and not isinstance(node, allowed):
            return False
        if isinstance(node, ast.Call) and source.last(node) not in (*LOGS, *REPORTS):
            own = _function(source, node)
            if not (own and depth and _only_reports(source, own.body, depth - 1)):
                return False
    return True


def _function(source: Source, call: ast.Call) -> ast.FunctionDef | None:
    """Return the function at the top level of the file that a call names; None if there is none."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    return next((each for each in source.tree.body if isinstance(each, ast.FunctionDef) and each.name == name), None)


def _trains(source: Source, attempt: ast.AST) -> bool:
    """Return whether a `try` trains, itself or by a function of the file, and is not one of several attempts."""
    again = any(isinstance(outer, ast.For | ast.While) for outer in source.around(attempt))
    if again or getattr(attempt, "finalbody", None):
        return False
    calls = list(calls_in(*getattr(attempt, "body", [])))
    calls += calls_in(*(own for call in calls if (own := _function(source, call))))
    return any(source.dotted(each.func).endswith((".fit", ".train_and_evaluate")) for each in calls)


def _of_job_start(case: Case) -> Iterator[Finding]:
    """Yield what the launcher would report when the job starts, by running the launcher's own program."""
    settings = case.job.settings if case.job else None
    shim = bool(settings and settings.tf1 is Tf1.SHIM)
    found_by_launcher = _look(case, settings.ps_workers if settings else PsProgram.SCRIPT)
    at = {source.shown: source for source in case.code.sources}
    for name, lines, old, new, gone in found_by_launcher["names"]:
        for line in [line for line in lines if not _is_asked_first(at[name], line)][:1]:
            more = f" (and in {len(lines) - 1} more lines)" if len(lines) > 1 else ""
            place = Place(file=name, line=line)
            if gone:
                instead = _INSTEAD.get(old, "line 2.14 of the image (build.sh), which has it")
                yield error("tf-gone", f"tf.{old}{more} {gone}", instead, place=place)
            elif not shim:
                yield error(
                    "tf1-name", f"tf.{old}{more} is of TensorFlow 1; AttributeError", f"{new}; or {SHIM}", place=place
                )
    for check, name, line, found, instead in found_by_launcher["doubts"]:
        if check == "strategy-of-another-mode" and case.mode is not Mode.SINGLE:
            continue  # no-strategy says it
        if name:
            use = next((use for use in at[name].uses if use.name.endswith(_ESTIMATORS)), None)
        else:
            use = case.code.first(*HOROVOD, kind=UseKind.IMPORT)
        place = use.place if use and not line else Place(file=name, line=line)
        make = note if check == "ps-xla" and case.gpus is None else error
        yield make(check, found, instead[:1].lower() + instead[1:], place=place)
    if "tf1-train" in found_by_launcher["flags"] and case.job and case.together(Mode.PS):
        use = case.code.call(".train")
        yield error(
            "estimator-never-ends",
            "estimator.train with parameter servers connects to "
            "a server at its own address, which it does not start: the job fails after a minute",
            "tf.estimator.train_and_evaluate(estimator, train_spec, eval_spec)",
            place=use.place if use else Place(file=case.code.main.shown),
        )


def _is_asked_first(source: Source, line: int) -> bool:
    """Return whether a line is for an older TensorFlow, behind a check of which TensorFlow there is."""
    for outer in (outer for use in source.uses if use.line == line for outer in source.around(use.node)):
        if isinstance(outer, ast.If | ast.IfExp):
            if re.search(r"version|hasattr|\btf2\b", ast.unparse(outer.test), re.IGNORECASE):
                return True
        elif isinstance(outer, ast.Try):
            caught = " ".join(ast.unparse(each.type) for each in outer.handlers if each.type)
            if re.search("AttributeError|ImportError|ModuleNotFoundError", caught):
                return True
    return False


def _look(case: Case, ps_workers: PsProgram) -> dict[str, Any]:
    asked = {
        "files": [(source.shown, source.text) for source in case.code.sources if source.path.suffix == ".py"],
        "program": case.code.main.shown,
        "tensorflow": ".".join(map(str, case.tensorflow)),
        "mode": str(case.mode) if case.several and case.mode else "",
        "ps_workers": ps_workers,
        "environment": dict(case.environment),
        **_on_gpus(case),
    }
    command = [sys.executable, str(LOOK)]
    answer = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=True, timeout=120)
    return dict(json.loads(answer.stdout))


def _on_gpus(case: Case) -> dict[str, int]:
    """Return the numbers of GPUs, parameter servers and ranks on the first host; one GPU if that is unknown."""
    rows = case.described.processes if case.described else ()
    sees = not any(row.role is Role.CHIEF and row.gpu_share == NO_GPU for row in rows)
    servers = sum(row.role is Role.PS for row in rows) if rows else 2 * case.may_be(Mode.PS)
    return {
        "gpus": 0 if case.hides_gpus else 1 if case.gpus is None else case.gpus,
        "servers": servers if sees else 0,
        "ranks": sum(row.role is Role.RANK and row.host == rows[0].host for row in rows),
    }
