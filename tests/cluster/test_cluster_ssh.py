"""Test the ssh of the image's mpirun, from inside a running job of three hosts: keys, ports, and who can log in.

local/test_ssh.py and unit/programs/test_forced_command.py test allowed commands and the daemon's settings.
"""

import io
import subprocess
import tarfile
from collections.abc import Iterator

import pytest
from containers import Cluster, sh

SSH = ("ssh", "-F", "/run/entrypoint/ssh/ssh_config")

LISTENERS = """
import psutil
for each in psutil.net_connections("tcp"):
    if each.status == psutil.CONN_LISTEN and each.pid:
        print(psutil.Process(each.pid).name(), each.laddr.port)
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


def test_only_the_coordinator_can_log_in(job: Cluster) -> None:
    assert job.exec("algo-1", "ls", "/run/entrypoint/ssh").stdout.split().count("client_key") == 1
    assert "client_key" not in job.exec("algo-2", "ls", "/run/entrypoint/ssh").stdout.split()
    refused = job.exec("algo-2", *SSH, "algo-3", "orted", check=False)
    assert refused.returncode == 255
    assert "Host key verification failed" in refused.stderr, "followers are told of no other host's key"
    trusting = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes")
    denied = job.exec("algo-3", "ssh", "-p", "7922", *trusting, "root@algo-2", "orted", check=False)
    assert denied.returncode == 255
    assert "Permission denied (publickey)" in denied.stderr


def test_every_host_has_its_own_key_for_its_owner_only(job: Cluster) -> None:
    keys = {job.exec(host, "cat", "/run/entrypoint/ssh/host_key.pub").stdout.split()[1] for host in job.hosts}
    assert len(keys) == len(job.hosts)
    for host in job.hosts:
        assert job.exec(host, "stat", "-c", "%a", "/run/entrypoint").stdout == "700\n"
        modes = job.exec(host, "sh", "-c", "stat -c %a /run/entrypoint/ssh/*_key").stdout.split()
        assert set(modes) == {"600"}


def test_private_keys_are_removed_at_the_end_of_the_job(job: Cluster) -> None:
    """This test is the last, since it ends the job. An ended container still has its files."""
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
