"""Test a host with too few processes, threads or file descriptors: all hosts report the shortage in seconds.

RLIMIT_NPROC does not bind root, so a control group limits the processes.
"""

import contextlib
import errno
import itertools
import os
import queue
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from control_group import control_group, why_not
from hosts import LONG, ROOT
from waiting import eventually

from entrypoint.launcher.host.logs import Log
from entrypoint.launcher.host.ranks import Ranks
from entrypoint.launcher.host.resource_limits import not_started
from entrypoint.launcher.outcome.outcome import Exit
from entrypoint.launcher.policy.events import RankStarted
from entrypoint.programs import rank

SHELL = ["sh", "-c"]
RANK = ROOT / "entrypoint" / "programs" / "rank.py"
NUMBERS = {f"OMPI_COMM_WORLD_{name}": str(int("SIZE" in name)) for name in ("RANK", "LOCAL_RANK", "SIZE", "LOCAL_SIZE")}


@pytest.fixture
def group():
    """Make a control group for processes; without one, the test is skipped with the reason."""
    if why := why_not("pids"):
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"cannot limit a host's processes here: {why}")
    with control_group("pids") as made:
        yield made


def entering(group: Path) -> str:
    """Return a script for SHELL that runs its arguments in a control group."""
    return f'echo $$ > {group}/cgroup.procs; exec "$@"'


def check(job, victim: str, *, may_run: bool = False) -> None:
    """Check that all hosts end with one code and one text that names the shortage. With `may_run`, 0 is allowed."""
    codes = job.end(within=LONG)  # the start timeout is five times as long
    assert len(set(codes)) == 1 and codes[0] in (1, 70, *([0] if may_run else [])), str(job)
    if codes[0] == 0:
        assert job.failures == [None] * len(codes), str(job)
        return
    assert len({text.splitlines()[0] for text in job.failures}) == 1, str(job)
    text = job.failures[0]
    assert text.startswith(victim), text
    if codes[0] == 70:
        assert any(
            f"({what})" in text for what in ("fault of the launcher", "the launcher failed", "cannot be started")
        )
        assert "this host allows" in text
    if "(cannot be started)" in text:
        ours = [line for host in job.hosts.values() for line in host.log.splitlines() if "/entrypoint/" in line]
        assert not ours, f"the launcher falls over what its program lacks: {job}"
    elif codes[0] == 1:  # the first of our programs was started, and could start nothing itself
        assert " prepare (exit code 1): " in text and "Resource temporarily unavailable" in text


def test_a_host_with_too_few_processes_is_named(hosts, group):
    """The launcher can run without some of its threads. With five processes, the order of starts decides the result."""
    (group / "pids.max").write_text("5")
    job = hosts(3, code="", before={"algo-1": [*SHELL, entering(group), "sh"]})
    check(job, "algo-1", may_run=True)


def test_a_host_with_too_few_file_descriptors_is_named(hosts):
    job = hosts(3, code="", before={"algo-2": [*SHELL, 'ulimit -n 24; exec "$@"', "sh"]})
    check(job, "algo-2")


@pytest.mark.parametrize(("victim", "late"), [("algo-1", ("algo-2", "algo-3")), ("algo-2", ("algo-1",))])
def test_a_host_without_a_file_descriptor_for_late_hosts_is_named(hosts, victim, late):
    """A running launcher that cannot open a connection reports its own shortage, not other hosts as lost."""
    job = hosts(3, code="", absent=late)

    def prepared() -> bool:
        with contextlib.suppress(OSError):
            steps = [step for step in job.status(int(victim[-1]))["processes"] if step["name"] == "prepare"]
            return steps[0]["state"] == "ended"
        return False

    eventually(prepared, within=LONG)
    pid = job.hosts[victim].process.pid
    used = set.intersection(*(descriptors(pid) for _ in range(50)))  # but for what is there for a moment
    free = next(number for number in itertools.count() if number not in used)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, free))
    for name in late:
        job.start(name)
    check(job, victim)
    assert "Too many open files" in job.failures[0]


def descriptors(pid: int) -> set[int]:
    time.sleep(0.01)
    return {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}


def test_job_of_one_host_reports_its_shortage(hosts):
    job = hosts(1, code="", before={"algo-1": [*SHELL, 'ulimit -n 10; exec "$@"', "sh"]})
    assert "this host allows 10 open files" in job.must_end(70)


POOL = """
from concurrent.futures import ProcessPoolExecutor

def load(index):
    open("/proc/self/oom_score_adj", "w").write("1000")
    {}

if __name__ == "__main__":
    with ProcessPoolExecutor(1) as pool:
        pool.submit(load, 0).result()
"""


@pytest.mark.parametrize(
    ("does", "is_memory"), [("bytearray(b'x') * (1 << 30)", True), ("__import__('os')._exit(9)", False)]
)
def test_child_killed_for_memory_is_reported_with_the_limit(hosts, does, is_memory):
    """A process pool only reports a lost child. The failure text also names the parent of the child, and the limit."""
    if why := why_not("memory"):
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"cannot limit a host's memory here: {why}")
    with control_group("memory", 400 << 20) as group:
        job = hosts(1, code=POOL.format(does), before={"algo-1": [*SHELL, entering(group), "sh"]})
        first = job.must_end(1)
    assert "A process in the process pool was terminated abruptly" in first
    assert first.startswith(f"algo-1 script (exit code 1{', out of memory' * is_memory}): "), first
    assert ("the kernel killed 1 process of this host for lack of memory (400 MiB limit" in first) == is_memory


# What happens when a rank asks its host for its command, and the host lacks what it takes to answer.
ASKED = """
import contextlib, os, queue, resource, socket, sys
from pathlib import Path
from entrypoint.launcher.host.logs import Log
from entrypoint.launcher.host.ranks import Ranks

path, lacks, group = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
heard, log = queue.Queue(), Log("algo-1", fd=2)
os.close(log.open_pipes("mpirun")[0])
ranks = Ranks(path, lambda *_: {"refused": "nobody asked"}, heard.put, log)
rank = socket.socket(socket.AF_UNIX)
if lacks == "threads":
    (group / "pids.max").write_text("1")
else:
    used = {int(name) for name in os.listdir("/proc/self/fd")}
    free = next(number for number in range(1000) if number not in used)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, free))
rank.connect(str(path))
with contextlib.suppress(OSError):  # hung up already
    rank.sendall(b'{"rank": 0, "size": 1, "local_size": 1, "local_rank": 0}\\n')
print(heard.get(timeout=60).why)
os._exit(0)
"""


@pytest.mark.parametrize(
    ("lacks", "why"), [("threads", "can't start new thread"), ("descriptors", "Too many open files")]
)
def test_job_does_not_wait_for_a_rank_without_an_answer(tmp_path, group, lacks, why):
    asks = [sys.executable, "-c", ASKED, tmp_path / "ranks", lacks, group]
    told = subprocess.run([*SHELL, entering(group), "sh", *asks], capture_output=True, text=True, timeout=120)
    assert why in told.stdout and "this host allows" in told.stdout, told


@pytest.mark.parametrize(("lacks", "code"), [("processes", 70), ("its program", 127)])
def test_rank_with_an_unstartable_program_is_not_reported_as_killed(tmp_path, group, lacks, code):
    heard, log = queue.Queue(), Log("algo-1", fd=os.open(os.devnull, os.O_WRONLY))
    program = sys.executable if lacks == "processes" else "/nowhere/python"
    Ranks(tmp_path / "ranks", lambda *_: {"argv": [program], "env": {}, "cwd": "/"}, heard.put, log)
    (group / "pids.max").write_text("1" if lacks == "processes" else "max")
    process = subprocess.Popen(
        [*SHELL, entering(group), "sh", sys.executable, RANK],
        env={**os.environ, **NUMBERS, "ENTRYPOINT_RANKS": str(tmp_path / "ranks")},
    )
    assert isinstance(heard.get(timeout=60), RankStarted)
    ended = heard.get(timeout=60)
    assert ended.exit == Exit(code=code)
    log.drain("rank 0")
    why = "started: [Errno 11]" if lacks == "processes" else "run: [Errno 2]"
    assert f"{program} cannot be {why}" in log.tail("rank 0")
    ended.let_go()
    assert process.wait(60) == code


def test_rank_without_a_free_process_reports_the_shortage(group):
    """The rank reports the shortage before its first request to its host."""
    (group / "pids.max").write_text("1")
    told = subprocess.run(
        [*SHELL, entering(group), "sh", sys.executable, RANK, "apart"], env={**os.environ, **NUMBERS},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    words = "rank 0 cannot be started: [Errno 11] Resource temporarily unavailable\n"
    assert (told.returncode, told.stderr) == (70, words)


@pytest.mark.parametrize("name", ["EAGAIN", "EMFILE", "ENFILE", "ENOMEM", "ENOENT", "E2BIG"])
def test_unstartable_ranks_and_other_processes_exit_with_one_code(name):
    number = getattr(errno, name)
    error = OSError(number, os.strerror(number))
    code = 127 if name in ("ENOENT", "E2BIG") else 70
    assert (rank.code_for(error), not_started("script", "train.py", error).code) == (code, code)
