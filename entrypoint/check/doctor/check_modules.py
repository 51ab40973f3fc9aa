"""Check that each import and command of a script exists: in the image, by the requirements, or beside the script.

For shell scripts, check the interpreter and the line ends, too.
"""

import ast
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from entrypoint.base.severity import Severity
from entrypoint.check.doctor.aws_images import (
    AWS_COMMANDS,
    AWS_COMMANDS_ON_GPUS,
    COMMANDS_LACKING,
    LACKING,
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
from entrypoint.usercode.api_names import STARTS_PROGRAMS
from entrypoint.usercode.guards import tried
from entrypoint.usercode.source import Place, SourceFile, Use, UseKind, matches, text_of, value_of

_PYTHONS = {*sys.stdlib_module_names, "distutils", "imp", "asyncore", "asynchat"}
_LAZY = ast.FunctionDef | ast.AsyncFunctionDef  # an import in a function, which may never be called
# Interpreters that Debian's base system and our image have, and their paths in the image.
_ON_PATH = ("awk", "bash", "dash", "perl", "python", "python3", "sed", "sh")
_THERE = {*(f"{folder}/{name}" for folder in ("/bin", "/usr/bin") for name in (*_ON_PATH, "env") if name != "python")}
_OURS = {"/opt/venv/bin/python", "/opt/venv/bin/python3"}
_SHELLS = ("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput")
_BEFORE_A_COMMAND = {"exec", "time", "nohup", "env", "then", "do", "else", "{", "(", "!"}
_HERE_DOCUMENT = re.compile(r"^([^\n]*<<-?\s*['\"]?(\w+).*?)\n(?s:.*?)^\s*\2\s*$", re.M)


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
        yield finding("interpreter-missing", place, line=repr(line[:100]), asked=asked)


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


def _brings(source: SourceFile, command: str) -> bool:
    """Return whether a program installs a command, or checks that it exists."""
    text = source.text
    package = {"aws": "awscli", "gcc": "(gcc|build-essential)"}.get(command, re.escape(command))
    asks = rf"(command -v|which|type|hash)\s+{re.escape(command)}\b|which\(['\"]{re.escape(command)}['\"]"
    return bool(re.search(rf"\binstall\b[^\n]*{package}", text) or re.search(asks, text))


def _commands_of_python(source: SourceFile) -> Iterator[tuple[str, int, bool]]:
    """Yield (command, line, whether the script fails without it) for each program that a script starts."""
    for use in source.uses:
        if use.kind is not UseKind.CALL or not matches(use.name, STARTS_PROGRAMS) or tried(source, use.node):
            continue
        through_shell = use.name in _SHELLS or value_of(use.argument("shell"))
        checks = use.name.endswith((".check_call", ".check_output")) or value_of(use.argument("check"))
        match use.argument("args", 0):
            case ast.List(elts=[first, *_]) | ast.Tuple(elts=[first, *_]):
                words = [Path(text_of(first)).name]
            case (
                ast.Call(func=ast.Attribute(value=text, attr="split" | "format"))
                | ast.JoinedStr(values=[text, *_])
                | ast.BinOp(left=text)
                | text
            ):
                words = list(_first_words(text_of(text)))
        yield from ((word, use.place.line, bool(checks or not through_shell)) for word in words)


def _commands_of_shell(source: SourceFile) -> Iterator[tuple[str, int, bool]]:
    """Yield (command, line, whether the script fails without it) for each command of a shell script.

    Leave out commands whose failure the script handles.
    """
    strict = bool(re.search(r"^\s*set\s+-\w*e|^#!.*\s-\w*e", source.text, re.M))
    text = _HERE_DOCUMENT.sub(lambda found: found[1] + "\n" * found[0].count("\n"), source.text)
    for found in re.finditer(r"^(?:.*\\\n)*.*$", text, re.M):  # a line, with those that continue it
        line = found[0].replace("\\\n", "")
        if not re.match(r"\s*((if|while|elif|until)\b|#)", line) and "||" not in line:
            number = text.count("\n", 0, found.start()) + 1
            yield from ((word, number, strict) for word in _first_words(line))


def _first_words(text: str) -> Iterator[str]:
    """Yield the commands of a shell's line."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace = " \t\r"
    begins = True
    try:
        for word in lexer:
            if set(word) <= set("();<>|&\n"):
                begins = not set(word) <= set("<>")
            elif begins and not (word in _BEFORE_A_COMMAND or re.match(r"\w+=", word)):
                yield Path(word).name
                begins = False
    except ValueError:  # quotes that end in another line
        return
