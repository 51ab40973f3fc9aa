"""Hold what one host knows of the others. The policy writes it, by `note_...`. Times are of our monotonic clock."""

from collections.abc import Iterable

from entrypoint.launcher.policy.events import News, Reach, Report

STILL_SECONDS = 2.5  # seconds after which a refusal is out of date


class OtherHosts:
    """Hold the other hosts by name."""

    def __init__(self, all_there: bool) -> None:
        self.assembled = all_there  # every host of the job has reported to the coordinator
        self.last_contact: dict[str, float] = {}  # when last; shifted if this process was paused since
        self.first_contact: dict[str, float] = {}
        self.reports: dict[str, Report] = {}  # on the coordinator: the last report of each follower
        self.news: News | None = None  # on a follower: the last news
        self.reach: dict[str, Reach] = {}  # of hosts that were looked for
        self.rejected: dict[str, tuple[float, float, str]] = {}  # refused hosts: since when, when last, why
        self.unreached: dict[str, float] = {}  # when a host last did not take our connection
        # When a host's connection to us ended, for hosts that have not reported since.
        self.link_ended: dict[str, float] = {}
        self.woke, self.slept = float("-inf"), 0.0  # when our last pause ended, and how long it was

    # --- written by the policy ---

    def note_contact(self, host: str, now: float) -> None:
        self.last_contact[host] = now
        self.first_contact.setdefault(host, now)
        self.link_ended.pop(host, None)

    def note_report(self, report: Report, now: float) -> None:
        self.reports[report.host] = report
        self.note_contact(report.host, now)

    def note_news(self, news: News, coordinator: str, now: float, answers: bool) -> None:
        """Note news, and that the coordinator is alive if it has answered us: other news may be from before a pause."""
        self.news, self.assembled = news, self.assembled or news.assembled
        if answers:
            self.note_contact(coordinator, now)

    def note_assembled(self) -> None:
        self.assembled = True

    def note_reach(self, found: Iterable[Reach]) -> None:
        self.reach |= {reach.host: reach for reach in found}

    def note_rejected(self, host: str, why: str, now: float) -> None:
        since, last, _ = self.rejected.get(host, (now, now, ""))
        self.rejected[host] = (since if now < last + STILL_SECONDS else now, now, why)

    def note_unreached(self, host: str, now: float) -> None:
        self.unreached[host] = now

    def note_link_ended(self, host: str, now: float) -> None:
        self.link_ended[host] = now

    def excuse_lines(self, gap: float) -> None:
        """Shift the ends of connections by a pause of ours, so that hosts have as long to reconnect as without it."""
        self.link_ended = {host: ended + gap for host, ended in self.link_ended.items()}

    def excuse_silence(self, gap: float, now: float) -> None:
        """Shift the last reports by a pause of ours, so that no host counts as silent because of it."""
        self.last_contact = {host: at + gap for host, at in self.last_contact.items()}
        self.woke, self.slept = now, gap

    # --- asked by anybody ---

    def is_gone(self, host: str) -> bool:
        """Return whether a host has sent its last report."""
        report = self.reports.get(host)
        return report is not None and report.gone

    def has_answered(self, host: str, poll: int) -> bool:
        """Return whether a host has answered a poll, or sent its last report."""
        report = self.reports.get(host)
        return report is not None and (report.ack >= poll or report.gone)

    def is_clear(self, host: str, attempt: int) -> bool:
        """Return whether a host has reported that nothing of earlier attempts runs there."""
        return host in self.reports and self.reports[host].attempt == attempt
