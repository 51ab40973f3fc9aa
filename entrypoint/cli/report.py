"""Run `entrypoint report`: make a job's report again from its records, wherever they are."""

import argparse
import math
import sys
from collections.abc import Mapping
from pathlib import Path

from entrypoint.base.errors import ConfigError
from entrypoint.cli.arguments import PLACE

EPILOG = """\
examples:
  entrypoint report out/train-ps-20270101-120000    # of `entrypoint local`
  entrypoint report output.tar.gz --price 3.06      # USD for a host and hour
  entrypoint report s3://bucket/job/output.tar.gz --rules straggler=1.2,idle=off
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("place", metavar="PLACE", help=PLACE)
    add("--price", metavar="USD", help="of a host for an hour, for the bill")
    add("--output", type=Path, default=Path("report.html"), metavar="FILE", help="default: report.html")
    add("--rules", default="", metavar="NAME=N,...", help="thresholds instead of the job's; see docs/report.md")


def run(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Make the report and return 0; raise ConfigError if there are no records or the report cannot be written."""
    from entrypoint.base.terminal import print_coloured
    from entrypoint.launcher.job.rules import parse_rules
    from entrypoint.observe.report.html_page import ending_of
    from entrypoint.observe.report.make import make
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
    ending = ending_of(output)
    for line in [*filter(None, [ending]), *(lines or ["No other problems found" if ending else "No problems found"])]:
        print_coloured(line, environment, sys.stdout)
    print(f"report   {output}")
    return 0
