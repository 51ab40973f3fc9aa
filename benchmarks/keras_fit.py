"""Measure Keras's `fit` on two hosts: mode jax, Horovod and MultiWorkerMirroredStrategy.

Two containers with one process each, by our launcher. Three ways train the same two networks on made-up rows:

    jax      mode jax, Keras 3 on JAX, in the image of TensorFlow 2.21
    horovod  Horovod, Keras 3 on TensorFlow, in the same image
    mwms     MultiWorkerMirroredStrategy, Keras 2, in the image of TensorFlow 2.14

The networks are that of examples/digits, and a dense one of 10 million weights. Each way compiles as Keras does by
itself: by XLA with JAX, not with TensorFlow on CPUs. Ways take turns, so other work of the machine affects all alike.

    python -m benchmarks.keras_fit --rounds 5 --json keras-fit.json
"""

import json
import re

from benchmarks import docker, machine
from benchmarks.report import page
from benchmarks.side_by_side.cases import OURS, REAL, Case
from benchmarks.side_by_side.job import Job

WAYS = {"jax": "jax", "horovod": "mpi", "mwms": "mwms"}  # modes
NETWORKS = {"digits": (64, 200), "dense": (64, 10)}  # rows of a step of each process, steps of an epoch
LIMIT_S = 900.0


def speed(image: str, way: str, network: str, epochs: int) -> dict[str, float]:
    """Return rows per second of both hosts in the epochs after the first; raise SystemExit if they trained apart."""
    rows, steps = NETWORKS[network]
    given = {"way": WAYS[way], "network": network, "rows": rows, "steps": steps, "epochs": 1 + epochs}
    case = Case(
        name="fit", title=f"{network}, {way}", group=REAL, mode=WAYS[way], hosts=2, program="fit_job.py",
        arguments=tuple((name, str(value)) for name, value in given.items()),
    )  # fmt: skip
    with Job(case, OURS, {OURS: image}) as job:
        job.start()
        job.wait(LIMIT_S)
        logs = "".join(ending.log for ending in job.endings())
    # mpirun's host prints for all ranks where hosts do not print for themselves.
    found = [json.loads(each) for each in re.findall(r"FIT (\[.*\])", logs)]
    if len(found) != 2 or abs(found[0][1] - found[1][1]) > 1e-3 * found[0][1]:
        raise SystemExit(f"{network}, {way}: wanted two with the same weights, found {found}:\n{logs}")
    seconds = max(sum(of_epochs[1:]) for of_epochs, _ in found)
    return {"rows_per_s": round(2 * rows * steps * epochs / seconds, 1)}


def main() -> None:
    parser = machine.parser(__doc__, rounds=5)
    parser.add_argument("--image", default="sagemaker-tf-entrypoint:2.21", help="with jax, Keras 3 and Horovod")
    parser.add_argument("--keras-2", default="sagemaker-tf-entrypoint:latest", metavar="IMAGE", help="for mwms")
    parser.add_argument("--epochs", type=int, default=3, help="measured in each job, after one that is not")
    arguments = parser.parse_args()
    record = machine.head("keras-fit", limits={"epochs": arguments.epochs})
    try:
        for number in range(arguments.rounds):
            for network in NETWORKS:
                for way in machine.turned(WAYS, number):
                    image = arguments.keras_2 if way == "mwms" else arguments.image
                    measures = speed(image, way, network, arguments.epochs)
                    head = {"network": network, "way": way, "round": number + 1, "load": machine.load()}
                    machine.add(record, {**head, "measures": measures}, arguments.json)
    finally:
        docker.remove_all()
    print(page(record))


if __name__ == "__main__":
    main()
