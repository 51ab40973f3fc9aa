"""Test what the doctor knows of our images and AWS's, and that requirements count."""

from pathlib import Path

import pytest
from looking import IMAGE, SCRIPT, found, look

from entrypoint.base.severity import Severity
from entrypoint.check.doctor.aws_images import AWS_COMMANDS, AWS_COMMANDS_ON_GPUS, on_aws, ours
from entrypoint.check.doctor.doctor import examine

ROOT = Path(__file__).resolve().parents[4]
PANDAS = f"import pandas as pd\n{SCRIPT}"
ON_AWS = {
    "AlgorithmSpecification": {
        "TrainingImage": "763104351884.dkr.ecr.eu-west-1.amazonaws.com/tensorflow-training:2.14.1-cpu-py310-ubuntu20.04"
    }
}


def test_the_page_has_what_is_lacking() -> None:
    page = (ROOT / "docs/differences.md").read_text()
    assert {each for each in AWS_COMMANDS | AWS_COMMANDS_ON_GPUS if f"`{each}`" not in page} == set()
    known = {"pandas", "PIL", "cv2", "matplotlib", "tqdm", "tensorflow_hub", "tensorflow_datasets", "seaborn", "shap"}
    known |= {"plotly", "bokeh", "imageio", "numba", "smclarify", "IPython", "tensorflow_text", "official"}
    assert known <= on_aws((2, 14))
    assert {each for each in known & (on_aws((2, 14)) - ours((2, 14))) if f"`{each}`" not in page} == set()


@pytest.mark.parametrize(
    ("change", "requirements", "told"),
    [
        ({}, "", [("error", 1)]),
        ({}, "pandas\n", []),
        ({}, "# pandas\nsix\n", [("error", 1)]),
        ({}, "six  # and pandas\n", [("error", 1)]),
        ({}, "seaborn>=0.12; python_version > '3'\n", []),
        ({}, "https://example.com/wheels/a.whl\n", [("warning", 1)]),
        ({}, "a-package-of-ours\n", [("warning", 1)]),
        (ON_AWS, "", [("note", 1)]),
        ({"AlgorithmSpecification": {"TrainingImage": IMAGE.rpartition(":")[0] + ":mine"}}, "", [("warning", 1)]),
    ],
)
def test_a_module_of_requirements(change: dict, requirements: str, told: list[tuple[str, int]], tmp_path: Path) -> None:
    assert found(look(tmp_path, PANDAS, change, requirements), "module-missing") == told


def test_jax_is_in_the_image_of_another_line(tmp_path: Path) -> None:
    script = f"import jax\n{SCRIPT}"
    (told,) = (each for each in look(tmp_path, script, {}).findings if each.check == "module-missing")
    assert (told.severity, "--tensorflow 2.21" in told.instead) == (Severity.ERROR, True)
    assert "requirements.txt" not in told.instead
    (tmp_path / "alone.py").write_text("import jax\njax.distributed.initialize()\n")
    assert found(examine([str(tmp_path / "alone.py")]), "module-missing") == [("note", 1)]
    mine = {"AlgorithmSpecification": {"TrainingImage": IMAGE.rpartition(":")[0] + ":mine"}}
    assert found(look(tmp_path, script, mine), "module-missing") == [("note", 1)]


@pytest.mark.parametrize(
    ("line", "module", "told"),
    [
        ("2.14", "tensorflow_addons", "tensorflow-addons in requirements.txt"),
        ("2.21", "tensorflow_addons", "the image of ./build.sh --tensorflow 2.14"),
        ("2.14", "keras_hub", "keras-nlp<0.13, or the image of"),
    ],
)
def test_no_remedy_is_a_library_that_fails_on_the_line(line: str, module: str, told: str, tmp_path: Path) -> None:
    change = {"AlgorithmSpecification": {"TrainingImage": f"{IMAGE.rpartition(':')[0]}:{line}"}}
    (finding,) = look(tmp_path, f"import {module}\n{SCRIPT}", change).findings
    assert finding.instead.startswith(told)


@pytest.mark.parametrize("version", ["2.14.1-cpu-py310-ubuntu20.04", "2.19.0-cpu-py312-ubuntu22.04"])
def test_what_awss_image_has_is_no_error_there(version: str, tmp_path: Path) -> None:
    image = ON_AWS["AlgorithmSpecification"]["TrainingImage"].rpartition(":")[0] + f":{version}"
    script = f"import bokeh, imageio, numba, plotly, seaborn, shap, smclarify\nimport IPython, bs4\n{SCRIPT}"
    told = found(look(tmp_path, script, {"AlgorithmSpecification": {"TrainingImage": image}}), "module-missing")
    assert {severity for severity, _ in told} == {"note"}


def test_modules_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "pandas").mkdir()  # a package without __init__.py
    assert found(look(tmp_path, PANDAS, {}), "module-missing") == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("aws s3 cp a b\n", [("warning", 2)]),
        ("set -e\naws s3 cp a b\n", [("error", 3)]),
        ("set -euo pipefail\necho a; cat b | /usr/bin/jq .\n", [("error", 3)]),
        ("set -e\nA=1 exec git \\\n  clone b\n", [("error", 3)]),
        ("set -e\nif ! aws s3 ls; then echo no; fi\n", []),
        ("set -e\ngit pull || true\n", []),
        ("set -e\npip install awscli\naws s3 ls\n", []),
        ("set -e\n# aws s3 ls\necho aws 'git pull'\n", []),
        ("set -e\ncat > x <<EOF\ngit pull\nEOF\npython train.py\n", []),
        ("set -e\ncommand -v git && git pull\n", []),
    ],
)
def test_commands_of_a_shell_script(text: str, told: list[tuple[str, int]], tmp_path: Path) -> None:
    from entrypoint.check.doctor.doctor import examine

    (tmp_path / "train.sh").write_text(f"#!/bin/bash\n{text}")
    assert found(examine([str(tmp_path / "train.sh")]), "command-missing") == told


def test_what_only_is_imported_does_nothing(tmp_path: Path) -> None:
    spot = {"EnableManagedSpotTraining": True, "CheckpointConfig": {"S3Uri": "s3://b/c"}}
    model = (
        "import tensorflow as tf\nfrom tensorflow.keras.callbacks import ModelCheckpoint\nm = tf.keras.Sequential()\n"
    )
    report = look(tmp_path, f"{model}m.fit(x, y)\n", spot)
    assert (found(report, "no-checkpoint"), found(report, "checkpoint-elsewhere")) == ([("warning", 4)], [])
    report = look(tmp_path, f"{model}m.fit(x, y, callbacks=[ModelCheckpoint('/tmp/a')])\n", spot)
    assert (found(report, "no-checkpoint"), found(report, "checkpoint-elsewhere")) == ([], [("warning", 4)])
    ours_ = "class Ours(ModelCheckpoint):\n    pass\nm.fit(x, y, callbacks=[Ours('/tmp/a')])\n"
    assert found(look(tmp_path, f"{model}{ours_}", spot), "checkpoint-elsewhere") == [("warning", 4)]
