"""Find what became of the numbered lines of programs/prints.py on their way through a launcher. Pure."""

import re
from collections.abc import Mapping

from benchmarks.docker import seconds

WHOLE = re.compile(
    r"^(?P<label>[^<]*(?:<std...>)?[^<]*)<(?P<host>algo-\d+) (?P<rank>\d+|-) (?P<number>\d+)>   [^<]* </(?P=number)>$"
)
TOOLKIT_LABEL = re.compile(r"\[\d+,mpirank:(?P<rank>\d+),(?P<host>algo-\d+)\]")
DRIVERS_LABEL = re.compile(r"\[\d+,(?P<rank>\d+)\]<std...>")  # mpirun's own, which names no host
GLOO_LABEL = re.compile(r"\[(?P<rank>\d+)\]<std...>")  # horovodrun's with Gloo, which names no host, either
OUR_LABEL = re.compile(r"\[(?P<host>algo-\d+) (?:rank (?P<rank>\d+)|[^]]+)\]")


def log_measures(logs: Mapping[str, str], wanted: int, began: float) -> dict[str, float]:
    """Return measures. `logs`: by host, each line after the engine's time. `wanted`: lines printed from `began` on."""
    whole, wrong, unlabelled, last = 0, 0, 0, began
    for log in logs.values():
        for line in log.splitlines():
            time, _, text = line.partition(" ")
            if "<algo-" not in text and "</" not in text:
                continue
            last = max(last, seconds(time))
            if not (found := WHOLE.match(text)):
                continue
            whole += 1
            named = label(found["label"])
            if named is None:
                unlabelled += 1
            elif any(said not in ("", found[what]) for what, said in zip(("host", "rank"), named, strict=True)):
                wrong += 1
    return {
        "lines_per_s": wanted / (last - began) if last > began else 0.0,
        "split_share": 1 - whole / wanted,
        "mislabelled_share": wrong / whole if whole else 0.0,
        "unlabelled_share": unlabelled / whole if whole else 0.0,
    }


def label(text: str) -> tuple[str, str] | None:
    """Return the host ("": none) and the rank ("-": the script is none) that a label names. None: there is no label."""
    if found := TOOLKIT_LABEL.search(text):
        return found["host"], found["rank"]
    if found := DRIVERS_LABEL.search(text) or GLOO_LABEL.search(text):
        return "", found["rank"]
    if found := OUR_LABEL.search(text):
        return found["host"], found["rank"] or "-"
    return None
