"""Check that each import and command of a script exists: in the image, by the requirements, or beside the script."""

import ast
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from entrypoint.check.doctor.api_names import STARTS_PROGRAMS
from entrypoint.check.doctor.aws_images import (
    AWS_COMMANDS,
    AWS_COMMANDS_ON_GPUS,
    COMMANDS_LACKING,
    on_aws,
    ours,
    package_of,
    remedy,
)
from entrypoint.check.doctor.check_request import AWS_IMAGE
from entrypoint.check.doctor.context import tried
from entrypoint.check.doctor.requirements import Requirements, folders_of, of_requirements, requirements_of
from entrypoint.check.doctor.source import Source, Use, UseKind, matches, text_of, value_of
from entrypoint.check.doctor.subject import Case, tensorflow_of
from entrypoint.check.finding import Finding, Place, error, note, warning

_LACKING = {
    "smdebug": "TensorBoard's callback, or a try around the import: docs/debugger.md",
    "smdistributed.modelparallel": "horovod.tensorflow, or smdistributed.dataparallel, for which Horovod stands in",
    "smdistributed.dataparallel.torch": "smdistributed.dataparallel.tensorflow",
    "herring": "horovod.tensorflow",
}
_INSTEAD = {
    **_LACKING,
    "jax": "the image of ./build.sh --tensorflow 2.21, which has it",
    "sagemaker_tensorflow": 'pipe_dataset("training", "TFRecord") of sagemaker_tf_data',
}
_PYTHONS = {*sys.stdlib_module_names, "distutils", "imp", "asyncore", "asynchat"}
_SHELLS = ("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput")
_BEFORE_A_COMMAND = {"exec", "time", "nohup", "env", "then", "do", "else", "{", "(", "!"}
_HERE_DOCUMENT = re.compile(r"^([^\n]*<<-?\s*['\"]?(\w+).*?)\n(?s:.*?)^\s*\2\s*$", re.M)
_LAZY = ast.FunctionDef | ast.AsyncFunctionDef  # an import in a function, which may never be called
_Make = Callable[..., Finding]


def of_modules(case: Case) -> Iterator[Finding]:
    """Yield imports and commands that are missing when the script reaches them."""
    brought = requirements_of(case)
    yield from of_requirements(case, brought)
    yield from _of_imports(case, brought)
    make = _severity(case, "git", AWS_COMMANDS)
    for place, line in brought.from_git:
        yield make(
            "command-missing",
            f"{line}: pip needs git for it, which our image does not have (AWS's images have it)",
            "the archive, which pip fetches without git: https://github.com/OWNER/NAME/archive/TAG.tar.gz",
            place=place,
        )
    yield from _of_commands(case, brought)


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
        listed = bool(package) or name in _INSTEAD
        if tried(use.source, use.node) or (elsewhere and not listed):
            continue
        there.add(name)  # it is reported once
        lazy = any(isinstance(outer, _LAZY) for outer in use.source.around(use.node))
        make = _severity(case, name, on_theirs)
        if make is error and not (listed and brought.whole and not lazy):
            make = warning
        if name == "jax" and not (case.image and tensorflow_of(case.image)):
            make = note  # whoever trains with it has probably chosen the image that has it
        version, more = ".".join(map(str, case.tensorflow)), ", and AWS's has it" if name in on_theirs else ""
        yield make(
            "module-missing",
            f"{name} is not in the image of TensorFlow {version}{more}; neither the script's folder nor its "
            "requirements bring it: ModuleNotFoundError",
            _INSTEAD.get(name) or remedy(package or name.split(".")[0].replace("_", "-"), case.tensorflow),
            place=use.place,
        )


def _missing(case: Case, use: Use) -> str:
    """Return the module that an import needs and our image lacks; "" if the image has it."""
    for name in _LACKING:
        if f"{use.name}.".startswith(f"{name}."):
            return name
    top = use.name.split(".")[0]
    if use.name.startswith("google.cloud"):
        return "google.cloud"
    if top in _PYTHONS or top in ours(case.tensorflow) or top.startswith("_"):
        return ""
    return top


def _severity(case: Case, name: str, on_aws_image: frozenset[str]) -> _Make:
    """Return the severity of something that our image lacks; another image may have it."""
    image = case.image
    if AWS_IMAGE.match(image):
        return note if name in on_aws_image else error
    return error if not image or tensorflow_of(image) else warning


def _beside(folder: Path) -> Iterator[str]:
    """Yield the names of a folder's modules, including compiled ones."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_dir() or path.suffix in (".py", ".so", ".pyc", ".zip", ".egg"):
            yield path.name.split(".")[0]


# --- commands ---


def _of_commands(case: Case, brought: Requirements) -> Iterator[Finding]:
    for source in case.code.sources:
        called = _of_shell(source) if source.path.suffix == ".sh" else _of_python(source)
        for command, line, fails in called:
            if command not in COMMANDS_LACKING or command in brought.commands or _brings(source, command):
                continue
            there = " (AWS's images for GPUs have it)" if command in AWS_COMMANDS_ON_GPUS else ""
            there = " (AWS's images have it)" if command in AWS_COMMANDS else there
            make = _severity(case, command, AWS_COMMANDS | AWS_COMMANDS_ON_GPUS)
            instead = "what Python has for it, or an image of your own with it"
            yield (make if fails or make is not error else warning)(
                "command-missing",
                f"{command} is called, which our image does not have{there}",
                "boto3, or a channel" if command == "aws" else instead,
                place=Place(file=source.shown, line=line),
            )


def _brings(source: Source, command: str) -> bool:
    """Return whether a program installs a command, or checks that it exists."""
    text = source.text
    package = {"aws": "awscli", "gcc": "(gcc|build-essential)"}.get(command, re.escape(command))
    asks = rf"(command -v|which|type|hash)\s+{re.escape(command)}\b|which\(['\"]{re.escape(command)}['\"]"
    return bool(re.search(rf"\binstall\b[^\n]*{package}", text) or re.search(asks, text))


def _of_python(source: Source) -> Iterator[tuple[str, int, bool]]:
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
        yield from ((word, use.line, bool(checks or not through_shell)) for word in words)


def _of_shell(source: Source) -> Iterator[tuple[str, int, bool]]:
    """Yield the same for each command of a shell script, but for those whose failure the script handles."""
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
