"""Find conflicts among the files that hosts leave in the folders that SageMaker packs, and warn of them. Pure.

SageMaker packs /opt/ml/model of all hosts into one archive, and /opt/ml/output/data into another. If two hosts leave
different files of one name, one of them is lost. In the SDK's local mode all hosts share one model folder and see the
same files there, so nothing is reported.
"""

from collections.abc import Iterator, Mapping

from entrypoint.base.values import Value
from entrypoint.base.wording import listed

MODEL, DATA = "model", "output/data"  # below /opt/ml
SHOWN = 3  # names in a message


class File(Value):
    path: str  # below /opt/ml
    size: int
    digest: str = ""  # of its content, or of both ends of a large file; empty: it was not read

    def differs(self, other: "File") -> bool:
        return self.size != other.size or bool(self.digest and other.digest and self.digest != other.digest)


class Artifacts(Value):
    """List the files that a host leaves.

    If they are many, `files` has only the first by name; other fields count all.
    """

    files: tuple[File, ...] = ()
    model: bool  # there is a file in the model folder
    saved: str = ""  # a folder with a SavedModel, preferably one whose name is a number
    whole: bool = True  # everything was read, so what is not listed does not exist

    @property
    def servable(self) -> bool:
        return is_version(self.saved)


def is_version(folder: str) -> bool:
    """Return whether TensorFlow Serving takes a folder for a version of a model: its name must be a number."""
    name = folder.rpartition("/")[2]
    return name.isascii() and name.isdecimal()


def warnings(left: Mapping[str, Artifacts | None]) -> Iterator[str]:
    """Yield a warning for each conflict among the files that hosts left. None: a host did not report."""
    known = {host: artifacts for host, artifacts in left.items() if artifacts is not None}
    if len(known) == len(left) and all(artifacts.whole for artifacts in known.values()):
        yield from _of_the_model([*known.values()])
    lost, hosts = _collisions(known)
    if lost:
        yield (
            f"{listed([_readable(f'/opt/ml/{path}') for path in lost], SHOWN)}: different on {listed(hosts, SHOWN)}. "
            "SageMaker packs the folders of all hosts into one archive and keeps one file of each name: save on one "
            "host, or put the host's name into the file's"
        )


def _of_the_model(left: list[Artifacts]) -> Iterator[str]:
    if not any(artifacts.model for artifacts in left):
        where = "on any host" if len(left) > 1 else "there"
        yield f"/opt/ml/model is empty: no model was saved {where}, and the job's model.tar.gz will hold none"
    elif not any(artifacts.servable for artifacts in left):
        saved = next((artifacts.saved for artifacts in left if artifacts.saved), "")
        found = "/opt/ml/model holds no SavedModel"
        if saved:
            found = f"the SavedModel in {_readable(f'/opt/ml/{saved}')} is not"
        yield (
            f"{found} in a numbered folder such as /opt/ml/model/1, where TensorFlow Serving looks; "
            "ignore this if you load the model in another way"
        )


def _collisions(left: Mapping[str, Artifacts]) -> tuple[list[str], list[str]]:
    """Return (paths that hosts have left with different content, these hosts)."""
    first: dict[str, tuple[str, File]] = {}
    paths: dict[str, None] = {}
    hosts: dict[str, None] = {}
    for host, artifacts in left.items():
        for file in artifacts.files:
            before, known = first.setdefault(file.path, (host, file))
            if file.differs(known):
                paths[file.path] = hosts[before] = hosts[host] = None
    return sorted(paths), [host for host in left if host in hosts]


def _readable(name: str) -> str:
    return name if name.isprintable() else ascii(name)
