"""Collect evidence when a process ends: its last output, what the kernel reports, what it left in files."""

import contextlib
import json
import signal
from collections.abc import Callable, Mapping
from typing import Any

from entrypoint.launcher.host.logs import Log
from entrypoint.launcher.host.machine import Meter
from entrypoint.launcher.host.resource_limits import broken
from entrypoint.launcher.job.job import Paths
from entrypoint.launcher.outcome.outcome import Exit
from entrypoint.launcher.plan import ssh
from entrypoint.launcher.plan.plan import PREPARE, ProcessSpec
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.events import Event

FAILURE_FILE_CHARS = 4000  # characters that are reported of what a script wrote to the failure file
MOST_CHARS = 1 << 20  # characters of it that are read


class ExitEvidence:
    """Collect evidence; for the loop only. `prepared` gets the prepare step's result."""

    def __init__(
        self, paths: Paths, specs: Mapping[str, ProcessSpec], log: Log, prepared: Callable[[dict[str, Any]], None]
    ) -> None:
        self._paths, self._failure, self._specs, self._log = paths, paths.failure, specs, log
        self._note_prepared, self._meter = prepared, Meter()

    def events_of_end(self, spec: ProcessSpec, exit: Exit, killed: bool) -> list[Event]:
        """Return an Ended event, after events for what comes with it. `killed`: we sent SIGKILL."""
        before: list[Event] = []
        output = shortage = wrote = ""
        try:
            self._log.drain(spec.name)
            output = self._log.tail(spec.name)
            if not killed and self._may_lack_memory(exit, output):
                shortage = self._meter.killed_since()
            wrote = self._failure_of(spec, exit)
            if exit.clean and spec.key_name and spec.public_key_file:
                key = ssh.key_in(spec.public_key_file.read_text())
                before.append(events.PublicKey(name=spec.key_name, key=key))
            if exit.clean and spec.name == PREPARE:
                found = json.loads(self._paths.prepared.read_text())
                self._note_prepared(found)
                flags, fingerprints = frozenset(found["flags"]), tuple(found["fingerprints"].items())
                texts = {key: found[key] for key in ("unused_gpus", "other_mode")}
                before.append(events.Prepared(flags=flags, fingerprints=fingerprints, **texts))
        except Exception as error:  # whatever it was: an end that is not reported would be awaited for ever
            before.append(broken(error))
        return [*before, events.Ended(name=spec.name, exit=exit, output=output, memory=shortage, wrote=wrote)]

    def forget(self) -> None:
        """Forget what was killed and what a failed script wrote: neither explains a later end."""
        self._meter.killed_since()
        with contextlib.suppress(OSError):
            text = self._masked(most=1000)
            self._failure.unlink()
            self._log.print(f"removed the script's {self._failure} before the next attempt; its text was: {text}")

    def _may_lack_memory(self, exit: Exit, output: str) -> bool:
        """Return whether a process was killed, or a program or child of it: a pool's worker, a loader of data."""
        if exit.clean or exit.code == 128 + signal.SIGKILL:
            return not exit.clean
        from entrypoint.launcher.outcome.native import lost_child  # here, since most jobs never need it

        return lost_child(output)

    def _failure_of(self, spec: ProcessSpec, exit: Exit) -> str:
        """Return what the user's program wrote to the failure file; "" if one of several may have written it."""
        alone = sum(each.duty.is_users for each in self._specs.values()) == 1
        if exit.clean or exit.signal is not None or not (spec.duty.is_users and alone):
            return ""
        with contextlib.suppress(OSError):
            return self._masked(FAILURE_FILE_CHARS)
        return ""

    def _masked(self, most: int) -> str:
        """Return the beginning of what a script wrote, masked before the cut: half a secret is not recognised."""
        with self._failure.open(encoding="utf-8", errors="replace") as file:
            return self._log.secret.mask(file.read(MOST_CHARS))[:most]
