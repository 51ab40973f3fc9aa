"""Test names that stop resolving while a job runs, and IPv6 addresses: in namespaces, as in containers."""

import json

import pytest
from hosts import PROGRAMS, ROOT, Run, write
from open_mpi import DAEMON

from entrypoint.cli import main

BEFORE = "worker/1] step 3;"
# What glibc does where no name server answers: 5 s, twice.
SLOW = """
import socket, time
real = socket.getaddrinfo
def getaddrinfo(name, *words, **named):
    try:
        return real(name, *words, **named)
    except socket.gaierror:
        if not named.get("flags", 0) & socket.AI_NUMERICHOST:
            time.sleep(10)
        raise
socket.getaddrinfo = getaddrinfo
"""


@pytest.fixture
def local(local, netns, tmp_path):
    """Start `entrypoint local` with two hosts in namespaces. Each Python process on them runs `site` first."""

    def start(program: str, *words: str, mode: str = "mwms", site: str = "", **options) -> Run:
        if site:
            write(tmp_path / "site/sitecustomize.py", site)
            options["PYTHONPATH"] = f"{tmp_path / 'site'}:{ROOT}"
        return local(program, *words, count=2, mode=mode, engine=netns, TEST_FOLDER=str(tmp_path), **options)

    return start


def test_job_survives_host_names_that_stop_resolving(local, shared):
    """Names may also stop resolving while the network fails, since the launcher keeps each host's last address."""
    faults = [f"hide algo-1 when '{BEFORE}'", f"hide algo-2 when '{BEFORE}'", f"cut algo-2 when '{BEFORE}' for 3.5"]
    last = ("--hyperparameters", "steps=90", f"until={shared}/over")
    run = local("beats.py", *last, faults=faults, site=SLOW, ENTRYPOINT_PEER_TIMEOUT="60")
    run.says("fault over")
    (shared / "over").touch()
    run.must_end(0, 0, 0)


FAILS = """
import os, time
print('at work', flush=True)
time.sleep(5)
assert os.environ['SM_CURRENT_HOST'] != 'algo-2'
time.sleep(600)
"""


def test_failure_reaches_a_host_whose_name_resolution_broke(local):
    faults = [f"hide algo-{host} when 'worker/0] at work'" for host in (1, 2)]
    run = local(FAILS, faults=faults, site=SLOW)
    run.must_end(1, 1, 1, cause="algo-2 worker/1 (exit code 1): AssertionError")


DIES_WHEN_HIDDEN = """
import os, socket, sys, time
from mpi4py import MPI
if os.environ['ENTRYPOINT_RESTART_COUNT'] != '0': sys.exit(0)
MPI.COMM_WORLD.Barrier()
print('at work', flush=True)
while MPI.COMM_WORLD.rank: time.sleep(1)
try:
    while True:
        socket.getaddrinfo('algo-2', 1)
        time.sleep(0.05)
except socket.gaierror:
    os.kill(os.getpid(), 9)
"""


def test_ssh_of_the_next_attempt_waits_until_a_name_resolves(local):
    faults = ["hide algo-2 when 'rank 0] at work' for 7"]
    patient = {"ENTRYPOINT_RESTARTS": "1", "ENTRYPOINT_PEER_TIMEOUT": "60"}  # ssh waits for the name for so long
    run = local(DIES_WHEN_HIDDEN, mode="mpi", faults=faults, **patient)
    run.must_end(0)
    assert "Could not resolve" not in run.terminal


# --- IPv6 ---

ADDRESSES = {"algo-1": "fd00:0:0:1::1", "algo-2": "fd00:0:0:1::2"}


def test_hosts_with_only_ipv6_addresses_find_one_another(local):
    """Programs that receive addresses instead of names get the notation that TensorFlow reads."""
    script = "import os\nprint(os.environ['TF_CONFIG'], flush=True)\n"
    run = local(script, "--ip", "6", env={"ENTRYPOINT_HOST_ADDRESSES": json.dumps(ADDRESSES)})
    run.must_end(0, 0, 0)
    assert "\nfd00:0:0:1::2 algo-2\n" in (run.output / "algo-1/hosts").read_text()
    assert '"[fd00:0:0:1::2]:' in run.terminal


def test_ranks_connect_over_ipv6(local):
    if DAEMON == "prted":
        pytest.skip("Debian has built Open MPI 5 without IPv6")
    local("mpi_sum.py", "--ip", "6", mode="mpi").must_end(0, 0, 0)


BREAKS = """
import os, subprocess, sys, time
if os.environ['SM_CURRENT_HOST'] == '{host}':
    subprocess.run(['ip', '-{family}', 'address', 'flush', 'dev', 'eth0'], check=True)
    print('broken', flush=True)
time.sleep(9)
"""


@pytest.mark.parametrize("family, host", [("4", "algo-1"), ("6", "algo-2")])
def test_job_survives_loss_of_ipv4_or_ipv6(local, family, host):
    """The loss lasts longer than the peer timeout."""
    path = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    run = local(BREAKS.format(host=host, family=family), "--ip", "both", ENTRYPOINT_PEER_TIMEOUT="4", **path)
    run.must_end(0, 0, 0)
    assert "broken" in run.terminal


def test_engine_without_namespaces_refuses_an_address_family(tmp_path):
    words = ["local", str(PROGRAMS / "beats.py"), "--ip", "6", "--output", str(tmp_path / "out")]
    assert main.run(words, {}) == 78


# What /etc/hosts of an image may have: the other's name leads to themselves.
MISLEADS = """
import json, os, socket
real = socket.getaddrinfo
def getaddrinfo(name, *words, **named):
    if name in ("algo-1", "algo-2"):
        with open("/opt/ml/input/config/resourceconfig.json") as file:
            me = json.load(file)["current_host"]
        name = "127.0.0.1" if name != me and me in ("algo-1", "algo-2") else name
    return real(name, *words, **named)
socket.getaddrinfo = getaddrinfo
"""


def test_name_of_another_host_that_resolves_to_this_host_ends_the_job(local):
    run = local("beats.py", site=MISLEADS)
    run.must_end(78, 78, 78, cause="algo-1 (configuration): algo-2 leads to 127.0.0.1, which is this host; wanted")
