"""Answer a shell that completes a command line, by argcomplete, which the extra `tools` brings."""

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

_PATHS = {"BUNDLE", "DIR", "FILE", "LAUNCH", "PLACE", "PROGRAM", "PYTHON", "SCRIPT", "WHERE"}
MOST_HOSTS = 16  # that are offered


def complete(line: str, commands: Iterable[str], parser: Callable[[str], argparse.ArgumentParser]) -> None:
    """Write the completions of a command line where the shell wants them, and exit; without argcomplete, none."""
    try:
        import argcomplete
    except ImportError:
        sys.exit(1)
    command = next((word for word in line.split() if word in commands), "")
    argcomplete.autocomplete(parser(command), default_completer=_values, always_complete_options=False)


def _values(prefix: str, action: argparse.Action, parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
    """Return values of an argument without choices."""
    match action.dest:
        case "mode":
            from entrypoint.launcher.job.choices import AskedMode

            return AskedMode
        case "env":
            from entrypoint.launcher.job.settings import ENVIRONMENT_PREFIX, FOR_USERS

            return [f"{ENVIRONMENT_PREFIX}{name.upper()}=" for name in FOR_USERS]
        case "channel":
            name, equals, path = prefix.partition("=")
            return [f"{name}={found}" for found in _paths(path)] if equals else []
        case "fault":
            from entrypoint.simulate.fault import Action, targets

            return [f"{action} {target}" for action in Action for target in targets(action, _hosts(parsed_args))]
        case "host":
            return _hosts(parsed_args)
    return _paths(prefix) if action.metavar in _PATHS else []


def _hosts(args: argparse.Namespace) -> list[str]:
    given = str(getattr(args, "hosts", None) or 1)
    return [f"algo-{number + 1}" for number in range(min(int(given) if given.isdecimal() else 1, MOST_HOSTS))]


def _paths(prefix: str) -> list[str]:
    folder, slash, start = prefix.rpartition("/")
    with contextlib.suppress(OSError):
        found = [path for path in Path(folder + slash).expanduser().iterdir() if path.name.startswith(start)]
        shown = sorted(path for path in found if start or not path.name.startswith("."))
        return [f"{folder}{slash}{path.name}{'/' * path.is_dir()}" for path in shown]
    return []
