"""Test a container that has the device file of a GPU, as from NVIDIA's runtime, and no GPU behind it."""

import pytest
from containers import run_alone, write_script

DEVICE = ("--device", "/dev/null:/dev/nvidia0")


@pytest.mark.parametrize("setting, exit_code", [("warn", 0), ("fail", 78)])
def test_a_gpu_that_the_image_cannot_use(image, tmp_path, setting, exit_code):
    write_script(tmp_path, "print('the script runs')\n")
    environment = {"ENTRYPOINT_GPU_CHECK": setting}
    ended = run_alone(image, "train", mounts={tmp_path: "/opt/ml"}, environment=environment, limits=DEVICE)
    assert ended.returncode == exit_code, ended.stdout
    assert "algo-1 (1 GPU: tensorflow-cpu 2.14.1 is built without CUDA)" in ended.stdout
    assert ended.stdout.count("WARNING:") == (setting == "warn")
    assert ("the script runs" in ended.stdout) == (setting == "warn")
    assert (tmp_path / "output/failure").exists() == (setting == "fail")
