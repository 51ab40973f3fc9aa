"""Test the monitor beside a job: its record of all hosts, stacks when progress ends, and hosts that train alone."""

import json
import os
import re
import signal
import socket
import zlib
from collections import Counter
from pathlib import Path

import pytest
from hosts import LISTENS, LONG
from processes import processes_with
from waiting import eventually

STEPS = """
import os, time
for step in range({steps}):
    print(f"step={{step}} loss={{1 / (1 + step):.3f}}", flush=True)
    time.sleep({pause})
"""
WAITS = """
import os, threading, time
print("begins", flush=True)
def read_data():
    time.sleep(600)
if os.environ["SM_CURRENT_HOST"] == "algo-2":
    read_data()
lock = threading.Lock()
lock.acquire()
lock.acquire()
"""
A_RANK_IS_MISSING = """
import time
from mpi4py import MPI
def read_data():
    time.sleep(600)
print("begins", flush=True)
if MPI.COMM_WORLD.rank:
    read_data()
MPI.COMM_WORLD.barrier()
"""
WORKS = """
import os, pathlib, time
print("begins", flush=True)
done, seen = (pathlib.Path(os.environ["TEST_FOLDER"], name) for name in ("done", "seen"))
if os.environ["SM_CURRENT_HOST"] == "algo-1":
    ends = time.process_time() + 3
    while time.process_time() < ends or not seen.exists():
        if time.process_time() >= ends:
            done.touch()
else:
    while not done.exists():
        time.sleep(0.05)
    seen.touch()
"""
FULL_PIPE = """
import subprocess, sys
print("begins", flush=True)
def feed(reader):
    reader.stdin.write(bytes(1 << 20))
feed(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.PIPE))
"""
SILENT_S3 = """
import boto3
print("begins", flush=True)
def load(key):
    return boto3.client("s3").get_object(Bucket="rows", Key=key)["Body"].read()
load("part-00000")
"""
FAILS_SOON = {"HANG_AFTER": 2, "HANG_ACTION": "fail"}


def record(job, host: str, of: int = 1) -> list[list]:
    """Return a host's record up to its last complete line; by default the copy on the coordinator."""
    path = job[of].base / f"output/data/record/{host}.jsonl.gz"
    *whole, _ = zlib.decompressobj(31).decompress(path.read_bytes()).split(b"\n")
    return [json.loads(line) for line in whole]


def lines(job, host: str, kind: str) -> list[list]:
    return [line[2:] for line in record(job, host) if line[0] == kind]


def test_the_coordinator_has_the_records_of_all_hosts(hosts):
    job = hosts(3, code=STEPS.format(steps=20, pause=0.1))
    job.must_end(0)
    for rank, host in enumerate(job.hosts):
        first, *_ = record(job, host)
        assert first[0] == "host" and first[2]["host"] == host and first[2]["rank"] == rank
        assert first[2]["hosts"] == ["algo-1", "algo-2", "algo-3"]
        assert [name for name, _ in lines(job, host, "process")] == ["prepare", "script"]
        assert ["script", "exit code 0"] in lines(job, host, "ended")
        assert lines(job, host, "outcome")[0][0]["kind"] == "succeeded"
        assert lines(job, host, "metric")[-1] == ["script", {"step": 19.0, "loss": 0.05}]
        samples = lines(job, host, "sample")
        printed = sum(processes.get("script", {}).get("output", 0) for _, _, processes, _ in samples)
        assert printed == sum(len(f"step={step} loss={1 / (1 + step):.3f}\n") for step in range(20))
    assert not (job[2].base / "output/data/record").exists(), "what the coordinator has is not packed twice"
    assert sorted(path.name for path in (job[1].base / "output/data/record").iterdir()) == [
        "algo-1.jsonl.gz", "algo-2.jsonl.gz", "algo-3.jsonl.gz"
    ]  # fmt: skip


def test_coordinator_keeps_the_record_of_a_lost_host(hosts):
    job = hosts(2, code=STEPS.format(steps=6000, pause=0.1))
    job.says(r"step=20 ", host=2)
    eventually(lambda: any(line[0] == "metric" for line in record(job, "algo-2")), within=LONG)
    job[2].kill()
    assert job.end()[0] == 69
    assert lines(job, "algo-2", "metric")[-1][1]["step"] > 0
    assert lines(job, "algo-1", "outcome")[0][0]["cause"]["host"] == "algo-2"


def test_follower_without_a_coordinator_keeps_its_record_and_ends(hosts):
    job = hosts(2, code=STEPS.format(steps=6000, pause=0.1))
    job.says(r"step=20 ", host=2)
    job[1].kill()
    assert job.end()[1] == 69
    (told,) = [line[2] for line in record(job, "algo-2", of=2) if line[0] == "outcome"]
    assert told["cause"]["host"] == "algo-1" and told["there"] == []


def test_each_host_prints_lines_for_cloudwatch(hosts):
    job = hosts(2, code=STEPS.format(steps=20, pause=0.1), EMF="Training/tests")
    job.must_end(0)
    for number in (1, 2):
        # One of the end, and on a slow machine one of each minute before it.
        *_, told = [json.loads(line) for line in job[number].log.splitlines() if line.startswith("{")]
        assert told["Host"] == f"algo-{number}" and told["step"] == 19 and told["CPUUtilization"] > 0
        assert told["_aws"]["CloudWatchMetrics"][0]["Namespace"] == "Training/tests"


def test_secrets_are_not_in_the_record(hosts):
    code = "import os\nprint('step=1 loss=0.5 token', os.environ['MY_TOKEN'])\n"
    job = hosts(1, code=code, environment={"MY_TOKEN": "hidden-value-17"})
    job.must_end(0)
    assert "hidden-value-17" not in json.dumps(record(job, "algo-1"))


def test_job_without_the_monitor_writes_no_record(hosts):
    job = hosts(1, "exits.py", MONITOR="false")
    job.must_end(0)
    assert not (job[1].base / "output/data/record").exists()


def monitors(job, count: int = 1) -> list[int]:
    """Return the pids of the monitors, once there are `count`."""

    def found() -> list[int]:
        comms = {pid: Path(f"/proc/{pid}/comm") for pid in processes_with(str(job.folder))}
        return [pid for pid, comm in comms.items() if comm.exists() and comm.read_text() == "monitor\n"]

    return eventually(lambda: len(pids := found()) == count and (pids or True), within=LONG)


def kill_monitors(job, count: int, number: int = signal.SIGKILL) -> None:
    """Kill the monitors, as the kernel does when memory is short."""
    for pid in monitors(job, count):
        os.kill(pid, number)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_a_job_succeeds_if_its_monitors_are_killed_or_stopped(hosts, number):
    waits = "while not os.path.exists(os.environ['TEST_FOLDER'] + '/go'): time.sleep(0.05)\n"
    job = hosts(2, code=STEPS.format(steps=20, pause=0.1) + waits)
    job.all_say("step=1 ")
    kill_monitors(job, 2, number)
    if number == signal.SIGKILL:  # it is said, and another one goes on
        job.all_say("monitor of this host was killed by SIGKILL; it is restarted")
    (job.folder / "go").touch()
    job.must_end(0)
    assert ("record of this host is incomplete" in job[1].log) == (number == signal.SIGSTOP)
    if number == signal.SIGKILL:
        late = "no report.html: it was not made within" in job[1].log  # on a busy machine
        assert (job[1].base / "output/data/report.html").exists() or late


def test_monitor_ends_with_its_launcher(hosts):
    job = hosts(1, code=STEPS.format(steps=600, pause=0.1))
    monitors(job)
    job[1].kill()
    monitors(job, 0)


def test_monitor_counts_bytes_of_much_output_without_delaying_the_program(hosts):
    job = hosts(1, code="print('\\n'.join(f'step={step} loss=1.0 ' + 'x' * 80 for step in range(50_000)))\n")
    job.must_end(0)
    counted = sum(each.get("script", {}).get("output", 0) for _, _, each, _ in lines(job, "algo-1", "sample"))
    assert counted <= sum(len(f"step={step} loss=1.0 ") + 81 for step in range(50_000))


class TestHangs:
    def test_hang_report_keeps_every_stack_and_names_the_hung_process(self, hosts):
        job = hosts(3, code=WAITS, **FAILS_SOON)
        said = "no progress in any process for 2 s: script on algo-2 is in train.py:5 read_data (sleeps), the other 2"
        job.must_end(72, "algo-2 script (no progress): " + said)
        assert said in job[1].log
        for number in (1, 2, 3):
            stacks = (job[number].base / f"output/data/stacks-algo-{number}.txt").read_text()
            assert ("train.py:5 read_data" in stacks) == (number == 2)

    # On a machine that is busy with other things, a rank that spins in a collective counts as at work for long.
    @pytest.mark.more  # cluster/test_cluster_monitor.py has ranks that hang and are named, in the image
    def test_hang_report_names_script_lines_of_ranks(self, hosts):
        """Each rank has a parent process of the launcher that only waits and is outside of site-packages."""
        job = hosts(2, code=A_RANK_IS_MISSING, mode="mpi", **FAILS_SOON)
        first = job.must_end(72, "algo-2 rank 1 (no progress): ")
        assert "rank 1 on algo-2 is in train.py:5 read_data (sleeps), rank 0 on algo-1" in first
        assert "is in train.py:9 <module> (waits in a collective)" in first

    def test_hung_job_is_restarted_if_configured(self, hosts):
        code = f"import os, sys\nif os.environ['ENTRYPOINT_RESTART_COUNT'] != '0': sys.exit()\n{WAITS}"
        job = hosts(2, code=code, HANG_AFTER=2, HANG_ACTION="restart", RESTARTS=1, RESTART_BACKOFF=0.1)
        job.must_end(0)
        assert "attempt 0 failed: algo-2 script (no progress)" in job[1].log

    def test_hung_job_continues_by_default(self, hosts):
        wait = "while not os.path.exists(os.environ['TEST_FOLDER'] + '/go'): time.sleep(0.05)"
        code = WAITS.replace("time.sleep(600)", wait).replace("lock.acquire()\nlock.acquire()", wait)
        job = hosts(2, code=code, HANG_AFTER=2)
        job.says("no progress in any process", host=1)
        (job.folder / "go").touch()
        job.must_end(0)
        assert job[1].log.count("no progress in any process") == 1

    def test_silent_work_is_not_reported_as_a_hang(self, hosts):
        """One rank works while the other waits for it, as when a chief evaluates."""
        job = hosts(2, code=WORKS, **FAILS_SOON)
        job.must_end(0)
        assert "no progress" not in job[1].log

    def test_write_to_an_unread_pipe_is_reported_as_a_hang(self, hosts):
        """The hang is reported even if the monitor was killed before."""
        job = hosts(1, code=FULL_PIPE, **FAILS_SOON)
        job.says("begins", host=1)
        kill_monitors(job, 1)
        first = job.must_end(72)
        assert "no progress in any process for 2 s: script on algo-1 is in train.py:5 feed" in first

    def test_data_loader_waiting_for_s3_is_reported_as_a_hang(self, hosts):
        pytest.importorskip("boto3")
        keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "eu-west-1"}
        with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes connections, and answers none
            keys["AWS_ENDPOINT_URL"] = "http://127.0.0.1:{1}".format(*silent.getsockname())
            first = hosts(1, code=SILENT_S3, environment=keys, **FAILS_SOON).must_end(72)
        assert "no progress in any process for 2 s: script on algo-1 is in train.py:5 load, in botocore." in first

    def test_a_frozen_parameter_server_is_named(self, hosts):
        code = "import time\nprint('begins', flush=True)\ntime.sleep(600)\n"
        job = hosts(2, code=code, mode="ps", environment=LISTENS, **FAILS_SOON)
        job.all_say("begins")
        os.kill(job.pid_of("ps/1", host=2), signal.SIGSTOP)
        job.must_end(72)
        assert re.search(r"ps/1 on algo-2 is in no code \(stopped by a signal\)", job[1].log)


# What programs/on_path/ sees of a training with so many weights.
TRAINS = """
from keras.src.optimizers.optimizer import Optimizer
class Variable:
    shape = ({weights},)
sgd, weights = Optimizer(), Variable()
"""
LEARNS = "sgd.apply_gradients(zip([1.0], [weights]))"
# Two hosts with a socket of their own, which exchange as many bytes as gradients have.
EXCHANGES = f"""
import json, os, socket, time

config = json.loads(os.environ["TF_CONFIG"])
first, size = config["task"]["index"] == 0, 4 * 10_000
(here, port), (there, _) = [worker.split(":") for worker in config["cluster"]["worker"]]
while True:
    try:
        if first:
            link, _ = socket.create_server((here, int(port))).accept()
        else:
            link = socket.create_connection((here, int(port)), source_address=(there, 0))
        break
    except OSError:
        time.sleep(0.1)
{TRAINS.format(weights=10_000)}
for step in range(100_000):
    link.recv(size, socket.MSG_WAITALL) if first else link.sendall(bytes(size))
    link.sendall(bytes(size)) if first else link.recv(size, socket.MSG_WAITALL)
    {LEARNS}
    print(f"step={{step}} loss=1.0", flush=True)
    time.sleep(0.1)
"""
# What programs/on_path/ looks for, where it lies in Keras.
OPTIMIZER = """
class Optimizer:
    def apply_gradients(self, pairs):
        assert len(list(pairs)) == 1
"""
KERAS = {
    **dict.fromkeys(("keras/__init__.py", "keras/src/__init__.py", "keras/src/optimizers/__init__.py"), ""),
    "keras/src/optimizers/optimizer.py": OPTIMIZER,
}
# A strategy of two workers, which nobody uses.
STRATEGY = {
    "tensorflow/__init__.py": """
executing_eagerly = lambda: True
class distribute:
    has_strategy = staticmethod(lambda: False)
""",
    **dict.fromkeys(("tensorflow/python/__init__.py", "tensorflow/python/distribute/__init__.py"), ""),
    "tensorflow/python/distribute/collective_all_reduce_strategy.py": """
class CollectiveAllReduceExtended:
    def __init__(self):
        self._num_workers = 2
""",
}
ALONE = STEPS.format(steps=100_000, pause=0.04)


class TestDistributed:
    def test_hosts_that_exchange_gradients_are_reported_as_training_together(self, hosts):
        job = hosts(2, code={"train.py": EXCHANGES, **KERAS}, mode="mwms")
        said = job.says("distributed: .*", within=120)[0]
        assert re.match(r"distributed: yes: 2 hosts exchange \d\d.* kB a step for 10,000 weights", said)
        job.stop()
        job.must_end(143)

    def test_short_job_outside_its_strategy_is_reported_at_its_end(self, hosts):
        """Its model is outside of the strategy's scope. The report begins with that; the exit code is the script's."""
        code = f"""{TRAINS.format(weights=10_000)}
import os, time
from tensorflow.python.distribute.collective_all_reduce_strategy import CollectiveAllReduceExtended
CollectiveAllReduceExtended()
record, began = "{{SM_OUTPUT_DATA_DIR}}/record/{{SM_CURRENT_HOST}}.jsonl.gz".format(**os.environ), time.monotonic()
while not os.path.exists(record):  # on a busy machine, all of this is over before the monitor has begun
    assert time.monotonic() < began + 120
    time.sleep(0.01)
for step in range(3000):
    {LEARNS}
    print(f"step={{step}} loss=1.0", flush=True)
"""
        job = hosts(2, code={"train.py": code, **KERAS, **STRATEGY}, mode="mwms")
        job.must_end(0)
        words = "every host trains alone (a strategy of 2 workers was made, and gradients are applied outside of it"
        (told,) = re.findall(r"distributed: NO: .*", job[1].log)
        line = code[: code.index("sgd.apply")].count("\n") + 1
        assert words in told and f"train.py:{line} applies gradients outside of the strategy" in told
        assert re.search(rf"report: error: apart: the hosts trained apart since .*: {re.escape(words)}", job[1].log)
        ((together, more),) = lines(job, "algo-1", "distributed")
        assert together is False and more["words"].startswith(words)

    def test_hosts_that_train_alone_fail_the_job_if_configured(self, hosts):
        """Neither printed lines nor an earlier end of the monitors change this."""
        hostile = f"print('step=inf loss=1\\nstep=nan\\nEpoch 1/' + '9' * 5000, flush=True)\n{ALONE}"
        job = hosts(2, code=hostile, REQUIRE_DISTRIBUTED="true")
        job.all_say("step=1 ")
        kill_monitors(job, 2)
        assert "(trains alone): distributed: NO" in job.must_end(78)
        said = job.says(r"distributed: .*", host=1)[0]
        assert re.match(r"distributed: NO: (every host|algo-\d) trains alone \(exchanged nothing with other", said)
        assert said.endswith('"mpi" or "jax"; "single" if each host is to train alone')

    def test_hosts_configured_to_train_alone_get_no_warning(self, hosts):
        job = hosts(2, code=ALONE, MODE="single")
        job.all_say("step=200 ")
        job.stop()
        job.must_end(143)
        assert "distributed:" not in job[1].log


# What sums up weights, each of which is a number.
SUMS = """
from types import SimpleNamespace
class Variable(float):
    shape = ()
float32 = None
linalg = SimpleNamespace(global_norm=lambda values: sum(value**2 for value in values) ** 0.5)
add_n, reduce_sum, convert_to_tensor = sum, float, float
def cast(value, _):
    return value
"""


class TestMarks:
    """Tests of what scripts report by sagemaker_tf_data."""

    def test_script_reports_metrics_without_printing_them(self, hosts):
        code = """if True:
            import time
            from sagemaker_tf_data import log_metrics, mark, timed
            for number, _ in enumerate(timed(range(4))):
                time.sleep(0.2)
                log_metrics(step=number, loss=0.5)
            with mark("checkpoint"):
                time.sleep(0.3)
            """
        job = hosts(2, code=code)
        job.must_end(0)
        assert "loss" not in job[1].log
        for host in ("algo-1", "algo-2"):
            sums: Counter = Counter()
            for name, told in lines(job, host, "mark"):
                assert name == "script"
                sums[told["what"], "times"] += told["times"]
                sums[told["what"], "seconds"] += told["seconds"]
            assert [sums[what, "times"] for what in ("step", "data_wait", "compute", "checkpoint")] == [4, 4, 4, 1]
            assert sums["compute", "seconds"] >= 0.8 and sums["checkpoint", "seconds"] >= 0.3
            metrics: dict = {}
            for _, found in lines(job, host, "metric"):
                metrics |= found
            assert metrics["loss"] == 0.5

    def test_keras_callback_reports_steps(self, hosts):
        code = """if True:
            import numpy as np, tensorflow as tf
            from sagemaker_tf_data import keras_callback
            model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
            model.compile("sgd", "mse")
            x, y = np.ones((80, 3), "float32"), np.ones(80, "float32")
            model.fit(x, y, batch_size=8, epochs=2, validation_data=(x, y), verbose=0,
                      callbacks=[keras_callback(weights_every=5)])
            model.trainable = False  # nothing is trained from here on: there are no weights to tell of
            model.compile("sgd", "mse")
            model.fit(x, y, batch_size=8, verbose=0, callbacks=[keras_callback(weights_every=5)])
            print("fitted both", flush=True)
            """
        job = hosts(1, code=code)
        job.must_end(0)
        times: Counter = Counter()
        for _, told in lines(job, "algo-1", "mark"):
            times[told["what"]] += told["times"]
        assert times == {"step": 30, "evaluation": 2}
        assert "fitted both" in job[1].log and "sagemaker_tf_data" not in job[1].log
        assert [told[1] for told in lines(job, "algo-1", "weights")] == [5, 10, 15, 20]
        metrics: dict = {}
        for _, found in lines(job, "algo-1", "metric"):
            metrics |= found
        assert (metrics["epoch"], metrics["epochs"]) == (1, 1) and metrics["val_loss"] >= 0

    @pytest.mark.parametrize("weights", ["2.0", "own"], ids=["equal", "different"])
    def test_weights_of_ranks_are_compared(self, hosts, weights):
        code = f"""if True:
            import itertools, os, pathlib, time
            import tensorflow as tf
            from sagemaker_tf_data import tell_weights
            own = int(os.environ["SM_CURRENT_HOST"][-1])
            stop = pathlib.Path(os.environ["TEST_FOLDER"], "stop")
            # The monitor may not listen to the first, and keeps the last twenty until the other host's have come.
            for step in itertools.count(100, 100):
                tell_weights(step, [tf.Variable({weights})])
                if stop.exists():
                    break
                time.sleep(1)
            """
        # The test before has weights of the real TensorFlow, whose import takes seconds on each host.
        job = hosts(2, code={"train.py": code, "tensorflow.py": SUMS}, mode="mwms", REQUIRE_DISTRIBUTED="true")
        if weights == "own":
            assert re.search(r"weights differ 3 times in a row, now after step \d+00: their norm is", job.must_end(78))
            return
        job.says(r"equal weights on all 2 processes after step \d+00", host=1)
        (job.folder / "stop").touch()
        job.must_end(0)
