"""Define a case of the zoo: a library, what its job asks for, and what comes of it; and read what has run."""

import json
from dataclasses import dataclass, field
from pathlib import Path

RESULTS = Path(__file__).with_name("results.json")
ALL_LINES = ("2.14", "2.21")
MODES = {"ps": "parameter servers", "mwms": "MultiWorkerMirrored", "mpi": "Horovod", "jax": "JAX", "single": "single"}


@dataclass(frozen=True)
class Case:
    """One library in one mode, on one or several lines of the image; scripts/NAME.py uses it on two hosts.

    `refused`: text of the failure file where no version fits; the job must end with 65, and install nothing.
    `fails`: text of the failure file where a version is installed and does not work. `why` is a sentence for the page:
    what does not work, and whose fault it is.
    """

    library: str
    requirements: tuple[str, ...]  # lines of requirements.txt
    mode: str  # of MODES
    lines: tuple[str, ...] = ALL_LINES
    arguments: dict[str, str | int | float] = field(default_factory=dict)  # hyperparameters
    environment: dict[str, str] = field(default_factory=dict)
    refused: str = ""
    fails: str = ""
    why: str = ""

    @property
    def script(self) -> str:
        return self.library.partition("[")[0].replace("-", "_") + ".py"

    def key(self, line: str) -> str:
        return f"{self.library}, {line}, {self.mode}"


def results() -> dict[str, dict[str, str | float]]:
    """Return what ran: `Case.key` -> version, seconds of installing and result."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
