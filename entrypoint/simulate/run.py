"""Run a job on simulated hosts, from check to summary."""

import contextlib
import signal

from entrypoint.base.errors import ExitCode
from entrypoint.base.secrets import Secrets
from entrypoint.simulate.engine import Engine
from entrypoint.simulate.injector import Injector
from entrypoint.simulate.pages import board, live_page
from entrypoint.simulate.pipe_writer import Stream, feeding
from entrypoint.simulate.spec import LocalJob
from entrypoint.simulate.summary import exit_code, summary
from entrypoint.simulate.tree import channels_in, check_size, folders_of, read_below, taken, write_tree
from entrypoint.simulate.watch import Terminal, Watch, signals


def show_plan(job: LocalJob, engine: Engine, whole: bool) -> int:
    """Print the plan that `run_local` would run, `whole` or short. ConfigError or CodeError if it cannot be run."""
    job.check_files()
    engine.check()
    print(Secrets(dict(job.environment), dict(job.hyperparameters)).mask(engine.plan(whole)))
    return 0


def run_local(job: LocalJob, engine: Engine) -> int:
    """Run the job; return its exit code. ConfigError or CodeError, before any start, if it cannot be run."""
    job.check_files()
    check_size(job.source, channels_in(job))
    engine.check()
    folders = folders_of(job)
    terminal = Terminal()
    place = taken(job.output, f"--output {job.output}", read_below(job, job.output))
    with place, signals() as happened:
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
            exits = Watch(engine, injector, terminal, happened).run(folders, job.timeout)
        terminal.print(summary(folders, exits, injector.report()))
    return ExitCode.CONFIG if problems else exit_code(folders, exits)
