"""Test that silent work is not taken for a hang, in jobs with a slow disk."""

import pytest
from silent_disk import why_not
from slow_disk import SlowDisk

SOON = {"ENTRYPOINT_HANG_AFTER": "2", "ENTRYPOINT_HANG_ACTION": "fail"}
SAVES = """
import os
print("begins", flush=True)
with open(os.environ["TEST_FOLDER"] + "/disk/checkpoint", "wb", buffering=0) as file:
    for _ in range({}):
        file.write(b"x" * {})
print("saved", flush=True)
"""


@pytest.fixture
def slow_disk(tmp_path):
    if problem := why_not():
        pytest.skip(problem)
    folder = tmp_path / "job0" / "disk"
    folder.mkdir(parents=True)
    disk = SlowDisk(folder)
    yield disk
    disk.close()


def test_a_checkpoint_to_a_slow_disk_is_none(hosts, slow_disk):
    """It is written in pieces, for six times the limit and more."""
    job = hosts(1, "train.py", code={"train.py": SAVES.format(48, 1 << 17)}, environment=SOON)
    assert job.end() == [0]
    assert "saved" in job[1].log and "no progress" not in job[1].log
