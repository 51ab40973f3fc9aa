"""Test entrypoint/programs/as_jax.py with a short stand-in for `jax`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders import write_files

PROGRAM = Path(__file__).resolve().parents[3] / "entrypoint/programs/as_jax.py"
PACKAGES = {
    "jax/__init__.py": "from jax._src import distributed\n",
    "jax/_src/__init__.py": "",
    "jax/_src/clusters.py": """class ClusterEnv:
    _cluster_types = []

    def __init_subclass__(cls):
        ClusterEnv._cluster_types.append(cls)


class Slurm(ClusterEnv):
    name = "slurm"
""",
    "jax/_src/_jax.py": """import threading

threads = []


def make_gloo_tcp_collectives(client, **where):
    print("gloo", where)
    threads.append(threading.Thread(target=threading.Event().wait, daemon=True))
    threads[-1].start()
""",
    "jax/_src/distributed.py": """import atexit, ctypes, signal, time
from jax._src import _jax, clusters


class Manager:
    def reached_sync_point(self, step):
        return step == 7


class State:
    client, num_processes = None, 2

    def initialize(self):
        first = clusters.ClusterEnv._cluster_types[0]
        print("found", first.is_env_present(), first.get_coordinator_address(timeout_secs=1),
              first.get_process_count(), first.get_process_id(), flush=True)
        ctypes.CDLL(None).signal(signal.SIGTERM, 1)  # ignores it, and Python does not know
        self.preemption_sync_manager = Manager()
        self.client = object()
        _jax.make_gloo_tcp_collectives(self.client)
        _jax.make_gloo_tcp_collectives(self.client, interface="eth0")

    def shutdown(self):
        print("waits for the others", flush=True)
        time.sleep(WAITS if self.client else 0)


WAITS = 0
global_state = State()
atexit.register(lambda: global_state.shutdown())
""",
}
CODE = {
    "train.py": """import atexit, os, pickle, signal, sys
signal.signal(signal.SIGTERM, lambda *_: print("time to save"))
import jax
from jax._src import distributed


class Mine:
    pass


if "alone" not in sys.argv:
    distributed.global_state.initialize()
    os.kill(os.getpid(), signal.SIGTERM)
if "two" in sys.argv:
    distributed.global_state.num_processes = 1
assert isinstance(pickle.loads(pickle.dumps(Mine())), Mine)
print(sys.argv[1:], __name__, os.path.basename(__file__), os.path.basename(sys.path[0]), os.environ.get("NPROC"))
atexit.register(print, "at exit")
distributed.WAITS = 600
""",
    "raises.py": "import train\nraise ValueError('bad batch')\n",
    "leaves.py": "import train\nraise SystemExit(259)\n",
    "says.py": "import sys, train\nsys.exit('no data')\n",
    "stays.py": "import threading, time, train\nthreading.Thread(target=time.sleep, args=[99]).start()\n1 / 0\n",
    "ends.py": "import sys, train\nfrom jax._src import distributed\ndistributed.WAITS = 0\nsys.exit()\n",
    "alone.py": "import train\nfrom jax._src import distributed\ndistributed.WAITS = 0\nraise ValueError\n",
    "asks.py": """import os, signal, sys, time
from jax._src import distributed

distributed.global_state.initialize()
if "asks" in sys.argv:
    manager = distributed.global_state.preemption_sync_manager
    assert [manager.reached_sync_point(step) for step in (6, 7)] == [False, True]
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(1)
print("goes on")
""",
    "batch.py": """import os
from jax._src import _jax, distributed

distributed.global_state.initialize()
print([os.sched_getscheduler(each.native_id) == os.SCHED_BATCH for each in _jax.threads])
print(os.sched_getscheduler(0) == os.SCHED_OTHER)
""",
    "other.py": "import jax\njax._src.clusters = None\n",
    "package/__init__.py": "",
    "package/__main__.py": "import train\nraise ValueError('bad batch')\n",
}


@pytest.fixture
def run(tmp_path):
    packages, code = write_files(tmp_path / "packages", PACKAGES), write_files(tmp_path / "code", CODE)

    def run_it(*words: str, **variables: str) -> subprocess.CompletedProcess:
        environment = {
            **os.environ,
            "PYTHONPATH": f"{code}:{packages}",
            "JAX_COORDINATOR_ADDRESS": "algo-1:8476",
            "JAX_NUM_PROCESSES": "2",
            "JAX_PROCESS_ID": "1",
            "ENTRYPOINT_ADDRESS": "algo-2",
            **variables,
        }
        command = [sys.executable, str(PROGRAM), *words]
        return subprocess.run(command, cwd=code, env=environment, capture_output=True, text=True, timeout=200)

    return run_it


def test_thread_of_gloo_does_not_take_the_core_from_the_thread_that_sends(run):
    assert run("batch.py").stdout.splitlines()[3:5] == ["[True, True]", "True"]


def test_program_runs_as_under_python_and_jax_joins_the_job(run):
    found = run("ends.py", "--lr", "1", TF_NUM_INTRAOP_THREADS="3")
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.splitlines() == [
        "found True algo-1:8476 2 1",
        "gloo {'hostname': 'algo-2'}",
        "gloo {'interface': 'eth0'}",
        "time to save",  # the program's handler, not jax's
        "['--lr', '1'] train train.py code 3",
        "at exit",
        "waits for the others",  # a process that ends well must: it may be the coordinator
    ]


@pytest.mark.parametrize(
    "words, code, error",
    [
        (["raises.py"], 1, "ValueError: bad batch"),
        (["-m", "package"], 1, "ValueError: bad batch"),
        (["leaves.py"], 3, ""),
        (["says.py"], 1, "no data"),
        (["stays.py"], 1, "ZeroDivisionError: division by zero"),
    ],
)
def test_failed_program_ends_without_waiting_for_other_processes(run, words, code, error):
    found = run(*words)
    assert found.returncode == code
    assert found.stderr.strip().splitlines()[-1:] == [error] * bool(error)
    assert "as_jax.py" not in found.stderr and "runpy" not in found.stderr
    assert "waits for the others" not in found.stdout
    if words != ["stays.py"]:  # whose thread goes on
        assert found.stdout.splitlines()[-1] == "at exit"


@pytest.mark.parametrize("word", ["alone", "two"])
def test_single_process_program_ends_as_under_python(run, word):
    found = run("alone.py", word)
    assert (found.returncode, found.stdout.splitlines()[-1]) == (1, "waits for the others")


@pytest.mark.parametrize(("words", "code"), [([], -15), (["asks"], 0)])
def test_sigterm_ends_program_that_never_queries_jax_preemption(run, words, code):
    found = run("asks.py", *words)
    assert found.returncode == code, found.stderr
    assert ("goes on" in found.stdout) is (code == 0)


def test_program_with_unknown_jax_runs_unchanged(run, tmp_path):
    (tmp_path / "packages/jax/_src/distributed.py").write_text("")
    assert run("other.py").returncode == 0
