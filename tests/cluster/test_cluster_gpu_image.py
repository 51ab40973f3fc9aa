"""Test an image for GPUs (TEST_LINE=2.21-gpu TEST_IMAGE=...) on a machine without one, like test_image.py."""

import json
from pathlib import Path

import pytest
from containers import DOCKER_RUN, inside, run_alone, sh, write_script

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = "/opt/venv/lib/python3.11/site-packages"
GPU = ("--device", "/dev/null:/dev/nvidia0")
DRIVER = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"

pytestmark = pytest.mark.more


def test_check_of_the_build_passes_in_the_image(image: str) -> None:
    check = ("-v", f"{ROOT}/container/gpu/check.py:/check.py:ro")
    assert inside(image, "python", "/check.py", options=check).stdout.startswith("TensorFlow is built with CUDA 1")


def test_image_requests_all_gpus_from_nvidias_container_runtime(image: str) -> None:
    variables = json.loads(sh("docker", "image", "inspect", image).stdout)[0]["Config"]["Env"]
    assert {"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"} <= set(variables)
    assert not [each for each in variables if each.startswith("LD_LIBRARY_PATH=")]


def test_image_has_no_cuda_toolchain(image: str) -> None:
    """ptxas is the exception, since XLA calls it while a job runs."""
    names = ["nvcc", "cicc", "cudafe++", "fatbinary", "nvlink", "clang*", "*.a", "*.cuh", "cuda*.h", "nccl.h"]
    names += ["cudnn.h", "libcudart.so", "libnccl.so"]  # of the last two, only a linker looks for these names
    words = [word for name in names for word in ("-o", "-name", name)][1:]
    packages_of_python = ("-path", f"{PACKAGES}/clang", "-prune", "-o")
    found = inside(image, "find", "/", "-xdev", *packages_of_python, "(", *words, ")", "-print").stdout
    assert found == ""
    headers = f"ls -d /cuda /nvidia {PACKAGES}/nvidia/*/include 2>/dev/null; true"
    assert inside(image, "bash", "-c", headers).stdout == ""


def test_tensorflow_loads_all_gpu_libraries_and_registers_a_simulated_gpu(image: str, tmp_path: Path) -> None:
    """TensorFlow loads the libraries when a driver reports a GPU. If one is missing, it registers no GPU."""
    driver = tmp_path / "driver.so"
    source = Path(__file__).parent / "programs/pretended_driver.c"
    sh("gcc", "-shared", "-fPIC", "-o", str(driver), str(source))
    mounts = [f"{driver}:{DRIVER.replace('cuda', name)}:ro" for name in ("cuda", "nvidia-ml")]
    program = "import tensorflow as tf; print(tf.config.list_physical_devices('GPU'))"
    options = ["--network", "none", *(word for each in mounts for word in ("-v", each))]
    done = sh(*DOCKER_RUN, *options, image, "python", "-c", program, within=600)
    assert "PhysicalDevice(name='/physical_device:GPU:0'" in done.stdout, done.stderr


@pytest.mark.parametrize("driver", [False, True])
def test_job_with_a_gpu_lacks_only_the_driver(image: str, tmp_path: Path, driver: bool) -> None:
    """The launcher's check misses only libcuda.so.1. With that file, it reports nothing."""
    write_script(tmp_path, "print('the script runs')\n")
    mounts = {tmp_path: "/opt/ml"}
    if driver:  # a library that is none of a driver
        (tmp_path / "driver").write_bytes(Path("/lib/x86_64-linux-gnu/libdl.so.2").read_bytes())
        mounts[tmp_path / "driver"] = DRIVER
    ended = run_alone(image, "train", mounts=mounts, environment={"ENTRYPOINT_GPU_CHECK": "warn"}, limits=GPU)
    assert ended.returncode == 0 and "the script runs" in ended.stdout, ended.stdout
    assert ("(1 GPU: tensorflow " in ended.stdout) == (not driver), ended.stdout
    assert ("cannot load libcuda.so.1)" in ended.stdout) == (not driver), ended.stdout
