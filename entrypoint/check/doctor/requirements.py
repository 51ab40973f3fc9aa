"""Read what a program's requirements install: requirements.txt, setup.py, pyproject.toml, and SDK v3's file."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from entrypoint.check.doctor.aws_images import COMMANDS_OF, is_known, modules_of
from entrypoint.check.doctor.planned_job import SOURCE
from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Place

MOST_FILES = 20  # files that include one another by -r
_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^]]*\])?\s*([=<>!~;@#]|$)")
_QUOTED = re.compile(r"""["']([A-Za-z0-9][\w.-]*)[^"']*["']""")


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """Hold what is installed before the script runs."""

    modules: frozenset[str] = frozenset()
    commands: frozenset[str] = frozenset()
    whole: bool = True  # whether the modules of every line are known
    from_git: tuple[tuple[Place, str], ...] = ()  # lines that pip needs git for


def requirements_of(case: Case) -> Requirements:
    """Return what the requirements files of a program install."""
    names, whole, from_git = set(), True, []
    for path, number, line in _lines(case):
        if re.search(r"\bgit\+|^git://|^-e\s+git", line):
            from_git.append((Place(file=_shown(case, path), line=number), line))
        name = _NAME.match(line)
        if name and "://" not in line.partition("@")[0]:
            names.add(name[1])
        elif not line.startswith("-") or line.startswith(("-e", "--editable")):
            whole = False
    for folder in folders_of(case):
        for path in (folder / "setup.py", folder / "setup.cfg", folder / "pyproject.toml"):
            if path.is_file():
                whole = False
                names |= set(_QUOTED.findall(_text(path)))
    names = {re.sub(r"[-_.]+", "-", name).lower() for name in names}
    return Requirements(
        modules=frozenset().union(*map(modules_of, names)),
        commands=frozenset(COMMANDS_OF[name] for name in names if name in COMMANDS_OF),
        whole=whole and all(map(is_known, names)),
        from_git=tuple(from_git),
    )


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


def _lines(case: Case) -> Iterator[tuple[Path, int, str]]:
    """Yield (file, number, text) of each line with a requirement, including those of files named by -r."""
    named = json.loads(case.request.launch.uploads.get(SOURCE) or "{}").get("requirements")  # for SDK v3
    names = ("requirements.txt", Path(str(named or "")).name)
    left = [folder / name for folder in folders_of(case) for name in names if name]
    seen: set[Path] = set()
    while left and len(seen) < MOST_FILES:
        path = left.pop(0)
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        for number, line in enumerate(_text(path).splitlines(), 1):
            line = re.sub(r"(^|\s)#(?!egg=).*", "", line).strip()
            other = re.match(r"(?:-r|--requirement)[\s=]*(\S+)", line)
            if other:
                left.append(path.parent / other[1])
            elif line:
                yield path, number, line


def _shown(case: Case, path: Path) -> str:
    main = case.code.main
    prefix = main.shown.removesuffix(main.path.name)
    return f"{prefix}{path.name}" if path.parent == case.code.folder else str(path)


def _text(path: Path) -> str:
    return path.read_text("utf-8", errors="replace")
