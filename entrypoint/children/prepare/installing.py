"""What the user's code asks to be installed, once per host."""

import os
import sys
from pathlib import Path

from unusable import Unusable, reason


def is_package(program: str, code: Path) -> bool:
    """Return whether the program is a module of a package to be installed: sagemaker-training's rule, and pyproject.

    pyproject.toml alone makes none of a .py file: it may be there for ruff, and the AWS images run that file.
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
        return bool({"project", "build-system"} & tomllib.loads((code / "pyproject.toml").read_text("utf-8")).keys())
    except ValueError as error:
        raise Unusable(f"{code / 'pyproject.toml'} is no TOML: {reason(error)}") from None


def _make_executable(file: Path) -> None:
    """Have a program that is ours run; another user's may do so already, and stays as it is."""
    if os.access(file, os.X_OK):
        return
    try:
        file.chmod(file.stat().st_mode | 0o111)
    except OSError as error:
        raise Unusable(f"{file} cannot be made executable: {reason(error)}; wanted it so (chmod +x)") from None


def install(program: str, code: Path) -> None:
    package = is_package(program, code)
    requirements = (code / "requirements.txt").is_file()
    if not package and not program.endswith(".py"):
        _make_executable(code / program)
        if requirements:  # as on the AWS images, where such a script calls pip itself
            print(f"requirements.txt is left to {program}: it is installed for .py programs and packages", flush=True)
    elif package or requirements:
        from with_pip import run_pip

        run_pip(package, code)
