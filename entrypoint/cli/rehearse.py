"""Run `entrypoint rehearse`: turn its arguments into options, print the result, choose the exit code."""

import argparse
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from entrypoint.base.errors import CodeError, ConfigError
from entrypoint.cli.arguments import ENGINES, add_launch_script

GO, NO_GO, USAGE, INTERRUPTED = 0, 1, 2, 130

EPILOG = """\
examples; exit code 0: go, 1: no-go, 2: it could not be begun:
  entrypoint rehearse submit_job.py --channel training=data/rows
  entrypoint rehearse submit_job.py --price 3.825 --speedup 40
  entrypoint rehearse --python venv/bin/python submit.py --args t.py --mode ps
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "launch",
        metavar="LAUNCH",
        help="a launch script (it runs without a network), or a request, .json",
    )
    add(
        "--engine",
        choices=ENGINES,
        default="",
        help="what a host is; default: process, or netns if the script names /opt/ml itself",
    )
    add("--image", default="sagemaker-tf-entrypoint:latest", metavar="TAG", help="docker; default: %(default)s")
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


def run(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Rehearse, print the result and return the exit code. 0: go; 1: no-go; 2: cannot start; 130: interrupted."""
    from entrypoint.base.secrets import NONE, Secrets
    from entrypoint.base.terminal import print_coloured
    from entrypoint.check.finding import goes
    from entrypoint.check.rehearse.output import as_json, as_text
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
