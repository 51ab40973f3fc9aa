"""Test which folders the launcher uses if the usual ones are not writable.

Root may write to every folder, so the tests put a plain file in place of an unwritable folder.
"""

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import read

from entrypoint.base.errors import ConfigError
from entrypoint.base.values import replace
from entrypoint.launcher.host import folders
from entrypoint.launcher.job.job import Job

HERE = str(Path(__file__).parent)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    for part in ("model", "output/data", "code"):
        (tmp_path / part).mkdir(parents=True)
    (tmp_path / "run").mkdir()
    return read(tmp_path)


def close(folder: Path) -> None:
    folder.rmdir()
    folder.write_text("no folder")


def test_writable_folders_are_used_without_a_warning(job: Job) -> None:
    assert folders.settled(job, {}) == (job, [])


def test_unwritable_data_folder_moves_record_with_one_warning(job: Job) -> None:
    close(job.paths.data)
    found, (line,) = folders.settled(job, {})
    assert f"cannot write to {job.paths.data}, so the report cannot be kept; wanted" in line
    for path in (found.paths.records, found.paths.report, found.paths.evidence("algo-1")):
        assert job.paths.run in path.parents
    assert found.paths.failure == job.paths.failure


def test_warning_names_checkpoints_only_if_job_has_them(job: Job) -> None:
    close(job.paths.model)
    _, (line,) = folders.settled(job, {})
    assert "so the model cannot be kept" in line
    (job.paths.base / "checkpoints").write_text("no folder")
    _, (line,) = folders.settled(job, {})
    assert f"{job.paths.model}, {job.paths.base / 'checkpoints'}, so the model, checkpoints cannot be kept" in line


@pytest.mark.parametrize("source", ["", "s3://bucket/sourcedir.tar.gz"])
def test_code_is_in_run_folder_if_code_folder_is_unwritable(job: Job, tmp_path: Path, source: str) -> None:
    close(job.paths.code)
    named = {"sagemaker_submit_directory": source} if source else {}
    found, (line,) = folders.settled(read(tmp_path, hyperparameters=named), {})
    code = job.paths.run / "code"
    assert (found.paths.code, found.program.source) == (code, source or str(code))
    assert line.endswith(f"the code lies in {code}")


def test_shell_program_on_noexec_disk_causes_warning(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    close(job.paths.code)
    flags = SimpleNamespace(f_flag=os.ST_NOEXEC)
    monkeypatch.setattr(folders.os, "statvfs", lambda path: flags)
    assert len(folders.settled(job, {})[1]) == 1
    _, (_, line) = folders.settled(replace(job, program=replace(job.program, name="train.sh")), {})
    assert line.startswith("warning: train.sh cannot be run there")


def test_keys_and_sockets_are_in_a_private_folder(job: Job, tmp_path: Path) -> None:
    made = folders.private_folder(job.paths, {"TMPDIR": str(tmp_path / "code")})
    assert made.parent == tmp_path / "code" and stat.S_IMODE(made.stat().st_mode) == 0o700


def test_error_names_tried_folders_if_none_is_writable(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TEMPORARY", ("/proc/no/tmp",)), ("MEMORY", "/proc/no/memory")):
        monkeypatch.setattr(folders, name, value)
    made = folders.private_folder(job.paths, {})
    assert made.parent == job.paths.base
    nowhere = job.paths.__class__(base=Path("/proc/no"), run=Path("/proc/run"))
    with pytest.raises(ConfigError, match="can write to none of /proc/run, /proc/no/tmp, /proc/no/memory, /proc/no, /"):
        folders.private_folder(nowhere, {})


@pytest.mark.parametrize(
    "given, place",
    [
        ({}, ""),  # /tmp, as everybody knows
        ({"TMPDIR": HERE}, ""),
        ({"TMPDIR": f"{HERE}/to-be-made"}, ""),
        ({"TMPDIR": f"{__file__}/closed"}, "/tmp"),
        ({"TMPDIR": f"{__file__}/closed", "TEMP": HERE}, HERE),
    ],
)
def test_programs_get_tmpdir_only_if_theirs_is_unwritable(tmp_path: Path, given: dict[str, str], place: str) -> None:
    assert folders.place_for_others(tmp_path, given) == place
    assert not list(tmp_path.iterdir())


def test_tmpdir_is_in_run_folder_if_tmp_is_unwritable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "TEMPORARY", ("/proc/no/tmp",))
    place = folders.place_for_others(tmp_path, {})
    assert place == str(tmp_path / "tmp") and os.path.isdir(place)  # noqa: PTH112
