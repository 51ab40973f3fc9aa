"""Test SIGTERM and the time after it: which processes get it, stay, or are killed; and SIGTERM at the start."""

import re
import shutil
import signal
import time
from pathlib import Path

import pytest
from hosts import LISTENS

MWMS = {"sagemaker_multi_worker_mirrored_strategy_enabled": "true"}
PS = {"sagemaker_parameter_server_enabled": "true"}
MPI = {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "2"}

TELLS_WHEN = """
import os, signal, sys, time
if "OMPI_COMM_WORLD_RANK" in os.environ:
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


@pytest.mark.parametrize("mode", [pytest.param(MWMS, marks=pytest.mark.more), MPI], ids=["mwms", "mpi"])
def test_one_host_is_told_and_every_script_hears_of_it(hosts, figure, mode):
    """Under MPI every rank gets it, though mpirun is not terminated."""
    if mode is MPI:
        pytest.importorskip("mpi4py")
        if not (shutil.which("mpirun") and Path("/usr/sbin/sshd").exists()):
            pytest.skip("needs Open MPI and an ssh daemon")
    job = hosts(3, "train.py", code={"train.py": TELLS_WHEN}, hyperparameters=mode)
    scripts = 2 if mode is MPI else 1
    job.all_say("asleep" if scripts == 1 else r"asleep(.|\n)*asleep")
    sent = time.time()
    job[3].process.send_signal(signal.SIGTERM)
    assert job.end() == [0, 0, 0]
    times = [re.findall(r"heard at (\S+)", host.log) for host in job.hosts.values()]
    assert [len(each) for each in times] == [scripts] * 3
    latest = max(float(each) for host in times for each in host) - sent
    figure("from SIGTERM on algo-3 to the last script that hears of it", latest)
    assert latest < 60  # 1 s on a machine that is not busy; ENTRYPOINT_STOP_GRACE is 100 s


@pytest.mark.tensorflow
@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.more)])
def test_a_strategy_of_tensorflow_does_not_keep_a_script_from_ending(hosts, count):
    code = (
        "import time\nimport tensorflow as tf\ntf.distribute.MultiWorkerMirroredStrategy()\n"
        "print('asleep', flush=True)\ntime.sleep(600)\n"
    )
    job = hosts(count, "train.py", code={"train.py": code}, hyperparameters=MWMS)
    job.all_say("asleep")
    job.signal(signal.SIGTERM)
    assert job.end(within=90) == [143] * count  # ENTRYPOINT_STOP_GRACE is 100 s
    assert all("killed by SIGTERM" in host.log for host in job.hosts.values())


@pytest.mark.tensorflow
@pytest.mark.parametrize("workers, scripts", [pytest.param("script", 2, marks=pytest.mark.more), ("server", 1)])
def test_parameter_servers_stay_until_all_have_saved(hosts, workers, scripts):
    job = hosts(
        2,
        "saves_through_ps.py",
        hyperparameters=PS,
        environment={"ENTRYPOINT_PS_WORKERS": workers, "ENTRYPOINT_PS_COUNT": str(scripts)},
    )
    for number in range(1, scripts + 1):
        job.says("asleep", host=number)
    job[2].process.send_signal(signal.SIGTERM)
    assert job.end() == [0, 0]
    assert sum(host.log.count("] saved") for host in job.hosts.values()) == scripts
    for number in range(scripts):
        assert f"ps/{number} stopped: killed by SIGTERM" in job[number + 1].log


def test_what_ignores_it_is_killed_and_parameter_servers_do_not_outlive_it(hosts, figure):
    environment = {"ENTRYPOINT_STOP_GRACE": "2", "ENTRYPOINT_PS_COUNT": "1", **LISTENS}
    job = hosts(2, "ignores_sigterm.py", hyperparameters=PS, environment=environment)
    job.all_say("asleep")
    sent = time.monotonic()
    job.signal(signal.SIGTERM)
    assert job.end() == [143, 143]
    figure("grace 2 s: from SIGTERM to the last host's end", time.monotonic() - sent)
    assert time.monotonic() - sent < 60  # without the setting the grace is 100 s
    assert "chief/0 stopped: killed by SIGKILL" in job[1].log
    assert "worker/0 stopped: killed by SIGKILL" in job[2].log


def test_before_the_maximum_runtime_scripts_are_asked_to_save(hosts):
    """Followers hear of it from the coordinator. The stop comes 30 s after the start, when scripts are up."""
    environment = {"ENTRYPOINT_MAX_RUNTIME": "80", "ENTRYPOINT_STOP_GRACE": "30"}
    job = hosts(2, "saves.py", hyperparameters=MWMS, environment=environment)
    job.all_say("asleep")
    assert job.end() == [0, 0]
    assert "stopping 50 s before the maximum runtime of 80 s" in job[1].log
    assert all((host.base / f"model/saved-{name}").exists() for name, host in job.hosts.items())
    assert job.failures == [None, None]


def test_before_the_maximum_runtime_a_script_that_does_nothing_about_it_is_ended(hosts):
    environment = {"ENTRYPOINT_MAX_RUNTIME": "100", "ENTRYPOINT_STOP_GRACE": "76"}
    job = hosts(1, "sleeps.py", environment=environment)
    assert job.end() == [143]
    assert "stopping 96 s before the maximum runtime of 100 s" in job[1].log
