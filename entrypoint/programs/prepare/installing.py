"""Install the package and the requirements of the user's code, once per host."""

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from code_files import ending, read
from unusable import Unusable, reason

MARKS = {b"\xef\xbb\xbf": "UTF-8", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}  # at the beginning of files of Windows
SHOWN_CHARS = 100  # characters of a line
MOST_BYTES = 1 << 20  # bytes of a file that may be a shell script


def is_package(program: str, code: Path) -> bool:
    """Return whether the program is a module of a package to install: by sagemaker-training's rule, or pyproject.toml.

    A pyproject.toml alone does not turn a .py file into one: it may be there for ruff, and the AWS images run that
    file.
    """
    if program.endswith(".sh"):
        return False
    if (code / "setup.py").is_file():
        return True
    if program.endswith(".py") or (code / program).is_file() or not (code / "pyproject.toml").is_file():
        return False
    if sys.version_info >= (3, 11):
        import tomllib  # novm
    else:
        import tomli as tomllib

    try:
        return bool({"project", "build-system"} & tomllib.loads(read(code / "pyproject.toml")).keys())
    except ValueError as error:
        raise Unusable(f"{code / 'pyproject.toml'} is no TOML: {reason(error)}") from None


def modules_of(program: str, code: Path) -> list[str]:
    """Return the names under which Python may find a package's program, the best first.

    A file in folders is named after its package: src/mine/train.py is mine.train if src is no package. Raise Unusable
    if a folder has a name that no module can have, or the program is not below the code.
    """
    name = program.removesuffix(".py").removeprefix("./")
    if name.startswith("/"):
        if not Path(name).is_relative_to(code):
            raise Unusable(
                f"program {program} is to run as a module, since there is a setup.py, and is not below {code}; wanted "
                "its path from there, or no setup.py"
            )
        name = Path(name).relative_to(code).as_posix()
    words = name.split("/")
    if len(words) == 1:
        return [name]
    if wrong := next((word for word in words if "." in word), ""):
        raise Unusable(
            f"program {program} is to run as a module, since there is a setup.py, and none can be called {wrong!r}; "
            "wanted folders and a file without dots in their names, or no setup.py"
        )
    packages = (at for at in range(1, len(words)) if code.joinpath(*words[:at], "__init__.py").is_file())
    return list(dict.fromkeys([".".join(words[next(packages, 1) - 1 :]), ".".join(words)]))


def module_of(program: str, code: Path, path: list[str]) -> str:
    """Return the first of `modules_of` whose package is found on `path`, now that it is installed."""
    names = modules_of(program, code)
    return next((name for name in names if PathFinder.find_spec(name.partition(".")[0], path)), names[-1])


def install(program: str, code: Path, *, replace: Sequence[str] = (), mode: str = "") -> None:
    """Install the code as a package, if it is one, and its requirements, as `installer.install` does."""
    package = is_package(program, code)
    requirements = (code / "requirements.txt").is_file()
    if not package and not program.endswith(".py"):
        check_first_line(program, code)
        file = code / program
        try:
            if not os.access(file, os.X_OK):  # one of another user's that can be run stays as it is
                file.chmod(file.stat().st_mode | 0o111)
        except OSError as error:
            raise Unusable(f"{file} cannot be made executable: {reason(error)}; wanted it so (chmod +x)") from None
        if requirements:  # as on the AWS images, where such a script calls pip itself
            print(
                f"requirements.txt is installed for .py programs and packages only: {program} must install it",
                flush=True,
            )
    elif package or requirements:
        import installer

        installer.install(code, package=package, replace=replace, mode=mode)


def check_first_line(program: str, code: Path) -> None:
    """Remove Windows' line ends from scripts.

    Raise Unusable if the program's first line names a missing interpreter.
    """
    changed = [name for name in _scripts(program, code) if _without_windows(code / name)]
    if changed:
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        print(f"removed line ends of Windows, which no shell accepts, from {', '.join(changed[:3])}{more}", flush=True)
    with (code / program).open("rb") as file:
        line = file.readline(4096).decode("utf-8", "replace").rstrip()
    if lacking := lacks(line, code):
        from entrypoint.usercode.shell import INTERPRETER

        raise Unusable(f"the first line of {program}, {line[:SHOWN_CHARS]!r}, names {lacking}; wanted {INTERPRETER}")


def lacks(line: str, code: Path) -> str:
    """Return the interpreter that a first line asks for and that is missing; "" if it is there."""
    if not line.startswith("#!"):
        return ""  # /bin/sh runs it
    words = line[2:].split()
    if not words:
        return "nothing"
    if Path(words[0]).name == "env" and os.access(words[0], os.X_OK):
        names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        found = bool(names) and shutil.which(names[0]) is not None
        asked = names[0] if names else "nothing"
    else:
        asked, found = words[0], (code / words[0]).is_file() and os.access(code / words[0], os.X_OK)
    return "" if found else f"{asked}, which is not in this image"


def _scripts(program: str, code: Path) -> Iterator[str]:
    """Yield the program and the shell scripts beside it, which it may source or call."""
    yield program
    for path in ending(code, ".sh"):
        name = str(path.relative_to(code))
        if name != program and path.is_file():
            yield name


def _without_windows(path: Path) -> bool:
    """Remove line ends and byte order marks of Windows from a shell script. Return whether there were any."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return False
        text = path.read_bytes()
        mark = next((mark for mark in MARKS if text.startswith(mark)), b"")
        if MARKS.get(mark) == "UTF-16":
            raise Unusable(f"{path.name} is in UTF-16, which no shell reads; wanted UTF-8")
        whole = text.removeprefix(mark)
        if not (path.suffix == ".sh" or whole.startswith(b"#!")) or b"\0" in whole:
            return False
        lines = whole.split(b"\n")
        if not mark and not lines[0].endswith(b"\r"):
            return False
        path.write_bytes(b"\n".join(line.removesuffix(b"\r") for line in lines))
    except OSError as error:
        raise Unusable(f"{path} has line ends of Windows, and cannot be changed: {reason(error)}") from None
    return True
