"""Run hosts in namespaces of their own (network, mounts, host name, processes): like containers, without Docker.

The namespaces have no names: they live as long as a process in them or an open file of ours, so nothing stays on the
machine, however we end. A bridge in one more namespace connects the hosts, apart from the machine's own network.
"""

import contextlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from entrypoint.base.errors import ConfigError
from entrypoint.launcher.job.job import Job
from entrypoint.simulate import processes
from entrypoint.simulate.engine import MOUNTS, EngineName, FaultFailed, HostCommand, HostsFiles
from entrypoint.simulate.fault import Action, Fault
from entrypoint.simulate.local_python import PACKAGE, PythonEngine
from entrypoint.simulate.mounts import ML
from entrypoint.simulate.netns_host import OWN, SPEC, call, new_network, small_disks, with_sbin
from entrypoint.simulate.spec import LocalJob
from entrypoint.simulate.tree import HostFolder, read

_TOOLS = {"ip": "iproute2", "nsenter": "util-linux", "mount": "mount"}
_BRIDGE = "bridge"
# Fixed addresses cannot collide with others': no route leads out of the namespaces.
_ADDRESS = {4: "10.0.{1}.{2}", 6: "fd00:0:0:1::{0:x}"}
_FAMILIES = {"4": (4,), "6": (6,), "both": (6, 4)}


class NetnsEngine(PythonEngine):
    """Run the hosts as root, each as if it were alone on a machine."""

    name = EngineName.NETNS
    faults = frozenset(Action)
    where = "on this machine"
    program = "import sys; sys.path.insert(0, sys.argv.pop(1)); from entrypoint.simulate.netns_host import main; main()"

    def __init__(self, job: LocalJob, environment: Mapping[str, str], gpus: int, ip: str = "4") -> None:
        super().__init__(job, {name: value for name, value in environment.items() if name != "TMPDIR"}, gpus)
        self._families = _FAMILIES[ip]
        # (n, high, low): the last two bytes of the address follow from n: 10.0.1.1 to 10.0.1.255, 10.0.2.0 and so on.
        self._numbers = {host: (n, 1 + (n >> 8), n & 255) for n, host in enumerate(job.names, 1)}
        self._hub = -1  # the open network namespace of the bridge
        self._hosts_files = HostsFiles(job, {host: self._addresses(host) for host in job.names})

    def check(self) -> None:
        if os.geteuid() != 0:
            raise ConfigError("--engine netns needs root, to make namespaces; or use --engine process or docker")
        path = with_sbin(os.environ)["PATH"]
        absent = [f"{tool} (apt-get install {of})" for tool, of in _TOOLS.items() if not shutil.which(tool, path=path)]
        if absent:
            raise ConfigError(f"--engine netns lacks {', '.join(absent)}; or use --engine process or docker")
        for path in ("/opt", "/etc/hosts"):  # a mount needs an existing target
            if not Path(path).exists():
                raise ConfigError(f"--engine netns needs {path} on this machine, which is not there")
        super().check()
        with self._network():
            pass

    @contextlib.contextmanager
    def ready(self) -> Iterator[None]:
        with self._network(), small_disks([path for _, _, path in self.small]):
            yield

    @contextlib.contextmanager
    def _network(self) -> Iterator[None]:
        try:
            self._hub = new_network()
        except OSError as error:
            raise ConfigError(
                f"--engine netns cannot make a namespace here ({error}); a container needs --privileged"
            ) from None
        try:
            self._ip(f"link add {_BRIDGE} up type bridge mcast_snooping 0")
            yield
        except FaultFailed as error:
            raise ConfigError(f"--engine netns cannot make a bridge: {error}") from None
        finally:
            os.close(self._hub)

    def command(self, folder: HostFolder) -> HostCommand:
        hosts = folder.root / "hosts"
        self._hosts_files.write(folder.host, hosts, self._hostname(folder.host))
        spec = {
            "main": os.getpid(),
            "hub": self._hub,
            "bridge": _BRIDGE,
            "port": _port(self.job.names.index(folder.host)),
            "mac": self._mac(folder.host),
            "addresses": [f"{address}/{64 if ':' in address else 16}" for address in self._addresses(folder.host)],
            "neighbours": [(a, self._mac(h)) for h in self.job.names if h != folder.host for a in self._addresses(h)],
            "hostname": self._hostname(folder.host),
            "binds": [
                (str(folder.base), str(ML), False),
                *((str(folder.base / part), str(ML / part), False) for part in ("model", "output")),  # as on SageMaker
                *((str(path), str(ML / part), read_only) for path, part, read_only in self.mounts(folder)),
                *((path, path, False) for path in _needed_again(self._inherited)),
                (str(hosts), "/etc/hosts", False),
            ],
        }
        own = {"ENTRYPOINT_SUMMARY": str(ML / "output" / "summary.json"), SPEC: json.dumps(spec)}
        return self.started(own, {"HOSTNAME": self._hostname(folder.host)})

    def launcher_of(self, pid: int) -> int | None:
        return next(iter(processes.family(pid)[1:]), None)

    def inject(self, fault: Fault, host: str, pid: int) -> bool:
        if fault.action is Action.HIDE:
            self._hosts_files.hide(host)
            return True
        if fault.action in (Action.KILL, Action.STOP, Action.PAUSE):
            return super().inject(fault, host, pid)
        launcher = self.launcher_of(pid)
        if launcher is None or not processes.is_up(launcher):  # its folders and its network card are not there yet
            return False
        if fault.action is Action.CUT:
            self._ip(f"link set {_port(self.job.names.index(host))} nomaster")
        elif fault.action is Action.FILL:
            call("sh", "-c", MOUNTS[fault.action].format(shlex.quote(str(self.folders[host].base / fault.folder))))
        elif fault.action is Action.READONLY:
            command = MOUNTS[fault.action].format(ML / fault.folder)
            call("nsenter", f"--target={launcher}", "--mount", "sh", "-c", command)
        return True

    def heal(self, fault: Fault, host: str, pid: int | None) -> None:
        if fault.action is Action.HIDE:
            self._hosts_files.hide(host, hidden=False)
        elif fault.action is not Action.CUT:
            super().heal(fault, host, pid)
        elif pid is not None and self.launcher_of(pid):
            self._ip(f"link set {_port(self.job.names.index(host))} master {_BRIDGE}")

    def read(self) -> Job:
        return read(self.job, self.job.names[0], ML, self.settings, self.gpus)

    def _ip(self, command: str) -> None:
        """Run an `ip` command in the bridge's namespace."""
        call("nsenter", f"--net=/proc/self/fd/{self._hub}", "ip", *command.split(), keep=(self._hub,))

    def _addresses(self, host: str) -> list[str]:
        return [_ADDRESS[family].format(*self._numbers[host]) for family in self._families]

    def _mac(self, host: str) -> str:
        _, high, low = self._numbers[host]
        return f"02:00:0a:00:{high:02x}:{low:02x}"

    def _hostname(self, host: str) -> str:
        _, high, low = self._numbers[host]
        return f"ip-10-0-{high}-{low}.ec2.internal"


def _port(rank: int) -> str:
    return f"port{rank}"


def _needed_again(environment: Mapping[str, str]) -> list[str]:
    """Return the folders that Python runs from, if the hosts' own /tmp, /run or /dev/shm would hide them."""
    named = [word for word in environment.get("PYTHONPATH", "").split(":") if word]
    places = {Path(place).absolute() for place in (str(PACKAGE), sys.prefix, sys.base_prefix, *named)}
    hidden = {place for place in places if place.is_dir() and any(place.is_relative_to(own) for own in OWN)}
    return sorted(str(place) for place in hidden if not hidden & set(place.parents))
