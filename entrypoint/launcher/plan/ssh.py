"""Set up ssh for mpirun: keys made for this job, and a daemon that starts Open MPI's daemon and nothing else.

The image has no keys. Each host makes its host key, the coordinator one client key; the public keys travel over the
control channel. This module starts nothing: it returns commands and writes the files that they read.
"""

import contextlib
import json
import os
import pwd
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from entrypoint.launcher.job.job import Job, Paths

RANKS_SOCKET = "ENTRYPOINT_RANKS"  # environment variable: the socket where a rank program finds its supervisor
# The default withstands future quantum computers, but costs both sides 0.1 to 0.2 s of computing. What is sent here,
# the way to mpirun, is worthless once the job is over.
KEY_EXCHANGE = "curve25519-sha256"
OPTIONS = "ENTRYPOINT_MPI_OPTIONS"  # environment variable: file with mpirun options of the job, for the forced command
FORCED_COMMAND = Path(__file__).resolve().parents[2] / "programs" / "forced_command.py"


def make_key(paths: Paths, name: str) -> tuple[str, ...]:
    """Return the command that makes the key pair `name`."""
    return ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(paths.ssh / name))


def daemon(paths: Paths) -> tuple[str, ...]:
    """Return the command of the daemon, which stays in the foreground and logs to stderr."""
    return ("/usr/sbin/sshd", "-D", "-e", "-f", str(paths.ssh / "sshd_config"))


def client(paths: Paths) -> str:
    """Return the program that mpirun runs in place of ssh to reach other hosts."""
    return f"sh {paths.ssh / 'client'}"


def key_in(text: str) -> str:
    """Return the key in the text of a .pub file, without its comment."""
    return " ".join(text.split()[:2])


def key_line(key_name: str, host: str, key: str) -> str:
    """Return one line for known_hosts or authorized_keys. The line of authorized_keys restricts what the key may do."""
    if key_name == "known_hosts":
        return f"{host} {key}"
    command = shlex.join([sys.executable, "-I", "-S", str(FORCED_COMMAND)]).replace('"', '\\"')
    return f'restrict,command="{command}" {key}'


def write_card(paths: Paths, key_name: str, keys: Sequence[tuple[str, str]]) -> None:
    """Write the lines for (host, public key) pairs into the file of a key, whole or not at all."""
    path = paths.public_keys / key_name
    scratch = path.with_name(f".{key_name}.new")
    scratch.touch(mode=0o600)
    scratch.write_text("".join(f"{key_line(key_name, host, key)}\n" for host, key in keys))
    scratch.replace(path)


def write_files(job: Job) -> None:
    """Write this host's sshd_config, ssh_config and client below paths.ssh (mode 0700)."""
    import shutil  # here, since it imports all kinds of compression, and only ranks need ssh

    paths, me = job.paths, job.cluster.me
    user = pwd.getpwuid(os.geteuid()).pw_name
    for folder in (paths.ssh, paths.public_keys):
        shutil.rmtree(folder, ignore_errors=True)  # left by an earlier run, if this container was started again
        folder.mkdir(mode=0o700, parents=True)
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):  # Debian's sshd needs its empty folder; /run may be new
            Path("/run/sshd").mkdir(mode=0o755, parents=True, exist_ok=True)
    search = ":".join(dict.fromkeys([str(Path(sys.executable).parent), *os.get_exec_path()]))
    options = paths.ssh / "mpi_options"
    set_env = [f"PATH={search}", f"{RANKS_SOCKET}={paths.ranks}", f"TMPDIR={paths.run}", f"{OPTIONS}={options}"]
    # A shell that sshd starts reads ~/.bashrc, unless SHLVL shows that it is not of the first level. That file is for
    # people: it may be slow (pyenv, conda), and may wait for a lock that a killed job has left.
    set_env.append("SHLVL=1")
    # Where Open MPI lies, if not where it was built for.
    set_env += [f"{name}={os.environ[name]}" for name in ("LD_LIBRARY_PATH", "OPAL_PREFIX") if name in os.environ]
    # Open MPI reads settings from its environment, too.
    settings = [value for name, value in os.environ.items() if name.startswith(("OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_"))]
    _write(options, json.dumps([*job.mpi_options, *settings]))
    # StrictModes would check every parent folder, and refuse one under /tmp; ours is 0700 and new.
    listen = f"ListenAddress {me.address}" if me.address.startswith("127.") else ""  # else everywhere
    _write(
        paths.ssh / "sshd_config",
        f"""
        {listen}
        Port {me.port(job.settings.ssh_port)}
        HostKey {paths.ssh / "host_key"}
        PidFile none
        AuthorizedKeysFile {paths.public_keys / "authorized_keys"}
        KexAlgorithms {KEY_EXCHANGE}
        AuthenticationMethods publickey
        PermitRootLogin forced-commands-only
        AllowUsers {user}
        PubkeyAuthentication yes
        PasswordAuthentication no
        KbdInteractiveAuthentication no
        HostbasedAuthentication no
        PermitUserEnvironment no
        UsePAM no
        PrintMotd no
        UseDNS no
        DisableForwarding yes
        PermitTTY no
        PermitUserRC no
        StrictModes no
        MaxStartups 100
        MaxAuthTries 2
        MaxSessions 1
        LoginGraceTime 20
        LogLevel ERROR
        SetEnv {" ".join(f'"{entry}"' for entry in set_env)}
        """,
    )
    hosts = "".join(
        f"""
        Host {host.name}
          HostName {host.address}
          Port {host.port(job.settings.ssh_port)}
          HostKeyAlias {host.name}
        """
        for host in job.cluster.hosts
    )
    _write(
        paths.ssh / "ssh_config",
        hosts
        + f"""
        Host *
          User {user}
          IdentityFile {paths.ssh / "client_key"}
          IdentitiesOnly yes
          IdentityAgent none
          BatchMode yes
          KexAlgorithms {KEY_EXCHANGE}
          PreferredAuthentications publickey
          ClearAllForwardings yes
          RequestTTY no
          StrictHostKeyChecking yes
          UserKnownHostsFile {paths.public_keys / "known_hosts"}
          GlobalKnownHostsFile /dev/null
          UpdateHostKeys no
          ConnectTimeout 10
          ForwardAgent no
          ForwardX11 no
          LogLevel ERROR
        """,
    )
    # ssh fails at once, and mpirun with it, if a name does not resolve; a name server may be away for a moment.
    addresses = "".join(f"{host.name}) address={shlex.quote(host.address)} ;;\n" for host in job.cluster.hosts)
    _write(
        paths.ssh / "client",
        f"""
        # ssh to the host $1; waits for its name to resolve, for up to PEER_TIMEOUT.
        case $1 in
        {addresses}
        esac
        left={int(job.settings.peer_timeout * 5)}
        while [ $left -gt 0 ] && ! getent ahosts "$address" >/dev/null; do left=$((left - 1)); sleep 0.2; done
        exec ssh -F {paths.ssh / "ssh_config"} "$@"
        """,
    )


def _write(path: Path, text: str) -> None:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    path.touch(mode=0o600)
    path.write_text("\n".join(lines) + "\n")
