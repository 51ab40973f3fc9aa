"""Define a rehearsal, which the checks read: its request, samples and runs. Present it for people and programs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from entrypoint.base.severity import Severity
from entrypoint.base.wording import duration
from entrypoint.check.finding import Finding, counted, goes
from entrypoint.check.rehearse.results import RunName, SeenRun
from entrypoint.check.rehearse.sample import ChannelSample
from entrypoint.launcher.job.job import Mode
from entrypoint.simulate.local_channels import ChannelMode


@dataclass(frozen=True, kw_only=True)
class RehearsedRequest:
    """Describe a request as far as the checks need it."""

    title: str  # one line on what runs
    mode: Mode
    meant_alone: bool = False  # ENTRYPOINT_MODE=single: each host shall train alone
    hosts: int
    instance_types: tuple[str, ...]
    processes_per_host: int = 1
    keeps_checkpoints: bool = False
    spot: bool = False
    ours: bool = True  # whether the request starts our launcher
    moved: tuple[str, ...] = ()
    unmoved: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()  # places with a literal /opt/ml
    same_epochs: bool = False  # the number of steps in an epoch does not depend on the data
    fits: bool = False  # Keras's fit trains, and prints each epoch
    writes_checkpoints: bool = False  # the script has such a call, and so on
    reads_checkpoints: bool = False
    handles_sigterm: bool = False
    others: int = 0
    hyperparameters: Mapping[str, str] = field(default_factory=dict)  # JSON in strings
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_grace: float = 100.0  # seconds for scripts to stop


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """Describe a rehearsal with the runs that it has made so far."""

    request: RehearsedRequest
    engine: str
    hosts: int  # number of simulated hosts
    own_ml: bool = True  # whether each has an /opt/ml of its own
    samples: tuple[ChannelSample, ...] = ()
    runs: tuple[SeenRun, ...] = ()  # the plain one first
    price: float | None = None  # USD per host-hour
    speedup: float | None = None  # speed of the real job divided by that of the rehearsal

    @property
    def streamed(self) -> tuple[str, ...]:
        """Return the channels in Pipe mode."""
        return tuple(each.channel.name for each in self.samples if each.channel.mode is ChannelMode.PIPE)

    def run(self, name: RunName) -> SeenRun | None:
        return next((run for run in self.runs if run.name is name), None)

    @property
    def plain(self) -> SeenRun:
        return self.runs[0]

    @property
    def stopped(self) -> SeenRun | None:
        """Return the run that was stopped midway: the STOP run; or the plain run, if it did not end by itself."""
        return self.run(RunName.STOP) or (self.plain if self.plain.ended.acted else None)

    def no_rate(self, run: SeenRun) -> tuple[str, str]:
        """Return why a run shows no rate of steps or epochs, and what to do."""
        count, within = run.counts, duration(run.trained)
        by_keras = self.request.fits or "epochs" in run.metrics
        if by_keras and not run.is_whole and count != "step" and run.first("epoch") == run.last("epoch"):
            return f"no epoch of Keras's fit ended within {within}", "a longer --seconds, or fewer --records"
        if count:
            return f"the {count}s printed within {within} are too few for a rate", "a longer --seconds"
        form = "print(f'step={step} loss={loss}'), or ENTRYPOINT_METRICS"
        return "the script prints no steps in a known form", form


def figures(values: dict[str, Any]) -> str:
    """Describe up to five metrics."""
    shown = [f"{name} {value:.6g}" for name, value in values.items() if isinstance(value, (int, float))]
    return ", ".join(shown[:5])


def as_text(findings: list[Finding]) -> str:
    """Return a line for each finding, with advice below those that are not fine; then go or no-go."""
    lines = []
    width = max((len(each.check) for each in findings), default=0)
    for each in findings:
        lines.append(f"{each.severity!s:<8}{each.check:<{width}}  {each.found}")
        if each.instead:
            lines.append(f"{'':<{8 + width}}  do: {each.instead}")
    numbers = counted(findings, (Severity.ERROR, Severity.WARNING))
    return "\n".join([*lines, "", f"{'go' if goes(findings) else 'no-go'}: {numbers}"])


def as_json(case: Rehearsal, findings: list[Finding]) -> dict[str, Any]:
    """Return {"go", "findings": [{"check", "severity", "found", "instead"}], "runs", "samples", "hosts", "engine"}."""
    return {
        "go": goes(findings),
        "findings": [each.value for each in findings],
        "engine": case.engine,
        "hosts": case.hosts,
        "samples": [
            {
                "channel": sample.channel.name,
                "of": sample.where,
                "kind": sample.kind,
                "records": sample.records,
                "files": sample.files,
                "of_files": sample.of_files,
                "part": sample.part,
            }
            for sample in case.samples
        ],
        "runs": [
            {
                "name": run.name,
                "outcome": run.kind or "",
                "exit_code": run.ended.code,
                "failures": run.failures,
                "seconds": round(run.seconds, 3),
                "steps_per_second": run.rate_of("step"),
                "memory": {host.name: host.memory for host in run.hosts},
                "log": run.log,
            }
            for run in case.runs
        ],
    }
