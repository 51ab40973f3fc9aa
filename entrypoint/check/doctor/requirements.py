"""Find the packages that a program's requirements install, and requirements that the job's image cannot meet.

It reads requirements.txt, SDK v3's file, the arguments of `pip install` in scripts, and the words of setup.py and
pyproject.toml.
"""

import ast
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from entrypoint.base.severity import Severity
from entrypoint.check.doctor.aws_images import COMMANDS_OF, is_known, modules_of, ours, own_modules
from entrypoint.check.doctor.planned_job import SOURCE
from entrypoint.check.doctor.rulebook import finding
from entrypoint.check.doctor.subject import AWS_IMAGE, LINES, Case, tensorflow_of
from entrypoint.check.finding import Finding
from entrypoint.usercode.api_names import STARTS_PROGRAMS
from entrypoint.usercode.guards import tried
from entrypoint.usercode.source import Place, Use, UseKind, matches, texts_of

RESOLVE = Path(__file__).resolve().parents[2] / "programs" / "prepare" / "resolve.py"
MANY = 30  # packages, whose installation takes long enough to be worth a line
_PIP = re.compile(r"\bpip3?\s+install\s+([^\n;&|]*)")
_REMEDY = re.compile(r": (?=write |leave it out)|(?<= fits); (?:or )?")
_QUOTED = re.compile(r"""["']([A-Za-z0-9][\w.-]*)[^"']*["']""")


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """Hold the packages that are installed before the script runs."""

    modules: frozenset[str] = frozenset()
    elsewhere: tuple[tuple[str, str], ...] = ()  # (module, line), of lines whose marker leaves the image out
    commands: frozenset[str] = frozenset()
    whole: bool = True  # whether the modules of every line are known
    lines: tuple[tuple[Place, str], ...] = ()  # of the files: each with its package
    from_git: tuple[tuple[Place, str], ...] = ()  # lines that pip needs git for
    refused: tuple[tuple[Place, str], ...] = ()  # what the image cannot have, and why
    coming: int | None = None  # packages that would be installed; None if that is unknown
    unresolved: str = ""  # why it is


def requirements_of(case: Case) -> Requirements:
    """Return the packages that a program's requirements install, and refused requirements of files and pip calls."""
    files = _files(case)
    calls = list(_of_pip(case)) if _line_of(case) else []
    answer = _resolved(case, files, calls) if files or calls else {"wanted": []}
    names, whole, from_git, lines = set(), True, [], []
    for path, number, line, name in answer["wanted"]:
        if re.search(r"\bgit\+|^git://", line):
            from_git.append((_place(case, path, number), line))
        lines.append((_place(case, path, number), re.sub(r"[-_.]+", "-", name).lower()))
        names |= {name} - {""}
        whole = whole and bool(name)
    for folder in folders_of(case):
        for path in (folder / "setup.py", folder / "setup.cfg", folder / "pyproject.toml"):
            if path.is_file():
                whole = False
                names |= set(_QUOTED.findall(_text(path)))
    names = {re.sub(r"[-_.]+", "-", name).lower() for name in names}
    return Requirements(
        modules=frozenset().union(*map(modules_of, names)),
        elsewhere=tuple(
            (module, line)
            for _, _, line, name in answer.get("elsewhere", [])
            for module in own_modules(re.sub(r"[-_.]+", "-", name).lower())
        ),
        commands=frozenset(COMMANDS_OF[name] for name in names if name in COMMANDS_OF),
        whole=whole and all(map(is_known, names)),
        lines=tuple(lines),
        from_git=tuple(from_git),
        refused=tuple((_place(case, path, number), why) for path, number, why in answer.get("refused", [])),
        coming=answer.get("coming"),
        unresolved=answer.get("unresolved", ""),
    )


def of_requirements(case: Case, brought: Requirements) -> Iterator[Finding]:
    """Yield the requirements that a host would refuse, with its messages; warn if very many packages would come."""
    certain = tensorflow_of(case.image)
    for place, why in brought.refused:
        found, *instead = _REMEDY.split(why, maxsplit=1)
        in_script = Path(place.file).suffix in (".py", ".sh")
        severity = Severity.ERROR if certain and not in_script else Severity.WARNING
        found = found if certain else f"on the image of TensorFlow {_line_of(case)}, {found}"
        remedy = instead[0].removeprefix("write ") if instead else ""
        yield finding("requirement-refused", place, severity=severity, found=found, instead=remedy)
    files = [Place(file=_shown(case, path)) for path in _files(case)[:1]]
    if brought.unresolved and certain:
        yield finding("requirements-unresolved", files[0], unresolved=brought.unresolved)
    isolated = case.request.body.get("EnableNetworkIsolation")
    lines = [line for path in _files(case) for line in _text(path).splitlines()] if isolated else []
    wanted = [line.strip() for line in lines if needs_index(case, line)]
    if wanted and not any(line.startswith("--no-index") for line in lines):
        worse, place = Severity.ERROR if certain else Severity.WARNING, case.request.at("EnableNetworkIsolation")
        yield finding("isolated-install", place, severity=worse, wanted=wanted[0])
    if (brought.coming or 0) > MANY:
        yield finding("requirements-long", files[0], coming=brought.coming)


def folders_of(case: Case) -> tuple[Path, ...]:
    """Return the folders that may hold a program's modules and requirements: its own, and the root of the code."""
    folders, root = [case.code.folder], case.request.launch.source_dir
    if root and "://" not in root:
        below = Path(case.request.file).parent / root
        folders += [path.absolute() for path in (Path(root), below) if path.is_dir()]
    program, path = Path(case.job.program.name if case.job else ""), case.code.main.path.absolute()
    if len(program.parts) > 1 and path.parts[-len(program.parts) :] == program.parts:
        folders.append(path.parents[len(program.parts) - 1])
    return tuple(dict.fromkeys(folders))


def _files(case: Case) -> list[Path]:
    """Return the requirements files that a host installs.

    A shell script's count only if the script installs them itself.
    """
    main = case.code.main
    if main.path.suffix == ".sh" and not re.search(r"\bpip3?\s+install\b.*\s(-r|--requirement)\b", main.text):
        return []
    named = json.loads(case.request.launch.uploads.get(SOURCE) or "{}").get("requirements")  # for SDK v3
    names = dict.fromkeys(["requirements.txt", Path(str(named or "")).name])
    paths = (folder / name for folder in folders_of(case) for name in names if name)
    return [path for path in dict.fromkeys(paths) if path.is_file()]


def _of_pip(case: Case) -> Iterator[tuple[str, int, str]]:
    """Yield (file, line, requirement) of each pip installation in scripts. Leave out calls that may fail."""
    for source in case.code.sources:
        if source.path.suffix == ".sh":
            calls = [(number, line) for number, line in enumerate(source.text.splitlines(), 1) if "||" not in line]
        else:
            calls = [
                (use.place.line, " ".join(texts_of(ast.walk(use.node))))
                for use in source.uses
                if use.kind is UseKind.CALL and matches(use.name, STARTS_PROGRAMS) and not tried(source, use.node)
            ]
        for number, text in calls:
            yield from ((source.shown, number, word) for word in _words_of_pip(text) if word[0] != "-")


def _words_of_pip(text: str) -> Iterator[str]:
    """Yield the words behind each `pip install` of a text."""
    for found in _PIP.finditer(re.sub(r"(^|\s)#.*", "", text)):
        with suppress(ValueError):  # quotes that end in another line
            yield from shlex.split(found[1])


def installed_by(use: Use) -> list[str]:
    """Return the requirements that a call of `pip install` names; [] if it has `--no-index`."""
    words = list(_words_of_pip(" ".join(texts_of(ast.walk(use.node)))))
    files = {value for option, value in pairwise(words) if option in ("-r", "--requirement", "-t", "--target")}
    return [] if "--no-index" in words else [word for word in words if word[0] != "-" and word not in files]


def needs_index(case: Case, line: str) -> bool:
    """Return whether pip asks a network for a requirement: it is no local path, and our image lacks it."""
    line = re.sub(r"(^|\s)#.*", "", line).strip()
    is_local = (
        line.startswith(("-", ".", "/", "file:")) or "@ file:" in line or re.fullmatch(r"[^:]*\.(whl|gz|zip)", line)
    )
    found = re.match(r"[A-Za-z0-9][\w.-]*", line)
    name = re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""
    return bool(name) and not is_local and ("://" in line or not own_modules(name) <= ours(case.tensorflow))


def _line_of(case: Case) -> str:
    """Return the image line, such as 2.14, with the job's versions.

    Return "" if the job is known to have versions of another image.
    """
    version, tag = tensorflow_of(case.image), case.image.rpartition(":")[2]
    if AWS_IMAGE.match(case.image) or (version and version not in LINES):
        return ""
    return f"{'.'.join(map(str, case.tensorflow))}{'-gpu' if 'gpu' in tag else ''}"


def _resolved(case: Case, files: list[Path], calls: list[tuple[str, int, str]]) -> dict[str, Any]:
    """Return how a host would resolve these requirements, by the program RESOLVE."""
    texts = [_text(path) for path in files]
    asked = {
        "files": [str(path) for path in files],
        "lines": calls,
        "image": _line_of(case),
        "replace": case.job.settings.replace if case.job else (),
        "environment": {
            name: value
            for name, value in case.environment.items()
            if name.startswith("PIP_") or name == "CA_REPOSITORY_ARN" or any(f"${{{name}}}" in text for text in texts)
        },
        "index": not case.request.body.get("EnableNetworkIsolation"),
    }
    command = [sys.executable, str(RESOLVE)]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=True, timeout=300)
    return dict(json.loads(done.stdout))


def _place(case: Case, path: str, line: int) -> Place:
    return Place(file=_shown(case, Path(path)), line=line)


def _shown(case: Case, path: Path) -> str:
    main = case.code.main
    prefix = main.shown.removesuffix(main.path.name)
    return f"{prefix}{path.name}" if path.parent == case.code.folder else str(path)


def _text(path: Path) -> str:
    return path.read_text("utf-8", errors="replace")
