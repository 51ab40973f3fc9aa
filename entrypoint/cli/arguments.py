"""Define the arguments that several commands share, and the job on simulated hosts that they describe."""

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
ENGINE = "docker" if sys.platform == "darwin" else "process"  # the default
PLACE = "a job's output folder, its record folder, output.tar.gz, or one in s3://"
TOPICS = "\nmore: `entrypoint help` and channels, engines, faults, modes or settings\n"


def add_launch_script(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--python", default=sys.executable, metavar="PYTHON", help="the SageMaker SDK's: it runs the launch script")
    add("--json", action="store_true", help="for programs")
    add("--args", nargs=argparse.REMAINDER, default=[], metavar="...", help="all further words go to the launch script")


def add_program(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("program", type=Path, metavar="PROGRAM", help="a .py or .sh file; its folder is the code")
    add("--source", type=Path, metavar="DIR", help="the code folder, if not that of the program")


def add_job(parser: argparse.ArgumentParser, groups: bool = True) -> None:
    add = parser.add_argument
    parser.set_defaults(group=[])
    if groups:
        text = "instead of --hosts; may be repeated"
        add("--group", action="append", metavar="NAME=N[:TYPE]", help=text)
    text = "single, ps, mwms, mpi, jax or auto (the default)"
    add("--mode", metavar="M", type=_mode, help=text)
    add("--processes-per-host", type=int, metavar="K", help="ranks (mpi), processes (jax) or workers")
    add(
        "--hyperparameters",
        nargs="*",
        action="extend",
        default=[],
        metavar="K=V",
        help="the script's arguments; V is any text",
    )
    add("--channel", action="append", default=[], metavar="NAME=DIR[,...]", help="input data; may be repeated")
    add(
        "--input-mode",
        choices=["File", "FastFile", "Pipe"],
        default="File",
        metavar="M",
        help="of channels: File (default), FastFile, Pipe",
    )


def _mode(text: str) -> "Mode":
    from entrypoint.launcher.job.settings import mode_named

    try:
        return mode_named(text)
    except ValueError as wanted:
        raise ConfigError(f"--mode is {text!r}; wanted {wanted}") from None


def local_job(args: argparse.Namespace, program: str, source: Path, output: Path) -> "LocalJob":
    from entrypoint.launcher.job.choices import Mode
    from entrypoint.simulate.fault import parse_fault
    from entrypoint.simulate.local_channels import ChannelMode, parse_channel
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
        channels=tuple(parse_channel(word, ChannelMode(args.input_mode)) for word in args.channel),
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
