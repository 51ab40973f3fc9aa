"""Make a simulated host, and become its launcher, as in a container of SageMaker.

New namespaces are copies of the machine's, or empty. This module gives them what a host needs: a network card, a name,
a hosts file, /opt/ml, and /tmp and /run of its own. The order matters: a later mount may cover a folder, so all that
must stay visible is opened first.
"""

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
from pathlib import Path
from typing import Any

from entrypoint.base.errors import ExitCode
from entrypoint.simulate import linux
from entrypoint.simulate.engine import last_line
from entrypoint.simulate.linux import BIND, READ_ONLY, RECURSIVE, REMOUNT, mount

SPEC = "ENTRYPOINT_NETNS_HOST"  # environment variable in which NetnsEngine describes this host, as JSON
INTERFACE = "eth0"
ML = Path("/opt/ml")
_NAMESPACES = linux.NEW_NETWORK | linux.NEW_MOUNTS | linux.NEW_NAMES | linux.NEW_IPC | linux.NEW_PROCESSES


def main() -> None:
    """Make the host and become its launcher, PID 1. Never return."""
    spec = json.loads(os.environ.pop(SPEC))
    try:
        linux.die_with_parent(spec["main"])
        linux.unshare(_NAMESPACES)
        _become_first_process()
        _connect(spec)
        _furnish(spec)
    except (OSError, subprocess.SubprocessError) as error:
        printed = getattr(error, "stderr", None) or b""
        print(f"error: this simulated host cannot be made: {error} {last_line(printed, '')}".rstrip(), flush=True)
        os._exit(ExitCode.INTERNAL)

    from entrypoint.train import train

    train()


def _become_first_process() -> None:
    """Fork, and return in the first process of the new namespace. The parent waits, and ends as that process does."""
    outside = os.getpid()
    pid = os.fork()
    if pid == 0:
        linux.die_with_parent(outside)
        return
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


def _connect(spec: dict[str, Any]) -> None:
    """Connect our eth0 to the run's bridge, in a namespace that `entrypoint local` keeps open."""
    hub = os.open(f"/proc/{spec['main']}/fd/{spec['hub']}", os.O_RDONLY)
    for kind in ("all", "default"):
        switch = Path(f"/proc/sys/net/ipv6/conf/{kind}/disable_ipv6")
        if switch.exists():
            switch.write_text("0" if any(":" in address for address in spec["addresses"]) else "1")
    card, bridge, port = spec["mac"], spec["bridge"], spec["port"]
    inside = [
        "link set lo up",
        f"link add {INTERFACE} address {card} type veth peer name {port} netns /proc/self/fd/{hub}",
        # nodad makes an IPv6 address usable at once, without asking whether another host has it.
        *(f"address add {ip} dev {INTERFACE}{' nodad' if ':' in ip else ''}" for ip in spec["addresses"]),
        f"link set {INTERFACE} up",
        # Fixed neighbours, so that a host that is cut off is silent: no sender gets "host unreachable".
        *(f"neigh add {ip} lladdr {mac} dev {INTERFACE} nud permanent" for ip, mac in spec["neighbours"]),
    ]
    _run(["ip", "-batch", "-"], "\n".join(inside), hub)
    _run(["nsenter", f"--net=/proc/self/fd/{hub}", "ip", "link", "set", port, "master", bridge, "up"], "", hub)
    os.close(hub)


def _furnish(spec: dict[str, Any]) -> None:
    mount("none", "/", flags=linux.RECURSIVE | linux.PRIVATE)  # our mounts stay in this namespace
    base, hosts = _hold(spec["base"]), _hold(spec["hosts"])
    channels = {name: _hold(path) for name, path in spec["channels"]}
    checkpoints = _hold(spec["checkpoints"]) if spec["checkpoints"] else None
    kept = {path: _hold(path) for path in spec["kept"]}
    opt, cgroups = _hold("/opt"), _hold("/sys/fs/cgroup")
    mount("proc", "/proc", "proc")

    mount("sysfs", "/sys", "sysfs")  # it shows the network namespace of the process that mounts it
    _show(cgroups, Path("/sys/fs/cgroup"))

    mount("tmpfs", "/opt", "tmpfs", data="mode=755")  # a place for ml, without a new folder on the machine
    for entry in os.scandir(f"/proc/self/fd/{opt}"):
        target = Path("/opt") / entry.name
        if entry.name != ML.name and entry.is_symlink():
            target.symlink_to(Path(entry.path).readlink())
        elif entry.name != ML.name:
            _show(_hold(entry.path), target)
    _show(base, ML)
    for part in ("model", "output"):  # separate mounts, as on SageMaker
        mount(ML / part, ML / part, flags=BIND | RECURSIVE)
    for name, folder in channels.items():
        _show(folder, ML / "input" / "data" / name)
        if not spec["notes_reads"]:
            mount("none", ML / "input" / "data" / name, flags=BIND | REMOUNT | READ_ONLY)

    if checkpoints is not None:
        _show(checkpoints, ML / "checkpoints")

    for own in ("/tmp", "/run", "/dev/shm"):
        mount("tmpfs", own, "tmpfs", data="mode=755" if own == "/run" else "mode=1777")
    for path, opened in kept.items():
        _show(opened, Path(path))
    _show(hosts, Path("/etc/hosts"))
    _names_from_hosts_file_only()
    socket.sethostname(spec["hostname"])
    os.chdir("/")


def _names_from_hosts_file_only() -> None:
    """Make the hosts file the only source of names: no name server can be reached, and lookups would wait for it."""
    path = Path("/etc/nsswitch.conf")
    if not path.exists():
        return
    others = [line for line in path.read_text().splitlines() if not line.startswith("hosts:")]
    ours = Path("/run/nsswitch.conf")
    ours.write_text("\n".join([*others, "hosts: files", ""]))
    _show(_hold(ours), path)
    ours.unlink()


def _hold(path: str | Path) -> int:
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def _show(opened: int, target: Path) -> None:
    """Bind an open file or folder to a path, which is made if it is missing."""
    if stat.S_ISDIR(os.fstat(opened).st_mode):
        target.mkdir(parents=True, exist_ok=True)
    elif not target.exists():
        target.touch()
    mount(f"/proc/self/fd/{opened}", target, flags=BIND | RECURSIVE)
    os.close(opened)


def _run(command: list[str], text: str, hub: int) -> None:
    subprocess.run(
        command, env=linux.with_sbin(os.environ), input=text.encode(), capture_output=True, check=True, pass_fds=(hub,)
    )
