"""Put sizes, durations, shares and lists into words."""

from collections.abc import Sequence


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def size(count: float, base: int = 1000) -> str:
    """Format a number of bytes: in kB, MB and GB, or with a `base` of 1024 in KiB, MiB and GiB."""
    *units, largest = ("B", "KiB", "MiB", "GiB", "TiB") if base == 1024 else ("B", "kB", "MB", "GB", "TB")
    for unit in units:
        if abs(count) < 999.5:  # 999.7 would be 1e+03
            return f"{count:.3g} {unit}"
        count /= base
    return f"{count:.3g} {largest}"


def duration(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def blamed(host: str, process: str, what: str, error: str) -> str:
    """Return a cause of failure in one line: host and process, how it ended, and the exception."""
    who = f"{host} {process}".strip() or "the job"
    return f"{who} ({what}): {error}" if error else f"{who} ({what})"


def listed(names: Sequence[str], most: int) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
