"""Test the ssh that mpirun needs, from inside a running job: it starts Open MPI's daemon and nothing else."""

import io
import subprocess
import tarfile
from collections.abc import Callable, Iterator

import pytest
from containers import Cluster, sh
from waiting import eventually

StartCluster = Callable[..., Cluster]
SSH = ("ssh", "-F", "/run/entrypoint/ssh/ssh_config")

LISTENERS = """
import glob, os, socket, struct
sockets = {}
for table in ("/proc/net/tcp", "/proc/net/tcp6"):
    for line in open(table).readlines()[1:]:
        words = line.split()
        if words[3] == "0A":
            sockets[words[9]] = int(words[1].rpartition(":")[2], 16)
for fd in glob.glob("/proc/[0-9]*/fd/*"):
    try:
        target = os.readlink(fd)
        if target.startswith("socket:[") and target[8:-1] in sockets:
            print(open(f"/proc/{fd.split('/')[2]}/comm").read().strip(), sockets[target[8:-1]])
    except OSError:
        pass
"""


@pytest.fixture(scope="module")
def job(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run one job for all tests of this file. The last test ends it."""
    with Cluster(image, tmp_path_factory.mktemp("ssh"), program="waits.py", mode="mpi") as running:
        running.sees("] waiting")
        yield running


def test_sshd_listens_on_its_own_port_only(job: Cluster) -> None:
    for host in job.hosts:
        found = {tuple(line.split()) for line in job.exec(host, "python", "-c", LISTENERS).stdout.splitlines()}
        assert {port for name, port in found if name == "sshd"} == {"7922"}
        assert ("train", "7979") in found or ("python", "7979") in found, found
        assert not [port for _, port in found if int(port) == 22]


@pytest.mark.parametrize(
    "command",
    [
        ["id"],
        [],
        ["orted; id"],
        ["/bin/sh", "-c", "id"],
        ["orted-not", "x"],
        ["sh", "-c", "exec -a orted id"],
        ["$(id)"],
        ["orted\nid"],
        ["PATH=/tmp", "orted"],
        ["/usr/bin/orted", "-mca", "ess", "env"],
        ["orted", "--hnp"],
        ["orted", "--tree-spawn"],
        ["orted", "--report-uri", "/tmp/x"],
        ["orted", "-mca", "mca_base_component_path", "/tmp"],
        ["orted", "-mca", "plm_rsh_agent", "'sh -c id'"],
        ["orted", "-mca", "orte_launch_agent", "/usr/bin/id"],
        ["orted", "-mca", "orte_fork_agent", "/usr/bin/id"],
    ],
    ids=str,
)
def test_key_starts_nothing_but_orted(job: Cluster, command: list[str]) -> None:
    result = job.exec("algo-1", *SSH, "algo-2", *command, check=False)
    assert result.returncode == 126, result
    assert "uid=" not in result.stdout
    assert "refused" in result.stderr
    assert "Traceback" not in result.stderr


def test_key_runs_no_file_that_is_only_called_orted(job: Cluster) -> None:
    job.exec("algo-2", "sh", "-c", "cp /usr/bin/id /tmp/orted")
    for command in (["/tmp/orted"], ["PATH=/tmp", "orted"], ["../tmp/orted"]):
        result = job.exec("algo-1", *SSH, "algo-2", *command, check=False)
        assert result.returncode == 126
        assert "uid=" not in result.stdout


def test_key_opens_no_tunnel_and_no_files(job: Cluster) -> None:
    tunnel = job.exec("algo-1", *SSH, "-W", "127.0.0.1:7979", "algo-2", check=False)
    assert tunnel.returncode != 0
    files = job.exec("algo-1", "sftp", "-b", "/dev/null", "-F", SSH[2], "algo-2", check=False)
    assert files.returncode != 0


def test_key_gets_no_terminal_and_no_environment(job: Cluster) -> None:
    terminal = job.exec("algo-1", *SSH, "-tt", "algo-2", "id", check=False)
    assert terminal.returncode != 0 and "uid=" not in terminal.stdout
    job.exec("algo-2", "sh", "-c", "printf '#!/bin/sh\\nid\\n' > /tmp/orted; chmod 755 /tmp/orted")
    options = ("-o", "SetEnv=PATH=/tmp LD_PRELOAD=/tmp/x ENTRYPOINT_MPI_OPTIONS=/tmp/x")
    result = job.exec("algo-1", *SSH, *options, "algo-2", "orted", "--hnp", check=False)
    assert result.returncode == 126 and "uid=" not in result.stdout


def test_only_the_coordinator_can_log_in(job: Cluster) -> None:
    assert job.exec("algo-1", "ls", "/run/entrypoint/ssh").stdout.split().count("client_key") == 1
    assert "client_key" not in job.exec("algo-2", "ls", "/run/entrypoint/ssh").stdout.split()
    refused = job.exec("algo-2", *SSH, "algo-3", "orted", check=False)
    assert refused.returncode == 255
    assert "Host key verification failed" in refused.stderr, "followers are told of no other host's key"


def test_login_without_the_key_is_denied(job: Cluster) -> None:
    options = [
        "-p",
        "7922",
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        "UserKnownHostsFile=/dev/null",
        "-o",
        "BatchMode=yes",
    ]
    result = job.exec("algo-3", "ssh", *options, "root@algo-2", "orted", check=False)
    assert result.returncode == 255
    assert "Permission denied (publickey)" in result.stderr


def test_every_host_has_a_key_of_its_own(job: Cluster) -> None:
    keys = {job.exec(host, "cat", "/run/entrypoint/ssh/host_key.pub").stdout.split()[1] for host in job.hosts}
    assert len(keys) == len(job.hosts)


def test_keys_are_for_their_owner_only(job: Cluster) -> None:
    for host in job.hosts:
        assert job.exec(host, "stat", "-c", "%a", "/run/entrypoint").stdout == "700\n"
        names = job.exec(host, "sh", "-c", "stat -c %a /run/entrypoint/ssh/*_key").stdout.split()
        assert set(names) == {"600"}


def test_no_private_key_outlives_the_job(job: Cluster) -> None:
    """Last, since it ends the job. A container that has ended still has its files."""
    job.stop()
    job.wait()
    for host in job.hosts:
        copy = subprocess.run(
            ["docker", "cp", f"{job.container(host)}:/run/entrypoint", "-"], capture_output=True, timeout=60, check=True
        )
        with tarfile.open(fileobj=io.BytesIO(copy.stdout)) as files:
            for member in files.getmembers():
                assert not member.name.endswith("_key"), member.name
                if member.isfile():
                    assert b"PRIVATE KEY" not in files.extractfile(member).read(), member.name
    changed = sh("docker", "diff", job.container("algo-1")).stdout.splitlines()
    assert not [line for line in changed if "/root/.ssh" in line or "/etc/ssh" in line or "/etc/environment" in line]


@pytest.mark.more  # local/test_faults.py has it, too
def test_killed_daemon_of_open_mpi_ends_the_job(cluster: StartCluster) -> None:
    with cluster(program="waits.py", mode="mpi") as job:
        job.sees("] waiting")
        eventually(lambda: job.exec("algo-2", "pgrep", "-x", "orted", check=False).returncode == 0, within=120)
        job.exec("algo-2", "pkill", "-KILL", "-x", "orted")
        endings = job.wait()
        codes = {ending.exit_code for ending in endings.values()}
        assert len(codes) == 1 and 0 not in codes
        assert len({ending.failure for ending in endings.values()}) == 1
