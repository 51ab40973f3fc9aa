"""Warn, before the user's programs start, of GPUs that TensorFlow cannot use: else only the bill shows them. Pure."""

from collections.abc import Iterator

from entrypoint.base.errors import ExitCode
from entrypoint.launcher.job.choices import Reaction
from entrypoint.launcher.job.settings import Settings
from entrypoint.launcher.plan.plan import ALL_HOSTS, PREPARE, Need
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.events import Action
from entrypoint.launcher.policy.facts import Facts
from entrypoint.launcher.policy.rendezvous import listed

SHOWN = 5  # hosts with the same reason that are named
WHAT = "has GPUs that TensorFlow cannot use"
REMEDY = "Take instances without GPUs, or an image of your own whose TensorFlow is for GPUs and finds CUDA's libraries"


class GpuCheck:
    """Check GPUs on the coordinator; other hosts do nothing."""

    def __init__(self, facts: Facts, settings: Settings) -> None:
        self.facts, self.settings = facts, settings
        self._over = not facts.is_coordinator or settings.gpu_check is Reaction.OFF

    def advance(self, now: float) -> Iterator[Action]:
        """Log the result, or blame the first host concerned, when every host has prepared itself."""
        facts = self.facts
        if self._over or not facts.met(Need(host=ALL_HOSTS, process=PREPARE)):
            return
        self._over = True
        every = {host: facts.report_of(host).unused_gpus for host in facts.plan.hosts} | {facts.host: facts.unused_gpus}
        found = {host: why for host, why in every.items() if why}
        if not found:
            return
        if self.settings.gpu_check is Reaction.FAIL:
            error = f"{_in_words(found)}. {REMEDY}, or set ENTRYPOINT_GPU_CHECK=warn to train on CPUs anyway"
            facts.blame_host(now, next(iter(found)), WHAT, ExitCode.CONFIG, error=error)
        else:
            message = f"TensorFlow cannot use the GPUs of this job and trains on CPUs: {_in_words(found)}. {REMEDY}"
            end = "ENTRYPOINT_GPU_CHECK=fail ends such a job at its start, off hides this warning"
            yield events.Say(message=f"WARNING: {message}. {end}")


def _in_words(found: dict[str, str]) -> str:
    """Return hosts and reasons: `algo-1, algo-2 (4 GPUs: tensorflow-cpu 2.14.1 is built without CUDA)`."""
    hosts: dict[str, list[str]] = {}
    for host, why in found.items():
        hosts.setdefault(why, []).append(host)
    return "; ".join(f"{listed(names, SHOWN)} ({why})" for why, names in hosts.items())
