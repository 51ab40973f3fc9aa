"""Do the hosts train one model together, or each its own? Pure: what the records tell goes in, words come out.

"Yes" wants what carries a model: bytes between the hosts, set against the weights that are trained. "NO" wants more, as
it can end a job: they train, for long, and exchange no gradients. All else is unclear, and is said with its figures.
Not judged: what does not go over TCP, where exchange.py is blind.
"""

import math
import re
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from entrypoint.observe.monitor import variable_traffic_words as in_words
from entrypoint.observe.monitor.model import Model, model_of, of_all
from entrypoint.observe.monitor.variable_traffic import FIRST_EPOCH, SLOW_SECONDS, STEPS, WORKED, Exchanged

Who = tuple[str, str]  # host, process
MOST_STEPS = 1e15
PROVEN = 2.0  # times as long as it takes to say it, until it may end a job
UNCLEAR_SECONDS, UNCLEAR_STEPS, LONG_SECONDS = 60.0, 100.0, 300.0  # until that is said: with steps, and without
OFTEN = 3  # times that as much as half of the weights was reduced by calls
# Steps beside which one of these is printed are steps of a training; a tokenizer's are not.
_LEARNS = re.compile(
    r"(?:^|[_./-])(?:loss|acc|accuracy|auc|mae|mse|rmse|error|perplexity|reward|iou|map|f1)(?:$|[_./(-])", re.IGNORECASE
)


class Together:
    """What is known of each host, as the records tell it. Durations are sums of their samples' seconds.

    `shared`: the weights lie on parameter servers; `steps`: that it takes at least to say that they train alone.
    """

    def __init__(self, hosts: Collection[str], shared: bool = False, steps: float = STEPS) -> None:
        part = 1 / len(hosts) if shared and hosts else 1.0
        self._hosts = {host: Exchanged(part=part, is_shared=shared) for host in hosts}
        self._started: set[str] = set()
        self._begun = False  # whether they train: a loss was told with its step, or the trained weights were seen
        self._steps: dict[tuple[str, str, bool], list[float]] = {}  # (host, process, seen) -> [last, since it began]
        self._epochs: dict[Who, tuple[float, float, float]] = {}  # the first, the last, of how many
        self._models: dict[Who, Model] = {}
        self._model = Model()
        self._reduced, self._often = 0.0, 0
        self._to: dict[tuple[str, str], float] = {}  # bytes as the first has counted them, with the second
        self._needed = steps
        self._said: bool | None = None
        self._said_unclear = False
        self.told = False  # whether all is said

    def note(self, host: str, at: float, kind: str, *values: Any) -> None:
        """Note a line of a record; one that cannot be read is left out."""
        if host in self._hosts:
            with suppress(ValueError, TypeError, AttributeError, KeyError, OverflowError):
                self._note(host, kind, *values)

    def _note(self, host: str, kind: str, *values: Any) -> None:
        match kind, values:
            case "process", (str(), *_):
                self._start(host)
            case "sample", (seconds, dict(used), dict(processes), dict(peers), *_) if host in self._started:
                self._hosts[host].is_blind = bool(used.get("unseen"))
                for seen in self._hosts.values():
                    seen.missed = seen.missed or bool(used.get("unseen"))
                self._note_sample(host, _finite(seconds), processes, peers)
            case "model", (str(process), dict(told), *_) if host in self._started:
                self._note_model(host, process, model_of(told))
            case "metric", (str(process), dict(metrics), *_) if host in self._started:
                self._note_metrics(host, process, metrics)

    def _start(self, host: str) -> None:
        """A process of training has started there: all begin anew, as they wait for it."""
        self._started.add(host)
        before = self._hosts[host]
        self._hosts[host] = Exchanged(part=before.part, is_shared=before.is_shared)
        self._begun, self._reduced, self._often = False, 0.0, 0
        self._steps = {who: known for who, known in self._steps.items() if who[0] != host}
        self._epochs = {}
        self._models = {who: model for who, model in self._models.items() if who[0] != host}
        self._model = of_all(self._models.values())
        self._to = {pair: sent for pair, sent in self._to.items() if host not in pair}

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            for seen in self._hosts.values():
                seen.begin()
            for known in self._steps.values():
                known[1] = 0.0

    def _note_sample(self, host: str, seconds: float, processes: dict[str, Any], peers: dict[str, Any]) -> None:
        seen = self._hosts[host]
        seen.ran += seconds
        seen.worked += sum(_finite(used.get("cpu", 0.0)) for used in processes.values())
        for peer, (received, sent) in peers.items():
            self._note_bytes(host, peer, _finite(received) + _finite(sent))
        if self._begun:
            seen.seconds += seconds
            seen.advance(self._steps_of(host), self._model)

    def _note_bytes(self, host: str, peer: str, exchanged: float) -> None:
        """Both ends have counted, or only that which could tell whose the other is: the larger count is right."""
        mine, other = self._to.get((host, peer), 0.0) + exchanged, self._to.get((peer, host), 0.0)
        more = max(mine, other) - max(mine - exchanged, other)
        self._to[host, peer] = mine
        for name in {host, peer} & self._hosts.keys():
            self._hosts[name].ever += more
            self._hosts[name].bytes += more

    def _note_model(self, host: str, process: str, model: Model) -> None:
        model = of_all([model, self._models.get((host, process), model)])
        self._models[host, process] = model
        self._model = of_all([self._model, model])
        if model.weights:
            self._hosts[host].trains = True
            self._begin()
        if model.steps:
            self._count(host, process, model.steps, seen=True)
        if self._reduced == 0.0 or model.reduced - self._reduced >= max(1.0, self._model.dense / 2):
            self._often += bool(self._reduced) and self._model.asks_for_weights
            self._reduced = model.reduced

    def _note_metrics(self, host: str, process: str, metrics: dict[str, Any]) -> None:
        if "step" in metrics:
            if any(_LEARNS.search(name) for name in metrics):
                self._begin()
            self._count(host, process, _finite(metrics["step"]), seen=False)
            self._hosts[host].trains = True
        if "epoch" in metrics and self._begun:
            epoch, of = _finite(metrics["epoch"]), _finite(metrics.get("epochs", 0.0))
            first, _, known = self._epochs.get((host, process), (epoch, epoch, of))
            self._epochs[host, process] = min(first, epoch), epoch, of or known

    def _count(self, host: str, process: str, step: float, seen: bool) -> None:
        known = self._steps.setdefault((host, process, seen), [step, 0.0])
        known[1] += step - known[0] if step >= known[0] else step  # an epoch counts its own
        known[0] = step

    def _steps_of(self, host: str) -> float:
        """Return its own, or where it says none those of the job: often one process speaks for all."""
        own = max((taken for who, (_, taken) in self._steps.items() if who[0] == host), default=0.0)
        return own or max((taken for _, taken in self._steps.values()), default=0.0)

    # --- what follows ---

    def look(self) -> tuple[bool | None, str] | None:
        """Return (whether they train together, words) when that has changed; None in it: it is unclear."""
        if self.told or len(self._started) < len(self._hosts):
            return None
        if self._are_together():
            self.told, after = True, " after all" if self._said is False else ""
            self._said = True
            return True, f"distributed: yes{after}: {in_words.yes(self._hosts, self._model)}"
        if self._said is None and (alone := self._alone(1)):
            self._said = False
            return False, f"distributed: NO: {in_words.no(self._hosts, self._model, alone)}"
        if self._said is None and not self._said_unclear and self._is_unclear():
            self._said_unclear = True
            return None, f"distributed: unclear: {in_words.unclear(self._hosts, self._model, self._begun)}"
        return None

    @property
    def is_proven(self) -> bool:
        """Whether it was said that they train alone, and has stayed so for long enough to end the job."""
        return self._said is False and bool(self._alone(PROVEN))

    @property
    def averages(self) -> bool:
        """Whether weights seem to be exchanged now and then only, so that they differ in between."""
        return self._often > 1 or any(seen.bursts > 1 and not seen.good for seen in self._hosts.values())

    def _are_together(self) -> bool:
        hosts = self._hosts.values()
        if not self._begun:
            return False
        often = self._often >= OFTEN and all(seen.bytes for seen in hosts)
        return often or all(seen.is_together(self._model) for seen in hosts)

    def _alone(self, times: float) -> list[str]:
        if not self._begun:
            return []
        in_first = [first == last and of != 1 for first, last, of in self._epochs.values()]
        needed = self._needed * times * (FIRST_EPOCH if any(in_first) and all(in_first) else 1)
        alone = [name for name, seen in self._hosts.items() if seen.is_alone(self._model, needed)]
        long = any(self._hosts[name].is_alone(self._model, 2 * needed) for name in alone)
        rest = [seen for name, seen in self._hosts.items() if name not in alone]
        # The records of others come some seconds later; but one that only waits may never be known.
        unsure = any(seen.is_idle(self._model) or seen.has_only_scalars(self._model) for seen in rest)
        return alone if long or not unsure else []

    def _is_unclear(self) -> bool:
        hosts, model = self._hosts.values(), self._model
        if not self._begun:
            return all(seen.ran >= SLOW_SECONDS and seen.worked >= WORKED for seen in hosts)
        if 0 < self._often < OFTEN or any(seen.may_be_alone(model) for seen in hosts):
            return all(seen.seconds >= 2 * SLOW_SECONDS for seen in hosts)
        return all(seen.seconds >= (UNCLEAR_SECONDS if seen.steps >= UNCLEAR_STEPS else LONG_SECONDS) for seen in hosts)


def _finite(value: Any) -> float:
    """Return a number that is one, and not negative; ValueError else."""
    number = float(value)
    if not (math.isfinite(number) and 0 <= number <= MOST_STEPS):
        raise ValueError(f"{value!r} is no number of steps, seconds or bytes")
    return number
