"""Test job/open_mpi.py: which version of Open MPI a host has, by the programs on its PATH."""

from pathlib import Path

import pytest
from builders import read

from entrypoint.base.errors import ConfigError
from entrypoint.launcher.job.open_mpi import ORTE, PRRTE, major_version

MPI = {"sagemaker_mpi_enabled": "true"}
SAYS = "mpirun (Open MPI) {}\n\nReport bugs to https://www.open-mpi.org/community/help/"


def folder(path: Path, *programs: str, mpirun: str = "") -> str:
    """Make a folder of a PATH with these programs, and an mpirun that prints this version."""
    path.mkdir()
    for name, does in (*((name, "exit 1") for name in programs), *([("mpirun", f"echo '{mpirun}'")] if mpirun else [])):
        (path / name).write_text(f"#!/bin/sh\n{does}\n")
        (path / name).chmod(0o755)
    return str(path)


@pytest.mark.parametrize("daemon, expected", [("orted", ORTE), ("prted", PRRTE)])
def test_daemon_on_the_path_shows_the_version_of_open_mpi(tmp_path, daemon, expected):
    path = ":".join([folder(tmp_path / "a"), folder(tmp_path / "b", daemon), folder(tmp_path / "c", "mpirun")])
    assert major_version({"PATH": path}) == expected


@pytest.mark.parametrize("daemons", [(), ("orted", "prted")], ids=len)
@pytest.mark.parametrize("version, expected", [("4.1.8", ORTE), ("3.1.3", ORTE), ("5.0.7", PRRTE), ("6.0.0a1", PRRTE)])
def test_mpirun_shows_its_version_if_daemons_do_not(tmp_path, daemons, version, expected):
    path = folder(tmp_path / "bin", *daemons, mpirun=SAYS.format(version))
    assert major_version({"PATH": path}) == expected


def test_file_without_execute_permission_is_no_daemon(tmp_path):
    path = folder(tmp_path / "bin", "orted")
    (tmp_path / "bin/prted").touch(mode=0o644)
    assert major_version({"PATH": path}) == ORTE


def test_mpirun_of_another_mpi_is_refused(tmp_path):
    path = folder(tmp_path / "bin", mpirun="HYDRA build details: Version: 4.2.1")
    with pytest.raises(ConfigError, match=r"/bin/mpirun --version prints .HYDRA .*; wanted mpirun of Open MPI"):
        read(tmp_path / "job", 2, MPI, {"PATH": path})


def test_job_of_another_mode_ignores_mpirun(tmp_path):
    path = folder(tmp_path / "bin", mpirun="HYDRA build details")
    assert read(tmp_path / "job", 2, {}, {"PATH": path}).open_mpi == ORTE
    assert read(tmp_path / "another", 2, MPI, {}).open_mpi == ORTE  # nothing is there, and nobody is asked
