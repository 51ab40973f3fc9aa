"""Install what the user's code asks for, once per host."""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from code_files import read
from first_line import check_first_line
from unusable import Unusable, reason


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
