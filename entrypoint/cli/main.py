"""Run a command of `entrypoint`. Its module is imported only when it is called."""

import argparse
import errno
import importlib
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

from entrypoint import __version__
from entrypoint.base.errors import CodeError, ConfigError, ExitCode, did_you_mean
from entrypoint.base.terminal import print_coloured

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


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser with room for options, whose errors name the nearest word and where all are listed."""

    def __init__(self, **kwargs: Any) -> None:
        layout = partial(argparse.RawDescriptionHelpFormatter, max_help_position=28)
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
                from entrypoint.cli.completion import complete

                complete(os.environ.get("COMP_LINE", ""), COMMANDS, parser)
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
