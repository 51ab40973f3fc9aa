"""The launcher's end of what the monitor is told."""

import json
import time
import zlib

from builders import resources, write_config

from entrypoint.feed import Feed
from entrypoint.job.config import read_job
from entrypoint.plan.planner import plan_for
from entrypoint.report.lines import first_line


def test_a_launcher_that_fails_before_it_listens_still_leaves_a_record(tmp_path):
    """Where a host has no more threads, say: to wait for a listener that was never started was a fault by itself."""
    write_config(tmp_path, resources(["algo-1"]), {"sagemaker_program": "train.py"})
    job = read_job(tmp_path, {}, tmp_path / "run")
    feed = Feed(job, plan_for(job), time.monotonic())
    feed.tell("outcome", {"kind": "failed", "exit_code": 70, "cause": None, "there": []})
    assert feed.finish() == ""
    text = zlib.decompressobj(31).decompress((job.paths.records / "algo-1.jsonl.gz").read_bytes())
    assert [json.loads(line)[0] for line in text.splitlines()][-1] == "outcome"


def test_a_record_counts_from_when_the_launcher_began(tmp_path):
    """The monitor begins later than what is fast to start: the page had no "start" of such a host."""
    write_config(tmp_path, resources(["algo-1"]), {"sagemaker_program": "train.py"})
    job = read_job(tmp_path, {}, tmp_path / "run")
    feed = Feed(job, plan_for(job), time.monotonic() - 100)
    began = time.time() - 100
    feed.tell("outcome", {"kind": "succeeded", "exit_code": 0, "cause": None, "there": []})
    assert feed.finish() == ""
    at, about = first_line((job.paths.records / "algo-1.jsonl.gz").read_bytes())
    assert abs(at - began) < 50 and about["host"] == "algo-1"
