"""Measure how fast and how well DeepFM (examples/deepfm) trains on made rows, and what its settings are worth.

Three parts:

    scaling          examples per second and AUC, by parameter servers with 1 to 4 workers and by Horovod with 1 to 4
                     ranks, for batch sizes and sizes of the embeddings
    hyperparameters  AUC of one process with the defaults, and with one of them changed: dropout, batch normalization,
                     L2, optimizer, ... Each round has rows and weights of its own
    threads          examples per second with the variables for threads that guides to TensorFlow name (KMP_*, OMP_*,
                     threads inside and side by side, CPUs that it is bound to), against none of them; and against none
                     of them once more, which is the noise

Cases of a part take turns, another one first in each round, so that other work of the machine affects all alike.
`--json` is written after every run, and `--resume` goes on from it. Wants an idle machine, and for Horovod the image.

    python -m benchmarks.deepfm --json docs/benchmarks/deepfm.json
    python -m benchmarks.deepfm --parts scaling --modes ps --engine process --rows 4000 --rounds 1    # without Docker
"""

import argparse
import json
import mmap
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.deepfm_job import Job, rows_of, run_job
from benchmarks.report import deepfm as page

PARTS = {
    "scaling": (40_000, 3, 3),
    "hyperparameters": (100_000, 4, 5),
    "threads": (60_000, 4, 7),
}  # rows, epochs, rounds
CHANGES: dict[str, dict[str, object]] = {  # of hyperparameters, one at a time
    "the defaults": {},
    "no dropout": {"dropout": 0},
    "dropout 0.2": {"dropout": 0.2},
    "batch normalization": {"batch-norm": "true"},
    "batch normalization, no dropout": {"batch-norm": "true", "dropout": 0},
    "no L2": {"l2-reg": 0},
    "L2 ten times as strong": {"l2-reg": 0.01},
    "Adam": {"optimizer": "adam"},
    "SGD with momentum": {"optimizer": "momentum"},
    "SGD": {"optimizer": "sgd"},
    "FTRL": {"optimizer": "ftrl"},
    "embeddings of 4": {"embedding-size": 4},
    "embeddings of 16": {"embedding-size": 16},
    "deep layers 256,128,64": {"deep-layers": "256,128,64"},
}
READERS = ("KMP_AFFINITY", "KMP_BLOCKTIME", "KMP_SETTINGS", "OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
Case = dict[str, Any]  # what a run is of: JSON, with a name


def main() -> None:
    parser = machine.parser(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--modes", nargs="+", choices=["ps", "mpi"], default=["ps", "mpi"], help="of scaling")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 3, 4], help="of scaling: workers, or ranks")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[64, 1024], help="of scaling, of each process")
    parser.add_argument("--embedding-sizes", type=int, nargs="+", default=[8, 32], help="of scaling")
    parser.add_argument("--cases", nargs="+", metavar="NAME", help="of hyperparameters and threads; default: all")
    parser.add_argument("--rounds", type=int, help=f"default: {', '.join(f'{p} {PARTS[p][2]}' for p in PARTS)}")
    parser.add_argument("--rows", type=int, help="a quarter of them is kept aside")
    parser.add_argument("--epochs", type=int, help="the first is not timed if there are more")
    parser.add_argument("--engine", default="docker", help="of entrypoint local, for scaling; Horovod is in the image")
    parser.add_argument("--image", help="for --engine docker")
    parser.add_argument("--resume", action="store_true", help="go on from --json: what is there is not run again")
    args = parser.parse_args()
    known = args.json and args.resume and args.json.exists()
    record = json.loads(args.json.read_text()) if known else machine.head("deepfm")
    record["readers"] = readers()
    for part in args.parts:
        rows, epochs, rounds = (
            given or usual for given, usual in zip((args.rows, args.epochs, args.rounds), PARTS[part], strict=True)
        )
        record["limits"] |= {f"{part}_rows": rows, f"{part}_epochs": epochs}
        done = {(run["part"], run["name"], run["round"]) for run in record["runs"]}
        for number in range(1, rounds + 1):
            cases = cases_of(part, args)
            turned = machine.turned(cases, number - 1)
            left = [case for case in turned if (part, case["name"], number) not in done]
            for run in one_round(part, left, number, rows, epochs, args):
                machine.add(record, run, args.json)
    machine_load = [run["load"] for run in record["runs"]]
    print(f"{machine.cpus()} CPUs; load {min(machine_load)} to {max(machine_load)}\n")
    print(page.tables(record))


def one_round(
    part: str, cases: list[Case], number: int, rows: int, epochs: int, args: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    if not cases:
        return
    with rows_of(number, rows) as data:
        for case in cases:
            job, engine = job_of(part, case, epochs, args.engine)
            load = machine.load()
            measures = run_job(job, data, rows, engine, args.image if engine == "docker" else None)
            yield {"part": part, **case, "round": number, "load": load, "measures": measures}


def cases_of(part: str, args: argparse.Namespace) -> list[Case]:
    if part == "scaling":
        return [
            {
                "name": f"{mode} {count} {batch} {size}",
                "mode": mode,
                "processes": count,
                "batch": batch,
                "embedding": size,
            }
            for batch in args.batch_sizes
            for size in args.embedding_sizes
            for mode in args.modes
            for count in args.processes
        ]
    names = CHANGES if part == "hyperparameters" else threads()
    if unknown := set(args.cases or ()) - set(names):
        raise SystemExit(f"deepfm: found no case {', '.join(sorted(unknown))} of {part}; wanted {', '.join(names)}")
    return [{"name": name} for name in args.cases or names]


def job_of(part: str, case: Case, epochs: int, engine: str) -> tuple[Job, str]:
    """Return (the job of a case, the engine that it runs on)."""
    if part == "scaling":
        given = {"batch-size": case["batch"], "embedding-size": case["embedding"], "epochs": epochs}
        if case["mode"] == "mpi":
            return Job(mode="mpi", hosts=case["processes"], hyperparameters=given), engine
        given["sagemaker_entrypoint_ps_count"] = 1
        return Job(mode="ps", hosts=1 + case["processes"], hyperparameters=given), engine
    if part == "hyperparameters":
        return Job(mode="single", hyperparameters={"epochs": epochs, **CHANGES[case["name"]]}), "process"
    variables, before = threads()[case["name"]]
    # Large batches, so that computing is what takes the time, and the launcher's own settings are out of the way.
    given = {"epochs": epochs, "batch-size": 1024}
    environment = {"ENTRYPOINT_THREADS": "off", **variables}
    return Job(mode="single", hyperparameters=given, environment=environment, before=before), "process"


def threads() -> dict[str, tuple[dict[str, str], list[str]]]:
    """Return {name: (variables, words before the command)}."""
    cpus = str(len(os.sched_getaffinity(0)))
    own = "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"
    sides = dict.fromkeys(own, cpus)
    document = {"KMP_AFFINITY": "verbose,disabled", "OMP_NUM_THREADS": cpus, "KMP_SETTINGS": "1", **sides}
    bound = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))]
    return {
        "none": ({}, []),
        "none, once more": ({}, []),
        **{
            f"KMP_AFFINITY={value}": ({"KMP_AFFINITY": value}, [])
            for value in ("verbose,disabled", "granularity=fine,compact,1,0", "granularity=fine,verbose,scatter,1,0")
        },
        "KMP_BLOCKTIME=0": ({"KMP_BLOCKTIME": "0"}, []),
        "KMP_BLOCKTIME=1": ({"KMP_BLOCKTIME": "1"}, []),
        "KMP_SETTINGS=1": ({"KMP_SETTINGS": "1"}, []),
        "OMP_NUM_THREADS=CPUs": ({"OMP_NUM_THREADS": cpus}, []),
        "OMP_NUM_THREADS=1": ({"OMP_NUM_THREADS": "1"}, []),
        "threads inside = side by side = CPUs": (sides, []),
        "threads inside = side by side = 0": (dict.fromkeys(own, "0"), []),
        "threads inside = 1": ({own[0]: "1"}, []),
        "all that the guide sets": (document, []),
        "bound to one CPU": ({}, bound),
    }


def readers() -> dict[str, list[str]]:
    """Return {variable: the shared objects of the installed TensorFlow that contain its name; [] if none does}.

    A library that reads a variable contains its name. The reverse does not hold: compilers in it contain names, too.
    """
    spec = find_spec("tensorflow")
    places = list((spec and spec.submodule_search_locations) or [])
    found: dict[str, list[str]] = {name: [] for name in READERS}
    for folder in [Path(place) for place in places]:
        for path in sorted(
            [*folder.glob("*.so*"), *folder.glob("python/*.so"), *folder.parent.glob("tensorflow*.libs/*")]
        ):
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                for name in READERS:
                    if content.find(name.encode() + b"\0") >= 0:
                        found[name].append(path.name)
    return found


if __name__ == "__main__":
    main()
