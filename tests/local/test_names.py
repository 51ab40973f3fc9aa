"""Test names that stop resolving while a job runs, and IPv6 addresses: in namespaces, as in containers."""

import json
import shutil
import tempfile
from pathlib import Path

import pytest
from hosts import PROGRAMS, Run
from open_mpi import DAEMON
from waiting import eventually

pytestmark = pytest.mark.usefixtures("no_leftovers")
SEVERAL = ("--hosts", "2", "--mode", "mwms")
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
# A proxy on each host that notes requests and answers none. The first process that starts Python there starts it, as a
# process: TensorFlow holds Python's lock while it waits.
# Not in a worker beside parameter servers: the job would wait for a worker that has a child.
PROXY = """
import contextlib, os, socket
config = os.environ.get("TF_CONFIG", "")
is_waited_for = '"ps"' in config and '"type": "worker"' in config
if not is_waited_for:
    with contextlib.suppress(OSError), socket.create_server(("::1", 3128), family=socket.AF_INET6) as server:
        if not os.fork():
            os.setsid()
            for number in range(3):
                os.dup2(os.open(os.devnull, os.O_RDWR), number)
            held = []
            while True:
                held.append(server.accept()[0])
                with open("/opt/ml/output/data/asked", "ab") as notes:
                    notes.write(held[-1].recv(1 << 16))
"""


@pytest.fixture
def local(local, netns, tmp_path):
    """Start `entrypoint local` with hosts in namespaces. `site`: what each Python process of theirs runs first."""

    def start(program: Path, *words: str, faults=(), site: str = "", **env: str) -> Run:
        if site:
            (tmp_path / "site").mkdir()
            (tmp_path / "site/sitecustomize.py").write_text(site)
            env["PYTHONPATH"] = f"{tmp_path / 'site'}:{PROGRAMS.parents[1]}"
        words += tuple(word for fault in faults for word in ("--fault", fault))
        return local(program, *words, "--engine", "netns", TEST_FOLDER=str(tmp_path), **env)

    return start


def program(tmp_path: Path, text: str) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text(text)
    return folder / "train.py"


def test_names_that_vanish_while_the_job_runs_do_no_harm(local):
    """They may also vanish while the network fails: the host's last address is known."""
    faults = [f"hide algo-1 when '{BEFORE}'", f"hide algo-2 when '{BEFORE}'", f"cut algo-2 when '{BEFORE}' for 3.5"]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as shared:  # hosts have a /tmp of their own
        over = Path(shared, "over")
        run = local(
            PROGRAMS / "beats.py", *SEVERAL, "--hyperparameters", "steps=90", f"until={over}", faults=faults, site=SLOW,
            ENTRYPOINT_PEER_TIMEOUT="60",
        )  # fmt: skip
        run.says("fault over")
        over.touch()
        assert run.end() == 0
    assert run.exits == ["0"] * 2


def test_a_failure_is_told_where_no_name_resolves_any_more(local, tmp_path):
    text = (
        "import os, time\n"
        "print('at work', flush=True)\n"
        "time.sleep(5)\n"
        "assert os.environ['SM_CURRENT_HOST'] != 'algo-2'\n"
    )
    faults = [f"hide algo-{host} when 'worker/0] at work'" for host in (1, 2)]
    run = local(program(tmp_path, text + "time.sleep(600)\n"), *SEVERAL, faults=faults, site=SLOW)
    assert run.end() == 1
    assert run.exits == ["1"] * 2
    assert run.cause.startswith("algo-2 worker/1 (exit code 1): AssertionError")


def test_ssh_of_another_attempt_waits_for_a_name_that_is_away(local, tmp_path):
    pytest.importorskip("mpi4py")
    text = (
        "import os, socket, sys, time\n"
        "from mpi4py import MPI\n"
        "if os.environ['ENTRYPOINT_RESTART_COUNT'] != '0': sys.exit(0)\n"
        "MPI.COMM_WORLD.Barrier()\n"
        "print('at work', flush=True)\n"
        "while MPI.COMM_WORLD.rank: time.sleep(1)\n"
        "try:\n"
        "    while True:\n"
        "        socket.getaddrinfo('algo-2', 1)\n"
        "        time.sleep(0.05)\n"
        "except socket.gaierror:\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    faults = ["hide algo-2 when 'rank 0] at work' for 7"]
    run = local(
        program(tmp_path, text),
        "--hosts",
        "2",
        "--mode",
        "mpi",
        faults=faults,
        ENTRYPOINT_RESTARTS="1",
        ENTRYPOINT_PEER_TIMEOUT="60",
    )  # ssh waits for the name for so long
    assert run.end() == 0, run.terminal
    assert "Could not resolve" not in run.terminal


# --- IPv6 ---

SUM = """
import json, os, sys
import tensorflow as tf
print(os.environ["TF_CONFIG"], flush=True)
strategy = tf.distribute.MultiWorkerMirroredStrategy()
total = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1.0)))
print("sum", int(total), flush=True)
"""
ADDRESSES = {"algo-1": "fd00:0:0:1::1", "algo-2": "fd00:0:0:1::2"}


def test_hosts_with_addresses_of_ipv6_alone(local, tmp_path):
    """Programs that get addresses, and no names, get them as TensorFlow reads them."""
    script = program(tmp_path, "import os\nprint(os.environ['TF_CONFIG'], flush=True)\n")
    run = local(script, *SEVERAL, "--ip", "6", "--env", f"ENTRYPOINT_HOST_ADDRESSES={json.dumps(ADDRESSES)}")
    assert run.end() == 0
    assert run.exits == ["0"] * 2
    assert "\nfd00:0:0:1::2 algo-2\n" in (run.folder / "out/algo-1/hosts").read_text()
    assert '"[fd00:0:0:1::2]:' in run.terminal


def test_mpi_over_ipv6(local):
    pytest.importorskip("mpi4py")
    if DAEMON == "prted":
        pytest.skip("Debian has built Open MPI 5 without IPv6")
    if not (shutil.which("mpirun") and Path("/usr/sbin/sshd").exists()):
        pytest.skip("needs Open MPI and an ssh daemon")
    run = local(PROGRAMS / "mpi_sum.py", "--hosts", "2", "--mode", "mpi", "--ip", "6")
    assert run.end() == 0
    assert run.exits == ["0"] * 2


@pytest.mark.more
@pytest.mark.tensorflow
def test_parameter_servers_over_ipv6(local):
    run = local(PROGRAMS / "ps_tutorial.py", "--hosts", "2", "--mode", "ps", "--ip", "6")
    assert run.end() == 0
    assert "chief/0] trained" in run.terminal


@pytest.mark.more  # the first one has what TensorFlow is given
@pytest.mark.tensorflow
@pytest.mark.parametrize("numbers", [False, True], ids=["names", "addresses"])
def test_collectives_over_ipv6(local, tmp_path, numbers):
    words = ("--env", f"ENTRYPOINT_HOST_ADDRESSES={json.dumps(ADDRESSES)}") if numbers else ()
    run = local(program(tmp_path, SUM), *SEVERAL, "--ip", "6", *words)
    assert run.end() == 0
    assert run.terminal.count("sum 2") == 2
    assert ('"[fd00:0:0:1::2]:' in run.terminal) == numbers


@pytest.mark.more  # cluster/test_cluster_proxy.py shows it over IPv4
@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("mode", "numbers", "no_proxy"),
    [
        *((mode, numbers, "hosts") for mode in ("mwms", "ps", "mpi") for numbers in (True, False)),
        ("mwms", True, "off"),  # the proxy is one, and is asked
    ],
)
def test_no_proxy_stands_between_hosts_of_ipv6(local, tmp_path, mode, numbers, no_proxy):
    """`numbers`: programs get addresses, and no names."""
    if mode == "mpi":
        pytest.importorskip("mpi4py")
    what = {"mwms": program(tmp_path, SUM), "ps": PROGRAMS / "ps_tutorial.py", "mpi": PROGRAMS / "mpi_sum.py"}[mode]
    variables = {"http_proxy": "http://[::1]:3128", "https_proxy": "http://[::1]:3128", "ENTRYPOINT_NO_PROXY": no_proxy}
    variables |= {"ENTRYPOINT_HOST_ADDRESSES": json.dumps(ADDRESSES)} if numbers else {}
    # A script that waits inside of TensorFlow runs no handler of SIGTERM, and keeps its whole grace.
    variables |= {"ENTRYPOINT_STOP_GRACE": "1"} if no_proxy == "off" else {}
    words = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
    run = local(what, "--hosts", "2", "--mode", mode, "--ip", "6", *words, site=PROXY)

    def asked() -> list[Path]:
        return list(run.folder.glob("out/*/**/asked"))

    if no_proxy == "off":
        eventually(lambda: any("CONNECT [fd00:0:0:1::" in each.read_text() for each in asked()), within=240)
        run.process.terminate()  # the hosts end before the test does
        run.end()
        return
    assert run.end() == 0
    assert not asked()
    end, times = {"mwms": ("sum 2", 2), "ps": ("chief/0] trained", 1), "mpi": ("of 2: sum 2", 2)}[mode]
    assert run.terminal.count(end) == times
    assert "name a proxy, which no program may use for the 2 hosts" in run.terminal


@pytest.mark.parametrize(
    "family, host",
    [
        ("4", "algo-1"),
        ("6", "algo-2"),
        *(pytest.param(*each, marks=pytest.mark.more) for each in (("4", "algo-2"), ("6", "algo-1"))),
    ],
)
def test_of_both_families_one_may_break_while_the_job_runs(local, tmp_path, host, family):
    """For longer than a host may be silent."""
    text = (
        "import os, subprocess, sys, time\n"
        f"if os.environ['SM_CURRENT_HOST'] == '{host}':\n"
        f"    subprocess.run(['ip', '-{family}', 'address', 'flush', 'dev', 'eth0'], check=True)\n"
        "    print('broken', flush=True)\n"
        "time.sleep(9)\n"
    )
    path = "/usr/sbin:/usr/bin:/sbin:/bin"
    run = local(program(tmp_path, text), *SEVERAL, "--ip", "both", PATH=path, ENTRYPOINT_PEER_TIMEOUT="4")
    assert run.end() == 0
    assert run.exits == ["0"] * 2
    assert "broken" in run.terminal


def test_an_option_of_hosts_in_namespaces(tmp_path):
    """Other engines refuse it, since they could not do what it asks."""
    from entrypoint.cli import main

    words = ["local", str(PROGRAMS / "beats.py"), "--ip", "6", "--output", str(tmp_path / "out")]
    assert main.run(words, {}) == 78


# What /etc/hosts of an image may have: on some hosts, the other's name leads to themselves.
MISLEADS = """
import json, os, socket
real = socket.getaddrinfo
def getaddrinfo(name, *words, **named):
    if name in ("algo-1", "algo-2"):
        with open("/opt/ml/input/config/resourceconfig.json") as file:
            me = json.load(file)["current_host"]
        name = "127.0.0.1" if name != me and me in {which!r} else name
    return real(name, *words, **named)
socket.getaddrinfo = getaddrinfo
"""


@pytest.mark.parametrize(
    "which", [["algo-1", "algo-2"], pytest.param(["algo-1"], marks=pytest.mark.more)], ids=" ".join
)
def test_the_name_of_another_host_that_leads_here_ends_the_job(local, which):
    run = local(PROGRAMS / "beats.py", *SEVERAL, site=MISLEADS.replace("{which!r}", repr(which)))
    assert run.end() == 78
    assert run.exits == ["78"] * 2
    assert run.cause.startswith("algo-1 (configuration): algo-2 leads to 127.0.0.1, which is this host; wanted")
