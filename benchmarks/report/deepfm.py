"""Fill the page about DeepFM: speed and AUC by parameter servers and Horovod, and the effect of its settings."""

import operator
from collections.abc import Sequence
from typing import Any

from benchmarks import machine
from benchmarks.report.figures import Measured, Run, measured, where

MODES = {"ps": "parameter servers, workers", "mpi": "Horovod, ranks"}
PROCESSES = {"ps": "workers of parameter servers", "mpi": "ranks of Horovod"}
DEFAULTS, NONE, AGAIN = "the defaults", "none", "none, once more"


def context(record: dict[str, Any]) -> dict[str, Any]:
    """Return what the page's template takes beside the record."""
    runs = record["runs"]
    loads = [run["load"] for run in runs]
    return {
        "tables": {
            "scaling": scaling(where(runs, part="scaling")),
            "hyperparameters": hyperparameters(where(runs, part="hyperparameters")),
            "threads": threads(where(runs, part="threads")),
        },
        "auc_apart": apart(where(runs, part="scaling")),
        "best": best(where(runs, part="scaling")),
        "gained": gained(where(runs, part="hyperparameters")),
        "beyond": changing(where(runs, part="threads")),
        "readers": record.get("readers", {}),
        "loads": (min(loads), max(loads)) if loads else None,
        "rounds": {
            part: len({run["round"] for run in where(runs, part=part)})
            for part in ("scaling", "hyperparameters", "threads")
        },
    }


def best(runs: list[Run]) -> dict[str, str]:
    """Return {kind of process: the best median ratio of several processes to one}."""
    found: dict[str, list[float]] = {}
    keys = dict.fromkeys((run["mode"], run["batch"], run["embedding"], run["processes"]) for run in runs)
    for mode, batch, size, count in keys:
        of = {"mode": mode, "batch": batch, "embedding": size}
        mine, one = where(runs, processes=count, **of), where(runs, processes=1, **of)
        ratios = by_round(mine, one, "examples_per_s", operator.truediv)
        if count > 1 and ratios and ratios.median is not None:
            found.setdefault(PROCESSES[mode], []).append(ratios.median)
    return {kind: f"{max(ratios):.2f}" for kind, ratios in found.items()}


def gained(runs: list[Run]) -> str:
    """Return the largest median gain of AUC that one changed hyperparameter brings; "" if none was changed."""
    usual = where(runs, name=DEFAULTS)
    gains = [by_round(where(runs, name=name), usual, "auc", operator.sub) for name in {run["name"] for run in runs}]
    medians = [gain.median for gain in gains if gain and gain.median is not None]
    return f"{max(medians):.4f}" if medians else ""


def changing(runs: list[Run]) -> list[str] | None:
    """Return the settings of threads whose effect is beyond the noise, and which it is. None: none was tried."""
    ratio_of = ratios_to_none(runs)
    noise = ratio_of.get(AGAIN)
    if noise is None:
        return None
    judged = {name: beyond(ratios, noise) for name, ratios in ratio_of.items() if name not in (NONE, AGAIN)}
    return [f"*{name}* ({how})" for name, how in judged.items() if how in ("faster", "slower")]


def ratios_to_none(runs: list[Run]) -> dict[str, Measured | None]:
    """Return {name: examples per second, divided by those with none of the variables in the same round}."""
    usual = where(runs, name=NONE)
    return {
        name: by_round(where(runs, name=name), usual, "examples_per_s", operator.truediv)
        for name in dict.fromkeys([NONE, AGAIN, *(run["name"] for run in runs)])
        if where(runs, name=name)
    }


def tables(record: dict[str, Any]) -> str:
    """Return all tables as Markdown, for the terminal."""
    return "\n\n".join("\n".join(lines) for lines in context(record)["tables"].values() if lines)


def scaling(runs: list[Run]) -> list[str]:
    """Return a row for each mode, batch and embedding size: speed and AUC by the number of processes."""
    if not runs:
        return []
    counts = sorted({run["processes"] for run in runs})
    shown = sorted({counts[0], counts[-1]})  # the record has those between
    heads = [f"times that, {count}" for count in counts if count > 1] + [f"AUC, {count}" for count in shown]
    lines = [
        f"| how | batch of each | embeddings | examples/s, 1 | {' | '.join(heads)} |",
        "|---|---|---|---|" + "---|" * len(heads),
    ]
    keys = dict.fromkeys((run["mode"], run["batch"], run["embedding"]) for run in runs)
    for mode, batch, size in sorted(keys, key=lambda key: (list(MODES).index(key[0]), *key[1:])):
        of = {count: where(runs, processes=count, mode=mode, batch=batch, embedding=size) for count in counts}
        one = of.get(1, [])
        cells = [MODES[mode], str(batch), str(size), spread(measured(one, "examples_per_s"), ",.0f")]
        cells += [
            spread(by_round(of[count], one, "examples_per_s", operator.truediv), ".2f") for count in counts if count > 1
        ]
        cells += [spread(measured(of[count], "auc"), ".4f") for count in shown]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def apart(runs: list[Run]) -> float:
    """Return the most by which AUC differs between rounds of one case."""
    found: dict[tuple[Any, ...], list[float]] = {}
    for run in runs:
        key = (run["mode"], run["batch"], run["embedding"], run["processes"])
        found.setdefault(key, []).append(run["measures"]["auc"])
    return max((max(each) - min(each) for each in found.values()), default=0)


def hyperparameters(runs: list[Run]) -> list[str]:
    """Return the difference of AUC to the defaults' on the same rows, round by round; speed as a ratio to theirs."""
    if not runs:
        return []
    usual = where(runs, name=DEFAULTS)
    auc = spread(measured(usual, "auc"), ".4f")
    lines = [f"| | AUC, more than with the defaults ({auc}) | examples/s, times theirs |", "|---|---|---|"]
    for name in dict.fromkeys(run["name"] for run in runs if run["name"] != DEFAULTS):
        mine = where(runs, name=name)
        gains = by_round(mine, usual, "auc", operator.sub)
        speeds = by_round(mine, usual, "examples_per_s", operator.truediv)
        lines.append(f"| {name} | {spread(gains, '+.4f')} | {spread(speeds, '.2f')} |")
    return lines


def threads(runs: list[Run]) -> list[str]:
    """Return examples per second as a ratio to those without any of the variables, in the same round."""
    if not runs:
        return []
    lines = ["| set | examples/s, times those with none |", "|---|---|"]
    for name, ratios in ratios_to_none(runs).items():
        if name != NONE:
            lines.append(f"| {f'`{name}`' if '=' in name and ' ' not in name else name} | {spread(ratios, '.2f')} |")
    return lines


def beyond(ratios: Measured | None, noise: Measured | None) -> str:
    """Return whether a median ratio lies outside of all ratios of the same settings, run once more."""
    if ratios is None or noise is None or ratios.median is None:
        return "not shown"
    if ratios.median > max(noise.values):
        return "faster"
    return "slower" if ratios.median < min(noise.values) else "no"


def by_round(mine: Sequence[Run], others: Sequence[Run], measure: str, of: Any) -> Measured | None:
    """Return `of`(mine, other) of each round that both have. None: there is no such round."""
    theirs = {run["round"]: run["measures"][measure] for run in others}
    found = tuple(of(run["measures"][measure], theirs[run["round"]]) for run in mine if run["round"] in theirs)
    return Measured(found) if found else None


def spread(figure: Measured | None, form: str) -> str:
    """Return the median, and (least to most) if they are wide apart."""
    return "not measured" if figure is None or figure.median is None else machine.spread(list(figure.values), form)
