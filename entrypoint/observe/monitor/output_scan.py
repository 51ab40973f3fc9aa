"""Collect the record's part of programs' output: its size, metrics, last lines, and ranks that Horovod misses."""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping

from entrypoint.observe.monitor.printed_metrics import MetricReader, WantedMetric
from entrypoint.record.lines import Lines, Metric, Stalled

LINES, WIDTH = 5, 300  # recorded of a process: its last lines, and characters of each
HELD_CHARS = 1 << 16  # characters of output that wait to be read
WARNING_LINES, WARNING_WIDTH = 6, 200  # kept of a stall warning: lines, and characters of each
_CONTROLS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# What TensorFlow logs by itself while it starts: in its own form and absl's, and the ends of such messages.
_OF_TENSORFLOW = re.compile(
    r"(?:(?:\d{4}-\d\d-\d\d [\d:.]+: [IWEF] \S+:\d+\] |[IWEF]\d{4} [\d:.]+ +\d+ \S+:\d+\] "
    r"|WARNING: All log messages before absl::|To enable the following instructions: )[^\n]*(?:\n\s*|$))+"
)
_BEGINS = re.compile(r".*stall_inspector\.cc")
_GOES_ON = re.compile(r"(Missing ranks:|Stalled ops:|(\d{1,7}): \[.*\]?|\S+ \[missing ranks: [\d, ]+\])\s*$")


class Printed:
    """Collect the output of a host's processes until it is taken.

    `wanted`: (name, expression) of metrics; `log` is called if an expression is dropped.
    """

    def __init__(self, wanted: Collection[tuple[str, str]], log: Callable[[str], None]) -> None:
        self._wanted = [WantedMetric(name, expression, log) for name, expression in wanted]
        # process -> bytes that it has printed; and of these, those of TensorFlow before the script's first line
        self._bytes: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._spoke: set[str] = set()  # processes that have printed another line than TensorFlow's
        self._texts: defaultdict[str, list[str]] = defaultdict(list)  # process -> what is not read yet
        self._held = 0  # characters of it
        self._readers: dict[str, MetricReader] = {}
        self._lines: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=LINES))
        self.stalls = Stalls()

    def scan(self, process: str, text: str) -> None:
        """Note a process's output to read it later: much at once costs less than line by line."""
        self._texts[process].append(text)
        self._held += len(text)
        if self._held > HELD_CHARS:
            self._read()

    def _read(self) -> None:
        for process, texts in self._texts.items():
            text = "".join(texts)
            rest = self.stalls.without(process, text)
            self.add_unseen(process, count := len(rest))
            if process not in self._spoke and _OF_TENSORFLOW.fullmatch(rest):
                self._bytes[process]["startup"] += count
            elif count:
                self._spoke.add(process)
            self.reader(process).read(text)
            self._lines[process].extend(last_lines(text))
        self._texts.clear()
        self._held = 0

    def reader(self, process: str) -> MetricReader:
        if process not in self._readers:
            self._readers[process] = MetricReader(wanted=self._wanted)
        return self._readers[process]

    def take_bytes(self) -> Mapping[str, Counter[str]]:
        """Return how many bytes each process has printed, without Horovod's stall warnings, as a sample has them."""
        self._read()
        taken, self._bytes = self._bytes, defaultdict(Counter)
        return taken

    def add_unseen(self, process: str, count: int) -> None:
        """Count bytes of output that were not sent here."""
        self._bytes[process]["output"] += count

    def take_lines(self, *processes: str) -> Iterator[Lines]:
        """Yield the last lines of these processes, or of all."""
        self._read()
        for process in processes or list(self._lines):
            if found := self._lines.pop(process, None):
                yield Lines(process=process, lines=list(found))

    def take_metrics(self) -> Iterator[Metric]:
        """Yield the last value of each metric of each process."""
        self._read()
        for process, reader in self._readers.items():
            if found := reader.take():
                yield Metric(process=process, values=found)


def last_lines(text: str) -> list[str]:
    """Return the last lines of a text as a terminal would show them: progress bars overwrite themselves."""
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text[-LINES * WIDTH :].split("\n")]
    return [_CONTROLS.sub("", line)[:WIDTH] for line in lines if line.strip()][-LINES:]


class Stalls:
    """Find Horovod's stall warnings in output. Rank 0 prints them every minute; they name the ranks that are missing.

    The text is that of Horovod's stall_inspector.cc: a warning, then "Missing ranks:" and, for each missing rank,
    `3: [names of tensors]`; or "Stalled ops:" and a line for each tensor.
    """

    def __init__(self) -> None:
        self._within: set[str] = set()  # processes whose last line belonged to a warning
        self._missing: set[int] = set()
        self._words: list[str] = []  # lines that name the missing ranks

    def without(self, process: str, text: str) -> str:
        """Return the text without its stall warnings. A warning may go on in the next text of the process."""
        if process not in self._within and "stall_inspector.cc" not in text:
            return text
        rest = []
        for line in text.splitlines(keepends=True):
            if _BEGINS.match(line):
                self._within.add(process)
                self._missing, self._words = set(), []
            elif process in self._within and (found := _GOES_ON.match(line)):
                self._missing |= {int(found[2])} if found[2] else set()
                if "[" in line and len(self._words) < WARNING_LINES:
                    self._words.append(line.strip()[:WARNING_WIDTH])
            else:
                self._within.discard(process)
                rest.append(line)
        return "".join(rest)

    def take(self) -> list[Stalled]:
        """Return the last warning, if it reports missing ranks, and forget it."""
        missing, words = sorted(self._missing), " ".join(self._words)
        self._missing, self._words = set(), []
        return [Stalled(ranks=missing, words=words)] if missing else []
