"""Check that each import and command of a script exists: in the image, by the requirements, or beside the script.

For shell scripts, check the interpreter and the line ends, too.
"""

import ast
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from entrypoint.base.errors import did_you_mean
from entrypoint.base.severity import Severity
from entrypoint.check.doctor.aws_images import (
    AWS_COMMANDS,
    AWS_COMMANDS_ON_GPUS,
    COMMANDS_LACKING,
    LACKING,
    NEEDS_SYSTEM,
    REMEDIES,
    on_aws,
    ours,
    package_of,
    remedy,
)
from entrypoint.check.doctor.requirements import Requirements, folders_of, of_requirements, requirements_of
from entrypoint.check.doctor.rulebook import finding
from entrypoint.check.doctor.subject import AWS_IMAGE, Case, tensorflow_of
from entrypoint.check.finding import Finding
from entrypoint.usercode.api_names import LEAVES, STARTS_PROGRAMS, TRAINS
from entrypoint.usercode.guards import tried
from entrypoint.usercode.reader import UserProgram
from entrypoint.usercode.shell import (
    INTERPRETER,
    ShellCommand,
    commands,
    first_words,
    is_strict,
    logical_lines,
    without_comments,
)
from entrypoint.usercode.source import Place, SourceFile, Use, UseKind, calls_in, imports_of, matches, text_of, value_of

_PYTHONS = {*sys.stdlib_module_names, "distutils", "imp", "asyncore", "asynchat"}
_LAZY = ast.FunctionDef | ast.AsyncFunctionDef  # an import in a function, which may never be called
# Interpreters that Debian's base system and our image have, and their paths in the image.
_ON_PATH = ("awk", "bash", "dash", "perl", "python", "python3", "sed", "sh")
_IGNORE_CODES = ("os.system", "subprocess.call", "subprocess.run", "subprocess.Popen")  # without check=
_THERE = {*(f"{folder}/{name}" for folder in ("/bin", "/usr/bin") for name in (*_ON_PATH, "env") if name != "python")}
_OURS = {"/opt/venv/bin/python", "/opt/venv/bin/python3"}
_MAKES_NAMES = re.compile(r"import \*|globals\(\)|__getattr__|setattr\(|\bexec\(|__dict__|__path__")
_SHELLS = ("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput")


def of_modules(case: Case) -> Iterator[Finding]:
    """Yield imports and commands that are missing when the script reaches them."""
    brought = requirements_of(case)
    yield from of_requirements(case, brought)
    yield from _of_imports(case, brought)
    yield from _of_system(case, brought)
    yield from _of_own_names(case)
    severity = case.severity_of_lack("git", AWS_COMMANDS)
    for place, line in brought.from_git:
        yield finding("command-missing", place, severity=severity, line=line)
    yield from of_commands(case, brought)
    yield from _of_children(case)


def _of_imports(case: Case, brought: Requirements) -> Iterator[Finding]:
    main = case.code.main
    by_shell = main.path.suffix == ".sh"
    if by_shell and re.search(r"\binstall\b|\bactivate\b", without_comments(main.text)):
        return
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
        line = dict(brought.elsewhere).get(name, "")
        kind = "" if name in REMEDIES else "/shell" if by_shell else "/marker" if line else ""
        instead = "" if kind else REMEDIES.get(name) or remedy(package, case.tensorflow)
        yield finding(
            f"module-missing{kind}",
            use.place,
            severity=severity,
            instead=instead,
            name=name,
            package=package or name,
            line=line,
            program=main.path.name,
            version=version,
            more=more,
        )


def _of_own_names(case: Case) -> Iterator[Finding]:
    """Yield names that the program imports from its own modules and packages, and that these do not have."""
    for source, each in ((file, each) for file in case.code.sources for each in file.imports):
        module, name = each.module, each.whole.rpartition(".")[2]
        own = case.code.module(source, module, each.level) if isinstance(each.node, ast.ImportFrom) else []
        if not own:
            module, _, name = module.rpartition(".")
            own = [one for one in case.code.module(source, module, each.level) if one.path.name == "__init__.py"]
        if not own or name.startswith(("*", "__")) or tried(source, each.node):
            continue
        names, folder = _names_of(own[-1]), own[-1].path.absolute().parent
        if names and name not in names and not {*folder.glob(name), *folder.glob(f"{name}.*")}:
            lazy = any(isinstance(outer, _LAZY) for outer in source.around(each.node))
            beside = {path.stem for path in folder.glob("*.py")} if own[-1].path.name == "__init__.py" else set()
            severity, near = Severity.WARNING if lazy else Severity.ERROR, did_you_mean(name, names | beside)
            place, written = source.at(each.node), ast.unparse(each.node)
            yield finding(
                "own-name-missing", place, severity=severity, written=written, module=module, name=name, near=near
            )


def _names_of(source: SourceFile) -> set[str]:
    """Return the names that a module has when it is imported; none if it makes names that cannot be read."""
    whole = SourceFile(source.shown, source.text, source.path)
    if whole.problem[0] or _MAKES_NAMES.search(whole.text):
        return set()
    found, left = {"__name__"}, list[ast.AST](whole.tree.body)
    for node in left:
        if isinstance(node, _LAZY | ast.ClassDef | ast.ExceptHandler | ast.Global):
            found |= {*getattr(node, "names", ()), getattr(node, "name", None) or ""}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        found |= {each.here for each in imports_of(node)}
        left += [] if isinstance(node, _LAZY | ast.ClassDef) else ast.iter_child_nodes(node)
    found |= {name for node in whole.all_nodes if isinstance(node, ast.Global) for name in node.names}
    return found


def _of_system(case: Case, brought: Requirements) -> Iterator[Finding]:
    """Yield requirements that need a library of the system, unless the code installs such libraries itself."""
    packages = {package for _, package in brought.lines}
    installs = any(re.search(r"\bapt(-get)?\b|\blibgl", source.text) for source in case.code.sources)
    for place, package in brought.lines if not installs else ():
        module, library, other = NEEDS_SYSTEM.get(package, ("", "", ""))
        uses = case.code.uses(module, f"{module}.*", kind=UseKind.IMPORT) if module else ()
        if other not in packages and any(not tried(use.source, use.node) for use in uses):
            severity = case.severity_of_lack(module, on_aws(case.tensorflow))
            words = {"package": package, "module": module, "other": other}
            yield finding("library-missing", place, severity=severity, library=library, **words)


def _missing(case: Case, use: Use) -> str:
    """Return the module that an import needs and our image lacks; "" if the image has it."""
    for name in LACKING:
        if f"{use.name}.".startswith(f"{name}."):
            return name
    top = use.name.split(".")[0]
    if top == "smdistributed" and case.job and not (case.job.smdistributed or AWS_IMAGE.match(case.image)):
        return "smdistributed.dataparallel"
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


# --- commands, and the interpreter of a shell script ---


def of_shell(case: Case) -> Iterator[Finding]:
    """Yield faults that keep a shell script from starting, on our image or only on AWS's."""
    main = case.code.main
    if main.path.suffix != ".sh":
        return
    lines = main.path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    place = Place(file=main.shown, line=1)
    if lines[0].endswith(b"\r"):
        yield finding("line-ends", place)
    line = lines[0].decode("utf-8", "replace").strip()
    if asked := _interpreter_missing(line):
        yield finding("interpreter-missing", place, line=repr(line[:100]), asked=asked, instead=INTERPRETER)


def _interpreter_missing(line: str) -> str:
    """Return the interpreter that a first line names and our image lacks; "" if the image has it."""
    if not line.startswith("#!"):
        return ""  # /bin/sh runs it
    words = line[2:].split()
    if not words:
        return "nothing"
    if PurePosixPath(words[0]).name == "env" and words[0] in _THERE:
        names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        asked = names[0] if names else "nothing"
        return "" if asked in (*_ON_PATH, *_THERE, *_OURS) else asked
    relative = not words[0].startswith("/") and ":" not in words[0]
    return "" if words[0] in _THERE | _OURS or relative else words[0]


def of_commands(case: Case, brought: Requirements) -> Iterator[Finding]:
    """Yield the commands that scripts call and the image lacks."""
    for source in case.code.sources:
        called = _commands_of_shell(source) if source.path.suffix == ".sh" else _commands_of_python(source)
        for command, line, fails in called:
            if command not in COMMANDS_LACKING or command in brought.commands or _brings(source, command):
                continue
            there = " (AWS's images for GPUs have it)" if command in AWS_COMMANDS_ON_GPUS else ""
            there = " (AWS's images have it)" if command in AWS_COMMANDS else there
            severity = case.severity_of_lack(command, AWS_COMMANDS | AWS_COMMANDS_ON_GPUS)
            instead = "what Python has for it, or an image of your own with it"
            yield finding(
                "command-missing/called",
                Place(file=source.shown, line=line),
                severity=severity if fails else min(severity, Severity.WARNING),
                instead="boto3, or a channel" if command == "aws" else instead,
                command=command,
                there=there,
            )


def _of_children(case: Case) -> Iterator[Finding]:
    """Yield programs of the user's own that Python starts, if they cannot run, or if nobody sees that they fail."""
    main, trains = case.code.main, [use.place for use in case.code.calls(*TRAINS)]
    for use in case.code.calls(*STARTS_PROGRAMS):
        name = _own_program(use)
        path = case.code.folder / name
        if not name or not os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises on a name that is too long
            continue
        if name.endswith(".sh") and b"\r\n" in path.read_bytes() and main.path.suffix == ".py":
            place = Place(file=f"{main.shown.removesuffix(main.path.name)}{name}", line=1)
            yield finding("line-ends/called", place, severity=Severity.ERROR, name=name)
        # What follows the training may be of little weight, such as a picture.
        before = not trains or any(each.file == use.source.shown and each.line > use.place.line for each in trains)
        if before and _ignores_code(case.code, use):
            yield finding("child-ignored", use.place, written=use.written, name=name)


def _ignores_code(code: UserProgram, use: Use) -> bool:
    """Return whether nobody looks at the exit code of what a call starts."""
    if any(each.arg in ("check", None) for each in getattr(use.node, "keywords", ())):
        return False
    uses = list(code.calls(".wait", ".communicate")) if use.name == "subprocess.Popen" else [use]
    dropped = [isinstance(each.source.parents.get(each.node), ast.Expr) for each in uses]
    reads = use.name == "subprocess.Popen" and code.mentions(r"returncode|\.poll\(")
    return use.name in _IGNORE_CODES and any(dropped) and all(dropped) and not reads


def _own_program(use: Use) -> str:
    """Return the Python or shell script that a call starts by its path; "" if it starts none, or an unknown one."""
    match use.argument("command" if use.name in _SHELLS else "args", 0):
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            words = [text_of(each) or ("python" if ast.unparse(each) == "sys.executable" else "$") for each in elements]
        case ast.Constant(value=str(text)):
            words = [word for each in commands(text)[:1] for word in each.words]
        case _:
            return ""
    command = ShellCommand(tuple(words), 0, "", False)
    scripts = words[1:2] if words[:1] in (["bash"], ["sh"], ["/bin/bash"], ["/bin/sh"]) else words[:1]
    return command.program or next((str(PurePosixPath(word)) for word in scripts if word.endswith(".sh")), "")


def _brings(source: SourceFile, command: str) -> bool:
    """Return whether a program installs a command, or checks that it exists."""
    text = source.text
    package = {"aws": "awscli", "gcc": "(gcc|build-essential)"}.get(command, re.escape(command))
    asks = rf"(command -v|which|type|hash)\s+{re.escape(command)}\b|which\(['\"]{re.escape(command)}['\"]"
    return bool(re.search(rf"\binstall\b[^\n]*{package}", text) or re.search(asks, text))


def _commands_of_python(source: SourceFile) -> Iterator[tuple[str, int, bool]]:
    """Yield (command, line, whether the script fails without it) for each program that a script starts."""
    for use in source.uses:
        if use.kind is not UseKind.CALL or not matches(use.name, STARTS_PROGRAMS):
            continue
        ends = _ends_if_it_fails(use)
        if tried(source, use.node) and not ends:
            continue
        through_shell = use.name in _SHELLS or value_of(use.argument("shell"))
        checks = ends or use.name.endswith((".check_call", ".check_output")) or value_of(use.argument("check"))
        match use.argument("args", 0):
            case ast.List(elts=[first, *_]) | ast.Tuple(elts=[first, *_]):
                words = [Path(text_of(first)).name]
            case (
                ast.Call(func=ast.Attribute(value=text, attr="split" | "format"))
                | ast.JoinedStr(values=[text, *_])
                | ast.BinOp(left=text)
                | text
            ):
                words = list(first_words(text_of(text)))
        yield from ((word, use.place.line, bool(checks or not through_shell)) for word in words)


def _ends_if_it_fails(use: Use) -> bool:
    """Return whether the script raises or exits because of what a call returns: `if os.system("wget ..."): raise`."""
    guard, *outer = [*use.source.guards(use.node), None]
    if not isinstance(guard, ast.If) or outer != [None] or use.node not in ast.walk(guard.test):
        return False
    last = guard.body[-1]
    return isinstance(last, ast.Raise) or any(use.source.dotted(call.func) in LEAVES for call in calls_in(last))


def _commands_of_shell(source: SourceFile) -> Iterator[tuple[str, int, bool]]:
    """Yield (command, line, whether the script fails without it) for each command of a shell script.

    Leave out commands whose failure the script handles.
    """
    strict = is_strict(source.text)
    for number, line in logical_lines(source.text):
        if not re.match(r"\s*((if|while|elif|until)\b|#)", line) and "||" not in line:
            yield from ((word, number, strict) for word in first_words(line))
