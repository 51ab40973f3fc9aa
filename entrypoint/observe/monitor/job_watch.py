"""Watch the whole job on the coordinator: whether it hangs and where, and whether the hosts train together."""

import contextlib
import json
import time
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from entrypoint.base.errors import ExitCode
from entrypoint.launcher.host.machine import this_machine
from entrypoint.launcher.job.job import Job, Mode
from entrypoint.observe.live.serve import STATE, STILL_WATCHED_SECONDS, WATCHED
from entrypoint.observe.live.view import View
from entrypoint.observe.monitor import hang
from entrypoint.observe.monitor.distributed import ADVICE, Together, advice_on
from entrypoint.observe.monitor.hang import Hangs
from entrypoint.observe.monitor.tracking import Tracking
from entrypoint.observe.monitor.trained_model import WeightSums
from entrypoint.observe.monitor.wait_sites import Stand
from entrypoint.record import lines
from entrypoint.record.read import RecordTail

# Lines for Hangs and WeightSums, beside SHOWN; and those for Together, too.
KEPT_ON = (lines.Still, lines.Stalled, lines.Stacks, lines.WeightsLine)
JUDGED = (lines.ProcessLine, lines.EndedLine, lines.SampleLine, lines.Metric, lines.ModelLine, *KEPT_ON)
SHOWN = (  # lines for View that cost little
    lines.HostLine, lines.ProcessLine, lines.EndedLine, lines.PhaseLine, lines.Metric, lines.Lines, lines.Said,
    lines.Distributed, lines.OutcomeLine,
)  # fmt: skip
SHORT_SECONDS, MOST_SHORT_BYTES = 600.0, 1 << 20  # of a job whose records can be read again, sorted by time
EVALUATOR = "evaluator/"  # prefix of an evaluator's name: its steps are not steps of the training
ALONE, DIFFER = "trains alone", "weights that differ"
Tell = Callable[[dict[str, Any]], None]


class JobWatch:
    """Read the records of all hosts, report findings to the launcher, and publish requests to the other monitors.

    `trains`: {host: names of its training processes}.
    """

    def __init__(self, job: Job, trains: dict[str, set[str]], tell: Tell, tracked: bool) -> None:
        self._job, self._trains, self._tell = job, trains, tell
        self._me = job.cluster.me.name
        self._tails = {host: RecordTail(job.paths.records / f"{host}.jsonl.gz") for host in trains if host != self._me}
        self._hangs = Hangs(job.settings.hang_after, may_spin=job.mode is Mode.MPI or this_machine().gpus > 0)
        training = [
            host.name for host in job.cluster.training
            if any(not name.startswith(EVALUATOR) for name in trains[host.name])
        ]  # fmt: skip
        # Ranks on hosts that are simulated on one machine exchange data in shared memory.
        unseen = job.mode is Mode.MPI and job.cluster.me.address.startswith("127.")
        unseen = unseen or any(Path("/sys/class/infiniband").glob("*"))
        self._make = lambda: Together(training, job.mode is Mode.PS, unseen=unseen)
        self._together = self._make()
        meant = job.mode is Mode.SINGLE and job.settings.mode == "single"
        self._together.judged = meant or len(training) < 2
        self._began = time.monotonic()
        self._found: list[lines.Line] = []  # verdicts that are to be recorded
        self._weights = WeightSums()
        self._wrong: dict[str, str] = {}  # logged findings that may end the job: {what: words}
        self._view = View()
        self._tracking = Tracking(job.paths.records, self._say) if tracked else None
        self.live = False  # whether the live page is open
        self.wanted = 0  # how often stacks were requested until now
        self._watched = (0, 0.0)  # when WATCHED was last touched: by the file's time, and by time.monotonic()
        self._wants = {"stacks": 0, "live": False}  # requests as the other monitors read them
        with contextlib.suppress(OSError, *lines.WRONG):  # an earlier monitor may have requested stacks already
            self._hangs.asked = int(json.loads((job.paths.run / "wants.json").read_text())["stacks"])

    def look(self, own: Iterable[lines.Line]) -> list[lines.Line]:
        """Read new lines of all hosts (`own`: of this host), and act on them. Return lines for the record."""
        self._read(own)
        self._look_at_training()
        if stands := self._hangs.look(time.monotonic()):
            self._tell_hang(stands)
        self.wanted = self._hangs.asked
        self.live = False
        with contextlib.suppress(OSError):
            touched, now = (self._job.paths.records / WATCHED).stat().st_mtime_ns, time.monotonic()
            self._watched = (touched, now) if touched != self._watched[0] else self._watched
            self.live = now - self._watched[1] < STILL_WATCHED_SECONDS
        if self._tracking:
            self._tracking.look(bool(self._hangs.still))
        wants = {"stacks": self.wanted, "live": self.live}
        if wants != self._wants:
            with contextlib.suppress(OSError):  # for example, a full disk: the next look tries again
                _write(self._job.paths.run / "wants.json", wants)
                self._wants = wants
        if self.live:
            self._show()
        return self._take_found()

    def _take_found(self) -> list[lines.Line]:
        found, self._found = self._found, []
        return found

    def look_last(self, own: Iterable[lines.Line]) -> list[lines.Line]:
        """Give the last verdict. Return lines for the record.

        Show the end on the live page if it is open, and remove the file that marks it as open. By now, the records of
        all hosts that could send them are complete.
        """
        self._read(own)
        outcome = self._view.outcome
        if not self._together.judged and outcome and outcome["kind"] == "succeeded":
            self._judge_again()
            if found := self._together.at_end():
                self._tell_together(*found)
        if self._tracking:
            self._tracking.finish()
        if self.live:
            self._show()
        with contextlib.suppress(OSError):  # the verdict counts more
            (self._job.paths.records / WATCHED).unlink()
        return self._take_found()

    def _judge_again(self) -> None:
        """Read a short job's records again, sorted by time: pieces of other hosts' records come late."""
        paths = [self._job.paths.records / f"{host}.jsonl.gz" for host in self._trains]
        sizes = [path.stat().st_size for path in paths if path.exists()]
        if time.monotonic() - self._began > SHORT_SECONDS or sum(sizes) > MOST_SHORT_BYTES:
            return
        every = [
            (path.name.removesuffix(".jsonl.gz"), line) for path in paths for line in RecordTail(path).lines(JUDGED)
        ]
        again = self._make()
        for host, line in sorted(every, key=lambda each: each[1].at):
            if self._is_of_training(host, line) and not _is_of_evaluator(line):
                with contextlib.suppress(*lines.WRONG):
                    again.note(host, line)
        if not self._wrong.get(ALONE):
            self._together = again

    def _is_of_training(self, host: str, line: lines.Line) -> bool:
        if not isinstance(line, lines.ProcessLine | lines.EndedLine):
            return True
        return line.process in self._trains[host] or line.process.startswith("rank ")

    def _show(self) -> None:
        with contextlib.suppress(OSError):
            _write(self._job.paths.records / STATE, self._view.state(lines.now()))

    def _read(self, own: Iterable[lines.Line]) -> None:
        wanted = {*SHOWN, *(JUDGED if self.live or not self._together.judged else KEPT_ON)}
        others = ((host, line) for host, tail in self._tails.items() for line in tail.lines(wanted))
        for host, line in chain(((self._me, line) for line in own), others):  # one by one: a record expands to 1 GB
            for note in (self._view.note, self._judge):
                with contextlib.suppress(*lines.WRONG):  # anything may have written another host's lines
                    note(host, line)

    def _judge(self, host: str, line: lines.Line) -> None:
        if not isinstance(line, JUDGED) or not self._is_of_training(host, line):
            return
        if isinstance(line, lines.WeightsLine):
            self._weights.note((host, line.process), line.step, line.norm, line.total)
        elif isinstance(line, lines.ProcessLine | lines.EndedLine):
            self._weights.forget((host, line.process))
        self._hangs.note(host, line)
        if not self._together.judged and not _is_of_evaluator(line):
            self._together.note(host, line)

    def _say(self, words: str) -> None:
        self._tell({"say": words})

    def _look_at_training(self) -> None:
        """Log whether the hosts train together. End the job if the settings demand that, and the contrary is proven."""
        if found := self._together.look():
            self._tell_together(*found)
        if found := self._weights.look():
            equal, words = found
            self._wrong.pop(DIFFER, None)
            if not equal:
                words = self._wrong[DIFFER] = f"{words}: {ADVICE[self._job.mode]}"
            self._say(words)
        proven = {ALONE: self._together.is_proven, DIFFER: not self._together.averages}
        for what in [what for what in self._wrong if proven[what] and self._job.settings.require_distributed]:
            self._blame("", what, self._wrong.pop(what), ExitCode.CONFIG)

    def _tell_together(self, together: bool | None, words: str) -> None:
        """Log and record whether the hosts train together; if they do not, add advice."""
        self._wrong.pop(ALONE, None)
        verdict, advice = words.removeprefix("distributed: "), ""
        if together is False:
            advice = advice_on(self._job.mode, self._together.model)
            words = self._wrong[ALONE] = f"{words}: {advice}"
            verdict = verdict.removeprefix("NO: ")
        self._say(words)
        since = self._together.since
        self._found.append(lines.Distributed(together=together, since=since, words=verdict, advice=advice))
        self._view.note(self._me, self._found[-1])

    def _tell_hang(self, stands: dict[hang.Who, Stand]) -> None:
        settings, stall = self._job.settings, self._hangs.stall
        words = f"no progress in any process for {settings.hang_after:g} s: {hang.in_words(stands, stall)}"
        self._say(f"warning: {words}; all stacks are in output/data/stacks-HOST.txt of each host")
        if settings.hang_action != "wait":
            host, process = hang.missing(stands, stall)[0]
            self._blame(process, "no progress", words, ExitCode.HUNG, host, settings.hang_action == "restart")

    def _blame(self, process: str, what: str, error: str, code: int, host: str = "", again: bool = False) -> None:
        cause = {"host": host or self._me, "process": process, "what": what, "error": error, "code": int(code)}
        self._tell({"blame": {**cause, "restartable": again}})


def _is_of_evaluator(line: lines.Line) -> bool:
    return getattr(line, "process", "").startswith(EVALUATOR)


def _write(path: Path, value: object) -> None:
    scratch = path.with_suffix(".new")
    scratch.write_text(json.dumps(value))
    scratch.replace(path)
