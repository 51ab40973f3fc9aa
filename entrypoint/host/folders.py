"""What an earlier run has left on this host goes before the first process starts; what is secret, after the last."""

import contextlib
from collections.abc import Callable

from entrypoint.job.job import Job, Paths


def make_ready(job: Job, say: Callable[[str], None]) -> None:
    """Make the run folder, and remove what an earlier run has left: the container was started again."""
    job.paths.run.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in job.paths.run.glob("prte*"):  # see plan/distributions/mpi.py
        import shutil

        shutil.rmtree(folder, ignore_errors=True)
    if (failure := job.paths.failure).is_file():
        say(f"{failure} is of an earlier run: it is removed")
        with contextlib.suppress(OSError):
            failure.unlink()


def remove_secrets(paths: Paths) -> None:
    """Remove keys, what the prepare step has left, and the socket of the ranks."""
    for path in (*paths.ssh.glob("*_key"), paths.prepared, paths.ranks):
        path.unlink(missing_ok=True)
