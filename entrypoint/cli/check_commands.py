"""Run the commands that find faults before a job costs anything: doctor, rehearse."""

import argparse
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from entrypoint.base.errors import CodeError, ConfigError
from entrypoint.base.terminal import print_coloured
from entrypoint.cli.arguments import ENGINE, ENGINES, add_launch_script

OR_NETNS = ", or netns if the script names /opt/ml itself" * (ENGINE == "process")
GO, NO_GO, USAGE, INTERRUPTED = 0, 1, 2, 130  # exit codes of `rehearse`

EPILOGS = {
    "doctor": """\
examples, of this machine and of an image:
  entrypoint doctor
  docker run --rm IMAGE entrypoint doctor
and of a job that you have, before it costs anything; exit code 1 for errors:
  entrypoint doctor submit_job.py     # its request, and its training script
  entrypoint doctor request.json src/train.py
  entrypoint doctor train.py --json --strict
  entrypoint doctor --python venv/bin/python submit.py --args train.py --mode ps
""",
    "rehearse": """\
examples; exit code 0: go, 1: no-go, 2: it could not be begun:
  entrypoint rehearse submit_job.py --channel training=data/rows
  entrypoint rehearse submit_job.py --price 3.825 --speedup 40
  entrypoint rehearse --python venv/bin/python submit.py --args t.py --mode ps
""",
}


def add_doctor(parser: argparse.ArgumentParser) -> None:
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
    add("--notes", action="store_true", help="print all notes; without it, of at most three kinds")
    add_launch_script(parser)


def run_doctor(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    if args.files:
        return _check_files(args, environment)
    from entrypoint.simulate.local_python import examine

    for line in examine(environment.get("PATH", "")):
        print_coloured(line, environment, sys.stdout)
    return 0


def _check_files(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Check the files of a job and return the exit code.

    0: notes at most, or warnings without --strict; 1: worse; 2: a file cannot be read.
    """
    from entrypoint.base.severity import Severity
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
        print_coloured(as_text(report, all_notes=args.notes), environment, sys.stdout)
    least = Severity.WARNING if args.strict else Severity.ERROR
    return int(report.worst is not None and report.worst >= least)


def add_rehearse(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("launch", metavar="LAUNCH", help="a launch script (it runs without a network), or a request, .json")
    add(
        "--engine",
        choices=ENGINES,
        default="",
        help=f"what a host is; default: {ENGINE}{OR_NETNS}",
    )
    add("--image", default="", metavar="TAG", help="docker; default: what ./build.sh made")
    add("--hosts", type=int, metavar="N", help="simulated hosts; default: the request's, at most 4")
    add("--seconds", type=float, default=60.0, metavar="S", help="of training in a run, at most; default: 60")
    add("--records", type=int, default=2000, metavar="N", help="of each channel, at about; default: 2000")
    add(
        "--channel",
        action="append",
        default=[],
        metavar="NAME=DIR",
        help="a local copy of a channel's data, or of some",
    )
    add(
        "--source",
        type=Path,
        metavar="DIR",
        help="the folder of the training script, if the launch script does not lead there",
    )
    add("--output", type=Path, metavar="DIR", help="logs, records, models; default: out/rehearse-LAUNCH-TIME")
    add("--price", type=float, metavar="USD", help="for one host for an hour")
    add("--speedup", type=float, metavar="X", help="how many times as fast the real job is as this one")
    add_launch_script(parser)


def run_rehearse(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Rehearse, print the result and return the exit code. 0: go; 1: no-go; 2: cannot start; 130: interrupted."""
    from entrypoint.base.secrets import NONE, Secrets
    from entrypoint.check.finding import goes
    from entrypoint.check.rehearse.rehearsal import as_json, as_text
    from entrypoint.check.rehearse.rehearse import Options, rehearse
    from entrypoint.simulate.spec import pairs

    name = f"rehearse-{Path(args.launch).stem}-{time.strftime('%Y%m%d-%H%M%S')}"

    def log(text: str) -> None:
        print_coloured(text, environment, sys.stderr)

    try:
        args.arguments, args.output = tuple(args.args), (args.output or Path("out", name)).absolute()
        args.channels = {name: Path(path).absolute() for name, path in pairs(args.channel, "--channel")}
        options = Options(**{each.name: getattr(args, each.name) for each in fields(Options)})
        case, findings = rehearse(options, environment, log)
    except (ConfigError, CodeError) as problem:
        print_coloured(NONE.mask(f"error: {problem}"), environment, sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("interrupted: all hosts have ended", file=sys.stderr)
        return INTERRUPTED
    secrets = Secrets(environment, dict(case.request.hyperparameters), dict(case.request.environment))
    if args.json:
        print(json.dumps(secrets.mask_all(as_json(case, findings)), indent=2))
    else:
        print_coloured(secrets.mask(as_text(findings)), environment, sys.stdout)
    return GO if goes(findings) else NO_GO
