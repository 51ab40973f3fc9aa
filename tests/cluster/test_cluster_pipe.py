"""Pipe mode in the image, which has sagemaker-tensorflow's operator, where there is one for its TensorFlow."""

import json
from pathlib import Path

from containers import PROGRAMS, run_alone

from images import DEFAULT_LINE, LINE


def test_the_operator_and_our_reader_take_turns(image: str, tmp_path: Path) -> None:
    """They read the same of all formats, and each goes on with the pass that is next, whoever had the last one."""
    formats = ("TFRecord", "RecordIO", "TextLine")
    for folder in ("input/config", "input/data"):
        (tmp_path / folder).mkdir(parents=True)
    config = tmp_path / "input/config/inputdataconfig.json"
    config.write_text(json.dumps({name: {"TrainingInputMode": "Pipe"} for name in formats}))
    shares = {name: {"channel": name, "mode": "Pipe", "count": 1, "index": 0} for name in formats}
    result = run_alone(
        image,
        "python",
        "/programs/pipes.py",
        mounts={tmp_path: "/job", PROGRAMS: "/programs:ro"},
        environment={
            "SAGEMAKER_BASE_DIR": "/job",
            "ENTRYPOINT_SHARDS": json.dumps(shares),
            "SAGEMAKER_TF_DATA_PATIENCE": "60",
            "TF_CPP_MIN_LOG_LEVEL": "2",
        },
    )
    assert result.returncode == 0, result.stdout
    assert result.stdout.count(": 1503 records, right") == 18, result.stdout
    assert "TFRecord pass 6 in a graph: right" in result.stdout
    assert ("by_operator" in result.stdout) == (LINE == DEFAULT_LINE)
