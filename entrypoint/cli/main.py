"""Run a command of `entrypoint`. Each is a module of this package, which is imported only when it is called."""

import argparse
import errno
import importlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence

from entrypoint import __version__
from entrypoint.base.errors import CodeError, ConfigError, ExitCode

# Each command with its help. Its module has its EPILOG, perhaps `add_arguments(parser)`, and `run(args, environment)`,
# which imports what the command needs: `--help` needs none of that.
COMMANDS = {
    "new": "write a project to begin from: training script, test, compose.yaml, submit script, workflow",
    "plan": "print which processes a job starts, where and how; runs nothing",
    "local": "run a script on simulated hosts of this machine",
    "host": "run one host of a job of containers, as compose.yaml starts them",
    "top": "show a job while it runs: its hosts, processes, progress and last lines",
    "doctor": "print what this machine or image has for each mode; for files, what their job would lack",
    "rehearse": "run what a launch script would submit for a minute on simulated hosts: go or no-go",
    "replay": "show what every host of a job knew and decided, second by second",
    "report": "make a job's report again, from the records of its monitor",
    "metrics": "print metric definitions, with which SageMaker sends a job's metrics to CloudWatch",
    "tensorboard": "write a job's metrics and figures as TensorBoard's event files",
    "mlflow": "write a job's parameters, metrics and figures as a run of MLflow",
    "settings": "print all settings with their defaults",
    "train": "run a host of the job in /opt/ml: what SageMaker starts on each",
}
EPILOG = """\
examples:
  entrypoint plan --hosts 3 --mode ps
  entrypoint local train.py --hosts 2 --mode mwms --hyperparameters epochs=3
  entrypoint local --help
"""


def main() -> None:
    """Run the console script `entrypoint`. If the reader of its output goes away, end quietly, as on SIGPIPE."""
    code = 1
    try:
        try:
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
        args = parser(command).parse_args(list(argv))
        return int(args.run(args, environment))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return ExitCode.CONFIG
    except CodeError as error:
        print(f"error: {error}", file=sys.stderr)
        return ExitCode.CODE


def parser(command: str) -> argparse.ArgumentParser:
    """Return the parser of `command`. It knows the other commands by their names and help alone."""
    raw = argparse.RawDescriptionHelpFormatter
    made = argparse.ArgumentParser(
        prog="entrypoint",
        description="Launches distributed TensorFlow training, on SageMaker and on this machine.",
        epilog=EPILOG,
        formatter_class=raw,
    )
    made.add_argument("--version", action="version", version=f"sagemaker-tf-entrypoint {__version__}")
    commands = made.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, text in COMMANDS.items():
        description = f"{text[0].upper()}{text[1:]}."
        added = commands.add_parser(name, help=text, description=description, formatter_class=raw)
        if name == command:
            module = importlib.import_module(f"entrypoint.cli.{name}")
            added.epilog = module.EPILOG
            added.set_defaults(run=module.run)
            if add := getattr(module, "add_arguments", None):
                add(added)
    return made
