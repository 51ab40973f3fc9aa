"""Run the monitor's loop: record the launcher's actions, the host's use and the programs' output."""

import json
import select
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entrypoint.launcher.host.machine import this_machine
from entrypoint.launcher.job.job import Job, Mode
from entrypoint.launcher.plan.plan import Plan, Role
from entrypoint.observe.monitor.emf import Emf
from entrypoint.observe.monitor.output_scan import Printed
from entrypoint.observe.monitor.record_header import about, find_out
from entrypoint.observe.monitor.reporting import make_report
from entrypoint.observe.monitor.sampling import Sampling
from entrypoint.observe.monitor.script_socket import Marks
from entrypoint.observe.monitor.silence import Silence
from entrypoint.record import lines
from entrypoint.record.read import RecordTail, wait_for
from entrypoint.record.write import Record

if TYPE_CHECKING:
    from entrypoint.observe.monitor.delivery import Delivery
    from entrypoint.observe.monitor.job_watch import JobWatch

EARLY_SECONDS = 1.5  # seconds until what the job is, is written and brought
QUIET_SECONDS = 0.5  # seconds at the start in which it only listens: the job's programs start then
SETTLED_SECONDS = 0.5  # seconds to the second look, at which the coordinator imports what makes the report
LEAST, REVIEW = 0.5, 5.0  # least and usual seconds between two reviews: pieces are written, and sent by followers
LAST_SECONDS = 1.0  # seconds at the end: of a follower, to bring the rest; of the coordinator, to have it of all
LIVE, LIVE_HOSTS = 1.0, 50  # seconds between reviews while the live page is open, in jobs of at most so many hosts
MOST_FAULTS = 10  # of ours that are logged
# Seconds in which messages gather: to be woken for each line costs more than to read it. If scripts send messages, it
# is shorter: their socket holds ten by default (net.unix.max_dgram_qlen).
REST_SECONDS, SCRIPTS_REST_SECONDS = 0.25, 0.1
LONGEST_MESSAGE = 1 << 18  # bytes
LINE, OUTPUT, UNSEEN = b"[", b"L", b"U"  # kinds of feed.py: line of the record, output, count of output not sent
TRAINS = {Role.SCRIPT, Role.CHIEF, Role.WORKER, Role.PS, Role.EVALUATOR, Role.RANK}


class Monitor:
    """Write the record of one host, and watch the job.

    `mask` hides secrets; `tracked`: the job is reported to MLflow; `again`: an earlier monitor of this host died.
    """

    def __init__(
        self, feed: socket.socket, job: Job, plan: Plan, mask: Callable[[str], str], tracked: bool, again: bool
    ) -> None:
        with suppress(OSError):
            Path("/proc/self/comm").write_text("monitor")
        self._feed, self._messages = feed, Messages(feed)
        self._job, self._me, self._tracked = job, job.cluster.me.name, tracked
        self._trains = {host: {spec.name for spec in plan.on(host) if spec.role in TRAINS} for host in plan.hosts}
        self._running: dict[str, int] = {}  # processes of the plan: name -> pid
        self._faults: set[str] = set()  # places in our code whose exceptions are logged
        self._printed = Printed(job.settings.metrics, self._say)
        self._marks: Marks | None = None
        with suppress(OSError):  # for example, its path is too long
            self._marks = Marks(job.paths.marks, mask)
        emf = job.settings.emf
        self._emf = Emf(emf, job.name, self._me, this_machine().cpus) if emf else None
        self._silence: Silence | None = None
        self._there: list[str] = []  # hosts that will still finish their records; on a follower, the coordinator
        self._found_out: list[lines.HostLine] = []  # facts on this host for its record
        self._record = Record(job.paths.records / f"{self._me}.jsonl.gz", self._say, again)
        self._fresh: list[lines.Line] = []  # new lines of the record, for the coordinator's `JobWatch`
        self._lives: set[bytes] = set()  # lines of LIVES that were noted: the launcher may send them twice
        self._sampling: Sampling | None = None
        self._delivery: Delivery | None = None  # on a follower
        self._watch: JobWatch | None = None  # on the coordinator

    def run(self, began: float, description: lines.DescribedLine) -> None:
        """Read messages, take samples and review them until the launcher closes its end.

        `began`: when the launcher started, in seconds since the epoch; `description`: the job's, for the record.
        """
        settings = self._job.settings
        pace = min(REVIEW, max(LEAST, settings.hang_after / 4)) if settings.hang_after else REVIEW
        look_at, review_at = time.monotonic() + QUIET_SECONDS, time.monotonic() + min(pace, EARLY_SECONDS)
        self._guard(self._read_earlier)
        self._guard(lambda: self._add(about(self._job, began)))
        self._guard(partial(self._record.add, description))
        poll, end = select.poll(), select.poll()
        poll.register(self._feed, select.POLLIN)
        end.register(self._feed, select.POLLRDHUP)
        if self._marks:
            poll.register(self._marks.socket, select.POLLIN)
        while True:
            ready = dict(poll.poll(max(0.0, min(look_at, review_at) - time.monotonic()) * 1000))
            if self._marks and self._marks.socket.fileno() in ready:
                self._guard(self._marks.receive)
            if self._feed.fileno() in ready:
                for message in self._messages.take():
                    self._guard(partial(self._hear, *message))
            if self._messages.ended:
                break
            now = time.monotonic()
            if now >= look_at:
                interval = settings.monitor_interval
                look_at = max(look_at + (interval if self._sampling else min(interval, SETTLED_SECONDS)), now)
                self._guard(self._look)
            if now >= review_at:
                self._guard(self._review)
                self._guard(self._bring)
                fast = self._is_watched() and len(self._job.cluster.hosts) <= LIVE_HOSTS
                review_at = now + (min(pace, LIVE) if fast else pace)
            rest = SCRIPTS_REST_SECONDS if self._marks and self._marks.heard else REST_SECONDS
            end.poll(max(0.0, min(rest, look_at - now, review_at - now)) * 1000)
        if self._sampling:
            self._guard(self._look)
        self._guard(self._add_marks)
        if self._marks:
            self._guard(self._marks.close)
        if self._emf and (line := self._emf.take(time.time())):
            self._tell({"print": line})
        self._guard(lambda: self._add(*self._printed.take_lines()))
        self._finish()

    def _guard(self, work: Callable[[], object]) -> None:
        """Contain a fault of one part of the monitor: that part is skipped for one round, and the rest goes on.

        Each exception is logged once for each place in our code.
        """
        try:
            work()
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(frame.filename).name}:{frame.lineno}"
            if place not in self._faults and len(self._faults) < MOST_FAULTS:
                self._faults.add(place)
                words = " ".join(f"{type(error).__name__}: {error}".split())[:200]
                self._say(f"warning: error in the monitor of this host, at {place}: {words}; it continues without that")

    def _read_earlier(self) -> None:
        """Restore the state from an earlier monitor's record: running processes, and bytes exchanged until then."""
        if not self._record.size:
            return
        from entrypoint.observe.monitor.job_watch import JUDGED, SHOWN

        for line in RecordTail(self._record.path).lines((*SHOWN, *JUDGED)):
            if isinstance(line, lines.LIVES):
                self._lives.add(line.to_json())
            self._take_in(line)

    def _add(self, *found: lines.Line) -> None:
        for line in found:
            self._record.add(line)
            if self._job.cluster.is_coordinator:
                self._fresh.append(line)

    def _hear(self, kind: bytes, process: str, what: bytes) -> None:
        if kind == LINE:
            self._note(what)
        elif kind == UNSEEN:
            self._printed.add_unseen(process, int(what))
        else:
            self._printed.scan(process, what.decode("utf-8", "replace"))

    def _note(self, message: bytes) -> None:
        if message.startswith(b'["decided"'):  # only replay/ reads it
            self._record.add(message)
            return
        line = lines.line_of(json.loads(message))
        if isinstance(line, lines.LIVES):
            if message in self._lives:
                return
            self._lives.add(message)
        self._record.add(message)
        self._take_in(line)

    def _take_in(self, line: lines.Line) -> None:
        if self._job.cluster.is_coordinator:
            self._fresh.append(line)
        match line:
            case lines.ProcessLine():
                self._running[line.process] = line.pid
            case lines.EndedLine():
                self._running.pop(line.process, None)
                self._add(*self._printed.take_lines(line.process))
            case lines.OutcomeLine():
                self._there = list(line.there)

    def _add_marks(self) -> set[str]:
        """Record the messages of scripts (by sagemaker_tf_data) since the last look. Return the senders."""
        metrics, found = self._marks.take() if self._marks else ({}, [])
        self._add(*found)
        for process, values in metrics.items():
            self._printed.reader(process).note(values)
        return set(metrics)

    def _look(self) -> None:
        if self._sampling is None:
            self._sampling = Sampling(self._job)
            ranks, path = self._job.mode is Mode.MPI, self._job.paths.data / f"stacks-{self._me}.txt"
            self._silence = Silence(self._sampling, self._job.settings.hang_after, ranks, path)
            threading.Thread(target=find_out, args=(self._job, self._found_out), name="facts", daemon=True).start()
            return
        while self._found_out:
            self._add(self._found_out.pop(0))
        if self._job.cluster.is_coordinator:
            import entrypoint.observe.report.make  # takes as long as the report of a small job, and later nothing
            import entrypoint.record.find  # noqa: F401
        sample = self._sampling.look(self._running, self._training(), self._printed.take_bytes())
        self._add(sample)
        self._add(*self._printed.stalls.take())
        told = self._add_marks()
        metrics = list(self._printed.take_metrics())
        self._add(*metrics)
        if self._emf:
            for line in metrics:
                self._emf.note_metrics(line.values)
            self._emf.note(sample.seconds, sample.host)
            if self._emf.is_due:
                self._tell({"print": self._emf.take(time.time())})
        if self._silence:
            self._silence.note(self._training(), sample, told)
            if stacks := self._silence.stacks():
                self._add(*stacks)
                self._bring()  # at once: the coordinator waits for them

    def _training(self) -> dict[str, int]:
        trains = self._trains[self._me]
        return {name: pid for name, pid in self._running.items() if name in trains or name.startswith("rank ")}

    def _review(self) -> None:
        if self._silence and (still := self._silence.still()) is not None:
            self._add(still)
        if self._is_watched():
            self._add(*self._printed.take_lines())
        wanted = 0  # how often stacks were requested until now
        if self._job.cluster.is_coordinator:
            fresh, self._fresh = self._fresh, []
            self._add(*self._job_watch().look(fresh))
            wanted = self._job_watch().wanted
        elif self._delivery:
            wanted = self._delivery.wants.get("stacks", 0)
        if self._silence:
            self._silence.take_stacks(wanted, self._training())

    def _job_watch(self) -> "JobWatch":
        if self._watch is None:
            from entrypoint.observe.monitor.job_watch import JobWatch

            self._watch = JobWatch(self._job, self._trains, self._tell, self._tracked)
        return self._watch

    def _is_watched(self) -> bool:
        """Return whether somebody has the job's live page open."""
        return bool(self._watch.live if self._watch else self._delivery and self._delivery.wants.get("live"))

    def _tell(self, message: dict[str, Any]) -> None:
        with suppress(OSError):
            self._feed.send(json.dumps(message).encode())

    def _say(self, words: str) -> None:
        self._tell({"say": words})

    def _bring(self) -> None:
        """Write new lines to the record's file. On a follower, send them to the coordinator, too."""
        self._record.flush()
        if self._job.cluster.is_coordinator:
            return
        if self._delivery is None:
            from entrypoint.observe.monitor.delivery import Delivery

            self._delivery = Delivery(self._job, self._record.path)
        self._delivery.bring()

    def _finish(self) -> None:
        path = self._record.path
        if self._job.cluster.is_coordinator:
            self._guard(self._record.flush)
            self._guard(lambda: wait_for(self._there, path.parent, LAST_SECONDS))
            if self._watch or (self._marks and self._marks.heard):  # else it was over before the first review
                self._guard(lambda: self._add(*self._job_watch().look_last(self._fresh)))
        self._guard(self._record.close)
        if self._job.cluster.is_coordinator:
            for words in make_report(path.parent, self._job.paths.report):
                self._say(words)
            return
        self._guard(self._bring)
        if self._delivery and self._delivery.finish(LAST_SECONDS if self._there else 0.0):
            with suppress(OSError):
                path.unlink()  # the coordinator has all of it
                path.parent.rmdir()


class Messages:
    """Receive the launcher's messages without waiting for any, and join the output of each process."""

    def __init__(self, feed: socket.socket) -> None:
        self._feed = feed
        self._room = memoryview(bytearray(LONGEST_MESSAGE))
        self.ended = False  # whether the launcher has closed its end and all messages are taken

    def take(self) -> Iterator[tuple[bytes, str, bytes]]:
        """Yield (kind, process, content). A line of the record comes whole, with "" as process."""
        output: dict[bytes, list[bytes]] = {}
        while True:
            message = self._next()
            kind, (process, _, text) = message[:1], message[1:].partition(b"\0")
            if kind == OUTPUT:
                output.setdefault(process, []).append(text)
                continue
            for each, texts in output.items():
                yield OUTPUT, each.decode(errors="replace"), b"".join(texts)
            output.clear()
            if not message:
                return
            yield (kind, "", message) if kind == LINE else (kind, process.decode(errors="replace"), text)

    def _next(self) -> bytes:
        try:
            size = self._feed.recv_into(self._room, 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return b""
        except OSError:  # the launcher was killed before it had read our messages
            size = 0
        self.ended = not size
        return bytes(self._room[:size])
