"""Test MPI: mpirun, the job's own ssh daemons, and ranks that each host starts and watches itself."""

import json
import os
import pwd
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from builders import read
from hosts import LONG, MODES, PROGRAMS, ROOT, clean_environment, need_mpi
from open_mpi import DAEMON

from entrypoint.launcher.host.machine import this_machine
from entrypoint.launcher.plan.plan import Role
from entrypoint.launcher.plan.planner import plan_for

pytestmark = pytest.mark.usefixtures("mpi")
# test_cluster_open_mpi_5.py has them on real hosts.
of_equal_hosts = pytest.mark.skipif(
    DAEMON == "prted", reason="Open MPI 5 counts ranks by the names of machines, and simulated hosts have one name"
)


@pytest.fixture
def mpi() -> None:
    need_mpi()


def options(words: str) -> dict[str, str]:
    return {"sagemaker_mpi_custom_mpi_options": words}


def told(job) -> list[dict]:
    """Return the ranks' JSON files in rank order. `tree` is the host in whose folder the file was."""
    found = [
        {**json.loads(path.read_text()), "tree": name}
        for name, host in job.hosts.items()
        for path in (host.base / "output/data").glob("rank-*.json")
    ]
    return sorted(found, key=lambda each: each["rank"])


def test_ranks_on_one_host_get_their_arguments_without_ssh(hosts):
    job = hosts(1, "mpi_sum.py", mode="mpi", each=2, hyperparameters={"note": '"it\'s $(a) word"'})
    job.must_end(0)
    assert [each["sum"] for each in told(job)] == [2, 2]
    assert {tuple(each["argv"]) for each in told(job)} == {("--note", "it's $(a) word")}
    assert "[algo-1 rank 1] rank 1 of 2: sum 2" in job[1].log
    assert "sshd" not in job[1].log


def test_ranks_have_the_environment_of_their_own_host(hosts):
    """Variables of mpirun or ssh do not override this environment; variables exported by -x do."""
    parameters = options("-x OTHER=exported -x 'NEW=a b' --NCCL_DEBUG WARN")
    environment = {"MINE": "line 1\nline 2 $x", "OTHER": "the job's", "TMPDIR": "/tmp", "ENTRYPOINT_MONITOR": "true"}
    job = hosts(2, "mpi_sum.py", mode="mpi", each=2, hyperparameters=parameters, environment=environment)
    job.must_end(0)
    places = [(0, "algo-1"), (1, "algo-1"), (2, "algo-2"), (3, "algo-2")]
    assert [(each["rank"], each["tree"]) for each in told(job)] == places
    assert [each["env"]["SM_CURRENT_HOST"] for each in told(job)] == ["algo-1", "algo-1", "algo-2", "algo-2"]
    assert [each["env"]["OMPI_COMM_WORLD_LOCAL_RANK"] for each in told(job)] == ["0", "1", "0", "1"]
    expected = {"MINE": "line 1\nline 2 $x", "OTHER": "exported", "NEW": "a b", "TMPDIR": "/tmp"}
    for each in told(job):
        assert {name: each["env"][name] for name in expected} == expected
        code, looks_on, *_ = each["env"]["PYTHONPATH"].split(":")
        assert code == str(job.hosts[each["tree"]].base / "code")
        assert looks_on.endswith("/programs/on_path"), "before what the image's Python has as sitecustomize"
    assert {each["sum"] for each in told(job)} == {4}
    assert "[algo-2 rank 3] rank 3 of 4: sum 4" in job[2].log
    assert "rank 3 of 4" not in job[1].log  # each host logs its own ranks
    for host in job.hosts.values():
        assert not [path for path in host.base.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]


# As Horovod's ranks end: MPI is finalised, and not aborted, while Python still unwinds on the rank that raised.
SHUTS_DOWN = """
import atexit, sys, time
import mpi4py
mpi4py.rc.finalize = False
from mpi4py import MPI
world, how = MPI.COMM_WORLD, sys.argv[-1]
del sys.modules["mpi4py.MPI"]
def shut_down():
    world.send("over", 0)
    world.recv(source=0)
    print("W collective.cc: shutting down", flush=True)  # so that its last output is no traceback
    MPI.Finalize()
    time.sleep(1)  # the other's process is gone long before this one's
if world.rank == 1:
    atexit.register(shut_down)
    sys.exit(0) if how == "ends" else int("oops")
world.recv()
world.send("seen", 1)
MPI.Finalize()
raise RuntimeError("Horovod has been shut down. This was caused by an exception on one of the ranks")
"""


@pytest.mark.parametrize(
    "how, names",
    [
        ("raises", "algo-2 rank 1 (exit code 1): ValueError: invalid literal for int() with base 10: 'oops'"),
        ("ends", "algo-2 rank 1 (ended with 0 while rank 0 still trained): different numbers of batches? "),
    ],
)
def test_first_failed_rank_is_named_though_its_process_ends_last(hosts, how, names):
    hosts(2, code=SHUTS_DOWN, mode="mpi", hyperparameters={"how": how}).must_end(1, names)


@pytest.mark.parametrize(
    "words, code, said",
    [
        ("--no-such-option", None, ["algo-1 mpirun (exit code", "no-such-option"]),
        ("--version", 1, ["it started no rank"]),
    ],
)
def test_mpirun_without_a_rank_fails_the_job(hosts, words, code, said):
    job = hosts(1, "mpi_sum.py", mode="mpi", hyperparameters=options(words))
    (ended,) = job.end()
    assert ended == code if code else ended != 0
    assert all(part in job[1].failure for part in said)


def threads(rank: dict) -> list[str | None]:
    keys = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
    return [rank["env"].get(key) for key in keys]


@of_equal_hosts
def test_ranks_divide_the_cpus_of_their_host(hosts):
    """4 slots on the first host, 1 rank on the second, by the user's -np; and one variable that the user has set."""
    machine = this_machine()
    if machine.allowed < 2:
        pytest.skip("one CPU cannot be divided")
    job = hosts(
        2, "mpi_sum.py", mode="mpi", each=4, hyperparameters=options("-np 5"), environment={"OMP_NUM_THREADS": "3"}
    )
    job.must_end(0)
    fourth = max(1, int(machine.cpus / 4 + 0.5))
    alone = [None, None] if machine.cpus == machine.allowed else [str(int(machine.cpus + 0.5))] * 2
    assert [threads(each) for each in told(job)] == [[str(fourth), str(max(2, fourth)), "3"]] * 4 + [[*alone, "3"]]
    assert f"each of 4 processes: TF_NUM_INTRAOP_THREADS={fourth} " in job[1].log
    assert "TF_NUM_INTRAOP_THREADS" not in job[2].log or alone[0]


def test_bound_rank_starts_at_most_one_thread_per_cpu(hosts):
    if this_machine().cpus < 2:
        pytest.skip("wants a CPU for each of two ranks")
    parameters = options("-bind-to hwthread -x OMP_NUM_THREADS=9")
    job = hosts(1, "mpi_sum.py", mode="mpi", each=2, hyperparameters=parameters)
    job.must_end(0)
    assert [each["cpus"] for each in told(job)] == [1, 1]
    assert [threads(each) for each in told(job)] == [[None, "2", "9"]] * 2  # it sees its one CPU by itself


@pytest.mark.skipif(this_machine().gpus > 0, reason="beside GPUs it is left as it is")
@pytest.mark.parametrize(
    "environment, words, expected",
    [({}, "", "1"), ({"OMPI_MCA_mpi_yield_when_idle": "0"}, "", "0"), ({}, "--mca mpi_yield_when_idle 0", "0")],
    ids=["by default", "the environment says no", "mpirun's option says no"],
)
def test_waiting_ranks_yield_their_cpu_by_default(hosts, environment, words, expected):
    parameters = options(words) if words else {}
    job = hosts(1, "mpi_sum.py", mode="mpi", each=2, hyperparameters=parameters, environment=environment)
    job.must_end(0)
    assert [each["env"].get("OMPI_MCA_mpi_yield_when_idle") for each in told(job)] == [expected] * 2


def test_ranks_of_a_python_module_end_together_when_one_raises(hosts, tmp_path):
    """As for a file, mpi4py's runner aborts the other ranks. Without it, the rank that raises would wait for them."""
    code = {
        "train.py": "from mpi4py import MPI\nif MPI.COMM_WORLD.rank == 1:\n    raise ValueError('bad batch')\n"
        "MPI.COMM_WORLD.barrier()\n",
        "setup.py": "from setuptools import setup\nsetup(name='mine', py_modules=['train'])\n",
    }
    environment = {"PIP_TARGET": str(tmp_path / "site"), "PIP_NO_INDEX": "1"}
    job = hosts(1, "train", code=code, mode="mpi", each=2, environment=environment)
    job.must_end(1, "algo-1 rank 1 (exit code 1): ValueError: bad batch")


@pytest.mark.skipif(
    DAEMON == "prted", reason="Open MPI 5's runtime has its own settings, which ompi_info does not list"
)
def test_open_mpi_knows_each_setting_of_the_launcher(tmp_path):
    """Open MPI silently accepts and ignores settings that it does not know."""
    told = subprocess.run(
        ["ompi_info", "--all", "--parsable", "--level", "9"], capture_output=True, text=True, check=True
    )
    known = set(re.findall(r"^mca:\w+:\w+:param:(\w+):", told.stdout, re.MULTILINE))
    where = {
        "ENTRYPOINT_PORT_STRIDE": "7",
        "ENTRYPOINT_HOST_ADDRESSES": json.dumps({"algo-1": "127.1.1.1", "algo-2": "127.1.2.1"}),
    }
    job = read(tmp_path, 2, {**MODES["mpi"], "sagemaker_mpi_num_of_processes_per_host": "1"}, where)
    (mpirun,) = [spec for spec in plan_for(job).processes if spec.role is Role.LAUNCHER]
    given = {name for option, name in pairwise(mpirun.argv) if option == "--mca"}
    assert {"pml", "btl_tcp_if_include"} <= given <= known


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for another /etc/hosts and a network of its own")
@of_equal_hosts
def test_each_host_on_one_machine_runs_its_own_rank(tmp_path, no_leftovers):
    """By the addresses alone, Open MPI would take all simulated hosts for this one and start all ranks here."""
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n10.9.8.7 algo-1 algo-2\n")
    (tmp_path / "train.sh").write_text('echo "rank $OMPI_COMM_WORLD_RANK is on $SM_CURRENT_HOST"\n')
    network = "ip link set lo up && ip link add eth0 type veth peer name other && ip addr add 10.9.8.7/24 dev eth0"
    network += " && ip link set other up && ip link set eth0 up"
    own = f"mount --bind {tmp_path}/hosts /etc/hosts && {network}"
    said = run_after(own, tmp_path / "train.sh", "--processes-per-host", "1", output=tmp_path / "out", network=True)
    for rank, host in enumerate(("algo-1", "algo-2")):
        assert f"[{host} rank {rank}] rank {rank} is on {host}" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for another ~/.bashrc and network namespaces")
def test_a_slow_bashrc_does_not_delay_the_job(tmp_path, no_leftovers):
    """bash reads ~/.bashrc when sshd starts it. There, pyenv for one waits for a lock that a killed job has left."""
    (tmp_path / "bashrc").write_text("sleep 600\n")
    bashrc = Path(pwd.getpwuid(os.geteuid()).pw_dir) / ".bashrc"
    if not bashrc.exists():
        pytest.skip(f"there is no {bashrc} to lay another one over")
    words = ("--engine", "netns", "--env", "ENTRYPOINT_START_TIMEOUT=60", "--hyperparameters", "code=0")
    run_after(f"mount --bind {tmp_path}/bashrc {bashrc}", PROGRAMS / "exits.py", *words, output=tmp_path / "out")


def run_after(own: str, program: Path, *words: str, output: Path, network: bool = False) -> str:
    """Run a command, then a job of two hosts, with separate mounts and, if requested, a separate network."""
    job = [sys.executable, "-m", "entrypoint", "local", str(program), "--hosts", "2", "--mode", "mpi", *words]
    script = f"{own} && {shlex.join([*job, '--output', str(output)])}"
    done = subprocess.run(
        ["unshare", "--mount", *(["--net"] if network else []), "sh", "-c", script], cwd=ROOT, capture_output=True,
        text=True, timeout=LONG, env=clean_environment(PATH=f"{os.environ['PATH']}:/usr/sbin:/sbin"),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
