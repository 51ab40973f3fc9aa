"""Run `entrypoint doctor`: print what this machine has, or check the files of a job."""

import argparse
import json
import sys
from collections.abc import Mapping

from entrypoint.base.errors import ConfigError
from entrypoint.cli.arguments import add_launch_script

EPILOG = """\
examples, of this machine and of an image:
  entrypoint doctor
  docker run --rm IMAGE entrypoint doctor
and of a job that you have, before it costs anything; exit code 1 for errors:
  entrypoint doctor submit_job.py     # its request, and its training script
  entrypoint doctor request.json src/train.py
  entrypoint doctor train.py --json --strict
  entrypoint doctor --python venv/bin/python submit.py --args train.py --mode ps
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "files",
        nargs="*",
        metavar="FILE",
        help="a launch script (it runs, without a network), a CreateTrainingJob request (.json), "
        "training scripts (they are read, not run)",
    )
    add("--image", default="", metavar="IMAGE", help="the image of the job, if not the request's; judged by its tag")
    add("--strict", action="store_true", help="exit code 1 for warnings, too")
    add_launch_script(parser)


def run(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    if args.files:
        return _check_files(args, environment)
    from entrypoint.base.terminal import print_coloured
    from entrypoint.simulate.machine_check import examine

    for line in examine(environment.get("PATH", "")):
        print_coloured(line, environment, sys.stdout)
    return 0


def _check_files(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Check the files of a job and return the exit code.

    0: notes at most, or warnings without --strict; 1: worse; 2: a file cannot be read.
    """
    from entrypoint.base.severity import Severity
    from entrypoint.base.terminal import print_coloured
    from entrypoint.check.doctor.doctor import examine
    from entrypoint.check.doctor.output import as_json, as_text

    try:
        report = examine(args.files, image=args.image, arguments=args.args, python=args.python, environment=environment)
    except ConfigError as error:
        print_coloured(f"error: {error}", environment, sys.stderr)
        return 2
    if args.json:
        print(json.dumps(as_json(report), indent=2))
    else:
        print_coloured(as_text(report), environment, sys.stdout)
    least = Severity.WARNING if args.strict else Severity.ERROR
    return int(report.worst is not None and report.worst >= least)
