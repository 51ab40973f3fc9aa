"""Define the thresholds of the rules by which the report judges a job, and read `ENTRYPOINT_RULES`."""

import math
from collections.abc import Iterable

from entrypoint.base.errors import did_you_mean
from entrypoint.base.values import Value


class Rule(Value):
    """Hold one threshold."""

    default: float
    most: float  # the largest value that makes sense; the least is 0
    doc: str  # when the rule reports something, with the threshold as N


RULES = {
    "apart": Rule(
        default=0, most=1, doc="the monitor has found that the hosts did not train together: "
        "[monitoring.md](monitoring.md#is-it-really-distributed); it has no threshold"
    ),
    "input_bound": Rule(
        default=0.3, most=1, doc="a host waits for input in at least N of its training: by marks of data that were "
        "waited for, pipes that were empty while its processors were idle, or waits for disks"
    ),
    "cpu_starved": Rule(
        default=0.1, most=1, doc="of the CPU time that its programs asked for, a host did not get N: throttled by "
        "its quota, or stolen by other virtual machines"
    ),
    "gpu_starved": Rule(default=0.5, most=1, doc="the GPUs of a host are busy in less than N of its training"),
    "memory": Rule(
        default=0.9, most=1, doc="a host's programs hold N of the memory that it may use, or would reach its limit if "
        "the training went on for as long again; what the kernel kills for lack of memory is always reported"
    ),
    "straggler": Rule(
        default=1.5, most=1000, doc="a process takes N times as long for a step as the median of all that train"
    ),
    "ps_unbalanced": Rule(
        default=2, most=1000, doc="one parameter server works, or exchanges, N times as much as they do on average"
    ),
    "loss": Rule(
        default=0.01, most=1, doc="from its first values to its last ones, the loss has fallen by less than N of it; "
        "NaN and infinity are always reported"
    ),
    "step_growth": Rule(
        default=1.5, most=1000, doc="a step takes N times as long in the last third of the training as in the first"
    ),
    "checkpoint": Rule(
        default=0.5, most=1000, doc="a checkpoint takes at least N of the time that a script has to save when the job "
        "is stopped (`ENTRYPOINT_STOP_GRACE`)"
    ),
    "disk": Rule(
        default=0.1, most=1, doc="less than N of the disk with models and outputs is free at the end, or it would be "
        "full if the job ran for as long again"
    ),
    "network": Rule(
        default=0.7, most=1, doc="in at least N of the training the network carries about as much as it ever does, "
        "100 MB/s at least, while half of the processors and GPUs have nothing to do"
    ),
    "small_files": Rule(
        default=10_000, most=1e9, doc="a channel has at least N files, of less than 256 kB on average"
    ),
    "idle": Rule(
        default=0.1,
        most=1,
        doc="hosts are idle in at least N of all host-seconds, and in two or more: they have ended, or wait",
    ),
}  # fmt: skip


def parse_rules(text: str) -> tuple[tuple[str, float], ...]:
    """Return the thresholds in `input_bound=0.3,straggler=off`. A rule that is off has an infinite threshold.

    Rules that are not named keep their defaults. Raise ValueError, with what is wanted, if the text is wrong.
    """
    found: dict[str, float] = {}
    for word in filter(None, (word.strip() for word in text.split(","))):
        name, _, value = (part.strip() for part in word.partition("="))
        if name not in RULES:
            raise ValueError(f"rules of {', '.join(RULES)}, as NAME=NUMBER{did_you_mean(name, RULES)}")
        try:
            number = math.inf if value == "off" else float(value)
        except ValueError:
            number = math.nan
        if not (number == math.inf or 0 <= number <= RULES[name].most) or name in found:
            raise ValueError(f"{name}=NUMBER from 0 to {RULES[name].most:g}, or {name}=off, once")
        found[name] = number
    return tuple(found.items())


def in_words(given: Iterable[tuple[str, float]]) -> str:
    """Return thresholds as text that `parse_rules` reads."""
    return ",".join(f"{name}={'off' if value == math.inf else format(value, 'g')}" for name, value in given)


def thresholds(given: dict[str, float]) -> dict[str, float]:
    """Return the threshold of every rule."""
    return {name: given.get(name, rule.default) for name, rule in RULES.items()}
