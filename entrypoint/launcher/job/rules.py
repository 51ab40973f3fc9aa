"""Define the thresholds of the rules by which the report judges a job, and read `ENTRYPOINT_RULES`."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from entrypoint.base.errors import did_you_mean


class Rule(NamedTuple):
    """Hold one threshold. docs/report.md describes when its rule reports something."""

    default: float
    most: float = 1  # the largest value that makes sense; the least is 0


RULES = {
    "apart": Rule(0),  # it has no threshold
    "input_bound": Rule(0.3),
    "cpu_starved": Rule(0.1),
    "gpu_starved": Rule(0.5),
    "memory": Rule(0.9),
    "straggler": Rule(1.5, most=1000),
    "ps_unbalanced": Rule(2, most=1000),
    "loss": Rule(0.01),
    "step_growth": Rule(1.5, most=1000),
    "checkpoint": Rule(0.5, most=1000),
    "disk": Rule(0.1),
    "network": Rule(0.7),
    "small_files": Rule(10_000, most=1e9),
    "idle": Rule(0.1),
}


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
