"""Test `deploy` of SageMaker's SDK in local mode: the examples' models at an endpoint answer as TensorFlow does."""

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from local_mode import ROOT, Job
from ports import unused_port

# cluster/test_cluster_serve.py has the container that serves, local/test_serving_local.py what it answers.
pytestmark = [pytest.mark.more, pytest.mark.tensorflow]

SAVE_DEEPFM = "import sys; from model import deepfm; from kept import save; save(deepfm(), sys.argv[1])"
INFERENCE = """\
import json

def input_handler(data, context):
    assert context.request_content_type == "text/csv"
    ids = [int(text) for text in data.read().decode().split(",")]
    return json.dumps({"instances": [{"ids": ids, "values": [1.0] * len(ids)}]})

def output_handler(response, context):
    return response.content, response.headers["Content-Type"]
"""


def archive(folder: Path, name: str) -> str:
    """Pack a model folder as SageMaker does; return its URL.

    Local mode unpacks it beside itself and mounts the folder.
    """
    path = folder / "archives" / name / "model.tar.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        tar.add(folder / name, ".")
    return f"file://{path}"


def made_by(example: str, arguments: list[str], **environment: str) -> None:
    subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT / "examples" / example,
        env={**os.environ, **environment},
        check=True,
        stdin=subprocess.DEVNULL,
        timeout=240,
    )


def test_endpoints_of_digits_and_deepfm_answer_as_tensorflow_does(
    run: Callable[..., Job], image: str, tmp_path: Path
) -> None:
    import tensorflow as tf

    made_by("digits", ["train.py", "--epochs", "1"], SM_MODEL_DIR=str(tmp_path / "digits"))
    made_by("deepfm", ["-c", SAVE_DEEPFM, str(tmp_path / "deepfm/1")])
    (tmp_path / "code").mkdir()
    (tmp_path / "code/inference.py").write_text(INFERENCE)

    pixels = [[(row * 31 + place * 7) % 17 / 16 for place in range(64)] for row in range(2)]
    images = tf.reshape(tf.constant(pixels), [2, 8, 8, 1])
    rows = [{"ids": list(range(n, n + 39)), "values": [1.0] * 39} for n in (0, 1000)]

    def endpoint(name: str, requests: list[dict[str, Any]], **model: str) -> dict[str, Any]:
        arguments = {"image_uri": image, "model_data": archive(tmp_path, name), **model}
        return {"model": arguments, "port": unused_port(), "requests": requests}

    # Without the location of a bucket, which is not used, the SDK would ask AWS for the default one.
    code = {"entry_point": "inference.py", "source_dir": str(tmp_path / "code"), "code_location": "s3://bucket/code"}
    job = run("v2", [
        endpoint("digits", [
            {"body": {"instances": images.numpy().tolist()}, "type": "json", "accept": "json"},
            {"body": pixels, "type": "csv", "accept": "csv"},
            {"body": {"instances": [[1, 2]]}, "type": "json", "accept": "json"},
        ]),
        endpoint("deepfm", [{"body": {"instances": rows}, "type": "json", "accept": "json"}]),
        endpoint("deepfm", [{"body": rows[1]["ids"], "type": "csv", "accept": "json"}], **code),
    ], driver="v2_deploy")  # fmt: skip
    assert job.exit_code == 0, job.output
    as_json, as_csv, refused, clicks, click = json.loads(re.findall(r"^answers: (.*)$", job.output, re.M)[-1])

    digits = tf.saved_model.load(str(tmp_path / "digits/1")).signatures["serving_default"]
    (expected,) = digits(images).values()
    assert as_json["predictions"] == [pytest.approx(row, rel=1e-3, abs=1e-6) for row in expected.numpy().tolist()]
    assert [list(map(float, row)) for row in as_csv] == [pytest.approx(row) for row in as_json["predictions"]]
    assert "has shape [1, 2]; wanted" in refused["error"] and "float32 [n, 8, 8, 1]" in refused["error"]

    deepfm = tf.saved_model.load(str(tmp_path / "deepfm/1")).signatures["serving_default"]
    ids, values = tf.constant([row["ids"] for row in rows], tf.int64), tf.ones([2, 39])
    assert clicks["predictions"] == pytest.approx(deepfm(ids=ids, values=values)["probability"].numpy().tolist())
    assert click["predictions"] == pytest.approx(clicks["predictions"][1:])
