"""Read the user's program and mpirun options from hyperparameters, and check that Linux can pass them to a program."""

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from entrypoint.base.errors import ConfigError, show
from entrypoint.launcher.job import params
from entrypoint.launcher.job.files import check_word
from entrypoint.launcher.job.job import Paths, Program
from entrypoint.launcher.job.settings import NOT_GIVEN, as_text

# What Linux passes to a program that it starts (execve(2)), in bytes.
STRING = 32 * os.sysconf("SC_PAGE_SIZE") - 1  # of one argument or environment entry (MAX_ARG_STRLEN, with its NUL)
ALL = 6 << 20  # of all together at most; a quarter of the stack's limit if that is less
POINTER = 8


def read_program(hyperparameters: dict[str, Any], environment: Mapping[str, str], paths: Paths) -> Program:
    name = environment.get(params.USER_PROGRAM_ENV) or hyperparameters.get(params.USER_PROGRAM_PARAM)
    if not name:
        raise ConfigError(
            f"no program: neither hyperparameter {params.USER_PROGRAM_PARAM} nor environment variable "
            f"{params.USER_PROGRAM_ENV} is set; wanted the name of a file in {paths.code}, such as train.py"
        )
    source = hyperparameters.get(params.SUBMIT_DIR_PARAM) or environment.get(params.SUBMIT_DIR_ENV)
    users = params.of_the_script(hyperparameters)
    for key, value in users.items():
        if "=" in key:
            raise ConfigError(f"hyperparameter {show(key)} has a = in its name; wanted none: it becomes SM_HP_<NAME>")
        for word in params.arguments({key: value}):
            _check_argument(word, f"hyperparameter {show(key)}")
    for key, value in hyperparameters.items():
        if isinstance(value, str):
            check_word(key + value, f"hyperparameter {show(key)}")
    check_word(str(name), "the program's name")
    if str(name).startswith("-"):
        raise ConfigError(f"the program is {show(name)}; wanted a name that Python or a shell takes for no option")
    arguments = tuple(params.arguments(users))
    _check_all(arguments, users, environment)
    return Program(name=str(name), source=str(source or paths.code), arguments=arguments)


def read_mpi_options(hyperparameters: dict[str, Any], key: str) -> tuple[str, ...]:
    options = hyperparameters.get(key)
    try:
        words = tuple(shlex.split(as_text(options))) if options not in NOT_GIVEN else ()
    except ValueError as error:  # the options are not shown: they may hold secrets
        raise ConfigError(
            f"hyperparameter {key} does not fall into words: {error}; wanted mpirun options as a shell would take them"
        ) from None
    for word in words:
        _check_argument(word, f"hyperparameter {key}", longer=", or a word of it,")
    return words


def _check_argument(word: str, where: str, longer: str = "") -> None:
    """Raise ConfigError if Linux starts no program with this argument."""
    check_word(word, where)
    size = len(os.fsencode(word))
    if size > STRING:
        raise ConfigError(
            f"{where}{longer} is an argument of {size} bytes, and Linux takes none of more than {STRING}; wanted a "
            "shorter one: put it into a file, in a channel or beside the code, and pass the file's name"
        )


def _check_all(arguments: Sequence[str], users: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Raise ConfigError if Linux starts no program with all of these. Each hyperparameter is passed twice."""
    entries = [f"SM_HP_{key}={arguments[2 * at + 1]}" for at, key in enumerate(sorted(users))]
    entries = [entry for entry in entries if len(os.fsencode(entry)) <= STRING]  # variables.py leaves out longer ones
    texts = [*arguments, *entries, *(f"{key}={value}" for key, value in environment.items())]
    # The kernel counts a NUL and a pointer for each.
    found, most = sum(len(os.fsencode(text)) + 1 + POINTER for text in texts), min(os.sysconf("SC_ARG_MAX"), ALL)
    if found > most:
        raise ConfigError(
            f"{len(users)} hyperparameters and the environment make arguments and variables of {found} bytes, and "
            f"Linux starts no program with more than {most}; wanted fewer or shorter ones: put them into a file, in a "
            "channel or beside the code"
        )
