"""The hosts files of simulated hosts, in which a name can be hidden for a while."""

from collections.abc import Mapping
from pathlib import Path

from entrypoint.local.fault import Action
from entrypoint.local.spec import LocalJob


class HostsFiles:
    """One /etc/hosts for each host: all hosts of the job, those that are hidden behind a # but on themselves."""

    def __init__(self, job: LocalJob, addresses: Mapping[str, str]) -> None:
        self._addresses = addresses
        self._hidden = {fault.host for fault in job.faults if fault.action is Action.HIDE}
        self._files: dict[str, Path] = {}

    def write(self, owner: str, path: Path, own_name: str = "") -> None:
        """Make the file of one host; `own_name` is what the host is called beside its name in the job."""
        lines = ["127.0.0.1 localhost"]
        for host, address in self._addresses.items():
            names = f"{host} {own_name}".rstrip() if host == owner else host
            lines.append(self._hide(f"{address} {names}") if host in self._hidden - {owner} else f"{address} {names}")
        path.write_text("\n".join([*lines, ""]))
        self._files[owner] = path

    def show(self, host: str) -> None:
        """The host's name resolves from now on."""
        self._hidden.discard(host)
        shown = f"{self._addresses[host]} {host}"
        for owner, path in self._files.items():
            at = path.read_bytes().find(f"\n{self._hide(shown)}\n".encode())
            if owner != host and at >= 0:
                with path.open("r+b") as file:  # the same file, which is mounted; one byte, so nobody reads it half
                    file.seek(at + 1)
                    file.write(shown[:1].encode())

    @staticmethod
    def _hide(line: str) -> str:
        return f"#{line[1:]}"
