"""Judge from the records whether the hosts train one model together, or each a model of its own. Pure.

docs/monitoring.md describes when the verdict is "yes", "NO" or unclear. "NO" can end a job.
"""

import re
from collections.abc import Collection, Mapping

from entrypoint.base.remedies import REMEDIES
from entrypoint.launcher.job.choices import Mode
from entrypoint.observe.monitor import variable_traffic as traffic
from entrypoint.observe.monitor.trained_model import TrainedModel, Who, model_of, of_all
from entrypoint.observe.monitor.variable_traffic import BURSTS, FIRST_EPOCH, SLOW_SECONDS, STEPS, WORKED, Exchanged
from entrypoint.record import lines

_OWN_TF_CONFIG = f"; and {REMEDIES['tf-config-written/alone']}"
ADVICE = {
    Mode.SINGLE: f"no distribution was asked for; wanted {REMEDIES['nothing-shared']}",
    Mode.MPI: f"wanted, behind hvd.init(), {REMEDIES['hvd-no-average']}",
    Mode.MWMS: f"wanted {REMEDIES['no-strategy/mwms']}{_OWN_TF_CONFIG}",
    Mode.JAX: f"wanted {REMEDIES['no-strategy/jax']}",
    Mode.PS: f"wanted {REMEDIES['no-strategy/ps']}; or {REMEDIES['estimator-never-ends']}{_OWN_TF_CONFIG}",
}
SCOPES = {Mode.MWMS: "strategy.scope() of tf.distribute.MultiWorkerMirroredStrategy", Mode.PS: "strategy.scope()"}
PROVEN = 2.0  # factor on the time of a "NO", after which it may end the job
UNCLEAR_SECONDS, UNCLEAR_STEPS, LONG_SECONDS = 60.0, 100.0, 300.0  # until "unclear": with so many steps, and without
OFTEN = 3  # how often at least half of the weights must have been reduced by calls
# Steps printed beside one of these are steps of a training; a tokenizer's are not.
_LEARNS = re.compile(
    r"(?:^|[_./-])(?:loss|acc|accuracy|auc|mae|mse|rmse|error|perplexity|reward|iou|map|f1)(?:$|[_./(-])", re.IGNORECASE
)


class Together:
    """Track the exchange of each host through the records. Durations are sums of the samples' seconds.

    `shared`: the weights lie on parameter servers; `steps`: least number of steps for the verdict "alone"; `unseen`:
    the hosts may exchange what traffic.py does not count.
    """

    def __init__(
        self, hosts: Collection[str], shared: bool = False, steps: float = STEPS, unseen: bool = False
    ) -> None:
        self._is_shared, self._unseen = shared, unseen
        part = 1 / len(hosts) if shared and hosts else 1.0
        self._hosts = {host: Exchanged(part=part, is_shared=shared) for host in hosts}
        self._started: set[str] = set()
        self._begun = False  # whether they train: a loss was printed with its step, or the trained weights were seen
        self._steps: dict[tuple[str, str, bool], list[float]] = {}  # (host, process, seen) -> [last, since the begin]
        self._epochs: dict[Who, tuple[float, float, float]] = {}  # first and last epoch, and their number
        self._models: dict[Who, TrainedModel] = {}
        self.model = TrainedModel()  # what is known of it on all hosts
        self._reduced, self._often = 0.0, 0
        self._to: dict[tuple[str, str], float] = {}  # (host, peer) -> bytes exchanged, as the host has counted them
        self._needed = steps
        self._said: bool | None = None
        self._said_unclear = False
        self.since = 0.0  # time of the line by which the training began
        self.judged = False  # whether the last verdict is given

    def note(self, host: str, line: lines.Line) -> None:
        """Note a line of a record; raise one of WRONG if the line is malformed."""
        match line:
            case lines.ProcessLine() if host in self._hosts:
                self._start(host)
            case lines.SampleLine() if host in self._started:
                unseen = bool(line.host.get("unseen"))
                self._hosts[host].is_blind = unseen
                for seen in self._hosts.values():
                    seen.missed = seen.missed or unseen
                self._note_sample(host, line)
            case lines.ModelLine() if host in self._started:
                self._note_model(line.at, host, line.process, model_of(line.model))
            case lines.Metric() if host in self._started:
                self._note_metrics(line.at, host, line.process, line.values)

    def _start(self, host: str) -> None:
        """Note that a training process has started on a host.

        Reset the figures of that host and those of the whole job, since all hosts wait for that host.
        """
        self._started.add(host)
        before = self._hosts[host]
        self._hosts[host] = Exchanged(part=before.part, is_shared=before.is_shared)
        self._begun, self._reduced, self._often = False, 0.0, 0
        self._steps = {who: known for who, known in self._steps.items() if who[0] != host}
        self._epochs = {}
        self._models = {who: model for who, model in self._models.items() if who[0] != host}
        self.model = of_all(self._models.values())
        self._to = {pair: sent for pair, sent in self._to.items() if host not in pair}

    def _begin(self, at: float) -> None:
        if not self._begun:
            self._begun, self.since = True, at
            for seen in self._hosts.values():
                seen.begin()
            for known in self._steps.values():
                known[1] = 0.0

    def _note_sample(self, host: str, line: lines.SampleLine) -> None:
        seen, seconds = self._hosts[host], line.seconds
        seen.ran += seconds
        seen.worked += sum(used.get("cpu", 0.0) for used in line.processes.values())
        for peer, (received, sent) in line.peers.items():
            # The larger of both ends' counts is right: one end may not know the other host.
            before, other = self._to.get((host, peer), 0.0), self._to.get((peer, host), 0.0)
            mine = self._to[host, peer] = before + received + sent
            for name in {host, peer} & self._hosts.keys():
                self._hosts[name].ever += max(mine, other) - max(before, other)
                self._hosts[name].bytes += max(mine, other) - max(before, other)
        if self._begun:
            # Often one process prints steps for all: a host without steps has the job's.
            own = max((taken for who, (_, taken) in self._steps.items() if who[0] == host), default=0.0)
            steps = own or max((taken for _, taken in self._steps.values()), default=0.0)
            seen.seconds += seconds
            seen.advance(steps, self.model)

    def _note_model(self, at: float, host: str, process: str, model: TrainedModel) -> None:
        model = of_all([model, self._models.get((host, process), model)])
        self._models[host, process] = model
        self.model = of_all([self.model, model])
        if model.weights:
            self._hosts[host].trains = True
            self._begin(at)
        if model.steps:
            self._count(host, process, model.steps, seen=True)
        if self._reduced == 0.0 or model.reduced - self._reduced >= max(1.0, self.model.dense / 2):
            self._often += bool(self._reduced) and self.model.asks_for_weights
            self._reduced = model.reduced

    def _note_metrics(self, at: float, host: str, process: str, metrics: Mapping[str, float]) -> None:
        if "step" in metrics:
            if any(_LEARNS.search(name) for name in metrics):
                self._begin(at)
            self._count(host, process, metrics["step"], seen=False)
            self._hosts[host].trains = True
        if "epoch" in metrics and self._begun:
            epoch, of = metrics["epoch"], metrics.get("epochs", 0.0)
            first, _, known = self._epochs.get((host, process), (epoch, epoch, of))
            self._epochs[host, process] = min(first, epoch), epoch, of or known

    def _count(self, host: str, process: str, step: float, seen: bool) -> None:
        known = self._steps.setdefault((host, process, seen), [step, 0.0])
        known[1] += step - known[0] if step >= known[0] else step  # a smaller step: a new epoch counts from 0
        known[0] = step

    # --- verdicts ---

    def look(self) -> tuple[bool | None, str] | None:
        """Return (whether the hosts train together, words) if the verdict has changed, else None.

        In the pair, None stands for an unclear verdict.
        """
        if self.judged or self._unseen or len(self._started) < len(self._hosts):
            return None
        hosts = self._hosts.values()
        often = self._often >= OFTEN and all(seen.bytes for seen in hosts)
        if self._begun and (often or all(seen.is_together(self.model) for seen in hosts)):
            self.judged, after = True, " after all" if self._said is False else ""
            self._said = True
            return True, f"distributed: yes{after}: {traffic.yes(self._hosts, self.model)}"
        if self._said is None and (alone := self._alone(1)):
            self._said = False
            return False, f"distributed: NO: {traffic.no(self._hosts, self.model, alone)}"
        if self._said is None and not self._said_unclear and self._is_unclear():
            self._said_unclear = True
            return None, f"distributed: unclear: {traffic.unclear(self._hosts, self.model, self._begun)}"
        return None

    def at_end(self) -> tuple[bool, str] | None:
        """Return the verdict that hosts trained alone, for a successful job without a verdict of `look`; else None."""
        if self._said is not None or self.judged or not self._begun:
            return None
        models = {
            name: of_all(each for (host, _), each in self._models.items() if host == name) for name in self._hosts
        }
        trained = [host for host, seen in self._hosts.items() if seen.trains]
        alone = [host for host in trained if self._hosts[host].was_alone(models[host], self._unseen)]
        rest = [self._hosts[host] for host in trained if host not in alone]
        # One that is quiet, or whose traffic cannot be judged, may have trained alone as well, or with those.
        unsure = any(seen.is_blind or seen.missed or seen.is_idle(self.model) for seen in rest)
        proven = not unsure or all(models[host].leaves_strategy for host in alone)
        if not (alone and proven) or (len(trained) < 2 and not self._is_shared):
            return None
        self._said = False
        return False, f"distributed: NO: {traffic.no(self._hosts, models[alone[0]], alone, self._unseen)}"

    @property
    def is_proven(self) -> bool:
        """Return whether the verdict "alone" has held for long enough to end the job."""
        return self._said is False and bool(self._alone(PROVEN))

    @property
    def averages(self) -> bool:
        """Return whether weights seem to be averaged only now and then, so that they differ in between."""
        return self._often > 1 or any(seen.bursts > 1 and not seen.good for seen in self._hosts.values())

    def _alone(self, times: float) -> list[str]:
        if not self._begun:
            return []
        in_first = [first == last and of != 1 for first, last, of in self._epochs.values()]
        needed = self._needed * times * (FIRST_EPOCH if any(in_first) and all(in_first) else 1)
        alone = [name for name, seen in self._hosts.items() if seen.is_alone(self.model, needed)]
        long = any(self._hosts[name].is_alone(self.model, 2 * needed) for name in alone)
        rest = [seen for name, seen in self._hosts.items() if name not in alone]
        # Other hosts' records come some seconds later; but a host that only waits may never be recognised.
        unsure = any(seen.is_idle(self.model) or seen.has_only_scalars(self.model) for seen in rest)
        return alone if long or not unsure else []

    def _is_unclear(self) -> bool:
        hosts, model = self._hosts.values(), self.model
        if not self._begun:
            return all(seen.ran >= SLOW_SECONDS and seen.worked >= WORKED for seen in hosts)
        # Who is quiet, or has had only one or two large exchanges, may turn out to train alone.
        quiet = any(seen.is_idle(model) or seen.has_only_scalars(model) for seen in hosts)
        if quiet or 0 < self._often < OFTEN or any(0 < seen.bursts < BURSTS for seen in hosts):
            return all(seen.seconds >= 2 * SLOW_SECONDS for seen in hosts)
        return all(seen.seconds >= (UNCLEAR_SECONDS if seen.steps >= UNCLEAR_STEPS else LONG_SECONDS) for seen in hosts)


def advice_on(mode: Mode, model: TrainedModel) -> str:
    """Return advice for hosts that train alone: it names the script's line if that is known, else the mode's needs."""
    if mode in SCOPES and model.made_at:
        wanted = REMEDIES["model-outside-scope"].replace("${written}", "...")
        return f"{model.made_at} makes the model outside of {SCOPES[mode]}; wanted {wanted}"
    if mode in SCOPES and model.made > 1 and model.trained_at:
        return f"{model.trained_at} applies gradients outside of the strategy; wanted {REMEDIES['no-strategy-run']}"
    return (f"it trains at {model.trained_at}; " if model.trained_at else "") + ADVICE[mode]
