"""The coordinator's eye on the whole job: does it hang, at whom; do the hosts train together?"""

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from entrypoint.errors import ExitCode
from entrypoint.job.job import Job, Mode
from entrypoint.monitor import hang
from entrypoint.monitor.distributed import Together
from entrypoint.monitor.hang import Hangs
from entrypoint.monitor.others import Tail

KINDS = ("process", "ended", "still", "stacks")
KINDS_OF_TOGETHER = (*KINDS, "sample", "metric")
ADVICE = {
    Mode.SINGLE: "no distribution was asked for; ENTRYPOINT_MODE=single says that this is meant",
    Mode.MPI: "does the script call hvd.init(), and has its optimizer hvd.DistributedOptimizer?",
    Mode.MWMS: "does the script use tf.distribute.MultiWorkerMirroredStrategy, and leave TF_CONFIG as it is?",
    Mode.PS: "does the script use ParameterServerStrategy or train_and_evaluate, and leave TF_CONFIG as it is?",
}
Tell = Callable[[dict[str, Any]], None]


class Watch:
    """Reads the records of all hosts; tells the launcher what it finds, and the other monitors what it wants of them.

    `trains`: {host: its processes of training}.
    """

    def __init__(self, job: Job, trains: dict[str, set[str]], tell: Tell) -> None:
        self._job, self._trains, self._tell = job, trains, tell
        self._me = job.cluster.me.name
        self._tails = {host: Tail(job.paths.records / f"{host}.jsonl.gz") for host in trains if host != self._me}
        self._hangs = Hangs(job.settings.hang_after, job.mode is Mode.MPI)
        self._together = Together([host for host, processes in trains.items() if processes])
        self._together.told = not _is_to_be_judged(job)

    @property
    def wanted(self) -> int:
        """How often stacks were asked for until now."""
        return self._hangs.asked

    def look(self, own: Iterable[list[Any]]) -> None:
        """Note what is new of all hosts, `own` of this one, and see what follows."""
        kinds = KINDS if self._together.told else KINDS_OF_TOGETHER
        for line in own:
            if line[0] in kinds:
                self._note(self._me, *line)
        for host, tail in self._tails.items():
            for line in tail.lines(kinds):
                self._note(host, *line)
        if found := self._together.look():
            self._tell_together(*found)
        asked = self._hangs.asked
        if places := self._hangs.look(time.monotonic()):
            self._tell_hang(places)
        if self._hangs.asked > asked:
            _write(self._job.paths.run / "wants.json", {"stacks": self._hangs.asked})

    def _note(self, host: str, kind: str, at: float, *values: Any) -> None:
        if kind in ("process", "ended") and not (values[0] in self._trains[host] or values[0].startswith("rank ")):
            return
        self._hangs.note(host, kind, *values)
        if not self._together.told:
            self._together.note(host, at, kind, *values)

    def _tell_together(self, together: bool, words: str) -> None:
        advice = "" if together else f": {ADVICE[self._job.mode]}"
        self._tell({"say": words + advice})
        if not together and self._job.settings.require_distributed:
            self._blame("", "trains alone", words + advice, ExitCode.CONFIG)

    def _tell_hang(self, places: dict[hang.Who, hang.Place]) -> None:
        settings = self._job.settings
        words = f"no progress in any process for {settings.hang_after:g} s: {hang.in_words(places)}"
        self._tell({"say": f"warning: {words}; all stacks are in output/data/stacks-HOST.txt of each host"})
        if settings.hang_action != "wait":
            host, process = hang.missing(places)[0]
            self._blame(process, "no progress", words, ExitCode.HUNG, host, settings.hang_action == "restart")

    def _blame(self, process: str, what: str, error: str, code: int, host: str = "", again: bool = False) -> None:
        cause = {"host": host or self._me, "process": process, "what": what, "error": error, "code": int(code)}
        self._tell({"blame": {**cause, "restartable": again}})


def _is_to_be_judged(job: Job) -> bool:
    """Return whether what the hosts exchange can be seen, and matters."""
    meant = job.mode is Mode.SINGLE and job.settings.mode == "single"
    over_tcp = not any(Path("/sys/class/infiniband").glob("*"))
    # Ranks of hosts that are simulated on one machine share its memory.
    shared = job.mode is Mode.MPI and job.cluster.me.address.startswith("127.")
    return len(job.cluster.training) > 1 and not meant and over_tcp and not shared


def _write(path: Path, value: object) -> None:
    scratch = path.with_suffix(".new")
    scratch.write_text(json.dumps(value))
    scratch.replace(path)
