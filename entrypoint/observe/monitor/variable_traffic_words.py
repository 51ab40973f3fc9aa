"""Put verdicts on joint training into words, with the figures that they rest on. Pure."""

from collections.abc import Mapping, Sequence

from entrypoint.base.wording import size
from entrypoint.observe.monitor.model import Model
from entrypoint.observe.monitor.variable_traffic import WIDTH_BYTES, Exchanged

MOST_NAMES = 10  # hosts that are named


def yes(hosts: Mapping[str, Exchanged], model: Model) -> str:
    """Describe what the hosts exchange, and the size of the model."""
    return f"{_figure(hosts, has_begun=True)}{_of(model, ' for {} weights')}"


def no(hosts: Mapping[str, Exchanged], model: Model, alone: Sequence[str]) -> str:
    """Name the hosts that train alone, and describe what they have exchanged instead of gradients."""
    first = hosts[alone[0]]
    names = f"{', '.join(alone[:MOST_NAMES])}{' and others' if len(alone) > MOST_NAMES else ''}"
    who = "every host trains" if len(alone) == len(hosts) else f"{names} train{'s' * (len(alone) == 1)}"
    steps, seconds = first.steps - first.large_steps, first.seconds - first.large_seconds
    last = f"{steps:.0f} steps" if first.steps else f"{seconds:.0f} s"
    if first.has_only_scalars(model):
        return f"{who} alone ({_of_horovod(model)}, in {first.steps:.0f} steps)"
    what = f"{size(first.since)}, and no gradients{_of(model, ' of {} weights')}," if first.since else "nothing"
    return f"{who} alone (exchanged {what} with other hosts in {'the last ' * bool(first.large_seconds)}{last})"


def unclear(hosts: Mapping[str, Exchanged], model: Model, has_begun: bool) -> str:
    """Describe what the hosts exchange, the size of a model with such gradients, and what is not known."""
    said = _figure(hosts, has_begun)
    if not has_begun:
        return f"{said}; no step was printed with its loss, so it is not known whether they train"
    steps, total = max(host.steps for host in hosts.values()), _total(hosts, has_begun)
    if steps and total:
        weights = total / steps / (2 * WIDTH_BYTES * max(1, len(hosts) - 1))  # each host sends them and receives them
        said += f", as the gradients of {_count(weights)} weights would be"
    if model.asks_for_scalars:
        return f"{said}; {_of_horovod(model)}"
    return f"{said}; {_of(model, '{} weights are trained') or 'how many are trained is not known'}"


def _of_horovod(model: Model) -> str:
    what = f"{_count(model.asked)} number{'s' * (model.asked != 1)}" if model.asked else "nothing"
    return f"Horovod was asked to reduce {what}, and no gradients{_of(model, ' of {} weights')}"


def _of(model: Model, words: str) -> str:
    return words.format(_count(model.weights)) if model.weights else ""


def _total(hosts: Mapping[str, Exchanged], has_begun: bool) -> float:
    return sum(host.bytes if has_begun else host.ever for host in hosts.values()) / 2


def _figure(hosts: Mapping[str, Exchanged], has_begun: bool) -> str:
    rates = [host.rate for host in hosts.values() if host.rate and host.good]
    steps = max(host.steps for host in hosts.values())
    seconds = max(host.seconds if has_begun else host.ran for host in hosts.values())
    total = _total(hosts, has_begun)
    if len(rates) == len(hosts):
        rate = f"{size(sum(rates) / 2)} a step"
    else:
        rate = f"{size(total / steps)} a step" if steps else f"{size(total / max(1.0, seconds))} a second"
    return f"{len(hosts)} hosts exchange {rate}"


def _count(number: float) -> str:
    for least, word in ((1e9, "billion"), (1e6, "million")):
        if number >= least:
            return f"{number / least:.3g} {word}"
    return f"{number:,.0f}"
