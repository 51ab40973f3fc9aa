"""Find metrics in the output of the user's programs: by the user's expressions, and in the usual formats.

Keras     Epoch 3/10    45/100 [==>...] - ETA: 1s - loss: 0.51 - accuracy: 0.83    100/100 ... 2s 20ms/step - loss: 1
TF1       INFO:tensorflow:loss = 0.51, step = 300 (1.2 sec)       INFO:tensorflow:global_step/sec: 75.3
pairs     step=300 loss=0.51 images_per_second=120        step 300: loss 0.51
"""

import re
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from entrypoint.base.values import State, fresh
from entrypoint.record.lines import is_value
from entrypoint.record.read import text

LAST_LINES = 20  # lines between two calls of `take` that are read, of those that may hold a metric
MOST = 20  # metrics of one process; further names are ignored
LONGEST_NAME_CHARS, LONGEST_CHARS = 60, 1000  # characters of a name, and of a line that are looked at
PATIENCE_SECONDS = 0.25  # seconds of processor time for one line, after which the expression is left out
AT_ONCE, SHARE = 0.5, 0.05  # seconds of CPU time for lines: at most at once, and gained with each second

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf|NaN|Infinity)"
_NAME = r"[A-Za-z][\w./()@-]{0,50}?"
_END = r"(?![\w/]|[.:]\S)(%?)"
_PAIR = re.compile(rf"(?<![\w./-])({_NAME})(?:\s*[=:]\s*|\s)({_NUMBER}){_END}")
_STRICT = re.compile(rf"(?<![\w./-])({_NAME})\s*[=:]\s*({_NUMBER}){_END}")
# A line that may hold a metric has one of these. The search is cheap, and spares most lines of talkative programs.
# print(args) shows what argparse has read, which no step has measured.
_HINTED = re.compile(
    r"^(?!.*\bNamespace\().*?"
    r"(?:[Ll]oss|LOSS|[Ss]tep|[Ee]poch|[Aa]cc|AUC|auc|/s|per_s|mAP|[Ee]rror|mse|mae|\d/\d).*$",
    re.MULTILINE,
)
_EPOCH = re.compile(r"^\s*Epoch\s+(\d+)/(\d+)\s*$")
_PROGRESS = re.compile(r"^\s*(\d+)/(\d+|Unknown)\s+(?:\[[=>.\s]*\]|[━─ ]{5,})(.*)$")
_STEP_TIME = re.compile(r"(\d+(?:\.\d+)?)(s|ms|us)/(?:step|epoch)")
# Pairs are read only in a line that has one of these names: prose has colons, too.
_KNOWN = re.compile(
    r"(?:^|[_./-])(?:loss|step|steps|global_step|epoch|acc|accuracy|auc|mae|mse|rmse|f1|precision|recall|perplexity|lr|"
    r"learning_rate|map|mean_average_precision|top5|top_5|examples|images|samples|tokens)(?:$|[_./(-])"
    r"|(?:_|/)(?:sec|second|s)$",
    re.IGNORECASE,
)
_CALLED = {
    **dict.fromkeys(("global_step", "iteration", "iter", "batch"), "step"),
    "global_step/sec": "steps_per_second",
}
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
# In lines of one shape, numbers have the same names; where they stand, and what a progress bar shows, may differ.
_VALUE, _BAR = re.compile(r"(?<![^=:\s])[-+]?\d+(?:\.\d*)?"), re.compile(r"\[[=>.]+\]|[━─]+")
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|\x08+")


class WantedMetric:
    """Find the metric `name`: the first group of `expression` is its value. `log` is called if it is dropped.

    Python's engine tries all ways in which an expression may match a line. With some expressions that takes years. The
    engine checks for signals while it searches, so a timer on this process's CPU time can end it. Only the main thread
    gets signals.
    """

    def __init__(self, name: str, expression: str, log: Callable[[str], None]) -> None:
        self.name, self._say = name, log
        self._pattern: re.Pattern[str] | None = re.compile(expression)
        self._room, self._at = AT_ONCE, time.monotonic()

    def last_in(self, lines: Iterable[str]) -> float | None:
        """Return the last value in these lines; None without a value, or without CPU time to search them."""
        now = time.monotonic()
        self._room, self._at = min(AT_ONCE, self._room + (now - self._at) * SHARE), now
        for line in reversed(list(lines)):
            if self._pattern is None or self._room <= 0:
                break
            began = time.thread_time()
            signal.signal(signal.SIGVTALRM, _too_long)
            try:
                signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE_SECONDS)
                found = self._pattern.search(line[:LONGEST_CHARS])
            except _TooLong:
                self._say(
                    f"warning: ENTRYPOINT_METRICS: the expression of {self.name!r} takes over {PATIENCE_SECONDS:g} s a "
                    f"line of output, and is no longer used: {text(self._pattern.pattern)}"
                )
                self._pattern = None
                break
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
            self._room -= time.thread_time() - began
            if found and found[1] is not None:  # None: the group has matched nothing
                with suppress(ValueError):
                    return float(found[1])
        return None


class _TooLong(Exception):
    """Signal that the CPU time for a line is used up."""


def _too_long(*_: object) -> None:
    raise _TooLong


class MetricReader(State):
    """Read the lines of one process. `wanted`: metrics that the user has defined, as in SageMaker."""

    wanted: Sequence[WantedMetric] = ()
    found: dict[str, float] = fresh(dict)  # new values since the last `take`
    _last: deque[str] = fresh(lambda: deque(maxlen=LAST_LINES))
    _epoch: float = 0
    _names: set[str] = fresh(set)

    def read(self, lines: str) -> None:
        """Note the metrics in these lines; some lines are only read by `take`."""
        lines = lines.replace("\r", "\n")
        for each in self.wanted:
            if (value := each.last_in(lines.split("\n"))) is not None:
                self._note(each.name, value)
        for line in _HINTED.findall(lines):
            if line.startswith("Epoch "):
                self._read_line(line[:LONGEST_CHARS])
            else:
                self._last.append(line[:LONGEST_CHARS])

    def note(self, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._note(name, value)

    def take(self) -> dict[str, float]:
        """Return the last value of each metric that came since the last call."""
        newest: dict[str, str] = {}  # of each shape, the newest first: it replaces all values of the others
        for line in reversed(self._last):
            newest.setdefault(_shape(line), line)
        self._last.clear()
        for line in reversed(newest.values()):
            self._read_line(_COLOURS.sub("", line))
        found, self.found = self.found, {}
        return found

    def _read_line(self, line: str) -> None:
        if epoch := _EPOCH.match(line):
            number = _whole(epoch[1])
            self._epoch = number if is_value("epoch", number) else 0
            self._note("epoch", number)
            self._note("epochs", _whole(epoch[2]))
        elif progress := _PROGRESS.match(line):
            self._read_progress(*progress.groups())
        else:
            pairs = _STRICT.findall(line)
            if not any(_KNOWN.search(name) for name, _, _ in pairs):
                pairs = [pair for pair in _PAIR.findall(line) if _KNOWN.search(pair[0])]
            for name, number, percent in pairs:
                called = name.lower() if name.istitle() or name.isupper() else name
                self._note(_CALLED.get(called.lower(), called), float(number) / (100 if percent else 1))

    def _read_progress(self, step: str, steps: str, rest: str) -> None:
        """Note the metrics in a line of Keras' progress bar. Its steps count within the epoch."""
        self._note("epoch_step", _whole(step))
        if steps.isdecimal():
            self._note("epoch_steps", _whole(steps))
            self._note("step", max(0, self._epoch - 1) * _whole(steps) + _whole(step))
        if took := _STEP_TIME.search(rest):
            self._note("step_seconds", float(took[1]) * _UNITS[took[2]])
        for name, number, _ in _STRICT.findall(rest):
            if name != "ETA":
                self._note(name, float(number))

    def _note(self, name: str, value: float) -> None:
        name = name.strip(".:-")[:LONGEST_NAME_CHARS]
        is_place = name.endswith((".cc", ".h", ".py"))  # a file and its line, of a warning in a progress bar's line
        if is_value(name, value) and not is_place and (name in self._names or len(self._names) < MOST):
            self._names.add(name)
            self.found[name] = value


def _shape(line: str) -> str:
    """Return a line without its numbers and bars. A line with an epoch is kept, since later lines count from it."""
    return line if "Epoch" in line else _VALUE.sub("\0", _BAR.sub("\1", line))


def _whole(digits: str) -> float:
    """Return the value of some digits: an exact int, or a float if they are too many for `int`."""
    return int(digits) if len(digits) <= 15 else float(digits)
