"""Define what several commands share: arguments, and the job on simulated hosts that they describe."""

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from entrypoint.base.errors import CodeError, ConfigError

if TYPE_CHECKING:
    from entrypoint.launcher.job.choices import Mode
    from entrypoint.simulate.spec import LocalJob

ENGINES = ["process", "netns", "docker"]
PLACE = "a job's output folder, its record folder, output.tar.gz, or one in s3://"
CHANNELS = """\
channels: NAME=DIR[,OPTION=VALUE]...
  mode=M             File, FastFile or Pipe (FIFOs NAME_0, NAME_1, ..., one for each pass)
  distribution=D     FullyReplicated, or ShardedByS3Key: each host gets a part of the files, in order of their names
  shuffle=SEED       Pipe: the files in another order in each pass
  compression=Gzip   Pipe: the files are expanded
  wrapper=RecordIO   Pipe: each file becomes a record
  attributes=A:B     Pipe: DIR is an augmented manifest, of whose lines A and then B are taken
DIR may be a manifest file, too. Put a / behind a name that ends like an option.
  --channel 'train=rows/,mode=Pipe,distribution=ShardedByS3Key,shuffle=7'   --channel test=rows/test
"""


def add_launch_script(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--python", default=sys.executable, metavar="PYTHON", help="runs the launch script: that of the SageMaker SDK")
    add("--json", action="store_true", help="for programs")
    add(
        "--args",
        nargs=argparse.REMAINDER,
        default=[],
        metavar="...",
        help="all further words are arguments of the launch script",
    )


def add_program(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("program", type=Path, metavar="PROGRAM", help="a .py or .sh file; its folder is the code")
    add("--source", type=Path, metavar="DIR", help="the code folder, if not that of the program")


def add_job(parser: argparse.ArgumentParser, groups: bool = True) -> None:
    add = parser.add_argument
    parser.set_defaults(group=[])
    if groups:
        text = "N hosts of an instance group, instead of --hosts; may be repeated"
        add("--group", action="append", metavar="NAME=N[:TYPE]", help=text)
    add(
        "--mode",
        metavar="M",
        type=_mode,
        help="single, ps (parameter_server), mwms (multi_worker_mirrored), mpi (horovod) or jax; default: from the "
        "hyperparameters",
    )
    add("--processes-per-host", type=int, metavar="K", help="ranks (mpi), processes (jax) or workers (ps, mwms)")
    add(
        "--hyperparameters",
        nargs="*",
        action="extend",
        default=[],
        metavar="K=V",
        help="passed to the script unchanged; values may contain any text",
    )
    add(
        "--channel",
        action="append",
        default=[],
        metavar="NAME=DIR[,OPTION=VALUE]...",
        help="input data; may be repeated; options: `entrypoint local --help`",
    )
    add(
        "--input-mode",
        choices=["File", "FastFile", "Pipe"],
        default="File",
        metavar="M",
        help="File, FastFile or Pipe, of channels without mode=; default: File",
    )


def _mode(text: str) -> "Mode":
    from entrypoint.launcher.job.settings import mode_named

    try:
        return mode_named(text)
    except ValueError as wanted:
        raise ConfigError(f"--mode is {text!r}; wanted {wanted}") from None


def local_job(args: argparse.Namespace, program: str, source: Path, output: Path) -> "LocalJob":
    from entrypoint.launcher.job.choices import Mode
    from entrypoint.simulate.channels import InputMode, parse_channel
    from entrypoint.simulate.fault import parse_fault
    from entrypoint.simulate.spec import LocalJob, host_names, instance_groups, pairs

    groups = instance_groups(args.group)
    if groups and args.hosts is not None:
        raise ConfigError("--hosts and --group both set the number of hosts; wanted one of them")
    hosts = sum(len(group.hosts) for group in groups) or (1 if args.hosts is None else args.hosts)
    return LocalJob(
        program=program,
        source=source.absolute(),
        hosts=hosts,
        groups=groups,
        mode=args.mode or Mode.AUTO,
        processes_per_host=args.processes_per_host,
        channels=tuple(parse_channel(word, InputMode(args.input_mode)) for word in args.channel),
        hyperparameters=pairs(args.hyperparameters, "--hyperparameters"),
        environment=pairs(getattr(args, "env", ()), "--env"),
        checkpoints=args.checkpoints.absolute() if getattr(args, "checkpoints", None) else None,
        output=output.absolute(),
        timeout=getattr(args, "timeout", None),
        watch=getattr(args, "watch", None),
        tensorboard=getattr(args, "tensorboard", None),
        faults=tuple(parse_fault(text, host_names(hosts)) for text in getattr(args, "fault", ())),
    )


def program_in(given: Path, source: Path | None) -> tuple[str, Path]:
    """Return (name of the program in the code folder, code folder)."""
    if source is None:
        return given.name, given.parent
    for path in (given, source / given):
        if path.is_file() and path.absolute().is_relative_to(source.absolute()):
            return str(path.absolute().relative_to(source.absolute())), source
    raise CodeError(f"there is no program {given} in --source {source}; wanted a file in that folder")


def new_output(program: Path, mode: str) -> Path:
    """Return a folder in out/ that does not exist yet."""
    name = f"{program.stem}-{mode}-{time.strftime('%Y%m%d-%H%M%S')}"
    paths = (Path("out", name if number == 1 else f"{name}-{number}") for number in range(1, 10_000))
    return next(path for path in paths if not path.exists())
