"""Test benchmarks/pull.py: how it reads docker's output of a pull and a manifest; and its page."""

import argparse

import pytest

from benchmarks.pull import Way, parts, sizes, summary
from benchmarks.report import cost
from benchmarks.report import pull as page


def said(*events: tuple[float, str, str]):
    return [(at, {"status": status, "id": layer} if layer else {"status": status}) for at, layer, status in events]


def test_layers_are_fetched_side_by_side_and_unpacked_one_after_another():
    events = said(
        (0.1, "1", "Pulling from pull/0"),
        (0.1, "aa", "Pulling fs layer"),
        (0.1, "bb", "Pulling fs layer"),
        (0.2, "aa", "Downloading"),
        (1.0, "aa", "Download complete"),
        (1.0, "aa", "Extracting"),
        (2.5, "bb", "Download complete"),
        (2.9, "aa", "Extracting"),
        (3.0, "aa", "Pull complete"),
        (3.5, "bb", "Extracting"),
        (7.0, "bb", "Pull complete"),
        (7.1, "", "Digest: sha256:ff"),
        (7.1, "", "Status: Downloaded newer image"),
    )
    assert parts(events) == {"download_s": 2.5, "unpack_s": pytest.approx(2.0 + 3.5)}


def test_a_layer_that_waits_for_the_one_before_is_counted_once():
    events = said(
        (0.0, "aa", "Pulling fs layer"),
        (0.0, "bb", "Pulling fs layer"),
        (1.0, "aa", "Download complete"),
        (1.0, "aa", "Extracting"),
        (1.5, "bb", "Extracting"),
        (3.0, "aa", "Pull complete"),
        (3.2, "bb", "Pull complete"),
    )
    assert parts(events)["unpack_s"] == pytest.approx(2.2)


def test_what_a_registry_holds_is_the_layers_and_the_description():
    manifest = {"config": {"size": 7, "digest": "sha256:00"}, "layers": [{"size": 100}, {"size": 900}, {"size": 3}]}
    assert sizes(manifest) == {
        "compressed_bytes": 1010, "layers": 3, "largest_layer_bytes": 900, "layer_bytes": [100, 900, 3]
    }  # fmt: skip


def test_ways_are_read_as_they_are_written():
    assert [str(Way.read(each)) for each in ("own", "unpigz", "unpigz@85")] == ["own", "unpigz", "unpigz@85"]
    assert Way.read("own@40").rate == 40
    with pytest.raises(argparse.ArgumentTypeError, match="wanted own or unpigz"):
        Way.read("zstd")


def run(image: str, number: int, seconds: float):
    measures = {"pull_s": seconds, "download_s": 1.0, "unpack_s": seconds - 1, "cpu_s": 2 * seconds, "first_run_s": 0.5}
    return {"image": image, "way": "own", "round": number, "measures": measures}


RUNS = [
    run(image, number, seconds)
    for image, all_of_it in {"ours": (4.0, 5.0, 6.0), "ours, before": (10.0, 8.0, 12.0)}.items()
    for number, seconds in enumerate(all_of_it, 1)
]
IMAGES = {name: {"compressed_bytes": 4e8, "bytes": 12e8, "files": 24085} for name in ("ours", "ours, before")}


def test_each_image_has_its_median_least_and_most():
    assert summary(RUNS)["ours"] == {"own": {"median": 5.0, "min": 4.0, "max": 6.0}}


def test_a_table_has_a_heading_for_every_column():
    assert len({line.count("|") for line in page.table({"runs": RUNS, "images": IMAGES})}) == 1


def test_the_aim_is_half_of_the_time_before():
    assert page.gains(RUNS)[2:] == ["| docker's own | 0.500 (0.400-0.625) | 0.500 (0.400-0.625) | met |"]
    slower = [*RUNS[:2], run("ours", 3, 5.5), run("ours", 2, 5.1), *RUNS[3:]]
    assert page.gains(slower)[2].endswith("| **missed** |")
    assert page.gains(RUNS[:3]) == [], "there is nothing to compare with"
    assert page.called("unpigz@85") == "unpigz, 85 MB/s a connection"


def test_a_job_with_the_pull_costs_that_on_every_host():
    line = cost.Line("MPI", 16, 2, cost.Cost(10.0, ""), cost.Cost(100.0, "at least "))
    (found,) = cost.with_pull([line], {"ours": 5.0, "toolkit": 8.0})
    assert (found.ours.job, found.toolkit.job) == (10 + 16 * 5, 100 + 16 * 8)
    assert found.toolkit.at_least == "at least " and found.hosts == 16


def test_the_bill_has_no_pull_where_a_side_was_not_pulled():
    sides = {"runs": [], "date": "2026-11-26"}
    assert cost.context(sides, None, {"date": "2026-11-26", "runs": RUNS})["lines_of_pulling"] == []
    assert page.medians([*RUNS, run("toolkit", 1, 7.0)]) == {"ours": 5.0, "ours, before": 10.0, "toolkit": 7.0}
