"""Test hosts with GPUs, which a stand-in for nvidia-smi reports. unit/programs/test_unused_gpus.py has one host."""

import os
from importlib.util import find_spec

import pytest
from hosts import LISTENS

pytestmark = pytest.mark.skipif(not find_spec("tensorflow"), reason="needs TensorFlow")

SCRIPT = "print('the script runs')\n"


@pytest.fixture
def with_gpus(tmp_path):
    """Return a PATH whose nvidia-smi lists the given number of GPUs on these hosts, and none on others."""

    def make(hosts: str, count: int = 1) -> dict[str, str]:
        folder = tmp_path / "bin"
        folder.mkdir()
        lines = "\n".join(f"    echo 'GPU {number}: Tesla (UUID: GPU-{number})'" for number in range(count))
        program = folder / "nvidia-smi"
        program.write_text(f"#!/bin/sh\ncase $SAGEMAKER_BASE_DIR in\n*/{hosts})\n{lines}\n;;\nesac\n")
        program.chmod(0o755)
        return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}

    return make


def told(job) -> list[str]:
    return [line for host in job.hosts.values() for line in host.log.splitlines() if "cannot use" in line]


def test_unused_gpus_of_two_hosts_are_logged_once(hosts, with_gpus):
    job = hosts(3, code=SCRIPT, environment=with_gpus("algo-[23]", count=4))
    job.must_end(0)
    (line,) = told(job)
    assert line in job[1].log and line.startswith("[algo-1] WARNING:")
    assert "algo-2, algo-3 (4 GPUs: tensorflow-cpu " in line and "is built without CUDA)" in line
    assert "ENTRYPOINT_GPU_CHECK=fail" in line and "or instances without GPUs" in line
    assert job[1].log.index(line) < job[1].log.index("the script runs")


@pytest.mark.parametrize(
    "count, having, failure",
    [
        (3, "algo-[23]", "algo-2 (has GPUs that TensorFlow cannot use): algo-2, algo-3 (1 GPU: tensorflow-cpu "),
        (1, "algo-1", "algo-1 (has GPUs that TensorFlow cannot use): algo-1 (1 GPU: tensorflow-cpu "),
    ],
)
def test_unused_gpus_can_fail_the_job_before_any_script_runs(hosts, with_gpus, count, having, failure):
    job = hosts(count, code=SCRIPT, environment=with_gpus(having), GPU_CHECK="fail")
    told = job.must_end(78, failure)
    assert "or instances without GPUs" in told and "ENTRYPOINT_GPU_CHECK=warn" in told
    assert not any("the script runs" in host.log for host in job.hosts.values())


def test_setting_of_the_job_turns_the_gpu_check_off(hosts, with_gpus):
    setting = {"sagemaker_entrypoint_gpu_check": '"off"'}
    job = hosts(2, code=SCRIPT, environment=with_gpus("algo-*"), hyperparameters=setting)
    job.must_end(0)
    assert not told(job)


def test_hosts_without_gpus_get_no_warning(hosts, with_gpus):
    job = hosts(1, code=SCRIPT, environment=with_gpus("nobody"), GPU_CHECK="fail")
    job.must_end(0)
    assert not told(job)


def test_optimizer_that_xla_would_compile_is_logged_with_its_line(hosts, with_gpus):
    """The stand-in for TensorFlow does not report its build, so the launcher assumes that it can use GPUs."""
    script = "def never():\n    tf.distribute.ParameterServerStrategy(resolver)\n    tf.keras.optimizers.SGD(0.1)\n"
    job = hosts(2, code=script, mode="ps", environment={**with_gpus("algo-1"), **LISTENS})
    job.must_end(0)
    said = "warning: train.py:3 has tf.keras.optimizers.SGD(0.1): where there is a GPU, Keras 2 has XLA compile "
    assert said in job[1].log and said not in job[2].log
    assert "Write tf.keras.optimizers.SGD(0.1, jit_compile=False)" in job[1].log
