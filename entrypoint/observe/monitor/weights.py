"""Compare the weights of all ranks by sums taken after the same step. Pure."""

import math
from collections.abc import Mapping

Who = tuple[str, str]  # host, process
CLOSE = 1e-3  # share of a sum: two GPUs may differ by less than that
KEPT = 20  # steps kept until processes that are behind have reported them
IN_A_ROW = 3  # differing steps until it is reported: weights that are averaged now and then may differ in between


class Weights:
    """Collect the sums that training processes report, and compare them."""

    def __init__(self) -> None:
        self._told: dict[int, dict[Who, tuple[float, float]]] = {}  # step -> who -> (norm, sum)
        self._who: set[Who] = set()
        self._said: bool | None = None
        self._looked, self._differ = -1, 0  # the last step that was compared, and how often they differed until then

    def note(self, who: Who, step: int, norm: float, total: float) -> None:
        """Note the norm and the sum of one process's weights after a step."""
        self._who.add(who)
        self._told.setdefault(step, {})[who] = (norm, total)
        while len(self._told) > KEPT:
            del self._told[min(self._told)]

    def forget(self, who: Who) -> None:
        """Forget a process that has ended or starts again."""
        self._looked, self._differ = -1, 0
        self._who.discard(who)
        for told in self._told.values():
            told.pop(who, None)

    def look(self) -> tuple[bool, str] | None:
        """Return (whether they are equal, words) when that has changed or becomes known, else None.

        Once they were equal, return None for good: weights that are averaged now and then differ in between.
        """
        if self._said:
            return None
        steps = sorted(step for step, told in self._told.items() if step > self._looked and told.keys() >= self._who)
        for step in steps if len(self._who) > 1 else ():
            self._looked, told = step, self._told[step]
            self._differ = 0 if are_equal(told) else self._differ + 1
            if not self._differ:
                after_all, self._said = " after all" if self._said is False else "", True
                return True, f"equal weights{after_all} on all {len(told)} processes after step {step}"
            if self._said is None and self._differ >= IN_A_ROW:
                self._said = False
                shown = [f"{process} on {host} {norm:.6g}" for (host, process), (norm, _) in sorted(told.items())]
                norms = ", ".join(shown[:6]) + (f" and {len(shown) - 6} more" if len(shown) > 6 else "")
                words = f"weights differ {IN_A_ROW} times in a row, now after step {step}: their norm is {norms}"
                return False, f"distributed: NO: {words}"
        return None


def are_equal(told: Mapping[Who, tuple[float, float]]) -> bool:
    """Return whether all sums are the same but for rounding; NaN and infinity equal one another."""
    (norm, total), *others = told.values()
    scale = CLOSE * (abs(norm) if math.isfinite(norm) else 1.0)
    return all(_close(norm, other[0], scale) and _close(total, other[1], scale) for other in others)


def _close(one: float, other: float, scale: float) -> bool:
    if not (math.isfinite(one) and math.isfinite(other)):
        return math.isfinite(one) == math.isfinite(other)
    return abs(one - other) <= max(scale, 1e-12)
