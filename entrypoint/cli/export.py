"""Run `entrypoint metrics`, `entrypoint tensorboard` and `entrypoint mlflow`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from entrypoint.base.errors import ConfigError
from entrypoint.observe.export.definitions import USUAL, definitions, told
from entrypoint.observe.export.follow import follow
from entrypoint.observe.export.mlflow_run import MlflowRun
from entrypoint.observe.export.points import Points
from entrypoint.observe.export.tensorboard import EventFiles
from entrypoint.record.find import find
from entrypoint.record.read import arrays_of

RECORDS = ("*/ml/output/data/record", "output/data/record", "data/record", "record", ".")


def metrics(place: str | None, names: list[str], sdk: str) -> int:
    """Print metric definitions and return 0: of `names` and the metrics in a job's records, else of the usual ones."""
    if place:
        names = names + [name for name in told(_lines(find(place))) if name not in names]
        if not names:
            raise ConfigError(f"the records of {place} hold no metrics; wanted --name, or a script that prints some")
    print(definitions(names or USUAL, sdk))
    return 0


def _lines(records: dict[str, bytes]) -> Iterator[list[Any]]:
    for record in records.values():
        yield from arrays_of(record)


def tensorboard(place: str, logdir: Path, is_live: bool) -> int:
    """Write a job's event files, if `is_live` while the job runs, and return 0.

    Raise ConfigError if there are no records, or the package tensorboard is missing.
    """
    files = EventFiles(logdir)
    try:
        if is_live:
            folder = Path(place)
            count = follow(lambda: [each for part in RECORDS for each in folder.glob(part)], files, lambda: False)
        else:
            count = sum(files.add(Points(host), arrays_of(record)) for host, record in find(place).items())
    except KeyboardInterrupt:
        return 0
    finally:
        files.close()
    print(f"{count} points in {logdir}; to see them: tensorboard --logdir {logdir}")
    return 0


def mlflow(place: str) -> int:
    """Write the records of an ended job as a run of MLflow; return 0, or 1 if nothing was written.

    Raise ConfigError if there are no records, or MLflow cannot be used.
    """
    records = find(place)
    run = MlflowRun()
    count = sum(run.add(Points(host), arrays_of(record)) for host, record in sorted(records.items()))
    run.close()
    print(f"{count} metrics in run {run.id}" if run.id else "nothing written: the records do not say what the job was")
    return 0 if run.id else 1
