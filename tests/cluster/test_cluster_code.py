"""Test code from a channel or in a derived image, and its requirements, on hosts without a network."""

import io
import tarfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from builders import package, write_files
from containers import MARKED, PROGRAMS, Cluster, Ending, resources, run_alone, sh, write_config

StartCluster = Callable[..., Cluster]
RunAlone = Callable[[Mapping[str, str]], tuple[int, str, Path]]

TWO_RANKS = {"sagemaker_mpi_enabled": True, "sagemaker_mpi_num_of_processes_per_host": 2}
# What the SDK sends under network isolation: the code is an archive in a channel.
IN_CHANNEL = {"sagemaker_program": "train.py", "sagemaker_submit_directory": "/opt/ml/input/data/code/sourcedir.tar.gz"}
LOOKS_AROUND = "import socket; print('cards', *(name for _, name in socket.if_nameindex()))\n"


def archived(folder: Path, files: Mapping[str, str]) -> Path:
    """Make a folder for channel `code`, with the files in the archive that the SDK makes."""
    folder.mkdir()
    with tarfile.open(folder / "sourcedir.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return folder


def sums(ending: Ending) -> list[int]:
    """Return the sums over all ranks that the ranks on one host wrote."""
    return [each["sum"] for each in ending.told.values()]


def test_isolated_hosts_use_requirements_in_the_image(cluster: StartCluster, tmp_path: Path) -> None:
    """Network isolation excludes S3 and a package index. The image already has all requirements."""
    files = {"train.py": (PROGRAMS / "tells.py").read_text(), "requirements.txt": "numpy\nboto3>=1\n"}
    code = archived(tmp_path / "channel", files)
    hyperparameters = {**IN_CHANNEL, **TWO_RANKS}
    with cluster(program="", hosts=2, isolated=True, channels={"code": code}, hyperparameters=hyperparameters) as job:
        network = job.network
        assert sh("docker", "network", "inspect", "-f", "{{.Internal}}", network).stdout.strip() == "true"
        for ending in job.all_end():
            assert sums(ending) == [10, 10]
            assert ending.log.count("installed nothing that was not here by uv in ") == 1


@pytest.fixture
def alone(image: str, tmp_path: Path) -> RunAlone:
    """Run code on one host without any network card; return exit code, log and the host's /opt/ml/output."""

    def run(files: Mapping[str, str]) -> tuple[int, str, Path]:
        write_config(tmp_path / "config", resources=resources(["algo-1"], "algo-1"), hyperparameters=IN_CHANNEL)
        (tmp_path / "output").mkdir()
        mounts = {
            tmp_path / "config": "/opt/ml/input/config",
            archived(tmp_path / "channel", files): "/opt/ml/input/data/code",
            tmp_path / "output": "/opt/ml/output",
        }
        ended = run_alone(image, "train", mounts=mounts, network="none")
        return ended.returncode, ended.stdout, tmp_path / "output"

    return run


def test_one_host_needs_no_network(alone: RunAlone) -> None:
    code, log, _ = alone({"train.py": LOOKS_AROUND})
    assert code == 0, log
    assert "algo-1 script] cards lo\n" in log


def test_requirements_from_a_network_fail_on_isolated_hosts(alone: RunAlone) -> None:
    code, log, output = alone({"train.py": LOOKS_AROUND, "requirements.txt": "numpy\nno-such-distribution-of-ours\n"})
    assert code == 65, log
    assert "cards" not in log
    first = (output / "failure").read_text().splitlines()[0]
    assert "/simple/" in first  # of one of both: uv asks for them side by side
    assert "no package index was reached: under network isolation" in first


# ---- an image that brings its code ---------------------------------------------------------------------------------

DOCKERFILE = """
FROM {image}
COPY src/ /opt/ml/code/
ENV SAGEMAKER_PROGRAM=train.py ENTRYPOINT_MODE=mpi ENTRYPOINT_PROCESSES_PER_HOST=2
"""


@pytest.fixture
def derived(image: str, tmp_path: Path) -> Iterator[str]:
    """Build an image as users do: FROM ours, with code, the program's name, and a library that has to be built."""
    library = {f"library/{name}": text for name, text in package("testlibrary", "answer = 42\n").items()}
    script = (PROGRAMS / "tells.py").read_text() + "import testlibrary\nprint('answer', testlibrary.answer)\n"
    write_files(tmp_path / "src", {"train.py": script, "requirements.txt": "./library\n", **library})
    (tmp_path / "Dockerfile").write_text(DOCKERFILE.format(image=image))
    name = f"tests-of-an-image-that-brings-its-code:{uuid.uuid4().hex[:8]}"
    sh("docker", "build", *MARKED, "--tag", name, str(tmp_path))
    yield name
    sh("docker", "rmi", name)


def test_image_provides_the_code(derived: str, tmp_path: Path) -> None:
    """The job names no program. Requirements are built once per host for its two ranks."""
    with Cluster(derived, tmp_path / "job", program="", hosts=2) as job:
        for ending in job.all_end():
            assert sums(ending) == [10, 10]
            assert ending.log.count("] answer 42") == 2
            assert ending.log.count("Built file:///opt/ml/code/library") == 1
            assert ending.log.count("Successfully installed testlibrary-1") == 1
