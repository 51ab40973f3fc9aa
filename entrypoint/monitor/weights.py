"""Have all ranks the same weights? Pure: sums of the weights after the same step go in, words come out."""

import math
from collections.abc import Mapping

Who = tuple[str, str]  # host, process
CLOSE = 1e-3  # of a sum: less is what one GPU computes otherwise than another
KEPT = 20  # steps that are awaited of those who are behind


class Weights:
    """What the processes of training have told of their weights."""

    def __init__(self) -> None:
        self._told: dict[int, dict[Who, tuple[float, float]]] = {}  # step -> who -> (norm, sum)
        self._who: set[Who] = set()
        self._said = False

    def note(self, who: Who, step: int, norm: float, total: float) -> None:
        """Note two sums over one's weights after a step."""
        self._who.add(who)
        self._told.setdefault(step, {})[who] = (norm, total)
        while len(self._told) > KEPT:
            del self._told[min(self._told)]

    def forget(self, who: Who) -> None:
        """Forget who has ended, or begins anew."""
        self._who.discard(who)
        for told in self._told.values():
            told.pop(who, None)

    def look(self) -> tuple[bool, str] | None:
        """Return (whether they are equal, words), once; None while that is not known."""
        if self._said or len(self._who) < 2:
            return None
        step = max((step for step, told in self._told.items() if told.keys() >= self._who), default=None)
        if step is None:
            return None
        self._said = True
        told = self._told[step]
        if are_equal(told):
            return True, f"equal weights on all {len(told)} processes after step {step}"
        shown = [f"{process} on {host} {norm:.6g}" for (host, process), (norm, _) in sorted(told.items())]
        more = f" and {len(shown) - 6} more" if len(shown) > 6 else ""
        return False, f"distributed: NO: weights differ after step {step}: their norm is {', '.join(shown[:6])}{more}"


def are_equal(told: Mapping[Who, tuple[float, float]]) -> bool:
    """Return whether all sums are the same, but for rounding; what is no number is equal to what is none."""
    (norm, total), *others = told.values()
    scale = CLOSE * (abs(norm) if math.isfinite(norm) else 1.0)
    return all(_close(norm, other[0], scale) and _close(total, other[1], scale) for other in others)


def _close(one: float, other: float, scale: float) -> bool:
    if not (math.isfinite(one) and math.isfinite(other)):
        return math.isfinite(one) == math.isfinite(other)
    return abs(one - other) <= max(scale, 1e-12)
