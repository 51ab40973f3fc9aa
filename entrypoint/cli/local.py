"""Run `entrypoint local`: a script on simulated hosts of this machine."""

import argparse
from collections.abc import Mapping
from pathlib import Path

from entrypoint.base.errors import ConfigError
from entrypoint.cli.arguments import ENGINES, TOPICS, add_job, add_program, local_job, new_output, program_in

EPILOG = f"""\
examples:
  entrypoint local train.py --hosts 2
  entrypoint local train.py --hosts 3 --mode ps --channel training=data
  entrypoint local train.py --hosts 2 --mode horovod --engine docker --quiet
  entrypoint local train.py --hosts 3 --mode mwms --fault 'kill algo-2 at 10'
{TOPICS}"""
SYNOPSIS = "entrypoint local PROGRAM [OPTION]..."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_program(parser)
    add("--hosts", type=int, metavar="N", help="1 to 1000; default: 1")
    add_job(parser)
    add("--checkpoints", type=Path, metavar="DIR", help="every host's /opt/ml/checkpoints")
    add("--env", action="append", default=[], metavar="K=V", help="for every host; may be repeated")
    add("--output", type=Path, metavar="DIR", help="a new folder; default: out/PROGRAM-MODE-TIME")
    add("--engine", choices=ENGINES, default="process", metavar="E", help="process (default), netns or docker")
    add("--ip", choices=["4", "6", "both"], default="4", help="netns: IPv4 (default), IPv6 or both")
    add("--image", default="sagemaker-tf-entrypoint:latest", metavar="TAG", help="docker: the image")
    add("--shm-size", metavar="SIZE", help="docker: size of /dev/shm, such as 1g")
    add("--plan", action="store_true", help="print the plan of this run, and run nothing")
    add("--all", action="store_true", help="with --plan: every process of many hosts")
    add("--timeout", type=float, metavar="S", help="stop after S seconds, as SageMaker would")
    add(
        "--watch",
        type=int,
        nargs="?",
        const=0,
        metavar="PORT",
        help="a page of the job, at any port by default",
    )
    add(
        "--tensorboard",
        type=int,
        nargs="?",
        const=6006,
        metavar="PORT",
        help="its TensorBoard, at 6006 by default",
    )
    add("--fault", action="append", default=[], metavar="FAULT", help="inject a fault; may be repeated")
    add("--quiet", action="store_true", help="print states of hosts, no output; it is logged")


def run(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from entrypoint.simulate.engine import EngineName
    from entrypoint.simulate.engines import engine_for, refuse_faults
    from entrypoint.simulate.run import run_local, show_plan

    program, source = program_in(args.program, args.source)
    output = args.output or new_output(args.program, args.mode or "auto")
    job = local_job(args, program=program, source=source, output=output)
    if args.ip != "4" and args.engine != EngineName.NETNS:
        raise ConfigError(f"--ip {args.ip} is for --engine netns; the engine is {args.engine}")
    engine = engine_for(args.engine, job, environment, args.image, args.shm_size, args.ip)
    refuse_faults(job.faults, args.engine)
    return show_plan(job, engine, args.all) if args.plan else run_local(job, engine, environment, args.quiet)
