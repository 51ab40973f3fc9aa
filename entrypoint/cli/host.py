"""Run `entrypoint host`: become one host of a job of containers."""

import argparse
from collections.abc import Mapping
from pathlib import Path

from entrypoint.cli.arguments import TOPICS, add_job, add_program, local_job, program_in

EPILOG = f"""\
example, as the command of container algo-1, beside another, algo-2:
  entrypoint host algo-1 train.py --hosts 2 --mode mwms --hyperparameters lr=0.1
{TOPICS}"""
SYNOPSIS = "entrypoint host HOST PROGRAM [OPTION]..."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("host", metavar="HOST", help="this host's name: algo-1, algo-2, ...")
    add_program(parser)
    add("--hosts", default="2", metavar="N", help="hosts of the job; default: 2")
    add("--most", type=int, metavar="N", help="the largest number of hosts")
    add_job(parser, groups=False)
    add("--env", action="append", default=[], metavar="K=V", help="for this host; may be repeated")


def run(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from entrypoint.launcher.places import base_folder
    from entrypoint.simulate.compose_host import become_host, count_hosts

    args.hosts = count_hosts(args.hosts, args.most)
    program, source = program_in(args.program, args.source)
    job = local_job(args, program=program, source=source, output=Path(Path(program).stem))
    become_host(job, args.host, base_folder(), environment)
