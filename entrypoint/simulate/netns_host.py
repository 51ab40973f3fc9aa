"""Make a simulated host, and become its launcher, as in a container of SageMaker.

New namespaces are copies of the machine's, or empty. This module gives them what a host needs: a network card, a name,
a hosts file, /opt/ml, and /tmp and /run of its own. The order matters: a later mount may cover a folder, so all that
must stay visible is opened first.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from entrypoint.base.errors import ExitCode
from entrypoint.simulate import mounts
from entrypoint.simulate.engine import FILLER, FaultFailed, last_line

SPEC = "ENTRYPOINT_NETNS_HOST"  # environment variable in which NetnsEngine describes this host, as JSON
INTERFACE = "eth0"
OWN = ("/tmp", "/run", "/dev/shm")  # folders that each host has for itself
_NEW_NETWORK = 0x4000_0000  # CLONE_NEWNET
_NEW_NAMES, _NEW_IPC, _NEW_PROCESSES = 0x0400_0000, 0x0800_0000, 0x2000_0000  # CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID
_DETACH = 0x2  # MNT_DETACH
_NAMESPACES = _NEW_NETWORK | mounts.NEW_MOUNTS | _NEW_NAMES | _NEW_IPC | _NEW_PROCESSES


def main() -> None:
    """Make the host and become its launcher, PID 1. Never return."""
    spec = json.loads(os.environ.pop(SPEC))
    try:
        _die_with_parent(spec["main"])
        mounts.unshare(_NAMESPACES)
        _become_first_process()
        _connect(spec)
        _furnish(spec)
    except (OSError, FaultFailed) as error:
        print(f"error: this simulated host cannot be made: {error}", flush=True)
        os._exit(ExitCode.INTERNAL)

    from entrypoint.train import train

    train()


def _become_first_process() -> None:
    """Fork, and return in the first process of the new namespace. The parent waits, and ends as that process does."""
    outside = os.getpid()
    pid = os.fork()
    if pid == 0:
        _die_with_parent(outside)
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
    call("ip", "-batch", "-", keep=(hub,), text="\n".join(inside))
    call("nsenter", f"--net=/proc/self/fd/{hub}", "ip", "link", "set", port, "master", bridge, "up", keep=(hub,))
    os.close(hub)


def _furnish(spec: dict[str, Any]) -> None:
    mounts.mount("none", "/", flags=mounts.RECURSIVE | mounts.PRIVATE)  # our mounts stay in this namespace
    held = [(mounts.hold(source), Path(target), read_only) for source, target, read_only in spec["binds"]]
    cgroups = mounts.hold("/sys/fs/cgroup")
    mounts.mount("proc", "/proc", "proc")

    mounts.mount("sysfs", "/sys", "sysfs")  # it shows the network namespace of the process that mounts it
    mounts.show(cgroups, Path("/sys/fs/cgroup"))

    mounts.cover_opt()
    for own in OWN:
        mounts.mount("tmpfs", own, "tmpfs", data="mode=755" if own == "/run" else "mode=1777")
    for opened, target, read_only in held:
        mounts.show(opened, target)
        if read_only:
            mounts.mount("none", target, flags=mounts.BIND | mounts.REMOUNT | mounts.READ_ONLY)
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
    mounts.show(mounts.hold(ours), path)
    ours.unlink()


def call(*command: str, keep: Sequence[int] = (), text: str = "") -> None:
    """Run a tool with `text` as its input. Raise FaultFailed with its last line of stderr if it fails."""
    done = subprocess.run(
        command, env=with_sbin(os.environ), input=text.encode(), capture_output=True, pass_fds=keep,
        start_new_session=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise FaultFailed(last_line(done.stderr, f"{' '.join(command)} ended with {done.returncode}"))


def with_sbin(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which root's tools are found, whatever PATH our shell has."""
    return {**environment, "PATH": f"{environment.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"}


def _die_with_parent(parent: int) -> None:
    """Arrange for SIGKILL when our parent (its pid in /proc) ends, and exit now if it has ended."""
    mounts.check(mounts.libc.prctl(1, signal.SIGKILL, 0, 0, 0), "prctl")  # PR_SET_PDEATHSIG
    if int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[1]) != parent:
        os._exit(137)


def new_network() -> int:
    """Create a network namespace without name or process; return a file that keeps it alive."""

    def make() -> int:
        mounts.unshare(_NEW_NETWORK)  # for this thread only
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(make).result()


@contextlib.contextmanager
def small_disks(folders: Sequence[Path]) -> Iterator[None]:
    """Mount a file system in memory over each folder, and copy its contents into the folder at the end."""
    if folders:  # from now on, our mounts are visible only to us and to what we start
        mounts.unshare(mounts.NEW_MOUNTS)
        mounts.mount("none", "/", flags=mounts.RECURSIVE | mounts.PRIVATE)
    with contextlib.ExitStack() as mounted:
        for folder in folders:
            mounted.enter_context(_small_disk(folder))
        yield


@contextlib.contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    below = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    real = f"/proc/self/fd/{below}"  # the folder below the mount
    mounts.mount("tmpfs", folder, "tmpfs", data="mode=755")
    shutil.copytree(real, folder, symlinks=True, dirs_exist_ok=True)
    try:
        yield
    finally:
        try:
            shutil.copytree(folder, real, symlinks=True, dirs_exist_ok=True, ignore=_left_out)
        finally:
            mounts.check(mounts.libc.umount2(os.fsencode(folder), _DETACH), f"unmount {folder}")
            os.close(below)


def _left_out(folder: str, names: list[str]) -> set[str]:
    """Return the names that are not copied back: the filler, sockets and pipes."""
    paths = {name: Path(folder) / name for name in names}
    return {n for n, path in paths.items() if n == FILLER or not (path.is_symlink() or path.is_dir() or path.is_file())}
