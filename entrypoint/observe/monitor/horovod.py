"""Read Horovod's stall warnings, which rank 0 prints every minute. They name the ranks that are missing.

The text is that of Horovod's stall_inspector.cc: a warning, then "Missing ranks:" and, for each missing rank,
`3: [names of tensors]`; or "Stalled ops:" and a line for each tensor.
"""

import re

_BEGINS = re.compile(r".*stall_inspector\.cc")
_GOES_ON = re.compile(r"(Missing ranks:|Stalled ops:|(\d{1,7}): \[.*\]?|\S+ \[missing ranks: [\d, ]+\])\s*$")

MOST_LINES, MOST_CHARACTERS = 6, 200  # lines kept of a warning, and characters of each line


class Stalls:
    """Find stall warnings in the output of processes."""

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
                if "[" in line and len(self._words) < MOST_LINES:
                    self._words.append(line.strip()[:MOST_CHARACTERS])
            else:
                self._within.discard(process)
                rest.append(line)
        return "".join(rest)

    def take(self) -> tuple[list[int], str]:
        """Return the ranks that the last warning reports missing, and its lines that name them; then forget them."""
        missing, words = sorted(self._missing), " ".join(self._words)
        self._missing, self._words = set(), []
        return missing, words
