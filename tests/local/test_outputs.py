"""Test what a job leaves in /opt/ml: the model, output/data, the failure file, and the log's lines on them."""

import json

LEAVES = """
import os
from pathlib import Path

host, model, data = (os.environ[name] for name in ("SM_CURRENT_HOST", "SM_MODEL_DIR", "SM_OUTPUT_DATA_DIR"))
"""
SAVE = """
folder = Path(model, "1")
folder.mkdir(exist_ok=True)
(folder / "saved_model.pb").write_text(WHAT)
"""
FIRST = "if host != 'algo-1':\n    raise SystemExit\n"


def warnings(job) -> list[str]:
    """Return the warnings about the outputs, of all hosts."""
    found = [line for host in job.hosts.values() for line in host.log.splitlines() if "warning: /opt/ml/" in line]
    return [line.replace("warning: ", "") for line in found]


def run(hosts, count: int, code: str) -> list[str]:
    job = hosts(count, "train.py", code={"train.py": LEAVES + code})
    assert job.end() == [0] * count
    return warnings(job)


def test_nothing_left_on_any_host_is_said_once(hosts):
    (warning,) = run(hosts, 2, "")
    assert warning.startswith("[algo-1] /opt/ml/model is empty: no model was saved on any host")


def test_a_model_of_the_first_host_is_well(hosts):
    assert run(hosts, 2, FIRST + SAVE.replace("WHAT", "host")) == []


def test_a_model_that_serving_does_not_find(hosts):
    (warning,) = run(hosts, 1, "Path(model, 'model.keras').write_text('x')")
    assert warning.startswith("[algo-1] /opt/ml/model holds no SavedModel in a numbered folder such as ")


def test_different_files_of_one_name(hosts):
    (warning,) = run(
        hosts,
        3,
        SAVE.replace("WHAT", "host") + "Path(data, 'history').write_text(host[:-2])\n"
        "Path(data, f'log-{host}').write_text(host)",
    )
    assert warning.startswith("[algo-1] /opt/ml/model/1/saved_model.pb: different on algo-1, algo-2 and algo-3. ")


def test_one_model_folder_for_all_hosts(hosts, tmp_path):
    """As the SDK's local mode has it."""
    names = ("algo-1", "algo-2")
    job = hosts(2, "train.py", code={"train.py": LEAVES + SAVE.replace("WHAT", "host")}, absent=names)
    (tmp_path / "shared").mkdir()
    for name in names:
        (job.base(name) / "model").rmdir()
        (job.base(name) / "model").symlink_to(tmp_path / "shared")
        job.start(name)
    assert job.end() == [0, 0]
    assert warnings(job) == []


def test_a_failed_job_says_nothing_of_its_model(hosts):
    job = hosts(2, "exits.py", hyperparameters={"code": "3"})
    assert job.end() == [3, 3]
    assert warnings(job) == []
    assert not list(job.folder.glob("*/output/success"))


def test_the_scripts_own_failure_text_is_what_all_hosts_say(hosts):
    code = """
import os, sys, time
if os.environ["SM_CURRENT_HOST"] != "algo-2":
    time.sleep(600)
with open(os.path.join(os.environ["SM_OUTPUT_DIR"], "failure"), "w") as file:
    file.write("my own words\\nand some more")
raise SystemExit(4)
"""
    job = hosts(3, "train.py", code={"train.py": code})
    assert job.end() == [4, 4, 4]
    told = "algo-2 script (exit code 4): my own words\nand some more"
    assert job.failures == [told, "my own words\nand some more", told]


def test_words_of_an_earlier_run_are_not_this_ones(hosts):
    """As where a container is started again on the same /opt/ml."""
    job = hosts(2, "exits.py", hyperparameters={"code": "3"}, base_files={"output/failure": "of the last run"})
    assert job.end() == [3, 3]
    assert all("(exit code 3)" in text and "last run" not in text for text in job.failures)
    assert "output/failure of an earlier run" in job[1].log


def test_of_two_programs_on_a_host_nobody_knows_whose_words_they_are(hosts):
    code = """
import json, os, sys, time
from pathlib import Path
failure = Path(os.environ["SM_OUTPUT_DIR"], "failure")
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
    failure.write_text("Horovod has been shut down")
    time.sleep(600)
while not failure.exists():
    time.sleep(0.02)
raise ValueError("bad data")
"""
    settings = {"ENTRYPOINT_MODE": "mwms", "ENTRYPOINT_PROCESSES_PER_HOST": "2"}
    job = hosts(1, "train.py", code={"train.py": code}, environment=settings)
    assert job.end() == [1]
    assert "job failed: algo-1 worker/1 (exit code 1): ValueError: bad data" in job[1].log


def test_a_tuning_job(hosts):
    """Its model_dir contains its name, wherever the script looks for it."""
    job = hosts(
        1,
        "tells.py",
        hyperparameters={"_tuning_objective_metric": "auc", "model_dir": '"s3://bucket/tuning"'},
        environment={
            "TRAINING_JOB_NAME": "trial-3",
            "S3_USE_HTTPS": "0",
            "AWS_REGION": "eu-west-1",
            "AWS_DEFAULT_REGION": "eu-west-1",
        },
    )
    assert job.end() == [0]
    (told,) = job.json_of("told.json")
    expected = "s3://bucket/tuning/trial-3/model"
    assert told["argv"] == ["--model_dir", expected]
    assert told["env"]["SM_HP_MODEL_DIR"] == json.loads(told["env"]["SM_HPS"])["model_dir"] == expected
    assert told["env"]["SM_MODEL_DIR"].endswith("/model")
    assert (told["env"]["S3_REGION"], told["env"]["S3_USE_HTTPS"]) == ("eu-west-1", "0")  # ours, the job's
    assert (job[1].base / "output" / "success").read_bytes() == b""
