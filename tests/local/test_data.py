"""Test sagemaker_tf_data with real processes: TensorFlow servers that read a chief's datasets, and mirrored workers."""

import json

import pytest

pytestmark = pytest.mark.tensorflow
RECORDS = 101


@pytest.mark.more  # as the next one, on worker servers
def test_each_worker_of_a_coordinator_reads_its_own_shard(hosts):
    """The servers run no Python of the script, and the chief that traces their datasets has another shard number."""
    numbers = [*range(RECORDS)]
    base_files = {
        f"input/data/train/{name}.txt": "".join(f"{number}\n" for number in part)
        for name, part in {"a": numbers[:7], "deep/b": numbers[7:50], "c": numbers[50:60], "d": numbers[60:]}.items()
    }
    # What a notebook, Spark and Windows leave there.
    for name in (".ipynb_checkpoints/a-checkpoint.txt", "_old.txt", "deep/.b.txt", "deep/_temporary/0/b.txt"):
        base_files[f"input/data/train/{name}"] = "0\n"
    job = hosts(3, "ps_shards.py", mode="ps", base_files=base_files, PS_WORKERS="server", PS_COUNT=1)
    job.must_end(0)
    told = json.loads((job[1].base / "output/data/read.json").read_text())
    assert told["traced"] == told["eager"] == [numbers[0::2], numbers[1::2]]
    # Sorted by path: a, c, d, deep/b.
    assert sorted(told["files"]) == sorted([numbers[:7] + numbers[60:], numbers[50:60] + numbers[7:50]])
    assert told["chief"] == {"channel": "train", "mode": "File", "count": 1, "index": 0}
    assert told["chief reads"] == RECORDS
    assert "use file_names()" in told["files()"]
    same, total, device = told["checkpoint"]
    assert (same, total) == (True, 45.0)
    assert "/job:ps/" in device


def test_mirrored_workers_read_each_shard_and_save_the_model_once(hosts):
    """The library keeps TensorFlow from sharding again, Keras from stopping early, and workers from their own disks."""
    job = hosts(2, "mwms_shards.py", mode="mwms", EVALUATOR="last")
    job.must_end(0)
    evaluator = job[2].base / "output/data/evaluator.json"
    assert json.loads(evaluator.read_text()) == [[65.0, 65.0], None, True]
    first, second = job.json_of("read.json")
    assert first["fit"] == second["fit"] == [[65.0, 65.0], [48.0, 48.0], True]
    assert first["even"] == [[0, 2], [4, 6], [8, 10], [12, 14], [16, 18]]
    assert second["even"] == [[1, 3], [5, 7], [9, 11], [13, 15], [17, 19]]
    uneven = [[number for batch in told["uneven"] for number in batch] for told in (first, second)]
    assert uneven == [[0, 2], [1, 3, 5, 7, 9, 11]]
    assert len(first["uneven"]) == len(second["uneven"])  # the rest of the first are empty
    assert [told["saved"] for told in (first, second)] == [[None, True], [None, False]]
    assert first["resumed"] == second["resumed"] == ["ckpt-1", [0.0, 1.0, 2.0]]
    for told in (first, second):
        assert "workers found different checkpoints" in told["not shared"]
