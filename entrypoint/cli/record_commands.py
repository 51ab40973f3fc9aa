"""Run the commands that read a job's records: top, replay, report, metrics, tensorboard, mlflow."""

import argparse
import math
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from entrypoint.base.errors import ConfigError
from entrypoint.base.terminal import print_coloured
from entrypoint.cli import main
from entrypoint.cli.arguments import ENGINE, ENGINES, PLACE, new_output

_RECORDS = ("*/ml/output/data/record", "output/data/record", "data/record", "record", ".")

EPILOGS = {
    "top": """\
examples:
  entrypoint top     # in a container of the job, or beside `entrypoint local`
  entrypoint top http://localhost:7979     # forwarded to the coordinator's port
  entrypoint top out/train-mpi-20260101-120000 --once
""",
    "replay": """\
examples; exit code 1 if this version, or the second run, decides otherwise:
  entrypoint replay output.tar.gz       # of a job on SageMaker, from S3
  entrypoint replay out/train-ps-20260101-120000 --host algo-1
  entrypoint replay output.tar.gz --rerun src/train.py
""",
    "report": """\
examples:
  entrypoint report out/train-ps-20270101-120000    # of `entrypoint local`
  entrypoint report output.tar.gz --price 3.06      # USD for a host and hour
  entrypoint report s3://bucket/job/output.tar.gz --rules straggler=1.2,idle=off
""",
    "metrics": """\
examples:
  entrypoint metrics                     # of the names that Keras has
  entrypoint metrics out/train-mpi-20260101-120000 --sdk v3    # that it printed
  entrypoint metrics --name mAP --name images_per_second --sdk json
""",
    "tensorboard": """\
examples:
  entrypoint tensorboard s3://bucket/job/output/output.tar.gz --logdir runs/job
  entrypoint tensorboard /opt/ml --live --logdir tensorboard   # in a container
""",
    "mlflow": """\
examples:
  MLFLOW_TRACKING_URI=http://127.0.0.1:5000 entrypoint mlflow out/train-mpi
  MLFLOW_TRACKING_URI=file:///runs entrypoint mlflow s3://bucket/output.tar.gz
""",
}


def add_top(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "where",
        nargs="?",
        default="",
        metavar="WHERE",
        help="http://HOST:PORT of a coordinator, or the output folder of `entrypoint local`; default: the job of this "
        "container, else the newest in out/",
    )
    parser.add_argument("--once", action="store_true", help="print it once, as it is now")


def run_top(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from entrypoint.observe.live.in_terminal import show, source

    return show(source(args.where, environment), args.once)


def add_replay(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("bundle", metavar="BUNDLE", help="what a job left: its output folder, output.tar.gz, or s3://.../output.tar.gz")
    add("--host", metavar="NAME", help="this host alone")
    add("--rerun", type=Path, metavar="SCRIPT", help="run it on simulated hosts, with the faults that the job had")
    add("--engine", choices=ENGINES, default=ENGINE, help=f"of --rerun; default: {ENGINE}")
    add("--output", type=Path, metavar="DIR", help="of --rerun; default: out/SCRIPT-rerun-TIME")


def run_replay(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
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


def add_report(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("place", metavar="PLACE", help=PLACE)
    add("--price", metavar="USD", help="of a host for an hour, for the bill")
    add("--output", type=Path, default=Path("report.html"), metavar="FILE", help="default: report.html")
    add("--rules", default="", metavar="NAME=N,...", help="thresholds instead of the job's; see docs/report.md")


def run_report(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Make the report and return 0; raise ConfigError if there are no records or the report cannot be written."""
    from entrypoint.launcher.job.rules import parse_rules
    from entrypoint.observe.report.make import make, told_in
    from entrypoint.record.find import find

    price = None
    if args.price is not None:
        try:
            price = float(args.price)
        except ValueError:
            price = math.nan
        if not 0 <= price < 1e6:
            raise ConfigError(f"--price is {args.price!r}; wanted USD of a host for an hour, such as 3.06")
    try:
        rules = dict(parse_rules(args.rules))
    except ValueError as wanted:
        raise ConfigError(f"--rules is {args.rules[:200]!r}; wanted {wanted}") from None
    records = find(args.place)
    output: Path = args.output / "report.html" if args.output.is_dir() else args.output
    try:
        lines = make(records, output, price, rules)
    except OSError as error:
        raise ConfigError(f"--output {output} cannot be written: {error}") from None
    ending = told_in(output, "ending")
    for line in [*ending, *(lines or ["No other problems found" if ending else "No problems found"])]:
        print_coloured(line, environment, sys.stdout)
    print(f"report   {output}")
    return 0


def add_metrics(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("place", nargs="?", metavar="PLACE", help="a job's output, as for `report`: define the metrics that it printed")
    add("--name", action="append", default=[], metavar="NAME", help="of this metric; may be repeated")
    add("--sdk", choices=["v2", "v3", "json"], default="v2", help="for which SageMaker SDK, or as JSON; default: v2")


def run_metrics(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Print definitions of the metrics in --name and in a job's records, else of the usual metrics; return 0."""
    from entrypoint.observe.export.definitions import USUAL, definitions, metrics_in
    from entrypoint.record.find import find
    from entrypoint.record.read import lines_of

    names = args.name
    if args.place:
        printed = metrics_in(line for record in find(args.place).values() for line in lines_of(record))
        names = names + [name for name in printed if name not in names]
        if not names:
            raise ConfigError(
                f"the records of {args.place} hold no metrics; wanted --name, or a script that prints some"
            )
    print(definitions(names or USUAL, args.sdk))
    return 0


def add_tensorboard(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("place", metavar="PLACE", help=PLACE)
    add("--logdir", type=Path, default=Path("tensorboard"), metavar="DIR", help="default: tensorboard")
    add("--live", action="store_true", help="follow the job while it runs; PLACE is then a folder")


def run_tensorboard(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Write the files, with --live while the job runs, and return 0.

    Raise ConfigError if there are no records, or the package tensorboard is missing.
    """
    from entrypoint.observe.export.event_files import EventFiles
    from entrypoint.observe.export.points import Points, follow
    from entrypoint.record.find import find
    from entrypoint.record.read import lines_of

    files = EventFiles(args.logdir)
    try:
        if args.live:
            folder = Path(args.place)
            count = follow(lambda: [each for part in _RECORDS for each in folder.glob(part)], files.add, lambda: False)
        else:
            count = sum(files.add(Points(host), lines_of(record)) for host, record in find(args.place).items())
    except KeyboardInterrupt:
        return 0
    finally:
        files.close()
    print(f"{count} points in {args.logdir}; to see them: tensorboard --logdir {args.logdir}")
    return 0


def add_mlflow(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("place", metavar="PLACE", help=PLACE)


def run_mlflow(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Write the run; return 0, or 1 if nothing was written.

    Raise ConfigError if there are no records, or MLflow cannot be used.
    """
    from entrypoint.observe.export.mlflow_run import MlflowRun
    from entrypoint.observe.export.points import Points
    from entrypoint.record.find import find
    from entrypoint.record.read import lines_of

    records = find(args.place)
    run = MlflowRun()
    count = sum(run.add(Points(host), lines_of(record)) for host, record in sorted(records.items()))
    run.close()
    print(f"{count} metrics in run {run.id}" if run.id else "nothing written: the records do not say what the job was")
    return 0 if run.id else 1
