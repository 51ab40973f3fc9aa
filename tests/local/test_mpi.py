"""Test MPI: mpirun, the job's own ssh daemons, and ranks that each host starts and watches itself."""

import json
import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from builders import read
from hosts import LONG, PROGRAMS, ROOT
from open_mpi import DAEMON
from variants import variants

from entrypoint.launcher.host.machine import this_machine
from entrypoint.launcher.plan.plan import Role
from entrypoint.launcher.plan.planner import plan_for

pytestmark = pytest.mark.skipif(
    not (shutil.which("mpirun") and Path("/usr/sbin/sshd").exists()), reason="needs Open MPI and an ssh daemon"
)
MPI = {"sagemaker_mpi_enabled": "true"}
# test_cluster_open_mpi_5.py has them on real hosts.
of_equal_hosts = pytest.mark.skipif(
    DAEMON == "prted", reason="Open MPI 5 counts ranks by the names of machines, and simulated hosts have one name"
)


STOPS_MPIRUN = """
import os, signal
from mpi4py import MPI
rank = MPI.COMM_WORLD.Get_rank()
MPI.Finalize()
print("done", flush=True)
if rank == 0:
    with open(f"/proc/{os.getppid()}/stat") as file:
        os.kill(int(file.read().rpartition(")")[2].split()[1]), signal.SIGSTOP)
"""


@pytest.mark.parametrize(
    "count, stop",
    [(2, False), *(pytest.param(*each, marks=pytest.mark.more) for each in ((1, False), (1, True), (2, True)))],
)
def test_mpirun_never_ends_though_all_ranks_have(hosts, count, stop):
    """Nothing is left for it to do, so the job has succeeded; also if SIGTERM comes meanwhile."""
    job = hosts(count, "train.py", code={"train.py": STOPS_MPIRUN}, hyperparameters=with_ranks(2))
    for rank in range(2 * count):
        job.says(f"rank {rank} ended: exit code 0")
    if stop:
        job.signal(signal.SIGTERM)
    assert job.end() == [0] * count
    assert job.failures == [None] * count
    assert "mpirun stopped: killed by SIGKILL" in job[1].log
    assert stop or "mpirun still runs 10 s after all ranks ended with code 0: it is killed" in job[1].log


@pytest.fixture(autouse=True)
def mpi4py():
    pytest.importorskip("mpi4py")


def with_ranks(count: int, **more: str) -> dict[str, str]:
    return {**MPI, "sagemaker_mpi_num_of_processes_per_host": str(count), **more}


def told(job) -> list[dict]:
    """Return what the ranks wrote, in rank order, with the host whose tree holds it."""
    found = [
        {**json.loads(path.read_text()), "tree": name}
        for name, host in job.hosts.items()
        for path in (host.base / "output/data").glob("rank-*.json")
    ]
    return sorted(found, key=lambda each: each["rank"])


def test_one_host(hosts):
    job = hosts(1, "mpi_sum.py", hyperparameters=with_ranks(2, note='"it\'s $(a) word"'))
    assert job.end() == [0]
    assert [each["sum"] for each in told(job)] == [2, 2]
    assert {tuple(each["argv"]) for each in told(job)} == {("--note", "it's $(a) word")}
    assert "[algo-1 rank 1] rank 1 of 2: sum 2" in job[1].log
    assert "sshd" not in job[1].log


def test_two_hosts(hosts):
    """Ranks have the environment of their own host; variables of mpirun or ssh do not override it."""
    options = "-x OTHER=exported -x 'NEW=a b' --NCCL_DEBUG WARN"
    environment = {"MINE": "line 1\nline 2 $x", "OTHER": "the job's", "TMPDIR": "/tmp", "ENTRYPOINT_MONITOR": "true"}
    parameters = with_ranks(2, sagemaker_mpi_custom_mpi_options=options)
    job = hosts(2, "mpi_sum.py", hyperparameters=parameters, environment=environment)
    assert job.end() == [0, 0]
    assert [(each["rank"], each["tree"]) for each in told(job)] == [
        (0, "algo-1"),
        (1, "algo-1"),
        (2, "algo-2"),
        (3, "algo-2"),
    ]
    assert [each["env"]["SM_CURRENT_HOST"] for each in told(job)] == ["algo-1", "algo-1", "algo-2", "algo-2"]
    assert [each["env"]["OMPI_COMM_WORLD_LOCAL_RANK"] for each in told(job)] == ["0", "1", "0", "1"]
    expected = {"MINE": "line 1\nline 2 $x", "OTHER": "exported", "NEW": "a b", "TMPDIR": "/tmp"}
    for each in told(job):
        assert {name: each["env"][name] for name in expected} == expected  # what is exported by -x wins
        code, looks_on, *_ = each["env"]["PYTHONPATH"].split(":")
        assert code == str(job.hosts[each["tree"]].base / "code")
        assert looks_on.endswith("/programs/on_path"), "before what the image's Python has as sitecustomize"
    assert {each["sum"] for each in told(job)} == {4}
    assert "[algo-2 rank 3] rank 3 of 4: sum 4" in job[2].log
    assert "rank 3 of 4" not in job[1].log  # each host logs its own ranks
    for host in job.hosts.values():
        private = [path for path in host.base.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]
        assert private == []


@of_equal_hosts
@pytest.mark.more
def test_fewer_ranks_than_places(hosts):
    job = hosts(2, "mpi_sum.py", hyperparameters=with_ranks(2, sagemaker_mpi_custom_mpi_options="-np 3"))
    assert job.end() == [0, 0]
    assert [(each["rank"], each["tree"]) for each in told(job)] == [(0, "algo-1"), (1, "algo-1"), (2, "algo-2")]


@pytest.mark.parametrize(
    "count, rank", [(2, 1), *(pytest.param(*each, marks=pytest.mark.more) for each in ((1, 0), (2, 0)))]
)
def test_a_rank_raises(hosts, count, rank):
    job = hosts(count, "mpi_sum.py", hyperparameters=with_ranks(1, **{"raise": str(rank)}))
    codes = job.end()
    assert codes == [1] * count
    assert len(set(job.failures)) == 1
    assert (
        job.failures[0].splitlines()[0]
        == f"algo-{rank + 1} rank {rank} (exit code 1): ValueError: rank {rank} is unhappy"
    )


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
def test_the_rank_that_ended_first_is_named_though_its_process_ends_last(hosts, how, names):
    job = hosts(2, "train.py", code={"train.py": SHUTS_DOWN}, hyperparameters=with_ranks(1, how=how))
    assert job.end() == [1, 1]
    assert job.failures[0] == job.failures[1]
    assert job.failures[0].startswith(names)


@pytest.mark.parametrize("action, code", [pytest.param("exit", 7, marks=pytest.mark.more), ("kill", 137)])
def test_a_rank_of_another_host_ends_badly(hosts, action, code):
    job = hosts(2, "mpi_sum.py", hyperparameters=with_ranks(1, **{action: "1"}))
    assert job.end() == [code, code]
    assert len(set(job.failures)) == 1
    assert job.failures[0].startswith("algo-2 rank 1 (")


def test_mpirun_cannot_do_what_is_asked(hosts):
    job = hosts(1, "mpi_sum.py", hyperparameters={**MPI, "sagemaker_mpi_custom_mpi_options": "--no-such-option"})
    (code,) = job.end()
    assert code != 0
    assert job.failures[0].startswith("algo-1 mpirun (exit code")
    assert "no-such-option" in job.failures[0]


@pytest.mark.parametrize("lost", [pytest.param(1, marks=pytest.mark.more), 2])
def test_a_host_is_lost(hosts, lost):
    from test_several_hosts import QUICK, kill_host

    code = {"train.py": "from mpi4py import MPI\nimport time\nprint('asleep', flush=True)\ntime.sleep(600)\n"}
    job = hosts(2, "train.py", code=code, hyperparameters=MPI, environment=QUICK)
    job.all_say("asleep")
    kill_host(job, lost)
    codes = job.end()
    assert codes[2 - lost] == 69
    # Whichever is noticed first.
    words = ("no report for 0.6 s, and it accepts no connection", "its connection closed, and it accepts no new one")
    assert job[3 - lost].failure in [f"algo-{lost} (lost: {line})" for line in words]


@pytest.mark.more  # test_stop_budget.py
def test_stopped_ranks_save(hosts):
    job = hosts(2, "mpi_saves.py", hyperparameters=with_ranks(2))
    job.all_say("asleep")
    job.signal(signal.SIGTERM)
    assert job.end() == [0, 0]
    saved = sorted(path.name for host in job.hosts.values() for path in (host.base / "model").glob("saved-*"))
    assert saved == ["saved-0", "saved-1", "saved-2", "saved-3"]


def test_stopped_ranks_that_ignore_it_are_killed(hosts):
    code = {
        "train.py": "import signal, time\nfrom mpi4py import MPI\nsignal.signal(15, signal.SIG_IGN)\n"
        "print('asleep', flush=True)\ntime.sleep(600)\n"
    }
    job = hosts(2, "train.py", code=code, hyperparameters=MPI, environment={"ENTRYPOINT_STOP_GRACE": "1"})
    job.all_say("asleep")
    job.signal(signal.SIGTERM)
    assert job.end(within=90) == [143, 143]  # ENTRYPOINT_STOP_GRACE is 100 s otherwise


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
        2,
        "mpi_sum.py",
        environment={"OMP_NUM_THREADS": "3"},
        hyperparameters=with_ranks(4, sagemaker_mpi_custom_mpi_options="-np 5"),
    )
    assert job.end() == [0, 0]
    fourth = max(1, int(machine.cpus / 4 + 0.5))
    alone = [None, None] if machine.cpus == machine.allowed else [str(int(machine.cpus + 0.5))] * 2
    assert [threads(each) for each in told(job)] == [[str(fourth), str(max(2, fourth)), "3"]] * 4 + [[*alone, "3"]]
    assert f"each of 4 processes: TF_NUM_INTRAOP_THREADS={fourth} " in job[1].log
    assert "TF_NUM_INTRAOP_THREADS" not in job[2].log or alone[0]


def test_a_rank_that_mpirun_binds_starts_no_more_threads_than_it_has_cpus(hosts):
    if this_machine().cpus < 2:
        pytest.skip("wants a CPU for each of two ranks")
    options = "-bind-to hwthread -x OMP_NUM_THREADS=9"
    job = hosts(1, "mpi_sum.py", hyperparameters=with_ranks(2, sagemaker_mpi_custom_mpi_options=options))
    assert job.end() == [0]
    assert [each["cpus"] for each in told(job)] == [1, 1]
    assert [threads(each) for each in told(job)] == [[None, "2", "9"]] * 2  # it sees its one CPU by itself


@pytest.mark.skipif(this_machine().gpus > 0, reason="beside GPUs it is left as it is")
@pytest.mark.parametrize(
    "environment, options, expected",
    variants(
        {
            "by default": ({}, "", "1"),
            "the environment says no": ({"OMPI_MCA_mpi_yield_when_idle": "0"}, "", "0"),
            "mpirun's option says no": ({}, "--mca mpi_yield_when_idle 0", "0"),
        },
        "by default",
    ),
)
def test_ranks_that_wait_yield_their_cpu_unless_the_user_says_otherwise(hosts, environment, options, expected):
    parameters = with_ranks(2, **({"sagemaker_mpi_custom_mpi_options": options} if options else {}))
    job = hosts(1, "mpi_sum.py", environment=environment, hyperparameters=parameters)
    assert job.end() == [0]
    assert [each["env"].get("OMPI_MCA_mpi_yield_when_idle") for each in told(job)] == [expected] * 2


def test_mpirun_that_only_says_its_version_is_no_success(hosts):
    job = hosts(1, "mpi_sum.py", hyperparameters=with_ranks(1, sagemaker_mpi_custom_mpi_options="--version"))
    assert job.end() == [1]
    assert "it started no rank" in job[1].failure


def test_ranks_of_a_module_end_together_when_one_raises(hosts, tmp_path):
    """As with a file: by mpi4py's runner, which aborts the others. The one that raises waits for them otherwise."""
    code = {
        "train.py": "from mpi4py import MPI\nif MPI.COMM_WORLD.rank == 1:\n    raise ValueError('bad batch')\n"
        "MPI.COMM_WORLD.barrier()\n",
        "setup.py": "from setuptools import setup\nsetup(name='mine', py_modules=['train'])\n",
    }
    environment = {"PIP_TARGET": str(tmp_path / "site"), "PIP_NO_INDEX": "1"}
    job = hosts(1, "train", code=code, hyperparameters=with_ranks(2), environment=environment)
    assert job.end() == [1]
    assert "algo-1 rank 1 (exit code 1): ValueError: bad batch" in job[1].failure


@pytest.mark.skipif(
    DAEMON == "prted", reason="Open MPI 5's runtime has its own settings, which ompi_info does not list"
)
def test_open_mpi_knows_each_setting_that_it_is_given(tmp_path):
    """Open MPI silently accepts and ignores settings that it does not know."""
    told = subprocess.run(
        ["ompi_info", "--all", "--parsable", "--level", "9"], capture_output=True, text=True, check=True
    )
    known = set(re.findall(r"^mca:\w+:\w+:param:(\w+):", told.stdout, re.MULTILINE))
    where = {
        "ENTRYPOINT_PORT_STRIDE": "7",
        "ENTRYPOINT_HOST_ADDRESSES": json.dumps({"algo-1": "127.1.1.1", "algo-2": "127.1.2.1"}),
    }
    job = read(tmp_path, 2, with_ranks(1), where)
    (mpirun,) = [spec for spec in plan_for(job).processes if spec.role is Role.LAUNCHER]
    given = {name for option, name in pairwise(mpirun.argv) if option == "--mca"}
    assert {"pml", "btl_tcp_if_include"} <= given <= known


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for another /etc/hosts and a network of its own")
@of_equal_hosts
def test_hosts_whose_names_mean_this_machine_have_a_rank_each(tmp_path, no_leftovers):
    """Asked whose addresses these are, Open MPI takes simulated hosts for its own and starts all ranks there."""
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n10.9.8.7 algo-1 algo-2\n")
    (tmp_path / "train.sh").write_text('echo "rank $OMPI_COMM_WORLD_RANK is on $SM_CURRENT_HOST"\n')
    job = shlex.join([sys.executable, "-m", "entrypoint", "local", str(tmp_path / "train.sh"), "--hosts", "2",
                      "--mode", "mpi", "--processes-per-host", "1", "--output", str(tmp_path / "out")])  # fmt: skip
    network = "ip link set lo up && ip link add eth0 type veth peer name other && ip addr add 10.9.8.7/24 dev eth0"
    own = (
        f"mount --bind {tmp_path}/hosts /etc/hosts && {network} && ip link set other up && ip link set eth0 up && {job}"
    )
    path = {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    words = ["unshare", "--mount", "--net", "sh", "-c", own]
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, **path}, capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0, done.stdout + done.stderr
    for rank, host in enumerate(("algo-1", "algo-2")):
        assert f"[{host} rank {rank}] rank {rank} is on {host}" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for another ~/.bashrc and network namespaces")
def test_what_a_person_has_in_bashrc_holds_no_job_up(tmp_path, no_leftovers):
    """bash reads it when sshd starts it: pyenv, for one, waits there for a lock that a killed job has left."""
    (tmp_path / "bashrc").write_text("sleep 600\n")
    bashrc = Path(pwd.getpwuid(os.geteuid()).pw_dir) / ".bashrc"
    if not bashrc.exists():
        pytest.skip(f"there is no {bashrc} to lay another one over")
    job = shlex.join([sys.executable, "-m", "entrypoint", "local", str(PROGRAMS / "exits.py"), "--engine", "netns",
                      "--hosts", "2", "--mode", "mpi", "--output", str(tmp_path / "out"),
                      "--env", "ENTRYPOINT_START_TIMEOUT=60", "--hyperparameters", "code=0"])  # fmt: skip
    own = f"mount --bind {tmp_path}/bashrc {bashrc} && {job}"
    words = ["unshare", "--mount", "sh", "-c", own]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0, done.stdout + done.stderr
