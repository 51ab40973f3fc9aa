"""Test hosts with GPUs, by a stand-in for nvidia-smi, and a TensorFlow that cannot use them. No GPU was used."""

import json
import os
from importlib.util import find_spec

import pytest
from hosts import LISTENS

pytestmark = pytest.mark.skipif(not find_spec("tensorflow"), reason="needs TensorFlow")

BUILD_INFO = "tensorflow/python/platform/build_info.py"
FOR_CUDA = """import collections  # as TensorFlow 2.14's wheel for GPUs has it, in the parts that are read
build_info = collections.OrderedDict([('cuda_version', '11.8'), ('cudnn_version', '8'), ('is_cuda_build', True),
('is_rocm_build', False), ('is_tensorrt_build', True)])
"""
SCRIPT = "print('the script runs')\n"


@pytest.fixture
def with_gpus(tmp_path):
    """Return a PATH with an nvidia-smi that lists so many GPUs on these hosts, and none on others."""

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


def code(build_info: str | None = None) -> dict[str, str]:
    """Make a script and, beside it and so before the real one, a TensorFlow with this build information."""
    mine = {"tensorflow/__init__.py": "", BUILD_INFO: build_info} if build_info else {}
    return {"train.py": SCRIPT, **mine}


def test_three_hosts_of_which_two_have_gpus_say_it_once(hosts, with_gpus):
    job = hosts(3, code=code(), environment=with_gpus("algo-[23]", count=4))
    assert job.end() == [0, 0, 0]
    (line,) = told(job)
    assert line in job[1].log and line.startswith("[algo-1] WARNING:")
    assert "algo-2, algo-3 (4 GPUs: tensorflow-cpu " in line and "is built without CUDA)" in line
    assert "ENTRYPOINT_GPU_CHECK=fail" in line and "Take instances without GPUs" in line
    assert job[1].log.index(line) < job[1].log.index("the script runs")


def test_it_can_fail_the_job_before_any_script_runs(hosts, with_gpus):
    job = hosts(3, code=code(), environment={**with_gpus("algo-[23]"), "ENTRYPOINT_GPU_CHECK": "fail"})
    assert job.end() == [78, 78, 78]
    (failure,) = set(job.failures)
    assert failure.startswith("algo-2 (has GPUs that TensorFlow cannot use): algo-2, algo-3 (1 GPU: tensorflow-cpu ")
    assert "Take instances without GPUs" in failure and "ENTRYPOINT_GPU_CHECK=warn" in failure
    assert not any("the script runs" in host.log for host in job.hosts.values())


@pytest.mark.parametrize("setting, code_of_exit", [("warn", 0), ("fail", 78)])
def test_one_host(hosts, with_gpus, setting, code_of_exit):
    job = hosts(1, code=code(), environment={**with_gpus("algo-1"), "ENTRYPOINT_GPU_CHECK": setting})
    assert job.end() == [code_of_exit]
    assert ("the script runs" in job[1].log) == (setting == "warn")
    assert "algo-1 (1 GPU: tensorflow-cpu " in told(job)[0]
    assert setting == "fail" or len(told(job)) == 1


def test_a_setting_of_the_job_turns_it_off(hosts, with_gpus):
    job = hosts(
        2, code=code(), environment=with_gpus("algo-*"), hyperparameters={"sagemaker_entrypoint_gpu_check": '"off"'}
    )
    assert job.end() == [0, 0]
    assert not told(job)


def test_a_tensorflow_for_gpus_without_the_driver(hosts, with_gpus):
    job = hosts(2, code=code(FOR_CUDA), environment=with_gpus("algo-*", count=2))
    assert job.end() == [0, 0]
    (line,) = told(job)
    assert "algo-1, algo-2 (2 GPUs: TensorFlow cannot load libcuda.so.1, libcudart.so.11.0, " in line
    assert "libcudnn.so.8)" in line


def test_an_instance_with_gpus_of_which_the_container_sees_none(hosts):
    resources = {"current_host": "algo-1", "hosts": ["algo-1"], "current_instance_type": "ml.g5.2xlarge"}
    files = {"input/config/resourceconfig.json": json.dumps(resources)}
    job = hosts(1, code=code(), base_files=files)
    assert job.end() == [0]
    (line,) = told(job)
    assert "algo-1 (ml.g5.2xlarge: tensorflow-cpu " in line


SILENT = {
    "no GPUs": (code(), "nobody", {}),
    "the job hides them": (code(), "algo-*", {"CUDA_VISIBLE_DEVICES": "-1"}),
    "a TensorFlow that does not tell": ({"train.py": SCRIPT, "tensorflow/__init__.py": ""}, "algo-*", {}),
}


@pytest.mark.parametrize("files, having, environment", SILENT.values(), ids=SILENT)
def test_nothing_is_said(hosts, with_gpus, files, having, environment):
    strict = {"ENTRYPOINT_GPU_CHECK": "fail"}
    job = hosts(1, code=files, environment={**with_gpus(having), **environment, **strict})
    assert job.end() == [0]
    assert not told(job)


def test_what_xla_would_compile_for_parameter_servers_is_told_with_its_line(hosts, with_gpus):
    """The stand-in for TensorFlow does not report its build: then it may use the GPUs."""
    script = "def never():\n    tf.distribute.ParameterServerStrategy(resolver)\n    tf.keras.optimizers.SGD(0.1)\n"
    environment = {**with_gpus("algo-1"), **LISTENS, "ENTRYPOINT_MODE": "ps"}
    job = hosts(2, code={"train.py": script}, environment=environment)
    assert job.end() == [0, 0]
    said = "warning: train.py:3 has tf.keras.optimizers.SGD(0.1): where there is a GPU, Keras 2 has XLA compile "
    assert said in job[1].log and said not in job[2].log
    assert "Write tf.keras.optimizers.SGD(0.1, jit_compile=False)" in job[1].log
