"""Test output that is not read: the job continues, stops and fails as if it were."""

import os
import re
import signal
import time
from pathlib import Path

import pytest
from hosts import LONG
from waiting import eventually

MWMS = {"sagemaker_multi_worker_mirrored_strategy_enabled": "true"}
MEGABYTE = 10_000  # lines
LOST = r"(\d+) bytes of the output of this host were not written"

# Prints megabytes on one host; says in a file how far it has come. On SIGTERM it ends its loop, saves, and says so.
PRINTS = """
import os, signal, sys, time
from pathlib import Path
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
host, model = os.environ["SM_CURRENT_HOST"], Path(os.environ["SM_MODEL_DIR"])
lines = int(float(os.environ["MEGABYTES"]) * 1e4) if host == os.environ["WHO"] else 1
for number in range(lines):
    print(f"{number:08d}" + "." * 91)
    if number % 1000 == 0 or number == lines - 1:
        (model / "printed").write_text(str(number))
    if stopped:
        break
sys.stdout.flush()
print("asleep", flush=True)
(model / "asleep").touch()
while os.environ["THEN"] == "waits" and not stopped or host != os.environ["WHO"] and not stopped:
    time.sleep(0.05)
    if os.environ["THEN"] == "other raises" and host != os.environ["WHO"]:
        if Path(os.environ["GO"]).exists():
            raise ValueError("the loss is not a number")
if stopped:
    print("saving")
    (model / "saved").touch()
elif os.environ["THEN"] == "raises":
    raise ValueError("the loss is not a number")
"""


@pytest.fixture
def job(hosts, tmp_path):
    def start(count: int, megabytes: float, then: str, who: str = "algo-1", **options):
        environment = {
            "MEGABYTES": str(megabytes),
            "THEN": then,
            "WHO": who,
            "GO": str(tmp_path / "go"),
            "PYTHONUNBUFFERED": "",
        }
        return hosts(
            count,
            code={"train.py": PRINTS},
            hyperparameters=MWMS if count > 1 else {},
            environment=environment,
            unread=(who,),
            **options,
        )

    return start


def model(job, number: int) -> Path:
    return job[number].base / "model"


def printed(job, number: int = 1) -> int:
    """Return how many lines its script printed, once that number is stable."""

    def settled() -> int:
        path = model(job, number) / "printed"
        before = path.read_text() if path.exists() else ""
        time.sleep(1)
        still = before and int(before) > MEGABYTE and path.read_text() == before  # before that it is only slow
        return int(before) if still else 0

    return eventually(settled, within=LONG)


def evidence(job, number: int = 1) -> str:
    return (job[number].base / f"output/data/entrypoint-algo-{number}.txt").read_text()


@pytest.mark.parametrize(
    "megabytes", [pytest.param(2, marks=pytest.mark.more), 60], ids=["before the bound", "beyond the bound"]
)
def test_sigterm_reaches_the_script_which_saves(job, figure, megabytes):
    """This holds also where the script is blocked in `print`, where its handler runs."""
    job = job(1, megabytes, "waits")
    last = printed(job)
    assert (last == megabytes * 10_000 - 1) == (megabytes == 2)
    sent = time.monotonic()
    job.signal(signal.SIGTERM)
    eventually(lambda: (model(job, 1) / "saved").exists(), within=LONG)
    figure(f"{megabytes} MB unread: from SIGTERM to a saved model", time.monotonic() - sent)
    assert job.end() == [0]
    figure(f"{megabytes} MB unread: from SIGTERM to the host's end", time.monotonic() - sent)
    assert int(re.search(LOST, evidence(job))[1]) > 1e6


@pytest.mark.more  # the outcome table has it
@pytest.mark.parametrize("who", [pytest.param(1, marks=pytest.mark.more), 2], ids=["coordinator", "follower"])
def test_a_script_of_another_host_raises(job, figure, tmp_path, who):
    job = job(2, 60, "other raises", who=f"algo-{who}")
    other = 3 - who
    printed(job, who)
    eventually(lambda: (model(job, other) / "asleep").exists(), within=LONG)
    raised = time.monotonic()
    (tmp_path / "go").touch()
    assert job.end() == [1, 1]
    figure("60 MB unread: from an exception on another host to the last host's end", time.monotonic() - raised)
    text = f"algo-{other} worker/{other - 1} (exit code 1): ValueError: the loss is not a number"
    assert [failure.splitlines()[0] for failure in job.failures] == [text, text]
    assert (model(job, who) / "saved").exists()
    assert int(re.search(LOST, evidence(job, who))[1]) > 1e6


def test_last_words_are_heard(job):
    job = job(2, 2, "raises")
    assert job.end() == [1, 1]
    assert [failure.splitlines()[0] for failure in job.failures] == [
        "algo-1 worker/0 (exit code 1): ValueError: the loss is not a number"
    ] * 2
    assert int(re.search(LOST, evidence(job))[1]) > 1e6


def test_a_reader_that_comes_late_gets_everything_and_memory_is_bounded(job):
    job = job(1, 60, "ends")
    at_first = memory(job)
    assert printed(job) < 200_000
    assert memory(job) - at_first < 40e6
    job.read(job[1])
    assert job.end() == [0]
    lines = [line.removeprefix("[algo-1 script] ") for line in job[1].log.splitlines() if line.endswith("." * 91)]
    assert lines == [f"{number:08d}" + "." * 91 for number in range(600_000)]
    assert not (job[1].base / "output/data/entrypoint-algo-1.txt").exists()


def memory(job) -> int:
    """Return the launcher's peak of memory in bytes."""
    status = Path(f"/proc/{job[1].process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1000


def test_success_with_output_that_nobody_read_is_a_success_and_says_so(job):
    job = job(1, 2, "ends")
    assert job.end() == [0]
    assert job.failures == [None]
    assert int(re.search(LOST, evidence(job))[1]) > 1e6


def test_a_progress_bar_is_seen_while_it_stands_and_is_not_lost_when_the_launcher_is_killed(hosts):
    code = """if True:
        import time
        for percent in (10, 20):
            print(f"\\r{percent}%|##", end="", flush=True)
        time.sleep(600)
    """
    job = hosts(1, code={"train.py": code})
    script = job.pid_of("script")
    job.says(r"^\[algo-1 script\] 10%\|##\r20%\|##$")
    job[1].kill()
    job.end()
    os.kill(script, signal.SIGKILL)


def test_who_reads_again_gets_the_last_lines(job):
    """As with a log driver whose network was away for some seconds."""
    job = job(1, 2, "raises")
    eventually((job[1].base / "output/failure").exists, within=LONG)
    time.sleep(7)  # more than SageMaker's stop leaves; a reader that comes within 20 s is early enough
    job.read(job[1])
    assert job.end() == [1]
    lines = [line for line in job[1].log.splitlines() if line.endswith("." * 91)]
    assert [int(line[-99:-91]) for line in lines] == list(range(20_000))
    assert "bytes of output" not in job[1].log


def test_a_stop_that_comes_while_a_reader_is_waited_for_is_heard(job):
    """The script has ended and the launcher gives its output 20 s, or less if SageMaker ends the host earlier."""
    job = job(1, 2, "ends")
    eventually((job[1].base / "output/data/report.html").exists, within=LONG)
    time.sleep(7)  # more than a stop leaves
    assert job[1].process.poll() is None
    job.signal(signal.SIGTERM)
    eventually(lambda: job[1].process.poll() is not None, within=12)  # 13 s were left
    assert job.end() == [0]
