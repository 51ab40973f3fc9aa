"""What one host has heard of the others. The policy writes it, through `note_...`.

The coordinator hears all others, a follower only the coordinator. Times are seconds of one monotonic clock, ours.
"""

from collections.abc import Iterable

from entrypoint.launcher.policy.events import News, Reach, Report

STILL = 2.5  # seconds after which a refusal is not of now any more


class OtherHosts:
    """By their names."""

    def __init__(self, all_there: bool) -> None:
        self.assembled = all_there  # every host of the job has been heard by the coordinator
        self.heard: dict[str, float] = {}  # when last; later, if we ourselves stood still since
        self.first_heard: dict[str, float] = {}
        self.reports: dict[str, Report] = {}  # the coordinator's: the last of each follower
        self.news: News | None = None  # a follower's: the last of the coordinator
        self.reach: dict[str, Reach] = {}  # of those that were looked for
        self.rejected: dict[str, tuple[float, float, str]] = {}  # that were refused: since when, when last, why
        self.unreached: dict[str, float] = {}  # when a host last took no connection of ours
        # When the connection ended that a host's launcher kept to us, of hosts that were not heard since.
        self.link_ended: dict[str, float] = {}
        self.woke, self.slept = float("-inf"), 0.0  # when we last stood still ourselves, and went on; for how long

    # --- written by the policy ---

    def note_heard(self, host: str, now: float) -> None:
        self.heard[host] = now
        self.first_heard.setdefault(host, now)
        self.link_ended.pop(host, None)

    def note_report(self, report: Report, now: float) -> None:
        self.reports[report.host] = report
        self.note_heard(report.host, now)

    def note_news(self, news: News, coordinator: str, now: float, answers: bool) -> None:
        """Note news, and who is there. One that has not answered us yet may stand still, and others be late, too."""
        self.news, self.assembled = news, self.assembled or news.assembled
        if answers:
            self.note_heard(coordinator, now)

    def note_assembled(self) -> None:
        self.assembled = True

    def note_reach(self, found: Iterable[Reach]) -> None:
        self.reach |= {reach.host: reach for reach in found}

    def note_rejected(self, host: str, why: str, now: float) -> None:
        since, last, _ = self.rejected.get(host, (now, now, ""))
        self.rejected[host] = (since if now < last + STILL else now, now, why)

    def note_unreached(self, host: str, now: float) -> None:
        self.unreached[host] = now

    def note_link_ended(self, host: str, now: float) -> None:
        self.link_ended[host] = now

    def excuse_lines(self, gap: float) -> None:
        """Give a host as long to be heard again as if we had not stood still."""
        self.link_ended = {host: ended + gap for host, ended in self.link_ended.items()}

    def excuse_silence(self, gap: float, now: float) -> None:
        """Take nobody for silent while we stood still ourselves."""
        self.heard = {host: heard + gap for host, heard in self.heard.items()}
        self.woke, self.slept = now, gap

    # --- asked by anybody ---

    def is_gone(self, host: str) -> bool:
        """Return whether it has said its last words."""
        report = self.reports.get(host)
        return report is not None and report.gone

    def has_answered(self, host: str, poll: int) -> bool:
        """Return whether it has answered a question, or said its last words."""
        report = self.reports.get(host)
        return report is not None and (report.ack >= poll or report.gone)

    def is_clear(self, host: str, attempt: int) -> bool:
        """Return whether it has said that nothing of earlier attempts runs there."""
        return host in self.reports and self.reports[host].attempt == attempt
