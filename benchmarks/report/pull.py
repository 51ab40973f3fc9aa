"""The page about pulling: what a registry holds of each image, and what it takes to fetch and to unpack that."""

from typing import Any

from benchmarks.machine import spread
from benchmarks.report.figures import where

WAYS = {"own": "dockerd's own", "unpigz": "unpigz"}


def context(record: dict[str, Any]) -> dict[str, Any]:
    """What the page's template takes beside the record."""
    return {"table": table(record), "sizes": sizes(record), "rounds": len({run["round"] for run in record["runs"]})}


def sizes(record: dict[str, Any]) -> list[str]:
    """A row for each image."""
    lines = [
        "| image | compressed, MB | layers | the largest, MB | unpacked, MB | files |",
        "|---|---|---|---|---|---|",
    ]
    for name, image in record["images"].items():
        cells = [
            f"{name} (`{image['image']}`)",
            f"{image['compressed_bytes'] / 1e6:,.0f}",
            str(image["layers"]),
            f"{image['largest_layer_bytes'] / 1e6:,.0f}",
            f"{image['bytes'] / 1e6:,.0f}",
            f"{image['files']:,}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def table(record: dict[str, Any]) -> list[str]:
    """A row for each image and each way: medians of the rounds (least to most)."""
    lines = [
        "| gzip by | image | the pull, s | fetched after, s | unpacking, s | first start, s |",
        "|---|---|---|---|---|---|",
    ]
    for way in dict.fromkeys(run["way"] for run in record["runs"]):
        for name in dict.fromkeys(run["image"] for run in record["runs"]):
            runs = where(record["runs"], way=way, image=name)
            measures = ("pull_s", "download_s", "unpack_s", "cpu_s", "first_run_s")
            cells = [spread([run["measures"][measure] for run in runs], ".1f") for measure in measures if runs]
            lines.append(f"| {words(way)} | {name} | {' | '.join(cells)} |")
    return lines


def words(way: str) -> str:
    decompressor, _, rate = way.partition("@")
    return WAYS[decompressor] + (f", {rate} MB/s a connection" if rate else "")
