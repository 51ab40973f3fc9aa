"""Adapt the job to this container: folders where this user may write, no proxy between hosts; log what is lost."""

from collections.abc import Callable, MutableMapping
from pathlib import Path

from entrypoint.base.errors import ConfigError
from entrypoint.base.values import replace
from entrypoint.launcher.host import folders, proxies
from entrypoint.launcher.job.choices import NoProxy
from entrypoint.launcher.job.job import Job

_made: list[Path] = []  # folders that are removed when the launcher ends


def with_run_folder(job: Job, environment: MutableMapping[str, str]) -> Job:
    """Make the private run folder (mode 0700), or else a temporary one; ConfigError if a setting asked for it."""
    folder, asked = job.paths.run, job.settings.run_dir
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        if asked:
            raise ConfigError(f"ENTRYPOINT_RUN_DIR is {asked!r}, which cannot be used: {error}") from None
        return with_temporary_folder(job, environment)
    return job


def with_temporary_folder(job: Job, environment: MutableMapping[str, str]) -> Job:
    """Make a private temporary folder, which is removed when the launcher ends."""
    _made.append(folders.private_folder(job.paths, environment))
    return replace(job, paths=replace(job.paths, run=_made[-1]))


def settled(job: Job, environment: MutableMapping[str, str], log: Callable[[str], None]) -> Job:
    """Return the job as this container can run it, and update the environment that the programs inherit."""
    job, notes = folders.settled(job)
    if place := folders.place_for_others(job.paths.run, environment):
        notes.append(
            f"nothing can be written to {environment.get('TMPDIR', '/tmp')}: TMPDIR is {place} for all programs"
        )
        environment["TMPDIR"] = place
    if job.settings.no_proxy is NoProxy.HOSTS and (found := proxies.proxies_in(environment)):
        notes.append(proxies.describe(found, len(job.cluster.hosts)))
        environment.update(proxies.spared(environment, proxies.names_of(job.cluster, environment)))
    for line in notes:
        log(line)
    return job


def remove_temporary() -> None:
    """Remove the temporary folders."""
    if _made:
        import shutil

        for folder in _made:
            shutil.rmtree(folder, ignore_errors=True)
