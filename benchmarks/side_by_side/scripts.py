"""Find when the scripts' processes end, by the kernel: later than their last line, by what TensorFlow takes to exit.

This is for jobs whose ranks all end by themselves, and for restarts. With parameter servers, a worker is a script on
one side and a server on the other.
"""

import time

from benchmarks.profile_start.kernel import Kernel
from benchmarks.side_by_side.usage import is_script


class Scripts(Kernel):
    """Watch all processes of this machine that run a program of this name, while `with` lasts. Takes root."""

    def __init__(self, program: str) -> None:
        super().__init__()
        self._program = program.encode()

    def ended_at(self, count: int | None = None) -> float | None:
        """Return when all of them were gone, or so many, as `time.time()` counts; None if unknown."""
        ends = [
            seen.ended
            for seen in self.seen
            if any(is_script([word.encode() for word in each.argv], self._program) for each in seen.executions)
        ]
        gone = [end for end in ends if end is not None]
        if self.is_deaf or not gone or None in ends:
            return None
        return sorted(gone)[:count][-1] / 1e9 + time.time() - time.monotonic()
