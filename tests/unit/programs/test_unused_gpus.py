"""Test programs/prepare/gpus.py, which reports why a host's TensorFlow cannot use its GPUs."""

import subprocess
from pathlib import Path

import gpus
import pytest
from builders import write_files

CPU = "build_info = collections.OrderedDict([('is_cuda_build', False), ('is_rocm_build', False)])"
CUDA = "build_info = collections.OrderedDict([('cudnn_version', '8'), ('is_cuda_build', True)])"
ROCM = "build_info = collections.OrderedDict([('is_cuda_build', False), ('is_rocm_build', True)])"
CUDA_12 = "build_info = {('cuda_version', '12.5.1'), ('cudnn_version', '9'), ('is_cuda_build', True)}"


def bring(path: list[str], names: list[str]) -> None:
    """Put libraries into the folders that pip uses for NVIDIA's packages."""
    write_files(Path(path[0]), {f"nvidia/{name.partition('.')[0]}/lib/lib{name}": "" for name in names})


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Return a function that makes a folder with this build of TensorFlow and returns it as sys.path."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def make(build_info: str, *names: str) -> list[str]:
        tensorflow = {"tensorflow/__init__.py": "", "tensorflow/python/platform/build_info.py": build_info}
        metadata = {f"{name}/METADATA": "" for name in names}
        return [str(write_files(tmp_path, {**tensorflow, **metadata}))]

    return make


def test_host_without_tensorflow_is_not_warned(tmp_path):
    assert gpus.unused(8, "ml.p4d.24xlarge", [str(tmp_path)]) == ""


def test_build_without_cuda_is_named_except_for_amd(packages):
    path = packages(CPU, "tensorflow_cpu-2.14.1.dist-info", "tensorflow_estimator-2.14.0.dist-info")
    assert gpus.unused(2, "", path) == "2 GPUs: tensorflow-cpu 2.14.1 is built without CUDA"
    assert gpus.unused(1, "", path).startswith("1 GPU: ")
    assert gpus.unused(2, "", packages(ROCM)) == ""


def test_missing_libraries_of_a_cuda_build_are_named(packages, monkeypatch):
    path = packages(CUDA)
    assert gpus.unused(1, "", path) == "1 GPU: TensorFlow cannot load libcuda.so.1, libcudnn.so.8"
    # As pip brings it; the second is no driver, which is of the host.
    write_files(Path(path[0]) / "nvidia/cudnn/lib", {"libcudnn.so.8": "", "libcuda.so.1": ""})
    assert gpus.unused(1, "", path) == "1 GPU: TensorFlow cannot load libcuda.so.1"
    monkeypatch.setattr(gpus, "DRIVER", "libc.so.6")  # a library that the linker finds
    assert gpus.unused(1, "", path) == ""


def test_every_library_loaded_by_a_cuda_build_is_checked(packages):
    """If one library is missing, TensorFlow registers no GPUs and trains on CPUs."""
    path = packages(CUDA_12)
    bring(path, ["cudart.so.12", "cublas.so.12", "cublasLt.so.12", "cufft.so.11", "cusolver.so.11", "cudnn.so.9"])
    assert gpus.unused(1, "", path) == "1 GPU: TensorFlow cannot load libcuda.so.1, libcusparse.so.12"


def test_library_counts_only_where_tensorflow_searches(packages):
    """TensorFlow 2.21.0 loads cuSOLVER by a RUNPATH that lacks its folder, and therefore uses no GPU."""
    path = packages(CUDA_12)
    bring(path, [f"{name}.so.{version}" for name, version in {**gpus.WITH_CUDA["12"], "cudnn": "9"}.items()])
    looked_in = [folder for folder in sorted(Path(path[0]).glob("nvidia/*/lib")) if "cusolver" not in folder.parts]
    relative = ":".join(f"$ORIGIN/../{folder.relative_to(path[0])}" for folder in looked_in)
    opens = Path(path[0]) / "tensorflow" / gpus.OPENS_OTHERS
    subprocess.run(
        ["gcc", "-shared", "-o", opens, "-x", "c", "-", f"-Wl,-rpath,{relative}"], input="", text=True, check=True
    )
    assert gpus.unused(1, "", path) == "1 GPU: TensorFlow cannot load libcuda.so.1, libcusolver.so.11"
    (looked_in[0] / "libcusolver.so.11").symlink_to("../../cusolver/lib/libcusolver.so.11")
    assert gpus.unused(1, "", path) == "1 GPU: TensorFlow cannot load libcuda.so.1"


TYPES = {
    "ml.p3.2xlarge": True, "ml.p4d.24xlarge": True, "ml.g5.xlarge": True, "ml.g4dn.xlarge": True,
    "ml.gr6.4xlarge": True, "ml.g4ad.xlarge": False, "ml.c5.xlarge": False, "ml.m7g.large": False,
    "ml.inf2.xlarge": False, "ml.trn1.2xlarge": False, "local": False, "": False,
}  # fmt: skip


@pytest.mark.parametrize("instance_type, is_told", TYPES.items())
def test_gpus_of_the_instance_hidden_from_container_are_reported(packages, instance_type, is_told):
    said = gpus.unused(0, instance_type, packages(CPU))
    assert said == (f"{instance_type}: TensorFlow is built without CUDA" if is_told else "")


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_gpus_hidden_by_the_job_are_not_reported(packages, monkeypatch, hidden):
    path = packages(CPU)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert gpus.unused(2, "ml.p3.2xlarge", path) == ""
    assert not gpus.has_gpus(2, "ml.p3.2xlarge")


@pytest.mark.parametrize(
    ("given", "seen", "visible"),
    [
        (None, 4, 4), (None, 0, 0), ("0", 4, 1), ("2,3", 4, 2), ("-1", 4, 0), ("", 4, 0), ("MIG-1,MIG-2", 1, 2),
        ("0", 0, 0),
    ],
)  # fmt: skip
def test_programs_see_only_gpus_enabled_by_the_job(monkeypatch, given, seen, visible):
    monkeypatch.setattr(gpus, "_count", lambda _: seen)  # whatever this machine has
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert gpus.visible(seen) == visible
