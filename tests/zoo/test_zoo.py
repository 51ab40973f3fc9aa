"""Train with other people's libraries on two hosts: each case of libraries.py on the image of one line (TEST_LINE).

ZOO_RESULTS=1 writes the results into results.json. Packages are downloaded once, into the folder ZOO_CACHE. ZOO_MOUNTS
has more volumes for the containers (FOLDER:PLACE, separated by spaces), such as changed sources of the launcher.
"""

import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from builders import write_files
from containers import BUSY, Cluster, Ending
from libraries import CASES, RESULTS, Case, results
from waiting import locked

from images import LINE

SCRIPTS = Path(__file__).with_name("scripts")
OF_LINE = [case for case in CASES if LINE in case.lines]
CACHE = Path(os.environ.get("ZOO_CACHE") or Path(tempfile.gettempdir(), "sagemaker-tf-entrypoint-zoo"))
PROGRAM = "train.py"  # what is called as a library would hide it
NEVER_RUNS = "raise SystemExit('it was installed, though no version fits')\n"
PATIENCE = 600.0  # seconds: when to give up
IDLE = {
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMP_WAIT_POLICY": "passive",
}  # ranks that wait leave others the processors
REPLICAS = ("mwms", "mpi", "jax")  # modes in which each process holds the whole model
INDEX = re.compile(r"(PIP|UV)_(?!CACHE)\w+|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|(HTTPS?|NO|ALL)_PROXY", re.IGNORECASE)


@pytest.mark.timeout(2 * PATIENCE)
@pytest.mark.parametrize("case", OF_LINE, ids=[f"{case.library}-{case.mode}" for case in OF_LINE])
def test_library_trains_or_ends_as_listed(image: str, tmp_path: Path, case: Case) -> None:
    CACHE.mkdir(exist_ok=True)
    # One job of the zoo at a time on a machine: ranks that wait spin, and two jobs take longer than one by one.
    with (
        locked(CACHE / "job.lock"),
        kept(case) as result,
        Cluster(image, tmp_path, **job(case, tmp_path / "code")) as running,
    ):
        endings = list(running.wait(within=PATIENCE).values())
        log = "\n".join(ending.log for ending in endings)
        codes = [ending.exit_code for ending in endings]
        if case.refused:
            assert codes == [65, 65]
            assert all(case.refused in (ending.failure or "") for ending in endings)
            assert "Successfully installed" not in log
            result |= {"seconds": round(max(each.finished - each.started for each in endings), 1), "result": "refused"}
            return
        result |= {"version": version(case, log), "seconds": seconds(endings)}
        if case.fails:
            assert 0 not in codes
            assert any(case.fails in (ending.failure or "") for ending in endings)
            result |= {"result": "fails"}
            return
        assert codes == [0, 0]
        assert "zoo: loss " in log
        assert "zoo: loads" in log
        told = set(re.findall(r"zoo: weights (\w+) on (\S+)", log))
        assert len({host for _, host in told}) >= (2 if case.mode in REPLICAS else 1)
        assert case.mode == "single" or len({digest for digest, _ in told}) == 1
        result |= {"result": "trains"}


def job(case: Case, code: Path) -> dict[str, object]:
    """Write the code of a case into a folder; return the arguments of `Cluster` for its job."""
    program = NEVER_RUNS if case.refused else (SCRIPTS / case.script).read_text()
    requirements = "\n".join(case.requirements or (case.library,))
    write_files(
        code,
        {PROGRAM: program, "shown.py": (SCRIPTS / "shown.py").read_text(), "requirements.txt": f"{requirements}\n"},
    )
    here = {name: value for name, value in os.environ.items() if INDEX.fullmatch(name) and value}
    paths = {value for value in here.values() if value.startswith("/") and Path(value).exists()}
    caches = {"UV_CACHE_DIR": "/cache/uv", "PIP_CACHE_DIR": "/cache/pip"}
    return {
        "program": PROGRAM,
        "code": code,
        "hosts": 2,
        "mode": case.mode,
        "hyperparameters": case.arguments,
        "environment": {
            **BUSY,
            **IDLE,
            **here,
            **caches,
            "ZOO_LIBRARY": case.library.partition("[")[0],
            **case.environment,
        },
        "mounts": [
            f"{CACHE}:/cache",
            *os.environ.get("ZOO_MOUNTS", "").split(),
            *(f"{path}:{path}:ro" for path in sorted(paths)),
        ],
    }


def version(case: Case, log: str) -> str:
    name = re.escape(case.library.partition("[")[0])
    found = re.search(rf"zoo: version (\S+)|Successfully installed .*?\b{name}-(\d\S*)", log)
    assert found, f"no version of {case.library} in the log"
    return found[1] or found[2]


def seconds(endings: list[Ending]) -> float:
    """Return the install time of the slower host."""
    found = [re.search(r"installed \d+ packages? by \w+ in ([\d.]+) s", ending.log) for ending in endings]
    return max(float(each[1]) for each in found if each)


@contextmanager
def kept(case: Case) -> Iterator[dict[str, str | float]]:
    """Yield the result of a case, and write it to results.json if requested. Remove the result of a failed case."""
    result: dict[str, str | float] = {}
    passed = False
    try:
        yield result
        passed = True
    finally:
        if os.environ.get("ZOO_RESULTS"):
            with locked(CACHE / "results.lock"):
                found = {name: each for name, each in results().items() if name != case.key(LINE)}
                found |= {case.key(LINE): result} if passed else {}
                RESULTS.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")
