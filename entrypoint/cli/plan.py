"""Run `entrypoint plan`: print the plan of a job that is made up, of this machine, or in a folder of config files."""

import argparse
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from entrypoint.base.errors import ConfigError
from entrypoint.cli.arguments import add_job, local_job

if TYPE_CHECKING:
    from entrypoint.launcher.job.job import Job

EPILOG = """\
examples:
  entrypoint plan --hosts 3 --mode parameter_server   # of a job that is made up
  entrypoint plan --hosts 200 --mode horovod --processes-per-host 8    # by role
  entrypoint plan --hosts 200 --mode horovod --host algo-2
  entrypoint plan --config input/config --json      # of a real job's files
"""
SYNOPSIS = "entrypoint plan [OPTION]..."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--config", type=Path, metavar="DIR", help="of resourceconfig.json, or one like /opt/ml")
    add("--hosts", type=int, metavar="N", help="plan an example job on N hosts")
    add("--program", metavar="FILE", help="program of the example job; default: train.py")
    add_job(parser)
    add("--host", metavar="NAME", help="this host's processes only")
    add("--all", action="store_true", help="every process; else, with more than four hosts, a summary by role")
    add("--json", action="store_true", help="for programs")


def run(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from entrypoint.base.secrets import Secrets
    from entrypoint.launcher.host.machine import this_machine
    from entrypoint.launcher.plan.planner import plan_for
    from entrypoint.launcher.plan.render import as_json, render

    here = this_machine()
    job = _job(args, environment, here.gpus)
    plan = plan_for(job)
    if args.host not in (None, *plan.hosts):
        raise ConfigError(f"--host is {args.host!r}; wanted one of {', '.join(plan.hosts)}")
    secret = Secrets(environment, job.hyperparameters)
    part = partial(here.part_of, given=environment)
    if args.json:
        print(json.dumps(secret.mask_all(as_json(plan, args.host, part)), indent=1))
    else:
        print(secret.mask(render(plan, args.host, part, whole=args.all)))
    return 0


def _job(args: argparse.Namespace, environment: Mapping[str, str], gpus: int) -> "Job":
    """Return the job to plan: a made-up one, that of --config, or this machine's."""
    from entrypoint.launcher import places
    from entrypoint.launcher.job.config import read_job
    from entrypoint.simulate.tree import read

    described = (args.mode, args.processes_per_host, args.program, args.hyperparameters or None, args.channel or None)
    made_up = args.hosts is not None or bool(args.group)
    if not made_up and any(value is not None for value in described):
        raise ConfigError("--mode, --program and similar options describe a made-up job; wanted --hosts N, too")
    if made_up:
        if args.config:
            raise ConfigError("--config and --hosts describe two jobs; wanted one of them")
        program = Path(args.program or "train.py")
        job = local_job(args, program=program.name, source=program.parent, output=Path("plan"))
        return read(job, job.names[0], places.DEFAULT_BASE, environment, gpus)
    base, config = args.config or places.base_folder(), None
    if (base / "input" / "config").is_dir():
        config = base / "input" / "config" if args.config else None
    elif not args.config:
        raise ConfigError(f"there is no job in {base}; wanted --hosts N to make one up, or --config DIR")
    elif (base / "resourceconfig.json").exists():
        base, config = places.DEFAULT_BASE, base
    else:
        raise ConfigError(f"--config {base} has no resourceconfig.json and no input/config with one")
    return read_job(base, environment, places.DEFAULT_RUN, gpus, config=config)
