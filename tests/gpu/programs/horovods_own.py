"""Run Horovod's own tests of its operations on GPUs, on every rank: its test/parallel/test_tensorflow.py.

HOROVOD_TESTS names the repository's folder `test`, RING_PACKAGES a folder with pytest and what else the tests import.
"""

import os
import sys

os.environ["NCCL_HOSTID"] = f"rank-{os.environ['OMPI_COMM_WORLD_RANK']}"  # as in horovod_job.py
os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
sys.path.append(os.environ["RING_PACKAGES"])

import horovod.tensorflow as hvd
import pytest
import tensorflow as tf


class Count:
    """The numbers of tests by their end."""

    def __init__(self):
        self.ended = dict.fromkeys(("passed", "skipped", "failed"), 0)

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            self.ended[report.outcome] += 1


hvd.init()
gpus = len(tf.config.list_physical_devices("GPU"))
of_host = hvd.local_rank
hvd.local_rank = lambda: of_host() % gpus  # the tests compute on the GPU of this number, and the ranks share one
count = Count()
wanted = "_gpu and not cpu_gpu_error"  # which wants a rank on the CPU, by a local rank that is none of one GPU's
if str(getattr(tf.keras, "__version__", "2")).startswith("3."):
    wanted += " and not syncbn"  # it compares with Keras 2's layer, by an argument that Keras 3 has not
options = ["-p", "no:cacheprovider", "-W", "ignore", "--tb", "short", "-q", "-rs", "--rootdir", "/tmp", "-k", wanted]
code = pytest.main([*options, f"{os.environ['HOROVOD_TESTS']}/parallel/test_tensorflow.py"], plugins=[count])
print(f"rank {hvd.rank()}:", ", ".join(f"{number} {ended}" for ended, number in count.ended.items()), flush=True)
raise SystemExit(code)
