"""Make the engine that a command names, and run a job on simulated hosts, from check to summary."""

import contextlib
import json
import logging
import os
import queue
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from entrypoint.base.errors import ConfigError, ExitCode
from entrypoint.base.secrets import Secrets
from entrypoint.launcher.host.machine import count_gpus
from entrypoint.launcher.outcome.outcome import Exit
from entrypoint.observe.export.points import follow
from entrypoint.observe.live.serve import Looks, application
from entrypoint.observe.report.make import told_in
from entrypoint.simulate.docker_engine import DockerEngine
from entrypoint.simulate.engine import Engine, EngineName, last_line
from entrypoint.simulate.fault import Fault
from entrypoint.simulate.host_output import Quiet, Terminal
from entrypoint.simulate.host_runner import SIGNALS, HostRunner, handled
from entrypoint.simulate.injector import Injector
from entrypoint.simulate.local_python import allow_files
from entrypoint.simulate.netns_engine import NetnsEngine
from entrypoint.simulate.pipe_writer import Stream, feeding
from entrypoint.simulate.process_engine import ProcessEngine
from entrypoint.simulate.spec import LocalJob
from entrypoint.simulate.tree import (
    HostFolder,
    channels_in,
    check_size,
    folders_of,
    read,
    read_below,
    taken,
    write_tree,
)

ENGINES: dict[str, type[Engine]] = {kind.name: kind for kind in (ProcessEngine, NetnsEngine, DockerEngine)}
SEE_THE_END_SECONDS = 3.0  # seconds for which an open page can still fetch how the job ended
LAST_SECONDS = 10.0  # seconds for the last records to be written
APART = "error: apart: "  # the report's verdict that stands first here, as the table looks like a success
# What helps against a cause on this machine, which may lack what a job on SageMaker has. {0}: what the pattern found.
_REMEDIES = (
    (r"KeyError: 'SM_CHANNEL_(\w+)'", "--channel {0}=FOLDER gives the hosts that channel"),
    (r"No module named '(horovod|mpi4py|tensorflow)[.']", "--engine docker, whose image has {0}; or install it here"),
    (r"No module named '(jax)[.']", "--engine docker, with an image of `./build.sh --tensorflow 2.21`, which has {0}"),
)
_COLUMNS = ("host", "exit", "start s", "train s", "tail s")


def engine_for(
    name: str, job: LocalJob, environment: Mapping[str, str], image: str, shm_size: str | None = None, ip: str = "4"
) -> Engine:
    """Return the engine `name` for a job. `image` and `shm_size` are Docker's, `ip` is of netns."""
    refuse_engine(name)
    match EngineName(name):
        case EngineName.PROCESS:
            return ProcessEngine(job, environment, count_gpus())
        case EngineName.NETNS:
            return NetnsEngine(job, environment, count_gpus(), ip)
        case EngineName.DOCKER:
            return DockerEngine(job, environment, image, shm_size)


def refuse_engine(name: str) -> None:
    """Raise ConfigError for an engine that takes another system than this one."""
    if sys.platform == "darwin" and name != EngineName.DOCKER:
        raise ConfigError(f"--engine {name} needs Linux, and this is macOS; wanted --engine docker")


def refuse_faults(faults: Sequence[Fault], name: str) -> None:
    """Raise ConfigError for a fault that the engine `name` cannot inject, with the names of engines that can."""
    for fault in faults:
        able = [f"--engine {other}" for other, kind in ENGINES.items() if fault.action in kind.faults]
        if f"--engine {name}" not in able:
            raise ConfigError(f"--fault '{fault}': engine {name} cannot {fault.action}; wanted {' or '.join(able)}")


def show_plan(job: LocalJob, engine: Engine, whole: bool) -> int:
    """Print the plan of `run_local`, `whole` or short. Raise ConfigError or CodeError if the job cannot be run."""
    job.check_files()
    engine.check()
    print(Secrets(dict(job.environment), dict(job.hyperparameters)).mask(engine.plan(whole)))
    return 0


def _intent(job: LocalJob, engine: Engine, warns: bool) -> Iterator[str]:
    """Yield what is about to run and where its logs go.

    With `warns`, yield the warnings that the logs will have, too.
    """
    folders = folders_of(job)
    mode: str = job.mode
    warnings: tuple[str, ...] = ()
    with contextlib.suppress(ConfigError):  # the image's launcher may know other settings
        described = read(job, folders[0].host, folders[0].base, engine.settings)
        mode, warnings = described.mode, described.warnings
    hosts = "1 host" if job.hosts == 1 else f"{job.hosts} hosts"
    yield f"{place('runs', [job.source / job.program])}: {hosts}, mode {mode}, engine {engine.name}"
    yield place("logs", [folder.log for folder in folders])
    yield from engine.notes()
    if warns:
        yield from (f"warning: {warning}" for warning in warnings)


def run_local(
    job: LocalJob, engine: Engine, environment: Mapping[str, str] = MappingProxyType({}), quiet: bool = False
) -> int:
    """Run the job; return its exit code. Raise ConfigError or CodeError, before any start, if it cannot be run.

    `environment` decides whether there are colours.
    """
    job.check_files()
    check_size(job.source, channels_in(job))
    engine.check()
    folders = folders_of(job)
    terminal = Quiet(environment, job.names) if quiet else Terminal(environment)
    ours = taken(job.output, f"--output {job.output}", read_below(job, job.output))
    happened: queue.SimpleQueue[int] = queue.SimpleQueue()  # signals, which thus never interrupt a clean-up
    with ours as held, handled(SIGNALS, lambda number, _: happened.put(number)):
        for line in _intent(job, engine, quiet):
            terminal.print(line)
        for folder in folders:
            write_tree(job, folder)
        for line in filter(None, (channel.summary for channel in job.channels)):
            terminal.print(line)
        injector = Injector(job.faults, engine, terminal.print)
        streams = [
            Stream(channel=channel, folder=folder.input_data, rank=rank, hosts=job.hosts)
            for rank, folder in enumerate(folders)
            for channel in job.channels
        ]
        problems: list[str] = []

        def failed(problem: str) -> None:
            problems.append(problem)
            terminal.print(f"error: {problem}")
            if problems[0] is problem:  # a second signal would kill the hosts
                happened.put(signal.SIGTERM)

        # The first host coordinates, unless instance groups choose another.
        records = [folder.output / "data/record" for folder in folders]
        with contextlib.ExitStack() as around:
            if job.watch is not None:
                around.enter_context(live_page(records[0], job.watch, terminal.print))
            if job.tensorboard is not None:
                around.enter_context(board(records, job.output / "tensorboard", job.tensorboard, terminal.print))
            around.enter_context(feeding(streams, failed))
            around.enter_context(engine.ready())
            if job.patience:
                terminal.print(
                    f"many hosts on few CPUs: ENTRYPOINT_PEER_TIMEOUT is {job.patience:g}, unless you set it"
                )
            allow_files(2 * len(folders))  # a pipe and a log for each
            held.has_run = True
            exits = HostRunner(engine, injector, terminal, happened).run(folders, job.timeout)
        terminal.print(summary(folders, exits, injector.report()))
    if terminal.full:
        raise terminal.full
    return ExitCode.CONFIG if problems else exit_code(folders, exits)


# --- the pages of a running job ---


@contextlib.contextmanager
def live_page(records: Path, port: int, say: Callable[[str], None]) -> Iterator[None]:
    """Serve the page of the job with these records on this machine's loopback; port 0 means any free one.

    Raise ConfigError if the port is not free.
    """
    from waitress.server import create_server

    logging.getLogger("waitress").setLevel(logging.ERROR)
    looks = Looks()
    try:
        server = create_server(application(records, looks), host="127.0.0.1", port=port, threads=2, ident="")
    except OSError as error:
        raise ConfigError(f"--watch cannot have port {port} ({error.strerror}); wanted a free one, or 0") from None
    threading.Thread(target=server.run, name="live page", daemon=True).start()
    say(f"live page: http://localhost:{server.effective_port}/")
    try:
        yield
        looks.wait_for_one(SEE_THE_END_SECONDS)
    finally:
        server.close()


@contextlib.contextmanager
def board(records: Sequence[Path], logdir: Path, port: int, say: Callable[[str], None]) -> Iterator[None]:
    """Write the job's event files while it runs, and serve them on this machine. Raise ConfigError if that fails."""
    from entrypoint.observe.export.event_files import EventFiles

    files, over = EventFiles(logdir), threading.Event()
    writer = threading.Thread(target=follow, args=(lambda: list(records), files.add, over.is_set), daemon=True)
    writer.start()
    say(f"TensorBoard: {_tensorboard(logdir, port)}")
    try:
        yield
    finally:
        over.set()
        writer.join(LAST_SECONDS)
        files.close()
        say(f"event files: {logdir}; tensorboard --logdir shows them again")


def _tensorboard(logdir: Path, port: int) -> str:
    """Start TensorBoard in a thread and return its address: a process would be ended with the hosts' descendants."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of TensorBoard's own imports
        from tensorboard import program

    tool = program.TensorBoard()
    tool.configure(
        argv=["", "--logdir", str(logdir), "--host", "localhost", "--port", str(port),
              "--load_fast=false", "--reload_interval=2"]
    )  # fmt: skip
    try:
        return str(tool.launch())
    except program.TensorBoardServerException as error:
        raise ConfigError(f"--tensorboard: {error.msg.strip()}") from None


# --- how it ended ---


def exit_code(folders: Sequence[HostFolder], exits: Mapping[str, Exit]) -> int:
    """Return 0 if every host exited with 0; else the first other code in rank order; 1 if a host never started."""
    codes = [exits[folder.host].code if folder.host in exits else 1 for folder in folders]
    return next((code for code in codes if code), 0)


def summary(folders: Sequence[HostFolder], exits: Mapping[str, Exit], faults: Sequence[str] = ()) -> str:
    """Return the causes of failure, the table of hosts, faults, the report's end and verdicts, and paths."""
    reports = {folder.host: _report(folder) for folder in folders}
    rows = [_COLUMNS, *(_row(folder.host, exits.get(folder.host), reports[folder.host]) for folder in folders)]
    width = max(len(row[0]) for row in rows)
    verdicts = [words for folder in folders for words in told_in(folder.report, "verdict")]
    apart = [words.replace(APART, "error: ", 1) for words in verdicts if words.startswith(APART)]
    failed = [words for cause in _causes(folders, exits, reports) for words in (f"failed: {cause}", *_remedies(cause))]
    lines = ["", *apart, *failed, *([""] if apart or failed else [])]
    lines += [*(f"{row[0]:<{width}}" + "".join(f"{cell:>10}" for cell in row[1:]) for row in rows), ""]
    # The causes say how a failed job ended.
    ends = [] if failed else [words for folder in folders for words in told_in(folder.report, "ending")]
    rest = [f"report: {words}" for words in [*ends, *verdicts] if not words.startswith(APART)]
    return "\n".join([*lines, *faults, *rest, *_places(folders)])


def _remedies(cause: str) -> list[str]:
    found = ((re.search(pattern, cause), words) for pattern, words in _REMEDIES)
    return [f"try: {words.format(match[1].lower())}" for match, words in found if match]


def _report(folder: HostFolder) -> dict[str, Any]:
    """Return the host's own summary; {} if it has not written one."""
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads(folder.summary.read_text("utf-8")))
    return {}


def _row(host: str, exit: Exit | None, report: Mapping[str, Any]) -> tuple[str, ...]:
    seconds = report.get("seconds") or {}
    times = [seconds.get(part) for part in ("start", "train", "tail")]
    return (host, exit.short if exit else "-", *("-" if time is None else f"{time:.2f}" for time in times))


def _causes(
    folders: Sequence[HostFolder], exits: Mapping[str, Exit], reports: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Return the distinct causes that hosts report. If they report none, return the last line of each failed host."""
    causes = dict.fromkeys(str(report["cause"]) for report in reports.values() if report.get("cause"))
    if causes:
        return list(causes)
    failed = [f for f in folders if f.host in exits and exits[f.host].code and not reports[f.host]]
    return [f"{folder.host} ({exits[folder.host]}): {_last_words(folder)}" for folder in failed]


def _last_words(folder: HostFolder) -> str:
    with contextlib.suppress(OSError):
        if folder.failure.exists():
            return folder.failure.read_text("utf-8", errors="replace").split("\n")[0]
        with folder.log.open("rb") as log:
            log.seek(max(0, folder.log.stat().st_size - 4096))
            return last_line(log.read(), "it printed nothing")
    return "it printed nothing"


def _places(folders: Sequence[HostFolder]) -> list[str]:
    found = {
        "model": [folder.model for folder in folders if folder.model.is_dir() and any(folder.model.iterdir())],
        "failure": [folder.failure for folder in folders if folder.failure.exists()],
        "report": [folder.report for folder in folders if folder.report.exists()],
        "logs": [folder.log for folder in folders],
    }
    return [place(what, paths) for what, paths in found.items() if paths]


def place(what: str, paths: Sequence[Path]) -> str:
    """Return the first path, and how many more there are."""
    shown = f"{paths[0]}" + (f" (and {len(paths) - 1} more, one for each host)" if len(paths) > 1 else "")
    with contextlib.suppress(ValueError):
        shown = shown.replace(str(paths[0]), str(paths[0].relative_to(Path.cwd())))
    return f"{what:<9}{shown}"
