"""Test which processes get SIGTERM, keep running after it, or are killed. The outcome table has more cases."""

import re
import signal
import time

import pytest

TELLS_WHEN = """
import os, signal, sys, time
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
def heard(*_):
    print(f"heard at {time.time():.3f}", flush=True)
    time.sleep(1)
    sys.exit(0)
signal.signal(signal.SIGTERM, heard)
print("asleep", flush=True)
while True:
    time.sleep(600)
"""


def test_sigterm_of_one_host_reaches_every_rank(hosts, figure):
    """mpirun itself gets no SIGTERM."""
    job = hosts(3, code=TELLS_WHEN, mode="mpi", each=2)
    job.all_say(r"asleep(.|\n)*asleep")
    sent = time.time()
    job[3].kill(signal.SIGTERM)
    job.must_end(0)
    times = [re.findall(r"heard at (\S+)", host.log) for host in job.hosts.values()]
    assert [len(each) for each in times] == [2] * 3
    latest = max(float(each) for host in times for each in host) - sent
    figure("from SIGTERM on algo-3 to the last script that hears of it", latest)
    assert latest < 60  # 1 s on a machine that is not busy; ENTRYPOINT_STOP_GRACE is 100 s


@pytest.mark.tensorflow
def test_script_with_a_tensorflow_strategy_ends_at_sigterm(hosts):
    code = (
        "import time\nimport tensorflow as tf\ntf.distribute.MultiWorkerMirroredStrategy()\n"
        "print('asleep', flush=True)\ntime.sleep(600)\n"
    )
    job = hosts(1, code=code, mode="mwms")
    job.stop(when="asleep")
    job.must_end(143, within=90)  # ENTRYPOINT_STOP_GRACE is 100 s
    assert "killed by SIGTERM" in job[1].log


@pytest.mark.tensorflow
def test_ps_stay_until_all_workers_have_saved(hosts):
    job = hosts(2, "saves_through_ps.py", mode="ps", PS_WORKERS="server", PS_COUNT=1)
    job.says("asleep", host=1)
    job[2].kill(signal.SIGTERM)
    job.must_end(0)
    assert job[1].log.count("] saved") == 1
    assert "ps/0 stopped: killed by SIGTERM" in job[1].log


def test_scripts_get_sigterm_before_the_maximum_runtime(hosts):
    """The coordinator informs the followers. The stop comes 30 s after the start, when scripts run."""
    job = hosts(2, "saves.py", mode="mwms", MAX_RUNTIME=80, STOP_GRACE=30)
    job.must_end(0)
    assert "stopping 50 s before the maximum runtime of 80 s" in job[1].log
    assert all((host.base / f"model/saved-{name}").exists() for name, host in job.hosts.items())
