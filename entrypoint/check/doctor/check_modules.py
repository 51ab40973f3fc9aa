"""Check that each import and command of a script exists: in the image, by the requirements, or beside the script."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from entrypoint.base.severity import Severity
from entrypoint.check.doctor.aws_images import AWS_COMMANDS, LACKING, REMEDIES, on_aws, ours, package_of, remedy
from entrypoint.check.doctor.check_shell import of_commands
from entrypoint.check.doctor.requirements import Requirements, folders_of, of_requirements, requirements_of
from entrypoint.check.doctor.rulebook import finding
from entrypoint.check.doctor.subject import Case, tensorflow_of
from entrypoint.check.finding import Finding
from entrypoint.usercode.guards import tried
from entrypoint.usercode.source import Use, UseKind

_PYTHONS = {*sys.stdlib_module_names, "distutils", "imp", "asyncore", "asynchat"}
_LAZY = ast.FunctionDef | ast.AsyncFunctionDef  # an import in a function, which may never be called


def of_modules(case: Case) -> Iterator[Finding]:
    """Yield imports and commands that are missing when the script reaches them."""
    brought = requirements_of(case)
    yield from of_requirements(case, brought)
    yield from _of_imports(case, brought)
    severity = case.severity_of_lack("git", AWS_COMMANDS)
    for place, line in brought.from_git:
        yield finding("command-missing", place, severity=severity, line=line)
    yield from of_commands(case, brought)


def _of_imports(case: Case, brought: Requirements) -> Iterator[Finding]:
    if case.code.mentions(r"\bpip3?\b") and case.code.mentions(r"\binstall\b"):
        return
    elsewhere = case.code.has("sys.path*") or "PYTHONPATH" in case.environment
    there = {name for folder in folders_of(case) for name in _beside(folder)} | brought.modules
    there |= {Path(each).name.removesuffix(".py") for each in case.request.launch.dependencies}
    if case.job is None:  # this may be a script that submits jobs
        there.add("sagemaker")
    on_theirs = on_aws(case.tensorflow)
    for use in case.code.uses("*", kind=UseKind.IMPORT):
        name = _missing(case, use)
        if not name or name in there or name in _beside(use.source.path.absolute().parent):
            continue
        package = package_of(name)
        listed = bool(package) or name in REMEDIES
        unknown = not listed and (elsewhere or not brought.whole)  # a package may bring modules of any name
        if tried(use.source, use.node) or unknown:
            continue
        there.add(name)  # it is reported once
        lazy = any(isinstance(outer, _LAZY) for outer in use.source.around(use.node))
        severity = case.severity_of_lack(name, on_theirs)
        if severity is Severity.ERROR and not (listed and brought.whole and not lazy):
            severity = Severity.WARNING
        if name == "jax" and not (case.image and tensorflow_of(case.image)):
            severity = Severity.NOTE  # whoever trains with it has probably chosen the image that has it
        version, more = ".".join(map(str, case.tensorflow)), ", and AWS's has it" if name in on_theirs else ""
        instead = REMEDIES.get(name) or remedy(package, case.tensorflow)
        yield finding(
            "module-missing",
            use.place,
            severity=severity,
            instead=instead,
            name=name,
            version=version,
            more=more,
        )


def _missing(case: Case, use: Use) -> str:
    """Return the module that an import needs and our image lacks; "" if the image has it."""
    for name in LACKING:
        if f"{use.name}.".startswith(f"{name}."):
            return name
    top = use.name.split(".")[0]
    if use.name.startswith("google.cloud"):
        return "google.cloud"
    if top in _PYTHONS or top in ours(case.tensorflow) or top.startswith("_"):
        return ""
    return top


def _beside(folder: Path) -> Iterator[str]:
    """Yield the names of a folder's modules, including compiled ones."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_dir() or path.suffix in (".py", ".so", ".pyc", ".zip", ".egg"):
            yield path.name.split(".")[0]
