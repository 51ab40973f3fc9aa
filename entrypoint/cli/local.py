"""Run `entrypoint local`: a script on simulated hosts of this machine."""

import argparse
from collections.abc import Mapping
from pathlib import Path

from entrypoint.base.errors import ConfigError
from entrypoint.cli.arguments import CHANNELS, ENGINES, add_job, add_program, local_job, new_output, program_in

EPILOG = f"""\
examples:
  entrypoint local train.py --hosts 2
  entrypoint local train.py --hosts 3 --mode ps --channel training=data --hyperparameters lr=0.1 epochs=3
  entrypoint local train.py --hosts 2 --mode horovod --processes-per-host 2 --engine docker
  entrypoint local train.py --hosts 3 --mode mwms --fault 'kill algo-2 at 10'

{CHANNELS}
faults: ACTION TARGET [at SECONDS | when TEXT] [for SECONDS]
  kill TARGET            SIGKILL      TARGET is HOST, HOST:PROCESS or all
  stop TARGET            SIGTERM
  pause TARGET           frozen       HOST or HOST:PROCESS
  stall HOST for S       its output is not read
  cut HOST               off the network: packets are dropped
  late HOST for S        starts S seconds after the others
  hide HOST [for S]      its name does not resolve on other hosts, from the start (for S, then) or from a moment on
  fill HOST:FOLDER       no space left in its output or model
  readonly HOST:FOLDER   neither can be written to
PROCESS is a name that `entrypoint plan` shows, or a program that runs there. Without `for`, pause, cut and hide
are permanent. `at` counts from the start of the first host (default: at 0), `when` waits for a line with that text.
  --fault "kill 'algo-2:rank 3' when 'epoch 2'"   --fault 'cut algo-3 at 10 for 3'   --fault 'kill algo-1:orted'
Engine process can kill, stop, pause, stall and late; netns (as root) and docker can do all.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_program(parser)
    add("--hosts", type=int, metavar="N", help="1 to 1000; each takes some 20 MB and a second to start; default: 1")
    add_job(parser)
    add("--checkpoints", type=Path, metavar="DIR", help="a folder that every host has as /opt/ml/checkpoints")
    add("--env", action="append", default=[], metavar="K=V", help="for every host; may be repeated")
    add("--output", type=Path, metavar="DIR", help="default: out/PROGRAM-MODE-TIME")
    add("--engine", choices=ENGINES, default="process", help="what a host is; default: process")
    add("--ip", choices=["4", "6", "both"], default="4", help="netns: the hosts' addresses; default: 4, of IPv4 alone")
    add("--image", default="sagemaker-tf-entrypoint:latest", metavar="TAG", help="docker; default: %(default)s")
    add("--shm-size", metavar="SIZE", help="docker: size of /dev/shm, such as 1g; default: Docker's")
    add("--plan", action="store_true", help="print the plan of this run, and run nothing")
    add("--all", action="store_true", help="with --plan: every process, however many hosts there are")
    add("--timeout", type=float, metavar="S", help="stop after S seconds, as SageMaker would")
    add(
        "--watch",
        type=int,
        nargs="?",
        const=0,
        metavar="PORT",
        help="show the job while it runs, on a page at this port of localhost; without PORT: at any",
    )
    add(
        "--tensorboard",
        type=int,
        nargs="?",
        const=6006,
        metavar="PORT",
        help="write TensorBoard's event files of the job while it runs, and serve them; without PORT: at 6006",
    )
    add("--fault", action="append", default=[], metavar="FAULT", help="a fault to inject; may be repeated; see below")


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
    return show_plan(job, engine, args.all) if args.plan else run_local(job, engine)
