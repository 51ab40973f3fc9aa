"""Run hosts with their own kernels, so that each has its own mount of a network file system, unlike containers.

A container has this machine's kernel, which may know no NFS. User-mode Linux (Debian's package) is a kernel that runs
as an ordinary process and has its own NFS client, as a host of SageMaker has for EFS. Its root file system is that of a
container of the image, and its network is a port of the container network. The server is nfs-ganesha, in a container.

This needs Debian and root: server and kernel are this machine's, and their libraries must match the image's.
"""

import contextlib
import ipaddress
import json
import os
import shlex
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from containers import MARKED, sh
from waiting import eventually

NEEDED = {"linux.uml": "user-mode-linux", "ganesha.nfsd": "nfs-ganesha", "modprobe": "kmod", "ip": "iproute2"}
PLACES = os.environ["PATH"] + ":/usr/sbin:/sbin"  # of the commands
MEMORY = "3G"
EXPORT = """
NFS_CORE_PARAM { Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; }
NFSv4 { Minor_Versions = 1, 2; Graceless = true; Only_Numeric_Owners = true; RecoveryBackend = fs; }
EXPORT { Export_Id = 1; Path = /export; Pseudo = /export; Access_Type = RW; Squash = No_Root_Squash; SecType = sys;
         Protocols = 4; Transports = TCP; FSAL { Name = VFS; } }
"""
# What the kernel starts as its first process; this machine's files are its root until chroot.
INIT = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs run /run; mount -t tmpfs mnt /mnt
hostname {host}
ip link set lo up; ip link set vec0 name eth0; ip addr add {address} dev eth0; ip link set eth0 up
mkdir -p /mnt/lib/modules /mnt/root /mnt/nfs; ln -s /usr/lib/uml/modules/$(uname -r) /mnt/lib/modules/$(uname -r)
modprobe -d /mnt nfsv4
mount -i -t nfs4 -o vers=4.2,addr={server},clientaddr={own} {server}:/export /mnt/nfs || exec halt -f
mount -t hostfs none /mnt/root -o {root}; mkdir -p /mnt/root/opt/ml; mount -t hostfs none /mnt/root/opt/ml -o {ml}
mount -t proc proc /mnt/root/proc; mount -t sysfs sys /mnt/root/sys; mount -t devtmpfs dev /mnt/root/dev
mkdir -p /mnt/root/dev/shm; for each in dev/shm tmp run; do mount -t tmpfs tmp /mnt/root/$each; done
for each in {kept}; do
    mkdir -p /mnt/nfs/$each /mnt/root/opt/ml/$each; mount --bind /mnt/nfs/$each /mnt/root/opt/ml/$each
done
printf '%s\\n' {names} >/mnt/root/etc/hosts
mount | grep nfs4
chroot /mnt/root /usr/bin/env -i {variables} {command}
echo $? >{ml}/exit-code
sync
halt -f
"""


def what_is_missing() -> str:
    """Return the name of a program that this machine lacks; "" if nothing is missing."""
    lacking = [package for command, package in NEEDED.items() if not shutil.which(command, path=PLACES)]
    if lacking:
        return f"Debian's packages {', '.join(lacking)}"
    return "" if os.geteuid() == 0 and Path("/dev/net/tun").exists() else "root, or /dev/net/tun"


def why_no_boot() -> str:
    """Return why User-mode Linux cannot boot on this processor; "" if it can.

    It tries to boot, since Debian 12's kernel has no room for the registers of a processor with AMX.
    """
    kernel = shutil.which("linux.uml", path=PLACES)
    options = ("rootfstype=hostfs", "rootflags=/", "ro", "init=/bin/true", "mem=128M", "con0=null,fd:1", "con=null")
    try:
        booted = subprocess.run([str(kernel), *options], capture_output=True, text=True, errors="replace", timeout=120)
    except subprocess.TimeoutExpired:  # it runs, at least
        return ""
    return "a processor whose registers User-mode Linux can keep" if "set fp regs failed" in booted.stdout else ""


@dataclass(frozen=True, kw_only=True)
class Share:
    """A network with a server of NFS on it; `volume` is the exported folder's, for other containers."""

    image: str
    network: str
    server: str
    volume: str
    subnet: ipaddress.IPv4Network

    def sh(self, command: str) -> str:
        """Return the output of a shell in the exported folder, on the server's side."""
        return sh("docker", "exec", "-w", "/export", self.network, "sh", "-c", command).stdout


@contextlib.contextmanager
def nfs_share(image: str, folder: Path) -> Iterator[Share]:
    """Yield a network with a server that exports an empty volume by NFS 4.2; remove both afterwards."""
    name = f"tfe{uuid.uuid4().hex[:8]}"
    (folder / "ganesha.conf").write_text(EXPORT)
    bridge = ("-o", f"com.docker.network.bridge.name={name}")
    with contextlib.ExitStack() as undo:
        sh("docker", "network", "create", "--internal", *bridge, *MARKED, name)
        undo.callback(sh, "docker", "network", "rm", name)
        sh("docker", "volume", "create", *MARKED, name)
        undo.callback(sh, "docker", "volume", "rm", name)
        mounts = ["/usr:/usr:ro", "/etc/netconfig:/etc/netconfig:ro", f"{folder}/ganesha.conf:/ganesha.conf:ro"]
        serve = "mkdir -p /run/ganesha /var/lib/nfs/ganesha; exec ganesha.nfsd -F -L /dev/stdout -f /ganesha.conf"
        sh(
            "docker", "run", "--detach", "--name", name, "--network", name, *MARKED,
            "--cap-add", "DAC_READ_SEARCH", "--cap-add", "SYS_ADMIN", "--security-opt", "seccomp=unconfined",
            *(word for mount in [*mounts, f"{name}:/export"] for word in ("-v", mount)),
            "--entrypoint", "sh", image, "-c", serve,
        )  # fmt: skip
        undo.callback(sh, "docker", "rm", "-f", name)
        eventually(lambda: "NFS SERVER INITIALIZED" in sh("docker", "logs", name).stdout, within=120)
        (mine,) = json.loads(sh("docker", "inspect", name).stdout)[0]["NetworkSettings"]["Networks"].values()
        subnet = ipaddress.ip_network(f"{mine['IPAddress']}/{mine['IPPrefixLen']}", strict=False)
        yield Share(image=image, network=name, server=mine["IPAddress"], volume=name, subnet=subnet)


class VirtualHosts:
    """The hosts of one job, each with its own kernel and its own mount of the share; removed when the block ends.

    `folders`: {host: its /opt/ml}; `kept`: folders of /opt/ml that lie on the share.
    """

    def __init__(self, share: Share, folders: Mapping[str, Path], kept: tuple[str, ...], **variables: str) -> None:
        self._share, self._folders, self._kept, self._variables = share, folders, kept, variables
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        # From the network's end, as containers get theirs from its beginning.
        last = int(share.subnet.broadcast_address)
        self._addresses = {host: str(ipaddress.ip_address(last - n)) for n, host in enumerate(folders, 1)}

    def __enter__(self) -> "VirtualHosts":
        self._undo = contextlib.ExitStack()
        try:
            for number, host in enumerate(self._folders):
                self._start(number, host)
        except BaseException:
            self._undo.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            for host in self._folders:
                print(f"\n---- {host}\n{self.log(host)}")
        self._undo.close()

    def _start(self, number: int, host: str) -> None:
        share, ml = self._share, self._folders[host]
        root = f"{share.network}-{host}"
        words = ("docker", "run", "--detach", "--name", root, "--network", "none", *MARKED)
        sh(*words, "--entrypoint", "sleep", share.image, "infinity")
        self._undo.callback(sh, "docker", "rm", "-f", root)
        (made,) = json.loads(sh("docker", "inspect", root).stdout)
        (image,) = json.loads(sh("docker", "image", "inspect", share.image).stdout)
        tap = f"{share.network}{number}"
        sh("ip", "tuntap", "add", tap, "mode", "tap")
        self._undo.callback(sh, "ip", "tuntap", "del", tap, "mode", "tap")
        sh("ip", "link", "set", tap, "master", share.network, "up")
        variables = [*image["Config"]["Env"], *(f"{name}={value}" for name, value in self._variables.items())]
        init = ml.parent / "init"
        init.write_text(
            INIT.format(
                host=f"ip-10-0-0-{number}",
                address=f"{self._addresses[host]}/{share.subnet.prefixlen}",
                own=self._addresses[host],
                server=share.server,
                root=made["GraphDriver"]["Data"]["MergedDir"],
                ml=ml,
                kept=" ".join(self._kept),
                names=shlex.join(["127.0.0.1 localhost", *(f"{at} {name}" for name, at in self._addresses.items())]),
                variables=shlex.join(variables),
                command=shlex.join([*image["Config"]["Entrypoint"], "train"]),
            )
        )
        init.chmod(0o755)
        kernel = shutil.which("linux.uml", path=PLACES)
        network = f"vec0:transport=tap,ifname={tap},depth=64,gro=1"
        options = ["rootfstype=hostfs", "rootflags=/", "rw", f"init={init}", f"mem={MEMORY}", "quiet", network]
        log = self._undo.enter_context((ml.parent / "console").open("wb"))
        self._running[host] = subprocess.Popen(
            [str(kernel), *options, "con0=null,fd:1", "con=null"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self._undo.callback(self._kill, self._running[host])

    def _kill(self, kernel: "subprocess.Popen[bytes]") -> None:
        with contextlib.suppress(ProcessLookupError):  # it may have halted; its processes are of its session
            os.killpg(kernel.pid, signal.SIGKILL)
        kernel.wait(60)

    def log(self, host: str) -> str:
        """Return the output of the kernel and the host's processes."""
        return (self._folders[host].parent / "console").read_text(errors="replace")

    def wait(self, within: float) -> dict[str, int]:
        """Wait until all hosts have halted; return their exit codes."""
        for kernel in self._running.values():
            kernel.wait(within)
        return {host: int((ml / "exit-code").read_text()) for host, ml in self._folders.items()}
