"""Run the commands that plan or run a job: plan, local, host, train."""

import argparse
import json
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from entrypoint.base.errors import ConfigError
from entrypoint.cli.arguments import ENGINE, ENGINES, TOPICS, add_job, add_program, local_job, new_output, program_in

if TYPE_CHECKING:
    from entrypoint.launcher.job.job import Job

EPILOGS = {
    "plan": """\
examples:
  entrypoint plan --hosts 3 --mode parameter_server   # of a job that is made up
  entrypoint plan --hosts 200 --mode horovod --processes-per-host 8    # by role
  entrypoint plan --hosts 200 --mode horovod --host algo-2
  entrypoint plan --config input/config --json      # of a real job's files
""",
    "local": f"""\
examples:
  entrypoint local train.py --hosts 2
  entrypoint local train.py --hosts 3 --mode ps --channel training=data
  entrypoint local train.py --hosts 2 --mode horovod --engine docker --quiet
  entrypoint local train.py --hosts 3 --mode mwms --fault 'kill algo-2 at 10'
{TOPICS}""",
    "host": f"""\
example, as the command of container algo-1, beside another, algo-2:
  entrypoint host algo-1 train.py --hosts 2 --mode mwms --hyperparameters lr=0.1
{TOPICS}""",
    "train": """\
example, of a host whose folder is another than /opt/ml:
  SAGEMAKER_BASE_DIR=ml entrypoint train
""",
}
SYNOPSES = {
    "plan": "entrypoint plan [OPTION]...",
    "local": "entrypoint local PROGRAM [OPTION]...",
    "host": "entrypoint host HOST PROGRAM [OPTION]...",
}


def add_plan(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--config", type=Path, metavar="DIR", help="of resourceconfig.json, or one like /opt/ml")
    add("--hosts", type=int, metavar="N", help="plan an example job on N hosts")
    add("--program", metavar="FILE", help="program of the example job; default: train.py")
    add_job(parser)
    add("--host", metavar="NAME", help="this host's processes only")
    add("--all", action="store_true", help="every process; else, with more than four hosts, a summary by role")
    add("--json", action="store_true", help="for programs")


def run_plan(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
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
    """Return the job to plan: a made-up one, the one in --config, or this machine's."""
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


def add_local(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_program(parser)
    add("--hosts", type=int, metavar="N", help="1 to 1000; default: 1")
    add_job(parser)
    add("--checkpoints", type=Path, metavar="DIR", help="every host's /opt/ml/checkpoints")
    add("--env", action="append", default=[], metavar="K=V", help="for every host; may be repeated")
    add("--output", type=Path, metavar="DIR", help="a new folder; default: out/PROGRAM-MODE-TIME")
    add("--engine", choices=ENGINES, default=ENGINE, metavar="E", help=f"process, netns or docker; default: {ENGINE}")
    add("--ip", choices=["4", "6", "both"], default="4", help="netns: IPv4 (default), IPv6 or both")
    add("--image", default="", metavar="TAG", help="docker: the image; default: what ./build.sh made")
    add("--shm-size", metavar="SIZE", help="docker: size of /dev/shm, such as 1g")
    add("--plan", action="store_true", help="print the plan of this run, and run nothing")
    add("--all", action="store_true", help="with --plan: every process of many hosts")
    add("--timeout", type=float, metavar="S", help="stop after S seconds, as SageMaker would")
    add("--watch", type=int, nargs="?", const=0, metavar="PORT", help="a page of the job, at any port by default")
    add("--tensorboard", type=int, nargs="?", const=6006, metavar="PORT", help="its TensorBoard, at 6006 by default")
    add("--fault", action="append", default=[], metavar="FAULT", help="inject a fault; may be repeated")
    add("--quiet", action="store_true", help="print states of hosts, no output; it is logged")


def run_local(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from entrypoint.simulate.engine import EngineName
    from entrypoint.simulate.run import engine_for, refuse_faults, run_local, show_plan

    program, source = program_in(args.program, args.source)
    output = args.output or new_output(args.program, args.mode or "auto")
    job = local_job(args, program=program, source=source, output=output)
    if args.ip != "4" and args.engine != EngineName.NETNS:
        raise ConfigError(f"--ip {args.ip} is for --engine netns; the engine is {args.engine}")
    engine = engine_for(args.engine, job, environment, args.image, args.shm_size, args.ip)
    refuse_faults(job.faults, args.engine)
    return show_plan(job, engine, args.all) if args.plan else run_local(job, engine, environment, args.quiet)


def add_host(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("host", metavar="HOST", help="this host's name: algo-1, algo-2, ...")
    add_program(parser)
    add("--hosts", default="2", metavar="N", help="hosts of the job; default: 2")
    add("--most", type=int, metavar="N", help="the largest number of hosts")
    add_job(parser, groups=False)
    add("--env", action="append", default=[], metavar="K=V", help="for this host; may be repeated")


def run_host(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    _refuse_macos("host")
    from entrypoint.launcher.places import base_folder
    from entrypoint.simulate.compose_host import become_host, count_hosts

    args.hosts = count_hosts(args.hosts, args.most)
    program, source = program_in(args.program, args.source)
    job = local_job(args, program=program, source=source, output=Path(Path(program).stem))
    become_host(job, args.host, base_folder(), environment)


def run_train(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    _refuse_macos("train")
    from entrypoint.train import train

    train()
    return 0  # not reached: train ends the process


def _refuse_macos(command: str) -> None:
    if sys.platform == "darwin":
        raise ConfigError(f"`{command}` needs Linux, and this is macOS; wanted `entrypoint local`")
