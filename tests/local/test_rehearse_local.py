"""Test `entrypoint rehearse` with launch scripts of healthy jobs, and of jobs with one fault each."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hosts import ROOT, clean_environment, write
from processes import processes_with
from waiting import eventually

LIMIT = 300.0  # seconds; says when to give up
SUBMITS = """
import boto3

boto3.client("sagemaker", region_name="eu-west-1").create_training_job(
    TrainingJobName="job",
    RoleArn="arn:aws:iam::123456789012:role/Training",
    AlgorithmSpecification={{"TrainingImage": "image:2.14.1-cpu", "TrainingInputMode": "File"}},
    HyperParameters={{"sagemaker_program": "train.py", "steps": "100000"}},
    Environment={environment!r},
    InputDataConfig=[
        {{
            "ChannelName": "training",
            "DataSource": {{
                "S3DataSource": {{
                    "S3DataType": "S3Prefix", "S3Uri": "s3://bucket/rows/", "S3DataDistributionType": "ShardedByS3Key"
                }}
            }},
        }}
    ],
    OutputDataConfig={{"S3OutputPath": "s3://bucket/out"}},
    ResourceConfig={{"InstanceType": "ml.c5.xlarge", "InstanceCount": {hosts}, "VolumeSizeInGB": 30}},
    StoppingCondition={{"MaxRuntimeInSeconds": 3600}},
    **{more!r},
)
"""
TRAINS = """
import json, os, pathlib, signal, sys, time

stop, me = [], os.environ["SM_CURRENT_HOST"]
signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
rows = [row for path in pathlib.Path(os.environ["SM_CHANNEL_TRAINING"]).iterdir() for row in path.read_text().split()]
kept = pathlib.Path(os.environ["SM_MODEL_DIR"]).parent / "checkpoints" / f"{me}.json"
first = json.loads(kept.read_text()) + 1 if kept.exists() and RESUMES else 0
for step in range(first, 100_000):
    print(f"step={step} loss={1 / (1 + step):.4f} rows={len(rows)}", flush=True)
    time.sleep(0.02)
    if step % 10 == 9 or stop:
        kept.with_suffix(".tmp").write_text(json.dumps(step))
        kept.with_suffix(".tmp").replace(kept)
    if stop:
        break
pathlib.Path(os.environ["SM_MODEL_DIR"], me).write_text("weights")
"""
ALONE = """
import time
for step in range(100_000):
    print(f"step={step} loss=1.0", flush=True)
    time.sleep(0.005)
"""
DEAF = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{ALONE}"
SINGLE = {"ENTRYPOINT_MODE": "single"}
KEPT = {"CheckpointConfig": {"S3Uri": "s3://bucket/kept"}}


@dataclass
class Rehearsal:
    process: "subprocess.Popen[bytes]"
    folder: Path

    def end(self) -> int:
        return self.process.wait(LIMIT)

    @property
    def errors(self) -> str:
        return (self.folder / "err").read_text()

    @property
    def value(self) -> dict[str, Any]:
        return json.loads((self.folder / "said").read_text())

    def told(self, check: str) -> list[tuple[str, str]]:
        return [(each["severity"], each["found"]) for each in self.value["findings"] if each["check"] == check]


@pytest.fixture
def rehearse(tmp_path, no_leftovers):
    """Start `entrypoint rehearse --json` on a launch script, and end its processes after the test."""
    made: list[Rehearsal] = []

    def start(script: str, *words: str, hosts: int = 1, environment: dict[str, str] = SINGLE, **more: Any) -> Rehearsal:
        (tmp_path / "train.py").write_text(script)
        for number in range(4):
            write(tmp_path / "rows" / f"part-{number}.csv", "1,2\n" * 100)
        (tmp_path / "submit.py").write_text(SUBMITS.format(environment=environment, hosts=hosts, more=more))
        environ = clean_environment(PYTHONPATH=str(ROOT), HOME=str(tmp_path))
        environ = {name: value for name, value in environ.items() if not name.startswith("AWS_")}
        command = [sys.executable, "-m", "entrypoint", "rehearse", "submit.py", "--json", "--output", "out"]
        command += ["--channel", "training=rows", "--records", "40", *words]
        with (tmp_path / "said").open("wb") as said, (tmp_path / "err").open("wb") as err:
            process = subprocess.Popen(
                command, env=environ, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=said, stderr=err
            )
        made.append(Rehearsal(process, tmp_path))
        return made[-1]

    yield start
    for each in made:
        print(each.errors, (tmp_path / "said").read_text())
        for log in (tmp_path / "out").glob("*.log"):
            print(log, log.read_text()[-3000:], sep="\n")
        if each.process.poll() is None:  # the test failed before it ended
            each.process.kill()
            each.process.wait()


def test_healthy_job_passes_the_rehearsal(rehearse):
    # A run has a rate only if its steps were seen for a second, and a busy machine may start the script late.
    script = TRAINS.replace("RESUMES", "True").replace("    if stop:", "    if stop and step >= first + 200:")
    job = rehearse(script, "--seconds", "4", hosts=2, **KEPT)
    assert job.end() == 0, job.errors
    value = job.value
    assert value["go"] and [run["name"] for run in value["runs"]] == ["plain", "kill", "resume"]
    assert {each["severity"] for each in value["findings"]} <= {"fine", "note"}
    assert ("fine", "training: each of 4 files was read by one host (algo-1 2, algo-2 2)") in job.told("shards")
    assert job.told("data")[0][1].startswith("training: 40 records (lines) in 4 of 4 files, 10.00% of it by bytes")
    assert value["runs"][0]["steps_per_second"] > 0 and value["runs"][0]["memory"]["algo-2"] > 1 << 20
    ((level, words),) = job.told("resume")
    assert level == "fine" and words.startswith("it continued from step ")
    left = [path for path in (job.folder / "out").rglob("*.csv") if "code" not in path.parts]
    assert not left and not list((job.folder / "out").rglob("samples")), "samples are removed, those of hosts, too"
    assert list((job.folder / "out/plain").rglob("record/algo-2.jsonl.gz")), "records stay"


def test_a_script_with_the_path_of_a_real_host_is_rehearsed_in_namespaces(rehearse):
    """The script contains the path itself, so hosts that are mere processes would write to this machine."""
    here = 'pathlib.Path(os.environ["SM_MODEL_DIR"]).parent / "checkpoints"'
    script = TRAINS.replace("RESUMES", "True").replace(here, 'pathlib.Path("/opt/ml/checkpoints")')
    there = Path("/opt/ml").exists()
    job = rehearse(script, "--seconds", "4", **KEPT)
    if os.geteuid():
        assert job.end() == 2 and "train.py:6" in job.errors and "--engine docker" in job.errors
    else:
        assert job.end() == 0, job.errors
        assert job.value["engine"] == "netns" and job.told("resume")[0][0] == "fine"
    assert Path("/opt/ml").exists() is there


def test_rehearsal_reports_hosts_that_train_alone_as_an_error(rehearse):
    """The hosts leave no processes, and no files of the run are kept."""
    job = rehearse(ALONE, "--seconds", "4", hosts=2, environment={"ENTRYPOINT_MODE": "mwms"})
    assert job.end() == 1
    ((level, words),) = job.told("distributed")
    assert level == "error" and words.startswith("NO: ") and "alone (exchanged nothing" in words
    assert ("warning", "training: no host has read any file of it") in job.told("shards")
    ((level, words),) = job.told("checkpoints")
    assert level == "warning" and "no CheckpointConfig: a job that loses a host starts from the beginning" in words
    assert ("warning", "it saves neither a checkpoint nor a model when it is stopped") in job.told("stop")


def test_rehearsal_reports_an_ignored_sigterm_as_an_error(rehearse):
    environment = {**SINGLE, "ENTRYPOINT_STOP_GRACE": "2"}
    job = rehearse(DEAF, "--seconds", "2", environment=environment, **KEPT, EnableManagedSpotTraining=True)
    assert job.end() == 1
    level, words = job.told("stop")[0]
    assert level == "error" and "SIGTERM does not end it: algo-1 script had to be killed after 2 s" in words
    ((level, words),) = job.told("checkpoints")
    assert level == "error" and "none was written" in words


def test_rehearsal_stops_a_short_job_in_a_second_run(rehearse):
    script = TRAINS.replace("RESUMES", "True").replace("100_000", "300")
    job = rehearse(script, "--price", "2", "--speedup", "3", **KEPT)
    assert job.end() == 0
    assert [run["name"] for run in job.value["runs"]][:2] == ["plain", "stop"]
    assert job.told("end")[0][1].startswith("the sample was trained to its end")
    assert job.told("price")[0][0] == "fine" and "for 10.00% of the data" in job.told("hours")[0][1]


def test_an_interruption_ends_the_rehearsal_and_its_hosts(rehearse):
    job = rehearse(ALONE, hosts=2)
    log = job.folder / "out/plain.log"
    eventually(lambda: log.exists() and "step=" in log.read_text(), within=LIMIT, what="a step")
    job.process.send_signal(signal.SIGTERM)
    assert job.end() == 130
    assert "interrupted: all hosts have ended" in job.errors
    eventually(lambda: not processes_with(str(job.folder)), within=60)
    assert not (job.folder / "out/samples").exists()
