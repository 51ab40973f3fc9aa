"""Measure Horovod's allreduce between two hosts, under our launcher and under mpirun by hand, as Horovod documents it.

Two containers with one rank each, of the same image and with the same script; ours and by hand take turns. A launcher
can change what its ranks find: options of Open MPI, threads, variables. Prints its page; --json FILE keeps the figures.
"""

import json
import re

from benchmarks import machine
from benchmarks.profile_start.jobs import Case, mpi_by_hand, printed
from benchmarks.report.pages import page

SIZES = [1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26]  # bytes: 1 KB to 64 MB
# https://horovod.readthedocs.io/en/stable/mpi.html, without what is for GPUs
OPTIONS = "--bind-to none --map-by slot -x PATH --mca pml ob1 --mca btl ^openib"
SCRIPT = """
import json, statistics, sys, time
import tensorflow as tf
import horovod.tensorflow as hvd

hvd.init()
assert hvd.size() == 2
seconds = {{}}
for size in {sizes}:
    tensor, times, began = tf.ones([size // 4]), [], time.monotonic()
    number = 0
    while number < {least} or number < {most} and size < 1 << 20:
        at = time.perf_counter()
        hvd.allreduce(tensor, op=hvd.Sum, name=f"size-{{size}}")
        times.append(time.perf_counter() - at)
        number += 1
    seconds[size] = statistics.median(times[number // 5:])  # not the first, in which both sides get ready
if hvd.rank() == 0:
    print("SECONDS " + json.dumps(seconds), flush=True)
hvd.shutdown()
"""
CASE = Case(
    "Horovod, 2 hosts x 1 rank",
    {"sagemaker_mpi_enabled": "true"},
    mpi_by_hand(OPTIONS),
    SCRIPT.format(sizes=SIZES, least=20, most=200),
)
SIDES = {"by hand": False, "ours": True}


def measure(image: str, ours: bool) -> dict[str, float]:
    """Return seconds of one allreduce by its size in bytes: the median of a job."""
    log = printed(image, CASE, ours)[0]
    return dict(json.loads(re.findall(r"SECONDS (\{.*\})", log)[0]))


def main() -> None:
    parser = machine.parser(__doc__, rounds=5)
    parser.add_argument("--images", nargs="+", default=["sagemaker-tf-entrypoint:latest"], metavar="IMAGE")
    arguments = parser.parse_args()
    record = machine.head("allreduce")
    for number in range(1, arguments.rounds + 1):
        for image in arguments.images:
            for side, ours in SIDES.items():
                seconds = {size: round(value, 7) for size, value in measure(image, ours).items()}
                run = {"image": image, "side": side, "round": number, "measures": seconds}
                machine.add(record, run, arguments.json)
    print(page(record))


if __name__ == "__main__":
    main()
