"""Rehearse a job: read the launch's request, take samples of its data, make runs, and collect findings."""

import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from entrypoint.base.errors import ConfigError
from entrypoint.check.finding import Finding, goes
from entrypoint.check.rehearse import check_cost, check_run, check_stops
from entrypoint.check.rehearse.data_sources import origins
from entrypoint.check.rehearse.rehearsal import Rehearsal
from entrypoint.check.rehearse.rehearsed_request import BASE, Asked, asked_for, groups_of, job_for, requirements
from entrypoint.check.rehearse.results import RunName, SeenRun, seen
from entrypoint.check.rehearse.runs import TrainingTime, after, after_keeping, run, shows_reads
from entrypoint.check.rehearse.sample import RECORDS, take
from entrypoint.simulate.engine import Engine, EngineName
from entrypoint.simulate.fault import Action, Fault
from entrypoint.simulate.host_runner import handled
from entrypoint.simulate.run import engine_for, refuse_engine
from entrypoint.simulate.spec import LocalJob, host_names
from entrypoint.simulate.tree import MARKER, check_size

MOST_HOSTS = 4
SECONDS = 60.0
SOON_SECONDS = 10.0
START_SECONDS = 600.0  # in which a run may get ready: packages are installed, TensorFlow is imported
CHECKS = (*check_run.CHECKS, *check_stops.CHECKS, check_cost.of_hours)
Log = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Hold the options of the command line."""

    launch: str
    arguments: tuple[str, ...] = ()
    python: str = sys.executable
    engine: str = ""  # "": on macOS docker; else process, or netns if the program names /opt/ml and installs nothing
    image: str = ""
    hosts: int | None = None
    seconds: float = SECONDS
    records: int = RECORDS
    channels: Mapping[str, Path]
    source: Path | None = None
    output: Path
    price: float | None = None
    speedup: float | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError unless each number is above 0 and finite."""
        for name in ("seconds", "records", "hosts", "price", "speedup"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ConfigError(f"--{name} is {value:g}; wanted a number above 0")


def rehearse(options: Options, environment: Mapping[str, str], log: Log) -> tuple[Rehearsal, list[Finding]]:
    """Rehearse the job of a launch. Raise ConfigError or CodeError, with advice, if it cannot begin.

    Logs, records and models stay in the output folder; the samples are removed.
    """
    asked = asked_for(options.launch, options.arguments, options.python, environment, options.source)
    check_size(asked.source)
    if options.output.exists() and any(options.output.iterdir()):
        raise ConfigError(f"--output {options.output} is not empty; wanted a new folder")
    if asked.source == options.output or options.output in asked.source.parents:
        raise ConfigError(f"--output {options.output} holds the code {asked.source}; wanted another folder")
    samples = options.output / "samples"
    samples.mkdir(parents=True)
    (options.output / MARKER).touch()  # if the output lies in the code folder, it is not copied as code
    try:
        with handled((signal.SIGTERM, signal.SIGHUP), signal.default_int_handler):  # they do what Ctrl-C does
            return _rehearse(options, asked, samples, environment, log)
    finally:
        shutil.rmtree(samples, ignore_errors=True)
        for parts in options.output.glob("*/algo-*/channels"):
            shutil.rmtree(parts, ignore_errors=True)


def _rehearse(
    options: Options, asked: Asked, samples: Path, environment: Mapping[str, str], log: Log
) -> tuple[Rehearsal, list[Finding]]:
    hosts = options.hosts or min(asked.hosts, MOST_HOSTS)
    hosts = sum(len(group.hosts) for group in groups_of(asked, hosts)) or hosts
    # In netns nothing can be installed, since its network is closed. Processes of root have their own /opt/ml, too.
    installs = os.geteuid() == 0 and (asked.source / "requirements.txt").is_file()
    on_linux = EngineName.NETNS if asked.fixed and not installs else EngineName.PROCESS
    engine = options.engine or (EngineName.DOCKER if sys.platform == "darwin" else on_linux)
    refuse_engine(engine)
    case = Rehearsal(request=asked, engine=engine, hosts=hosts, price=options.price, speedup=options.speedup)
    # This machine's Python may take what the image refuses, and would then have its own packages replaced.
    required = requirements(asked) if engine != EngineName.DOCKER else []
    if not goes(required):
        return case, required
    log(f"samples of {options.records:,} records of each channel")
    found = origins(asked.described.request, options.channels, samples)
    case = replace(case, samples=tuple(take(origin, options.records) for origin in found))
    stage = _Stage(options, asked, case, environment, log)
    case = replace(case, runs=stage.runs(), own_ml=stage.own_ml)
    return case, [*required, *(finding for check in CHECKS for finding in check(case))]


class _Stage:
    """Make the runs one after another. Each depends on the results of the runs before."""

    def __init__(
        self, options: Options, asked: Asked, case: Rehearsal, environment: Mapping[str, str], log: Log
    ) -> None:
        self._options, self._asked, self._case = options, asked, case
        self._environment, self._say = environment, log
        self._runs: list[SeenRun] = []
        # Whether a container's reads show on a Mac, beyond the virtual machine between them, is not known.
        self._knows_reads = sys.platform != "darwin" and shows_reads(options.output)
        self._by_steps = False
        self.own_ml = True

    def runs(self) -> tuple[SeenRun, ...]:
        """Make the plain run; then the stop, kill and resume runs, as far as the results of earlier runs allow."""
        plain = self._run(RunName.PLAIN, self._options.seconds)
        if plain.has_failed or not plain.kind:
            return tuple(self._runs)
        self._by_steps = bool(plain.counts)
        # Half of the seconds in which the plain run trained.
        times = [at for host in plain.hosts for at, _, values in host.metrics if self._by_steps and values]
        ends = [process.ended for process in plain.processes if process.ended]
        half = min(max(ends) - min(times) if times and ends else plain.seconds, self._options.seconds) / 2
        if plain.ended.acted is None:
            self._run(RunName.STOP, half)
        until = plain.ended.acted or float("inf")
        if not any(at < until for at, _ in plain.ended.kept):  # no checkpoint before the stop, from which to go on
            return tuple(self._runs)
        if self._run(RunName.KILL, half).ended.acted is not None:
            self._run(RunName.RESUME, max(5.0, half))
        return tuple(self._runs)

    def _run(self, name: RunName, seconds: float) -> SeenRun:
        """Make one run, with its fault after `seconds` of training."""
        checkpoints = self._options.output / "checkpoints" / (RunName.KILL if name is RunName.RESUME else name)
        checkpoints.mkdir(parents=True, exist_ok=True)
        job = self._job(name, checkpoints)
        kept = self._asked.kept(checkpoints)
        progress = TrainingTime(job.output, self._by_steps)
        moment = after_keeping(progress, seconds, kept) if name is RunName.KILL else after(progress, seconds)
        log = self._options.output / f"{name}.log"
        engine = self._engine(job)
        self.own_ml = engine.has_own_ml
        if not self._runs and engine.name is EngineName.DOCKER:  # the others' notes are findings of a rehearsal
            for note in engine.notes():
                self._say(note)
        self._say(f"run {len(self._runs) + 1}: {_WORDS[name]}; its output is in {log}")
        ended = run(job, engine, log, moment, kept, own_files=name is RunName.PLAIN)
        knows_reads = self._knows_reads and name is RunName.PLAIN
        self._runs.append(seen(name, job, ended, log, knows_reads, self._case.engine))
        return self._runs[-1]

    def _job(self, name: RunName, checkpoints: Path) -> LocalJob:
        kills = name is RunName.KILL
        host = host_names(self._case.hosts)[-1] if kills else "all"  # of several, not the coordinator
        job = job_for(
            self._asked,
            hosts=self._case.hosts,
            checkpoints=checkpoints,
            output=self._options.output / name,
            mounted=self._case.engine != EngineName.PROCESS,
            # The runs before have measured how long stopping takes.
            stop_grace=min(SOON_SECONDS, self._asked.stop_grace) if kills or name is RunName.RESUME else None,
        )
        return replace(
            job,
            channels=tuple(sample.channel for sample in self._case.samples),
            timeout=START_SECONDS + 3 * self._options.seconds,
            faults=(Fault(action=Action.KILL if kills else Action.STOP, host=host),),
            notes_reads=name is RunName.PLAIN,
        )

    def _engine(self, job: LocalJob) -> Engine:
        """Return the engine of a run. Raise ConfigError if this machine cannot run it."""
        engine = engine_for(self._case.engine, job, self._environment, self._options.image)
        job.check_files()
        try:
            engine.check()
        except ConfigError as problem:
            if self._options.engine or self._case.engine == EngineName.DOCKER or not self._asked.fixed:
                raise
            raise ConfigError(
                f"the script names {BASE} itself ({', '.join(self._asked.fixed[:4])}), which on hosts that are "
                f"processes of a user other than root is this machine's own folder; wanted --engine docker, or netns "
                f"({problem}); or SM_MODEL_DIR, SM_CHANNEL_... instead"
            ) from None
        return engine


_WORDS = {
    RunName.PLAIN: "the job as requested",
    RunName.STOP: "SIGTERM during training",
    RunName.KILL: "a host is killed during training",
    RunName.RESUME: "the next job, with the checkpoints of the killed one",
}
