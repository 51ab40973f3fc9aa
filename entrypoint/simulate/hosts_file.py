"""Write the hosts files of simulated hosts, in which a name can be hidden."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from entrypoint.simulate.fault import Action
from entrypoint.simulate.spec import LocalJob


class HostsFiles:
    """Write one /etc/hosts for each host. It lists all hosts; a hidden host is commented out, but not in its own."""

    def __init__(self, job: LocalJob, addresses: Mapping[str, Sequence[str]]) -> None:
        self._addresses = addresses
        self._hidden = {fault.host for fault in job.faults if fault.action is Action.HIDE and fault.from_the_start}
        self._files: dict[str, Path] = {}

    def write(self, owner: str, path: Path, own_name: str = "") -> None:
        """Write the file of one host; `own_name` is a second name of that host."""
        lines = ["127.0.0.1 localhost", "::1 localhost"]
        for host in self._addresses:
            for line in self._lines(host):
                if host == owner:
                    lines.append(f"{line} {own_name}".rstrip())
                else:
                    lines.append(_hidden(line) if host in self._hidden else line)
        path.write_text("\n".join([*lines, ""]))
        self._files[owner] = path

    def hide(self, host: str) -> None:
        self._hidden.add(host)
        for line in self._lines(host):
            self._replace(host, line, _hidden(line))

    def show(self, host: str) -> None:
        self._hidden.discard(host)
        for line in self._lines(host):
            self._replace(host, _hidden(line), line)

    def _lines(self, host: str) -> list[str]:
        return [f"{address} {host}" for address in self._addresses[host]]

    def _replace(self, host: str, line: str, by: str) -> None:
        for owner, path in self._files.items():
            at = path.read_bytes().find(f"\n{line}\n".encode())
            if owner != host and at >= 0:
                with path.open("r+b") as file:  # in place, since it is mounted; one byte, so that the change is atomic
                    file.seek(at + 1)
                    file.write(by[:1].encode())


def _hidden(line: str) -> str:
    return f"#{line[1:]}"
