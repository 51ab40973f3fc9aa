"""Test resources of a container: limits of memory and CPU time, EFA's devices, and a simulated GPU."""

import re
from collections.abc import Callable
from pathlib import Path

from containers import Cluster, run_alone, sh, write_script

StartCluster = Callable[..., Cluster]
LIMIT = "400m"


def test_process_killed_for_memory_is_reported_with_the_limit(cluster: StartCluster) -> None:
    # The setting shows that it is not tried again, though it was killed by a signal.
    environment = {"ENTRYPOINT_RESTARTS": "3", "ENTRYPOINT_PROCESSES_PER_HOST": "2"}
    with cluster(program="hogs.py", mode="mpi", hyperparameters={"on": "algo-2"}, environment=environment) as job:
        sh("docker", "update", "--memory", LIMIT, "--memory-swap", LIMIT, job.container("algo-2"))
        first, *_ = job.all_end(137)
        text = str(first.failure).splitlines()[0]
        assert text.startswith("algo-2 rank 2 (killed by SIGKILL, out of memory): the kernel killed 1 process")
        assert "400 MiB limit" in text
        assert "algo-2 rank 2" in (first.ml / "output/data/entrypoint-algo-1.txt").read_text()


def test_thread_counts_follow_the_quota_of_cpu_time(image: str) -> None:
    """TensorFlow counts the CPUs, but ignores the container's quota of CPU time."""
    for limits, threads in ((["--cpus", "1", "--cpuset-cpus", "0,1"], "1"), (["--cpuset-cpus", "0"], None)):
        result = run_alone(image, "entrypoint", "plan", "--hosts", "1", "--mode", "single", limits=limits)
        assert result.returncode == 0, result.stdout
        told = re.findall("TF_NUM_INTRAOP_THREADS=(.*?) TF_NUM_INTEROP_THREADS=2", result.stdout)
        assert told == ([threads] if threads else [])


def test_ranks_get_the_variables_for_their_hosts_efa(cluster: StartCluster, tmp_path: Path) -> None:
    """The device files of EFA are simulated. There is no adapter, and no program uses one."""
    vendor, uverbs = tmp_path / "class/infiniband/rdmap0s6/device/vendor", tmp_path / "dev/uverbs0"
    for file, text in ((vendor, "0x1d0f\n"), (uverbs, "")):
        file.parent.mkdir(parents=True)
        file.write_text(text)
    mounts = [f"{tmp_path}/class:/sys/class:ro", f"{tmp_path}/dev:/dev/infiniband:ro"]
    own = {"algo-2": {"FI_PROVIDER": "sockets"}}
    expected = (("efa", "FI_PROVIDER=efa"), ("sockets", "nothing, as the job does it"))
    with cluster(program="tells.py", mode="mpi", hosts=2, mounts=mounts, host_environment=own) as job:
        for rank, (ending, (provider, made)) in enumerate(zip(job.all_end(), expected, strict=True)):
            assert ending.told[f"rank-{rank}"]["env"]["FI_PROVIDER"] == provider
            assert f"EFA: rdmap0s6; set for it: {made}" in ending.log
            assert "warning: NCCL" not in ending.log  # without GPUs it is not used


def test_unusable_gpu_fails_the_job_if_configured(image: str, tmp_path: Path) -> None:
    """The container has the device file of a GPU, as from NVIDIA's runtime. Other settings: local/test_gpu_check.py."""
    write_script(tmp_path, "print('the script runs')\n")
    device = ("--device", "/dev/null:/dev/nvidia0")
    environment = {"ENTRYPOINT_GPU_CHECK": "fail"}
    ended = run_alone(image, "train", mounts={tmp_path: "/opt/ml"}, environment=environment, limits=device)
    assert ended.returncode == 78, ended.stdout
    assert "algo-1 (1 GPU: tensorflow-cpu 2.14.1 is built without CUDA)" in (tmp_path / "output/failure").read_text()
    assert "the script runs" not in ended.stdout
