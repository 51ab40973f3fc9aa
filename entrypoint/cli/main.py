"""Run a command of `entrypoint`, or complete a command line. A command's module is imported only when it is called."""

import argparse
import contextlib
import errno
import importlib
import os
import re
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from entrypoint import __version__
from entrypoint.base.errors import CodeError, ConfigError, ExitCode, did_you_mean
from entrypoint.base.terminal import print_coloured, width_of, wrapped

# Each command with its help.
COMMANDS = {
    "new": "write a project to begin from: script, test, submit, workflow",
    "plan": "print which processes a job starts, where and how; runs nothing",
    "local": "run a script on simulated hosts of this machine",
    "host": "run one host of a job of containers, as compose.yaml starts them",
    "top": "show a job while it runs: hosts, processes, last lines",
    "doctor": "print what this machine has, or what the job of files would lack",
    "rehearse": "run a launch script's job for a minute, simulated: go or no-go",
    "replay": "show what every host of a job knew and decided, and when",
    "report": "make a job's report again, from the records of its monitor",
    "metrics": "print metric definitions, for SageMaker and CloudWatch",
    "tensorboard": "write a job's metrics and figures as TensorBoard's event files",
    "mlflow": "write a job's parameters and metrics as a run of MLflow",
    "settings": "print all settings with their defaults",
    "train": "run a host of the job in /opt/ml: what SageMaker starts on each",
    "help": "explain a command, or a topic such as faults and settings",
}
# The module of each command NAME has NAME in EPILOGS and perhaps in SYNOPSES, perhaps `add_NAME(parser)`, and
# `run_NAME(args, environment)`, which imports what the command needs: `--help` needs none of that.
MODULES = {
    **dict.fromkeys(["plan", "local", "host", "train"], "job_commands"),
    **dict.fromkeys(["doctor", "rehearse"], "check_commands"),
    **dict.fromkeys(["top", "replay", "report", "metrics", "tensorboard", "mlflow"], "record_commands"),
    **dict.fromkeys(["help", "settings"], "help"),
    "new": "new",
}
ABOUT = "Launches distributed TensorFlow training, on SageMaker and on this machine."
EPILOG = """\
examples:
  entrypoint local train.py --hosts 2 --mode mwms --hyperparameters epochs=3
  entrypoint help faults   # or channels, completion, engines, modes, settings
"""
_PATHS = {"BUNDLE", "DIR", "FILE", "LAUNCH", "PLACE", "PROGRAM", "PYTHON", "SCRIPT", "WHERE"}
MOST_HOSTS = 16  # that are offered


class _Layout(argparse.HelpFormatter):
    """Keep the lines of descriptions and examples, as far as a terminal has room for them."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return wrapped(text, width_of(sys.stdout))


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser with room for options. Its errors suggest the nearest word, and where all words are listed."""

    def __init__(self, **kwargs: Any) -> None:
        layout = partial(_Layout, max_help_position=28)
        super().__init__(**{**kwargs, "formatter_class": layout})

    def error(self, message: str) -> NoReturn:
        near = ""
        if found := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message):
            near = did_you_mean(found[1], re.findall(r"[\w.-]+", found[2]))
            if found[1].endswith((".py", ".sh")):
                near = f"; did you mean `entrypoint local {found[1]}`?"
        elif found := re.match("unrecognized arguments: ([^ =]+)", message):
            near = did_you_mean(found[1], self._option_string_actions)
        self.print_usage(sys.stderr)
        print_coloured(
            f"{self.prog}: error: {message}{near or ';'} `{self.prog} --help` lists all", os.environ, sys.stderr
        )
        self.exit(2)


def main() -> None:
    """Run the console script `entrypoint`. If the reader of its output goes away, end quietly, as on SIGPIPE."""
    code = 1
    try:
        try:
            if "_ARGCOMPLETE" in os.environ:  # the shell asks for completions of a command line
                _complete(os.environ.get("COMP_LINE", ""))
            code = run(sys.argv[1:])
        finally:
            print(end="", flush=True)
    except BrokenPipeError:
        _print_no_more()
        code = 128 + signal.SIGPIPE
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename:
            raise
        _print_no_more()
        print(f"error: stdout cannot be written: {error.strerror}", file=sys.stderr)
        code = code or 1
    if "tensorboard" in sys.modules:  # its native threads may turn Python's exit into SIGABRT
        os._exit(code)
    sys.exit(code)


def _print_no_more() -> None:
    """Redirect stdout to nowhere, so that Python's last flush cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def run(argv: Sequence[str], environment: Mapping[str, str] = os.environ) -> int:
    """Run the command in `argv` and return the exit code. ConfigError and CodeError become one line on stderr."""
    try:
        command = next((word for word in argv if not word.startswith("-")), "")
        args, unknown = parser(command).parse_known_args(list(argv))
        if unknown:  # by the command's own parser, which knows its options
            args.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        return int(args.run(args, environment))
    except (ConfigError, CodeError) as error:
        from entrypoint.base.secrets import NONE

        print_coloured(NONE.mask(f"error: {error}"), environment, sys.stderr)
        return ExitCode.CONFIG if isinstance(error, ConfigError) else ExitCode.CODE


def parser(command: str) -> argparse.ArgumentParser:
    """Return the parser of `command`. It knows the other commands by their names and help alone."""
    about = "\n".join([ABOUT, *(f"  {name:<12} {text}" for name, text in COMMANDS.items())])
    usage = "entrypoint [--version] [--help] COMMAND ..."
    made = _Parser(prog="entrypoint", usage=usage, description=about, epilog=EPILOG, add_help=False)
    made.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    version = f"sagemaker-tf-entrypoint {__version__}"
    made.add_argument("--version", action="version", version=version, help=argparse.SUPPRESS)
    commands = made.add_subparsers(required=True, metavar="COMMAND", prog="entrypoint", help=argparse.SUPPRESS)
    for name, text in COMMANDS.items():
        added = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        if name == command:
            module = importlib.import_module(f"entrypoint.cli.{MODULES[name]}")
            added.epilog, added.usage = module.EPILOGS[name], getattr(module, "SYNOPSES", {}).get(name)
            added.set_defaults(run=getattr(module, f"run_{name}"), parser=added)
            if add := getattr(module, f"add_{name}", None):
                add(added)
    return made


def _complete(line: str) -> None:
    """Write the completions of a command line where the shell wants them, and exit.

    argcomplete, of the extra `tools`, computes them; without it, there are none.
    """
    try:
        import argcomplete
    except ImportError:
        sys.exit(1)
    command = next((word for word in line.split() if word in COMMANDS), "")
    values: Any = _values  # argcomplete takes any callable, but for its annotation
    argcomplete.autocomplete(parser(command), default_completer=values, always_complete_options=False)


def _values(prefix: str, action: argparse.Action, parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
    """Return values of an argument without choices."""
    match action.dest:
        case "mode":
            from entrypoint.launcher.job.choices import Mode

            return Mode
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
