"""Run a file of Horovod's own tests on every rank, without those for GPUs; write how each test ended."""

import argparse
import json
import os
from importlib import import_module
from pathlib import Path

import pytest
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--file")
parser.add_argument("--keras", default="")
args, _ = parser.parse_known_args()
keras = import_module(tf.keras.Model.__module__.partition(".")[0])
assert keras.__version__.startswith(args.keras), keras.__version__


class Endings:
    """The end of each test, and its reason."""

    def __init__(self):
        self.found = {}

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            why = report.longrepr[2] if report.skipped else str(report.longrepr or "")[-2000:]
            self.found[report.nodeid.rpartition("::")[2]] = [report.outcome, why]


endings = Endings()
# Not in Horovod's own folder, which may be read only.
options = ["-p", "no:cacheprovider", "-W", "ignore", "--tb", "short", "-q", "--rootdir", "/tmp"]
code = pytest.main([*options, "-k", "not gpu", f"/horovod/test/parallel/{args.file}"], plugins=[endings])
rank = os.environ["OMPI_COMM_WORLD_RANK"]
with open(Path(os.environ["SM_OUTPUT_DATA_DIR"], f"rank-{rank}.json"), "w") as file:
    json.dump(endings.found, file)
raise SystemExit(0 if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) else int(code))
