"""Rehearse a job: read the launch's request, take samples of its data, make runs, and collect findings."""

import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from entrypoint.base.errors import ConfigError
from entrypoint.check.finding import Finding
from entrypoint.check.rehearse import check_run, check_stops
from entrypoint.check.rehearse.data_sources import origins
from entrypoint.check.rehearse.request import BASE, Asked, asked_for, groups_of, job_for
from entrypoint.check.rehearse.results import RunName, Seen, seen
from entrypoint.check.rehearse.runs import Moment, run, shows_reads, stoppable
from entrypoint.check.rehearse.sample import RECORDS, Sample, take
from entrypoint.check.rehearse.subject import Case
from entrypoint.check.rehearse.triggers import Progress, after, after_keeping
from entrypoint.simulate.channels import InputMode
from entrypoint.simulate.engine import EngineName
from entrypoint.simulate.engines import engine_for
from entrypoint.simulate.fault import Action, Fault
from entrypoint.simulate.spec import LocalJob, host_names
from entrypoint.simulate.tree import MARKER, check_size

MOST_HOSTS = 4
SECONDS = 60.0
SOON_SECONDS = 10.0  # seconds
START_SECONDS = 600.0  # seconds in which a run may get ready: packages are installed, TensorFlow is imported
CHECKS = (*check_run.CHECKS, *check_stops.CHECKS)
Log = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Hold the options of the command line."""

    launch: str
    arguments: tuple[str, ...] = ()
    python: str = sys.executable
    engine: str = ""  # "": process, or netns if the program contains a literal /opt/ml
    image: str = ""
    hosts: int | None = None
    seconds: float = SECONDS
    records: int = RECORDS
    channels: Mapping[str, Path]
    source: Path | None = None
    output: Path

    def __post_init__(self) -> None:
        """Raise ConfigError if a number is not above 0 or infinite."""
        for name in ("seconds", "records", "hosts"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ConfigError(f"--{name} is {value:g}; wanted a number above 0")


def rehearse(options: Options, environment: Mapping[str, str], log: Log) -> tuple[Case, list[Finding]]:
    """Rehearse the job of a launch; ConfigError or CodeError, with advice, if it cannot begin.

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
        with stoppable():
            return _rehearse(options, asked, samples, environment, log)
    finally:
        shutil.rmtree(samples, ignore_errors=True)
        for parts in options.output.glob("*/algo-*/channels"):
            shutil.rmtree(parts, ignore_errors=True)


def _rehearse(
    options: Options, asked: Asked, samples: Path, environment: Mapping[str, str], log: Log
) -> tuple[Case, list[Finding]]:
    log(f"samples of {options.records:,} records of each channel")
    found = origins(asked.described.request, options.channels, samples)
    taken = tuple(take(origin, options.records) for origin in found)
    hosts = options.hosts or min(asked.hosts, MOST_HOSTS)
    hosts = len([host for group in groups_of(asked, hosts) for host in group.hosts]) or hosts
    options = replace(options, engine=options.engine or _engine_of(options, asked, environment))
    stage = _Stage(options, asked, hosts, tuple(taken), environment, log)
    case = replace(stage.case(), runs=stage.runs())
    return case, [finding for check in CHECKS for finding in check(case)]


def _engine_of(options: Options, asked: Asked, environment: Mapping[str, str]) -> str:
    """Return the engine that gives a program with a literal /opt/ml its own; ConfigError if it is not available."""
    if not asked.fixed:
        return EngineName.PROCESS
    job = job_for(
        asked,
        hosts=1,
        channels=(),
        checkpoints=options.output,
        output=options.output,
        timeout=START_SECONDS,
        mounted=True,
    )
    try:
        engine_for(EngineName.NETNS, job, environment, options.image).check()
    except ConfigError as problem:
        raise ConfigError(
            f"the script names {BASE} itself ({', '.join(asked.fixed[:4])}), which on hosts that are processes is this "
            f"machine's own folder; wanted --engine docker, or netns ({problem}); or SM_MODEL_DIR, SM_CHANNEL_... "
            "instead"
        ) from None
    return EngineName.NETNS


class _Stage:
    """Make the runs one after another, each depending on the results of those before."""

    def __init__(
        self, options: Options, asked: Asked, hosts: int, taken: tuple[Sample, ...], environment: Mapping[str, str],
        log: Log,
    ) -> None:  # fmt: skip
        self._options, self._asked, self._hosts, self._taken = options, asked, hosts, taken
        self._environment, self._say = environment, log
        self._runs: list[Seen] = []
        self._knows_reads = shows_reads(options.output)
        self._by_steps = False
        self._budget = asked.described.job.settings.stop_grace if asked.described.job else SOON_SECONDS

    def case(self) -> Case:
        """Return what is known before the first run."""
        options = self._options
        return Case(
            request=self._asked,
            environment=self._asked.described.request.environment,
            engine=options.engine,
            hosts=self._hosts,
            samples=self._taken,
            streamed=tuple(each.channel.name for each in self._taken if each.channel.mode is InputMode.PIPE),
            budget=self._budget,
        )

    def runs(self) -> tuple[Seen, ...]:
        """Make the runs, as many as their results call for."""
        limit = self._options.seconds
        plain = self._run(RunName.PLAIN, Action.STOP, lambda progress, _: after(progress, limit), by_steps=False)
        if plain.has_failed or not plain.kind:
            return tuple(self._runs)
        self._by_steps = bool(plain.counts)
        half = self._half(plain)
        if plain.ended.acted is None:
            self._run(RunName.STOP, Action.STOP, lambda progress, _: after(progress, half))
        until = plain.ended.acted or float("inf")
        if not any(at < until for at, _ in plain.ended.kept):  # no checkpoint before the stop, from which to go on
            return tuple(self._runs)
        killed = self._run(RunName.KILL, Action.KILL, lambda progress, kept: after_keeping(progress, half, kept))
        if killed.ended.acted is not None:
            self._run(RunName.RESUME, Action.STOP, lambda progress, _: after(progress, max(5.0, half)), of=RunName.KILL)
        return tuple(self._runs)

    def _half(self, plain: Seen) -> float:
        """Return half of the seconds in which the plain run trained."""
        times = [at for host in plain.hosts for at, _, values in host.metrics if self._by_steps and values]
        ends = [process.ended for process in plain.processes if process.ended]
        whole = max(ends) - min(times) if times and ends else plain.seconds
        return min(whole, self._options.seconds) / 2

    def _run(
        self,
        name: RunName,
        action: Action,
        moment: Callable[[Progress, list[Path]], Moment],
        of: RunName | None = None,
        by_steps: bool | None = None,
    ) -> Seen:
        checkpoints = self._folder(of or name)
        checkpoints.mkdir(parents=True, exist_ok=True)
        host = "all" if action is Action.STOP else host_names(self._hosts)[-1]  # of several, not the coordinator
        job = self._job(name, checkpoints, Fault(action=action, host=host))
        kept = self._asked.kept(checkpoints)
        progress = Progress(job.output, self._by_steps if by_steps is None else by_steps)
        log = self._options.output / f"{name}.log"
        engine = engine_for(self._options.engine, job, self._environment, self._options.image)
        job.check_files()
        engine.check()
        self._say(f"run {len(self._runs) + 1}: {_WORDS[name]}; its output is in {log}")
        ended = run(job, engine, log, moment(progress, kept), kept, own_files=name is RunName.PLAIN)
        self._runs.append(seen(name, job, ended, log, self._knows_reads and name is RunName.PLAIN))
        return self._runs[-1]

    def _job(self, name: RunName, checkpoints: Path, *faults: Fault) -> LocalJob:
        return job_for(
            self._asked,
            hosts=self._hosts,
            channels=[sample.channel for sample in self._taken],
            checkpoints=checkpoints,
            output=self._options.output / name,
            timeout=START_SECONDS + 3 * self._options.seconds,
            faults=faults,
            # The runs before have measured how long stopping takes.
            stop_grace=min(SOON_SECONDS, self._budget) if name in (RunName.KILL, RunName.RESUME) else None,
            notes_reads=name is RunName.PLAIN,
            mounted=self._options.engine != EngineName.PROCESS,
        )

    def _folder(self, name: RunName) -> Path:
        return self._options.output / "checkpoints" / name


_WORDS = {
    RunName.PLAIN: "the job as requested",
    RunName.STOP: "SIGTERM during training",
    RunName.KILL: "a host is killed during training",
    RunName.RESUME: "the next job, with the checkpoints of the killed one",
}
