"""Run `entrypoint replay`: print what every host of a job knew and decided; with --rerun, run the job again."""

import argparse
import shlex
from collections.abc import Mapping
from pathlib import Path

from entrypoint.cli import main
from entrypoint.cli.arguments import ENGINES, new_output

EPILOG = """\
examples; exit code 1 if this version, or the second run, decides otherwise:
  entrypoint replay output.tar.gz       # of a job on SageMaker, from S3
  entrypoint replay out/train-ps-20260101-120000 --host algo-1
  entrypoint replay output.tar.gz --rerun src/train.py
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("bundle", metavar="BUNDLE", help="what a job left: its output folder, output.tar.gz, or s3://.../output.tar.gz")
    add("--host", metavar="NAME", help="this host alone")
    add("--rerun", type=Path, metavar="SCRIPT", help="run it on simulated hosts, with the faults that the job had")
    add("--engine", choices=ENGINES, default="process", help="of --rerun; default: process")
    add("--output", type=Path, metavar="DIR", help="of --rerun; default: out/SCRIPT-rerun-TIME")


def run(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from entrypoint.observe.replay.timeline import compare, lacks, once_more, replay
    from entrypoint.record.find import find

    records = find(args.bundle)
    if args.rerun is None:
        return replay(records, args.host)
    output = args.output or new_output(args.rerun, "rerun")
    words = ["local", *once_more(records, str(args.rerun)), "--engine", args.engine, "--output", str(output)]
    print(f"entrypoint {shlex.join(words)}", flush=True)
    print(f"The bundle does not contain, and the command may need: {lacks(records)}", flush=True)
    is_new = not output.exists()
    code = main.run(words, environment)
    return compare(records, find(str(output))) if is_new and any(output.glob("algo-*")) else code
