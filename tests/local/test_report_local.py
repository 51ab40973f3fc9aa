"""Test reports of real jobs with and without a fault; a job's end does not depend on its report."""

import json
import re

import pytest
from hosts import LISTENS, entrypoint

from entrypoint.observe.report.make import make
from entrypoint.record.find import records_in

# A job of so few seconds is judged by one rule: on hosts that share a busy machine, others have reasons to speak.
OTHERS_OFF = (
    "cpu_starved,gpu_starved,memory,disk,network,idle,small_files,loss,straggler,step_growth,ps_unbalanced,input_bound"
)

LOSS = """
import math, time
for step in range(60):
    print(f"step={step} loss={math.nan if step > 30 else 1 / (1 + step)}", flush=True)
    time.sleep(0.1)
"""
# The second host takes one step in each five of the first, however fast the machine is.
STEPS = """
import os, pathlib, time
shared, second = pathlib.Path(os.environ["TEST_FOLDER"]), os.environ["SM_CURRENT_HOST"] == "algo-2"
own, other = (open(shared / name, "ab+", 0) for name in (("two", "one") if second else ("one", "two")))
over, began, step = shared / "over", time.monotonic(), 0
while not over.exists():
    step += 1
    print(f"step={step} loss={1 / step:.4f}", flush=True)
    own.write(b".")
    wanted = step * 5 if second else step // 5 - 1
    while os.fstat(other.fileno()).st_size < wanted and not over.exists():
        time.sleep(0.01)
    time.sleep(0.05)
    if second and step >= 30 and time.monotonic() > began + 8:
        over.touch()
"""
TRAINS = "import time\nfor step in range(40):\n    print(f'step={step}', flush=True)\n    time.sleep(0.1)\n"


@pytest.fixture
def judged(hosts):
    """Run a job on simulated hosts; return (job, the page's data)."""

    def run(count: int, code: str, rule: str, threshold: str = "", **options):
        rules = ",".join(f"{name}=off" for name in OTHERS_OFF.split(",") if name != rule)
        rules += f",{rule}={threshold}" if threshold else ""
        job = hosts(count, code=code, MONITOR_INTERVAL=0.25, RULES=rules, **options)
        job.must_end(0)
        return job, page_of(job)

    return run


LATE = "no report.html: it was not made within"  # on a machine so busy that three seconds do not suffice


def page_of(job) -> dict:
    """Return the report's figures. If it was late, make it again, as the log advises, and return those figures."""
    page = job[1].base / "output/data/report.html"
    if LATE in job[1].log:
        assert not page.exists()
        make(records_in(page.parent / "record"), page)
    text = page.read_text("utf-8")
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def told(page: dict) -> list[str]:
    return [verdict["rule"] for verdict in page["verdicts"]]


def test_a_loss_of_nan_is_reported_in_the_log_and_on_the_page(judged):
    job, page = judged(1, LOSS, "loss", "0.01")
    assert told(page) == ["loss"] and "loss is nan" in page["verdicts"][0]["text"]
    assert re.search(rf"^\[algo-1\] (report: error: loss: script on algo-1: |{LATE})", job[1].log, re.MULTILINE)


def test_report_names_the_slower_host(judged):
    _, page = judged(2, STEPS, "straggler", "3", mode="single")
    assert told(page) == ["straggler"]
    assert (page["verdicts"][0]["host"], page["verdicts"][0]["process"]) == ("algo-2", "script")


def test_report_names_a_channel_of_small_files(judged):
    base_files = {f"input/data/train/{number}.txt": "row" for number in range(300)}
    _, page = judged(1, TRAINS, "small_files", "200", base_files=base_files)
    assert told(page) == ["small_files"]
    assert page["hosts"][0]["channels"][0]["files"] == 300


def test_report_shows_all_processes_on_one_time_axis(judged):
    job, page = judged(2, TRAINS, "loss", mode="ps", environment={**LISTENS, "TRAINING_JOB_NAME": "my-job-17"})
    assert page["job"]["name"] == "my-job-17" and page["job"]["mode"] == "ps" and page["notes"] == []
    names = [(host["name"], sorted(process["role"] for process in host["processes"])) for host in page["hosts"]]
    assert names == [("algo-1", ["chief", "prepare", "ps"]), ("algo-2", ["prepare", "ps", "worker"])]
    for host in page["hosts"]:
        phases = [page["phases"][phase]["name"] for phase, *_ in host["spans"]]
        assert "train" in phases and phases[0] == "start"
        assert host["memory"] > 0 and host["disk"] > 0
    assert not list((job[2].base / "output/data").glob("report.html")), "one page for all hosts"


def test_a_failed_job_has_a_report(hosts):
    code = "print('step=1 loss=0.5', flush=True)\nraise ValueError('no such row')\n"
    job = hosts(2, code=code, RULES="idle=off")
    job.must_end(1)
    outcome = page_of(job)["job"]["outcome"]
    assert outcome["kind"] == "failed" and "no such row" in outcome["cause"]["error"]
    assert re.search(r'File ".*", line 2, in <module>', outcome["cause"]["details"])
    # The script of the other host fails, too, and may print its traceback later.
    launcher = [line for line in job[1].log.splitlines() if line.startswith("[algo-1] ")]
    assert job[1].failure and not any("Traceback" in line for line in launcher)


def test_unwritable_report_does_not_fail_the_job(hosts):
    """A folder has the name of the page."""
    code = (
        "import os\nos.makedirs(os.environ['SM_OUTPUT_DATA_DIR'] + '/report.html/full')\nprint('step=1', flush=True)\n"
    )
    job = hosts(1, code=code)
    job.must_end(0)
    assert re.search(rf"^\[algo-1\] (no report.html: \w+Error|{LATE})", job[1].log, re.MULTILINE)
    assert "Traceback" not in job[1].log


DELETES = """if True:
    import os, pathlib, shutil, time
    output = pathlib.Path(os.environ["SM_OUTPUT_DIR"])
    while not (output / "data/record/algo-1.jsonl.gz").exists():
        time.sleep(0.01)
    shutil.rmtree(output)
"""


@pytest.mark.parametrize("instead", ["", '    output.write_text("no folder")\n'], ids=["nothing", "a file"])
def test_removed_output_folder_does_not_fail_the_job(hosts, instead):
    """The monitor writes its record again from memory. If it cannot, no message points to the record."""
    job = hosts(1, code=DELETES + instead)
    job.must_end(0)
    assert "Traceback" not in job[1].log
    if instead:
        assert "the records are gone from" in job[1].log and "`entrypoint report`" not in job[1].log
        return
    assert (job[1].base / "output/data/record/algo-1.jsonl.gz").exists()
    assert (job[1].base / "output/data/report.html").exists() or LATE in job[1].log


def test_an_unknown_rule_ends_the_job_at_its_start(hosts):
    assert "did you mean straggler?" in hosts(1, "exits.py", RULES="stragler=2").must_end(78)


def test_entrypoint_local_names_the_report_and_entrypoint_report_remakes_it(local, tmp_path):
    run = local(LOSS, count=2, mode="single")
    run.must_end(0)
    end = run.terminal.rpartition("tail s")[2]
    if LATE not in run.terminal:
        assert re.search(r"^report: error: loss: script on algo-\d: loss is nan", end, re.MULTILINE)
        assert re.search(r"^report   .*algo-1/ml/output/data/report.html$", end, re.MULTILINE)
    made = entrypoint("report", run.output, "--price", "3", "--output", tmp_path / "again.html", PATH="")
    assert made.returncode == 0, made.stdout
    assert made.stdout.startswith("error: loss") and (tmp_path / "again.html").exists()
