"""Read SageMaker's config files, the user's program and mpirun options; check them against JSON's and Linux's limits.

Linux limits the arguments and the environment of a program that it starts (execve(2)).
"""

import json
import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from entrypoint.base.errors import ConfigError, clip, show
from entrypoint.launcher.job import params
from entrypoint.launcher.job.job import Paths, Program
from entrypoint.launcher.job.settings import HOST_NAME, NOT_GIVEN, as_text

MAX_HOSTS = 1000
MAX_DEPTH = 100
# What Linux passes to a program that it starts (execve(2)), in bytes.
STRING = 32 * os.sysconf("SC_PAGE_SIZE") - 1  # of one argument or environment entry (MAX_ARG_STRLEN, with its NUL)
ALL = 6 << 20  # of all together at most; a quarter of the stack's limit if that is less
POINTER = 8


def read_object(path: Path, required: bool = False) -> dict[str, Any]:
    """Return the JSON object in a file. A file that may be absent reads as {}."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        if not required:
            return {}
        raise ConfigError(
            f"{path} is missing; SageMaker mounts it on every host. To try an image by hand, use `entrypoint local`"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    if not text.strip():
        raise ConfigError(f"{path} is empty; wanted a JSON object")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON ({error}); wanted a JSON object") from None
    if value is None and not required:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{path} holds a JSON {type(value).__name__}; wanted an object")
    if _is_deep(value):
        raise ConfigError(f"{path} holds values inside of values, more than {MAX_DEPTH} deep; wanted fewer")
    return value


def _is_deep(value: Any) -> bool:
    """Return whether a JSON value is nested too deeply to be written again."""
    level = [value]
    for _ in range(MAX_DEPTH):
        groups = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [each for group in groups for each in group]
        if not level:
            break
    return bool(level)


def decoded(value: object) -> Any:
    """Return a hyperparameter's value: JSON, or the plain text if it is no JSON (as sagemaker-training reads it)."""
    if not isinstance(value, str):
        return value
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return value if _is_deep(found) else found


def read_input_data(path: Path) -> dict[str, Any]:
    found = read_object(path)
    _check_texts(found, path)
    return found


def read_resources(path: Path) -> dict[str, Any]:
    """Read resourceconfig.json. Where sagemaker-training accepts an absent value, null counts as absent, too."""
    found = read_object(path, required=True)
    optional = ("current_instance_type", "current_group_name", "instance_groups", "network_interface_name")
    return {key: value for key, value in found.items() if value is not None or key not in optional}


def host_names(resources: dict[str, Any], path: Path) -> list[str]:
    """Return the listed hosts. Raise ConfigError if the list is wrong, or does not have this host."""
    names = resources.get("hosts")
    me = resources.get("current_host")
    if not isinstance(names, list) or not names or not all(isinstance(n, str) and n for n in names):
        raise ConfigError(f"{path} has hosts = {show(names)}; wanted a list of at least one host name")
    odd = [name for name in names if not HOST_NAME.fullmatch(name)]
    if odd:
        raise ConfigError(f"{path} has {show(odd[0])} in hosts; wanted names of letters, digits, - . and _")
    if doubles := more_than_once(names):
        more, found = clip(", ".join(doubles)), show(names)
        raise ConfigError(f"{path} names {more} more than once in hosts {found}; wanted each once")
    if len(names) > MAX_HOSTS:
        raise ConfigError(f"{path} names {len(names)} hosts; wanted at most {MAX_HOSTS}")
    if me not in names:
        raise ConfigError(f"{path} has current_host = {show(me)}; wanted one of its hosts {show(sorted(names))}")
    _check_texts(resources, path)
    return names


def more_than_once(names: Sequence[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def check_word(word: str, where: str) -> None:
    """Raise ConfigError if `word` cannot be an argument or an environment entry of a program."""
    bad = next((character for character in word if character == "\0" or "\ud800" <= character <= "\udfff"), None)
    if bad is not None:
        raise ConfigError(
            f"{where} holds {bad!r}; wanted text without NUL characters and halves of surrogate pairs, which no "
            "program argument can hold"
        )


def _check_texts(value: Any, path: Path) -> None:
    """Raise ConfigError if a text anywhere in `value` cannot be part of an environment."""
    todo = [value]
    while todo:
        each = todo.pop()
        if isinstance(each, str):
            check_word(each, str(path))
        elif isinstance(each, dict):
            todo += [*each, *each.values()]
        elif isinstance(each, list):
            todo += each


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
    """Raise ConfigError if Linux would start no program with this argument, since it is too long."""
    check_word(word, where)
    size = len(os.fsencode(word))
    if size > STRING:
        raise ConfigError(
            f"{where}{longer} is an argument of {size} bytes, and Linux takes none of more than {STRING}; wanted a "
            "shorter one: put it into a file, in a channel or beside the code, and pass the file's name"
        )


def _check_all(arguments: Sequence[str], users: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Raise ConfigError if all of these are too long for Linux to start a program. Hyperparameters are passed twice."""
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
