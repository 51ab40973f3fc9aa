"""Fill the page about killed trainings: how many were killed and resumed, and their AUC beside trainings not killed."""

import statistics
from typing import Any

from benchmarks.report.figures import Run, where

MODES = {"ps": "parameter servers", "mpi": "Horovod", "single": "one process"}
KILLED, WHOLE = "killed", "not killed"


def context(record: dict[str, Any]) -> dict[str, Any]:
    """Return what the page's template takes beside the record."""
    runs = record["runs"]
    return {
        "table": table(runs),
        "kills": sum(run["kills"] for run in runs),
        "at_checkpoint": sum(run["at_checkpoint"] for run in runs),
        "resumed": sum(run["resumed"] for run in runs),
    }


def table(runs: list[Run]) -> list[str]:
    """Return a row for each mode: kills, trainings, and the AUC of each training."""
    lines = [
        "| | kills, of which at a checkpoint | trainings | AUC, killed and resumed | AUC, not killed |",
        "|---|---|---|---|---|",
    ]
    for mode in dict.fromkeys(run["mode"] for run in runs):
        killed, whole = (where(runs, mode=mode, kind=kind) for kind in (KILLED, WHOLE))
        counts = f"{sum(run['kills'] for run in killed)}, {sum(run['at_checkpoint'] for run in killed)}"
        lines.append(f"| {MODES.get(mode, mode)} | {counts} | {len(killed)} | {aucs(killed)} | {aucs(whole)} |")
    return lines


def aucs(runs: list[Run]) -> str:
    """Return the mean and each AUC."""
    found = [run["measures"]["auc"] for run in runs]
    return f"{statistics.mean(found):.3f} ({' '.join(f'{auc:.3f}' for auc in found)})" if found else "not measured"
