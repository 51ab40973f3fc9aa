"""Run the commands of `entrypoint`: `plan`, `local`, `host`, `top`, `report`, `replay`, `doctor` and others."""

import argparse
import errno
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from entrypoint.base.errors import CodeError, ConfigError, ExitCode
from entrypoint.cli.arguments import parser


def main() -> None:
    """Run the console script `entrypoint`. If the reader of its output goes away, end quietly, as on SIGPIPE."""
    code = 1
    try:
        try:
            code = run(sys.argv[1:])
        finally:
            print(end="", flush=True)
    except BrokenPipeError:
        _print_no_more()
        code = 128 + signal.SIGPIPE
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename:
            raise
        _print_no_more()
        print(f"error: stdout cannot be written: {error.strerror}", file=sys.stderr)
        code = code or 1
    if "tensorboard" in sys.modules:  # its native threads may turn Python's exit into SIGABRT
        os._exit(code)
    sys.exit(code)


def _print_no_more() -> None:
    """Redirect stdout to nowhere, so that Python's last flush cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def run(argv: Sequence[str], environment: Mapping[str, str] = os.environ) -> int:
    """Run the command in `argv` and return the exit code. ConfigError and CodeError become one line on stderr."""
    try:
        args = parser().parse_args(list(argv))
        return int(COMMANDS[args.command](args, environment))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return ExitCode.CONFIG
    except CodeError as error:
        print(f"error: {error}", file=sys.stderr)
        return ExitCode.CODE


# --- the commands ---


def _plan(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from entrypoint.base.secrets import Secrets
    from entrypoint.launcher import places
    from entrypoint.launcher.host.machine import this_machine
    from entrypoint.launcher.job.config import read_job
    from entrypoint.launcher.plan.plan import ProcessSpec
    from entrypoint.launcher.plan.planner import plan_for
    from entrypoint.launcher.plan.render import as_json, render

    here = this_machine()

    def part(spec: ProcessSpec) -> dict[str, str]:
        return here.part_of(spec, environment)

    with tempfile.TemporaryDirectory() as scratch:
        base, config = _description(args, environment, Path(scratch))
        job = read_job(base, environment, places.DEFAULT_RUN, here.gpus, config=config)
    plan = plan_for(job)
    if args.host not in (None, *plan.hosts):
        raise ConfigError(f"--host is {args.host!r}; wanted one of {', '.join(plan.hosts)}")
    secret = Secrets(environment, job.hyperparameters)
    if args.json:
        print(json.dumps(secret.mask_all(as_json(plan, args.host, part)), indent=1))
    else:
        print(secret.mask(render(plan, args.host, part, whole=args.all)))
    return 0


def _description(args: argparse.Namespace, environment: Mapping[str, str], scratch: Path) -> tuple[Path, Path | None]:
    """Return (base folder, folder of the config files or None) of the job to plan. None: it is this machine's job."""
    from entrypoint.launcher import places
    from entrypoint.simulate.tree import write_config

    described = (args.mode, args.processes_per_host, args.program, args.hyperparameters or None, args.channel or None)
    made_up = args.hosts is not None or bool(args.group)
    if not made_up and any(value is not None for value in described):
        raise ConfigError("--mode, --program and similar options describe a made-up job; wanted --hosts N, too")
    if made_up:
        if args.config:
            raise ConfigError("--config and --hosts describe two jobs; wanted one of them")
        program = Path(args.program or "train.py")
        job = _local_job(args, program=program.name, source=program.parent, output=scratch / "plan")
        write_config(job, job.names[0], scratch)
        return places.DEFAULT_BASE, scratch
    if not args.config:
        base = places.base_folder()
        if not (base / "input" / "config").is_dir():
            raise ConfigError(f"there is no job in {base}; wanted --hosts N to make one up, or --config DIR")
        return base, None
    if (args.config / "input" / "config").is_dir():
        return args.config, args.config / "input" / "config"
    if not (args.config / "resourceconfig.json").exists():
        raise ConfigError(f"--config {args.config} has no resourceconfig.json and no input/config with one")
    return places.DEFAULT_BASE, args.config


def _local(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from entrypoint.launcher.host.machine import count_gpus
    from entrypoint.simulate.docker_engine import DockerEngine
    from entrypoint.simulate.engine import Engine, refuse_faults
    from entrypoint.simulate.netns_engine import NetnsEngine
    from entrypoint.simulate.process_engine import ProcessEngine
    from entrypoint.simulate.run import run_local, show_plan

    program, source = _program(args.program, args.source)
    job = _local_job(args, program=program, source=source, output=args.output or _new_output(args))
    engine: Engine
    if args.ip != "4" and args.engine != "netns":
        raise ConfigError(f"--ip {args.ip} is for --engine netns; the engine is {args.engine}")
    if args.engine == "docker":
        engine = DockerEngine(job, environment, args.image, args.shm_size)
    elif args.engine == "netns":
        engine = NetnsEngine(job, environment, count_gpus(), args.ip)
    else:
        engine = ProcessEngine(job, environment, count_gpus())
    refuse_faults(job.faults, type(engine), (ProcessEngine, NetnsEngine, DockerEngine))
    return show_plan(job, engine, args.all) if args.plan else run_local(job, engine)


def _host(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from entrypoint.launcher.places import base_folder
    from entrypoint.simulate.compose_host import become_host, count_hosts

    args.hosts = count_hosts(args.hosts, args.most)
    program, source = _program(args.program, args.source)
    job = _local_job(args, program=program, source=source, output=Path(Path(program).stem))
    become_host(job, args.host, base_folder(), environment)


def _doctor(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    if args.files:
        return _doctor_of_files(args, environment)
    from entrypoint.simulate.machine_check import examine

    for line in examine(environment.get("PATH", "")):
        print(line)
    return 0


def _doctor_of_files(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Check the files of a job and return the exit code.

    0: notes at most, or warnings without --strict; 1: worse; 2: a file cannot be read.
    """
    from entrypoint.base.severity import Severity
    from entrypoint.check.lint.lint import examine
    from entrypoint.check.lint.output import as_json, as_text

    try:
        report = examine(args.files, image=args.image, arguments=args.args, python=args.python, environment=environment)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(as_json(report), indent=2) if args.json else as_text(report))
    least = Severity.WARNING if args.strict else Severity.ERROR
    return int(report.worst is not None and report.worst >= least)


def _rehearse(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from entrypoint.cli.rehearse import rehearse_command

    return rehearse_command(args, environment)


def _settings(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from entrypoint.launcher.job.settings import settings_table

    print(settings_table())
    return 0


def _replay(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    import shlex

    from entrypoint.cli.replay import compare, lacks, once_more, replay
    from entrypoint.record.find import find

    records = find(args.bundle)
    if args.rerun is None:
        return replay(records, args.host)
    output = args.output or _new_output(argparse.Namespace(program=args.rerun, mode="rerun"))
    words = ["local", *once_more(records, str(args.rerun)), "--engine", args.engine, "--output", str(output)]
    print(f"entrypoint {shlex.join(words)}", flush=True)
    print(f"The bundle does not contain, and the command may need: {lacks(records)}", flush=True)
    code = run(words, environment)
    return compare(records, find(str(output))) if output.exists() else code


def _metrics(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from entrypoint.cli.export import metrics

    return metrics(args.place, args.name, args.sdk)


def _tensorboard(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from entrypoint.cli.export import tensorboard

    return tensorboard(args.place, args.logdir, args.live)


def _mlflow(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from entrypoint.cli.export import mlflow

    return mlflow(args.place)


def _top(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from entrypoint.observe.live.top import show, source

    return show(source(args.where, environment), args.once)


def _report(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from entrypoint.cli.report import report

    return report(args)


def _train(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from entrypoint.train import train

    train()
    return 0  # not reached: train ends the process


# --- their arguments as values ---


def _local_job(args: argparse.Namespace, program: str, source: Path, output: Path):  # type: ignore[no-untyped-def]
    from entrypoint.launcher.job.choices import AskedMode
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
        mode=args.mode or AskedMode.AUTO,
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


def _program(given: Path, source: Path | None) -> tuple[str, Path]:
    """Return (name of the program in the code folder, code folder)."""
    if source is None:
        return given.name, given.parent
    for path in (given, source / given):
        if path.is_file() and path.absolute().is_relative_to(source.absolute()):
            return str(path.absolute().relative_to(source.absolute())), source
    raise CodeError(f"there is no program {given} in --source {source}; wanted a file in that folder")


def _new_output(args: argparse.Namespace) -> Path:
    name = f"{args.program.stem}-{args.mode or 'auto'}-{time.strftime('%Y%m%d-%H%M%S')}"
    paths = (Path("out", name if number == 1 else f"{name}-{number}") for number in range(1, 10_000))
    return next(path for path in paths if not path.exists())


COMMANDS = {
    "settings": _settings,
    "train": _train,
    "plan": _plan,
    "doctor": _doctor,
    "rehearse": _rehearse,
    "local": _local,
    "host": _host,
    "top": _top,
    "metrics": _metrics,
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
    "replay": _replay,
    "report": _report,
}
