"""Place the launcher's own files on this host, and remove what an earlier run has left.

Usually they lie in /run and in SageMaker's tree. A container may have another user than root, a read-only disk or no
/tmp: then they lie wherever this user may write. Secrets are removed after the last process.
"""

import contextlib
import os
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path

from entrypoint.base.errors import ConfigError
from entrypoint.base.values import replace
from entrypoint.launcher.job.job import Job, Paths

TEMPORARY = ("/tmp", "/var/tmp", "/usr/tmp")  # where programs look for a temporary folder after TMPDIR
MEMORY = "/dev/shm"
_made: list[Path] = []  # folders that are removed when the launcher ends


def with_run_folder(job: Job, environment: Mapping[str, str]) -> Job:
    """Make the private run folder (mode 0700), or else a temporary one. Raise ConfigError if a setting asked for it."""
    folder, asked = job.paths.run, job.settings.run_dir
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        if asked:
            raise ConfigError(f"ENTRYPOINT_RUN_DIR is {asked!r}, which cannot be used: {error}") from None
        return with_temporary_folder(job, environment)
    return job


def with_temporary_folder(job: Job, environment: Mapping[str, str]) -> Job:
    """Make a private temporary folder, which `remove_temporary` removes."""
    _made.append(private_folder(job.paths, environment))
    return replace(job, paths=replace(job.paths, run=_made[-1]))


def remove_temporary() -> None:
    for folder in _made:
        _remove(folder)


def _remove(folder: Path) -> None:
    import shutil  # here, since it takes 30 ms: it imports all kinds of compression

    shutil.rmtree(folder, ignore_errors=True)


def is_writable(folder: Path) -> bool:
    """Return whether this user may make files in a folder, or make the folder if it does not exist."""
    there = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def private_folder(paths: Paths, environment: Mapping[str, str]) -> Path:
    """Make a private folder for keys and sockets, in the first place that allows one.

    Raise ConfigError if none does.
    """
    import tempfile

    last = [MEMORY, str(paths.base), str(paths.output)]
    for place in filter(None, [_temporary(environment), *last]):
        with contextlib.suppress(OSError):
            return Path(tempfile.mkdtemp(prefix="entrypoint-", dir=place))
    raise ConfigError(
        f"{_user()} can write to none of {', '.join([str(paths.run), *TEMPORARY, *last])}; wanted a place for keys and "
        "sockets, for example `docker run --tmpfs /tmp`, or a folder that ENTRYPOINT_RUN_DIR names"
    )


def settled(job: Job, environment: MutableMapping[str, str]) -> tuple[Job, list[str]]:
    """Replace folders of SageMaker's tree that we cannot write to; return the changed job, and lines for the log.

    Programs inherit `environment`, whose TMPDIR is set if they would find no place for temporary files.
    """
    paths, program, notes = job.paths, job.program, list[str]()
    kept = {paths.model: "the model", paths.output: "the failure file", paths.data: "the report"}
    if os.path.lexists(checkpoints := paths.base / "checkpoints"):
        kept[checkpoints] = "checkpoints"
    if closed := [path for path in kept if not is_writable(path)]:
        where, lost = ", ".join(map(str, closed)), ", ".join(kept[path] for path in closed)
        notes.append(f"warning: {_user()} cannot write to {where}, so {lost} cannot be kept; wanted {_remedy(closed)}")
    if paths.data in closed:
        paths = replace(paths, other_data=paths.run / "data")
    if not _has_files(paths.code) and not is_writable(paths.code):
        there, paths = str(paths.code), replace(paths, other_code=paths.run / "code")
        # A job that names no other place for its code has it here, or in channel `code`.
        program = replace(program, source=str(paths.code)) if program.source == there else program
        notes.append(f"{_user()} cannot write to {there}: the code lies in {paths.code}")
        if not program.name.endswith(".py") and os.statvfs(paths.run).f_flag & os.ST_NOEXEC:
            notes.append(
                f"warning: {program.name} cannot be run there, as that disk is mounted with noexec; wanted, for "
                f"example, `docker run --tmpfs /tmp:exec`, or the code in {there}"
            )
    if place := place_for_others(job.paths.run, environment):
        notes.append(
            f"nothing can be written to {environment.get('TMPDIR', '/tmp')}: TMPDIR is {place} for all programs"
        )
        environment["TMPDIR"] = place
    return replace(job, paths=paths, program=program), notes


def place_for_others(run: Path, environment: Mapping[str, str]) -> str:
    """Return the TMPDIR that programs need; "" if the present one or /tmp will do.

    Programs search no further folders by themselves.
    """
    given = environment.get("TMPDIR")
    if is_writable(Path(given)) if given else _is_open(TEMPORARY[0]):
        return ""
    if place := _temporary(environment):
        return place
    (folder := run / "tmp").mkdir(mode=0o700, parents=True, exist_ok=True)
    return str(folder)


def make_ready(job: Job, log: Callable[[str], None]) -> None:
    """Make the run folder, and remove what an earlier run has left: the container may have been started again."""
    with contextlib.suppress(OSError):  # nothing can be written anywhere, as was logged
        job.paths.run.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in job.paths.run.glob("prte*"):  # see plan/distributions/mpi.py
        _remove(folder)
    if os.path.isfile(failure := job.paths.failure):  # noqa: PTH113 - a folder that is closed to us has none
        log(f"removed {failure} of an earlier run")
        with contextlib.suppress(OSError):
            failure.unlink()


def remove_secrets(paths: Paths) -> None:
    """Remove keys, the result of the prepare step, and the socket of the ranks."""
    for path in (*paths.ssh.glob("*_key"), paths.prepared, paths.ranks):
        path.unlink(missing_ok=True)


def _temporary(environment: Mapping[str, str]) -> str:
    """Return the folder that a program would choose for temporary files; "" if none is writable."""
    given = [environment.get(name, "") for name in ("TMPDIR", "TEMP", "TMP")]
    return next((place for place in (*given, *TEMPORARY) if place and _is_open(place)), "")


def _is_open(folder: str) -> bool:
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)  # noqa: PTH112


def _has_files(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except OSError:
        return os.path.lexists(folder) and not os.access(folder, os.R_OK)  # the prepare step reports the error


def _user() -> str:
    number = os.geteuid()
    return f"user {number}" if number else "root"


def _remedy(folders: list[Path]) -> str:
    with contextlib.suppress(OSError):
        if any(os.statvfs(path).f_flag & os.ST_RDONLY for path in folders if os.path.lexists(path)):
            return "volumes that can be written to"
    return f"folders of that user (chown {os.geteuid()}), or an image whose USER is root"
