"""Test the files that a job leaves in /opt/ml (model, output/data, failure file) and the log lines about them."""

import json

REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
SAVES = """
import os
from pathlib import Path

host, model = (os.environ[name] for name in ("SM_CURRENT_HOST", "SM_MODEL_DIR"))
folder = Path(model, "1")
folder.mkdir(exist_ok=True)
(folder / "saved_model.pb").write_text(host)
"""


def warnings(job) -> list[str]:
    """Return the warnings about the outputs, of all hosts."""
    found = [line for host in job.hosts.values() for line in host.log.splitlines() if "warning: /opt/ml/" in line]
    return [line.replace("warning: ", "") for line in found]


def test_a_job_without_a_model_on_any_host_gets_one_warning(hosts):
    job = hosts(2, code="")
    job.must_end(0)
    (warning,) = warnings(job)
    assert warning.startswith("[algo-1] /opt/ml/model is empty: no model was saved on any host")
    assert (job[1].base / "output" / "success").read_bytes() == b""


def test_files_of_equal_name_and_different_content_are_reported_by_host(hosts):
    job = hosts(3, code=SAVES)
    job.must_end(0)
    (warning,) = warnings(job)
    assert warning.startswith("[algo-1] /opt/ml/model/1/saved_model.pb: different on algo-1, algo-2, algo-3. ")


def test_one_model_folder_for_all_hosts_gives_no_warning(hosts, tmp_path):
    """The SDK's local mode shares one model folder among all hosts."""
    names = ("algo-1", "algo-2")
    job = hosts(2, code=SAVES, absent=names)
    (tmp_path / "shared").mkdir()
    for name in names:
        (job.base(name) / "model").rmdir()
        (job.base(name) / "model").symlink_to(tmp_path / "shared")
        job.start(name)
    job.must_end(0)
    assert warnings(job) == []


def test_all_hosts_report_the_scripts_own_failure_text(hosts):
    code = """
import os, sys, time
if os.environ["SM_CURRENT_HOST"] != "algo-2":
    time.sleep(600)
with open(os.path.join(os.environ["SM_OUTPUT_DIR"], "failure"), "w") as file:
    file.write("my own words\\nand some more")
raise SystemExit(4)
"""
    job = hosts(3, code=code)
    assert job.end() == [4, 4, 4]
    told = "algo-2 script (exit code 4): my own words\nand some more"
    assert job.failures == [told, "my own words\nand some more", told]


def test_a_failure_file_of_an_earlier_run_is_not_used(hosts):
    """A failure file can remain if a container is started again on the same /opt/ml."""
    job = hosts(2, "exits.py", hyperparameters={"code": "3"}, base_files={"output/failure": "of the last run"})
    assert "(exit code 3)" in job.must_end(3)
    assert not any("last run" in text for text in job.failures) and warnings(job) == []
    assert "output/failure of an earlier run" in job[1].log
    assert not list(job.folder.glob("*/output/success"))


def test_failure_file_is_attributed_to_the_program_that_wrote_it(hosts):
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
    job = hosts(1, code=code, mode="mwms", each=2)
    assert job.end() == [1]
    assert "job failed: algo-1 worker/1 (exit code 1): ValueError: bad data" in job[1].log


def test_model_dir_contains_the_name_of_a_tuning_job(hosts):
    """This holds for each place in which a script can read model_dir."""
    parameters = {"_tuning_objective_metric": "auc", "model_dir": '"s3://bucket/tuning"'}
    given = {"TRAINING_JOB_NAME": "trial-3", "S3_USE_HTTPS": "0", **dict.fromkeys(REGIONS, "eu-west-1")}
    job = hosts(1, "tells.py", hyperparameters=parameters, environment=given)
    job.must_end(0)
    (told,) = job.json_of("told.json")
    expected = "s3://bucket/tuning/trial-3/model"
    assert told["argv"] == ["--model_dir", expected]
    assert told["env"]["SM_HP_MODEL_DIR"] == json.loads(told["env"]["SM_HPS"])["model_dir"] == expected
    assert told["env"]["SM_MODEL_DIR"].endswith("/model")
    assert (told["env"]["S3_REGION"], told["env"]["S3_USE_HTTPS"]) == ("eu-west-1", "0")  # ours, the job's
