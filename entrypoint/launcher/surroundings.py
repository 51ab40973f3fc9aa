"""What the container around a launcher lets it have, and what its programs inherit of that.

Its usual places may be closed to this user, and a proxy of the environment may stand between its hosts. What can be put
elsewhere is; what is lost is said, once and at the start.
"""

from collections.abc import Callable, MutableMapping
from pathlib import Path

from entrypoint.base.errors import ConfigError
from entrypoint.base.values import replace
from entrypoint.launcher.host import folders, proxies
from entrypoint.launcher.job.job import Job

_made: list[Path] = []  # folders that go with us


def with_run_folder(job: Job, environment: MutableMapping[str, str]) -> Job:
    """Make the private folder for keys and sockets, 0700; where it cannot be made, and nobody asked for it, another."""
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
    """Make a private folder that goes with us."""
    _made.append(folders.private_folder(job.paths, environment))
    return replace(job, paths=replace(job.paths, run=_made[-1]))


def settled(job: Job, environment: MutableMapping[str, str], say: Callable[[str], None]) -> Job:
    """Return the job as it can be here; and have the environment say what its programs are to know of that."""
    job, told = folders.settled(job)
    if place := folders.place_for_others(job.paths.run, environment):
        told.append(
            f"nothing can be written to {environment.get('TMPDIR', '/tmp')}: TMPDIR is {place} for all programs"
        )
        environment["TMPDIR"] = place
    if job.settings.no_proxy == "hosts" and (found := proxies.proxies_in(environment)):
        told.append(proxies.told(found, len(job.cluster.hosts)))
        environment.update(proxies.spared(environment, proxies.names_of(job.cluster, environment)))
    for line in told:
        say(line)
    return job


def remove_temporary() -> None:
    """Remove the folders that were to go with us."""
    if _made:
        import shutil

        for folder in _made:
            shutil.rmtree(folder, ignore_errors=True)
