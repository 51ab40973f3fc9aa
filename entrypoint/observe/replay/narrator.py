"""Put a host's events and decisions into words."""

from collections.abc import Mapping
from typing import Any

from entrypoint.launcher.outcome.outcome import Outcome
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.artifacts import Artifacts
from entrypoint.launcher.policy.events import Action, Event
from entrypoint.record.read import text

SHOWN_CHARS = 160  # characters of a text


class Narrator:
    """Describe one host's events. Of reports and news, only changes are described."""

    def __init__(self) -> None:
        self._last_news: dict[str, Any] = {}

    def describe(self, event: Event) -> str:
        """Describe an event; return "" if it brings nothing new."""
        match event:
            case events.Due():
                return ""
            case events.Reported(report=report):
                return self._news_of(report.host, report)
            case events.Informed(news=news):
                return self._news_of("the coordinator", news)
            case events.Probed(found=found):
                return "probed: " + ", ".join(f"{each.host} {each.why or 'answers'}" for each in found)
            case events.Prepared(flags=flags):
                return f"prepared: {' '.join(sorted(flags)) or 'no flags'}"
            case _ if type(event) in _WORDS:
                return _WORDS[type(event)].format(event)
            case _:
                values = [_plain(value) for name in event.fields if (value := getattr(event, name))]
                return f"{_spaced(type(event).__name__)}: {_short(', '.join(values))}"

    def _news_of(self, who: str, message: Any) -> str:
        before, self._last_news[who] = self._last_news.get(who), message
        new = []
        for name in message.fields:
            value = getattr(message, name)
            if value != (getattr(before, name) if before else message.defaults.get(name)) and name not in _DULL:
                new.append(f"{name}={_short(_plain(value))}")
        return f"{who} reports {', '.join(new)}" if new else ""


_DULL = {"host", "fingerprints", "public_keys", "exits", "cause_at", "stopping_at", "clock_error", "ack"}
_WORDS: dict[type, str] = {
    events.Ended: "{0.name} ended: {0.exit}",
    events.Signalled: "signal {0.number} came",
    events.Broken: "{0.what}: {0.why}",
    events.Found: "the monitor found: {0.cause.headline}",
    events.Start: "starts {0.spec.name}",
    events.Ask: "SIGTERM to {0.name}",
    events.Force: "SIGKILL to {0.name}",
    events.Finish: "exits: {0.outcome.kind}, exit code {0.outcome.exit_code}",
    events.TellCoordinator: "reports to the coordinator",
    events.TellFollowers: "sends news to the followers",
}


def consequence(action: Action) -> str:
    if isinstance(action, events.Say):
        return f"logs: {_short(action.message)}"
    return _WORDS.get(type(action), _spaced(type(action).__name__)).format(action)


def _plain(value: Any) -> str:
    if isinstance(value, frozenset | tuple):
        return " ".join(sorted("/".join(map(str, each)) if isinstance(each, tuple) else str(each) for each in value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    if isinstance(value, Artifacts):
        return ", ".join(file.path for file in value.files) + ("" if value.whole else ", ...") or "no files"
    if isinstance(value, Outcome):
        return f"{value.kind}, exit code {value.exit_code}"
    return str(getattr(value, "headline", value))


def _spaced(name: str) -> str:
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()


def _short(words: str) -> str:
    return text(" ".join(words.split()), SHOWN_CHARS)
