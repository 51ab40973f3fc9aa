"""What Horovod says of a stall: rank 0 prints it every minute, which is no sign of progress, but tells who is missing.

Horovod's stall_inspector.cc has the words: a line of a warning, "Missing ranks:" and, for each rank that has not come,
`3: [names of tensors]`; or "Stalled ops:", and a line for each tensor.
"""

import re

_BEGINS = re.compile(r".*stall_inspector\.cc")
_GOES_ON = re.compile(r"(Missing ranks:|Stalled ops:|(\d{1,7}): \[.*\]?|\S+ \[missing ranks: [\d, ]+\])\s*$")


class Stalls:
    """Reads the output of processes."""

    def __init__(self) -> None:
        self._within: set[str] = set()  # processes whose last line was of a warning
        self._missing: set[int] = set()

    def without(self, process: str, text: str) -> str:
        """Return the text without what is a warning of a stall, which may go on in the next text."""
        if process not in self._within and "stall_inspector.cc" not in text:
            return text
        rest = []
        for line in text.splitlines(keepends=True):
            if _BEGINS.match(line):
                self._within.add(process)
                self._missing = set()
            elif process in self._within and (found := _GOES_ON.match(line)):
                self._missing |= {int(found[2])} if found[2] else set()
            else:
                self._within.discard(process)
                rest.append(line)
        return "".join(rest)

    def take(self) -> list[int]:
        """Return the ranks that the last warning misses, once."""
        missing, self._missing = sorted(self._missing), set()
        return missing
