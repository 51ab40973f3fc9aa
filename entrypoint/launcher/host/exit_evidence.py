"""What the end of a process brings beside its exit: its last output, what the kernel says, what it left in files."""

import contextlib
import json
import signal
from collections.abc import Callable
from typing import Any

from entrypoint.launcher.host.logs import Log
from entrypoint.launcher.host.memory import Meter
from entrypoint.launcher.host.resource_limits import broken
from entrypoint.launcher.job.job import Paths
from entrypoint.launcher.outcome.outcome import Exit
from entrypoint.launcher.plan import ssh
from entrypoint.launcher.plan.plan import PREPARE, ProcessSpec
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.events import Event
from entrypoint.launcher.policy.facts import Facts

FAILURE = 4000  # characters of what a script writes to the failure file that are told
MOST = 1 << 20  # that are read


class LastOutput:
    """Belongs to the loop, like the facts that it reads. `prepared` hears what the prepare step has left."""

    def __init__(self, paths: Paths, facts: Facts, log: Log, prepared: Callable[[dict[str, Any]], None]) -> None:
        self._paths, self._failure, self._facts, self._log = paths, paths.failure, facts, log
        self._note_prepared, self._meter = prepared, Meter()

    def events_of_end(self, spec: ProcessSpec, exit: Exit) -> list[Event]:
        """Return an end, and before it what it brings: its last output, a public key, what the prepare step found."""
        before: list[Event] = []
        output = shortage = wrote = ""
        try:
            self._log.drain(spec.name)
            output, shortage = self._log.tail(spec.name), self._memory(spec.name, exit)
            wrote = self._failure_of(spec, exit)
            if exit.clean and spec.key_name and spec.public_key_file:
                key = ssh.key_in(spec.public_key_file.read_text())
                before.append(events.PublicKey(name=spec.key_name, key=key))
            if exit.clean and spec.name == PREPARE:
                found = json.loads(self._paths.prepared.read_text())
                self._note_prepared(found)
                flags, fingerprints = frozenset(found["flags"]), tuple(found["fingerprints"].items())
                before.append(events.Prepared(flags=flags, fingerprints=fingerprints, unused_gpus=found["unused_gpus"]))
        except Exception as error:  # whatever it was: an end that is not told would be waited for for ever
            before.append(broken(error))
        return [*before, events.Ended(name=spec.name, exit=exit, output=output, memory=shortage, wrote=wrote)]

    def forget(self) -> None:
        """Forget what was killed: what was written of a failure until now explains nothing that comes."""
        self._meter.killed_since()
        with contextlib.suppress(OSError):
            said = self._masked(most=1000)
            self._failure.unlink()
            self._log.say(f"the script wrote {self._failure}, removed before the next attempt: {said}")

    def _memory(self, name: str, exit: Exit) -> str:
        """What the kernel says, if it may have killed this process; a shell passes the end of its program on as 137."""
        if name in self._facts.own.forced or exit.code != 128 + signal.SIGKILL:
            return ""
        return self._meter.killed_since()

    def _failure_of(self, spec: ProcessSpec, exit: Exit) -> str:
        """Return what the user's program says of its end in the failure file, if it writes that itself.

        Nobody can tell whose words they are where several programs of the user's run on this host.
        """
        alone = sum(each.duty.is_users for each in self._facts.own.specs.values()) == 1
        if exit.clean or exit.signal is not None or not (spec.duty.is_users and alone):
            return ""
        with contextlib.suppress(OSError):
            return self._masked(FAILURE)
        return ""

    def _masked(self, most: int) -> str:
        """So many characters of what a script wrote, cut when it is masked: half of a secret is known to nobody."""
        with self._failure.open(encoding="utf-8", errors="replace") as file:
            return self._log.secret.mask(file.read(MOST))[:most]
