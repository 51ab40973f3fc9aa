"""List the cases. A case is one job and its event: a fault or a stop."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

# How long a job may take before it is cut and shown as cut, in seconds.
LIMITS = {
    "MPI": 180.0,  # the toolkit's workers look for their coordinator every 120 s, with 30 s between looks
    "MPI, network cut": 300.0,  # the toolkit never ends; a fiftieth of it is 6 s
    "otherwise": 60.0,
    "stop": 120.0,  # SageMaker's own limit: then it kills
    "success": 120.0,
    "hang": 60.0,
    "install": 900.0,
    "12 hosts": 300.0,  # two cores import TensorFlow twelve times for the toolkit
}
MODES = {
    "single": {},
    "ps": {"sagemaker_parameter_server_enabled": "true"},
    "mwms": {"sagemaker_multi_worker_mirrored_strategy_enabled": "true"},
    "mpi": {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_custom_mpi_options": '""'},
}
OURS, TOOLKIT, DRIVERS = "ours", "toolkit", "drivers"  # the sides; the last is what SageMaker's SDK 3 starts
UNWATCHED = "ours-unwatched"  # ours without its monitor
SIDES = (OURS, TOOLKIT, DRIVERS)
MPIRUN, HOROVODRUN, GLOO, PLAIN = "mpirun", "horovodrun", "horovodrun-gloo", "plain"
BY_HAND = (MPIRUN, HOROVODRUN, GLOO, PLAIN)  # peers.py starts them
ON_REQUEST = (UNWATCHED, *BY_HAND)  # further sides, only if asked for
START, FAILURE, STOP, REAL, LOG = "start and tail", "failure", "stop", "real job", "log"
HANG = "hang"
INSTALL = "install"  # the event of a case whose package cannot be installed on one host
PACKAGES = "packages"  # the group of cases that install real packages, from an index of this machine
ISOLATED, SILENT = "isolated", "silent"  # events: no way to an index; an index that answers nothing
UNREACHED = (ISOLATED, SILENT)
HANG_AFTER_S = 10
HANG_SETTINGS = {"ENTRYPOINT_HANG_AFTER": str(HANG_AFTER_S), "ENTRYPOINT_HANG_ACTION": "fail"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One job and its event.

    `event`: "" is none; `raise` and `hang` happen in the script; `kill`, `cut` and `install` (it fails) on
    `host`; `stop` is SIGTERM to all hosts; `isolated` and `silent` last from the start on.
    """

    name: str
    title: str
    group: str
    mode: str
    hosts: int
    ranks: int = 1  # on each host
    program: str = "acts.py"
    arguments: tuple[tuple[str, str], ...] = ()
    event: str = ""
    host: int = 0  # counted from 0
    limit_s: float = LIMITS["success"]
    after_s: float | None = None  # the limit from its event, or the script's end, on; None: the same
    rounds: int | None = None  # at most; None: as many as asked for
    packages: int = 0  # that requirements.txt brings
    cached: bool = False  # the hosts have a warm pool's folder, in which the job before has left its cache

    @property
    def processes(self) -> int:
        """Return the number of scripts that write marks; with worker servers, only the chief does."""
        return 1 if WORKERS_SERVE in self.arguments else self.hosts * self.ranks

    def runs_on(self, side: str) -> bool:
        """Return whether this side can run the case."""
        if side == OURS:
            return True
        match side:
            case "ours-unwatched":
                return self.mode == "single" and self.group in (START, FAILURE)
            case "drivers":  # of the SDK, which has none for parameter servers or TF_CONFIG; its pip is the toolkit's
                return self.mode in ("single", "mpi") and self.group != PACKAGES
            case "toolkit":
                return True
        if self.event == INSTALL or self.group == PACKAGES:
            return False
        return self.mode in ("single", "mwms") if side == PLAIN else self.mode == "mpi" and self.event != "stop"

    @property
    def hyperparameters(self) -> dict[str, str]:
        mpi = {"sagemaker_mpi_num_of_processes_per_host": str(self.ranks)} if self.mode == "mpi" else {}
        return {"sagemaker_program": f'"{self.program}"', **MODES[self.mode], **mpi, **dict(self.arguments)}

    def settings(self, side: str) -> dict[str, str]:
        """Return the environment variables that configure our launcher on this side."""
        if side == UNWATCHED:
            return {"ENTRYPOINT_MONITOR": "false"}
        return HANG_SETTINGS if side == OURS and self.group == HANG else {}


DEEPFM_JOB = "deepfm_job.py"  # of examples/deepfm, whose modules and data it uses
WORKERS_SERVE = ("sagemaker_entrypoint_ps_workers", "server")


def _start(name: str, title: str, mode: str, hosts: int, ranks: int = 1) -> Case:
    # Long enough for all of a launcher to run, its monitor and its parameter servers, too.
    return Case(
        name=f"start-{name}", title=title, group=START, mode=mode, hosts=hosts, ranks=ranks,
        arguments=(("seconds", "4"),),
    )  # fmt: skip


def _fault(event: str, name: str, title: str, mode: str, hosts: int, host: int) -> Case:
    limit = "otherwise" if mode != "mpi" else "MPI, network cut" if event == "cut" else "MPI"
    return Case(
        name=f"{event}-{name}", title=title, group=FAILURE, mode=mode, hosts=hosts, event=event, host=host,
        arguments=(("seconds", "3600"),), limit_s=LIMITS[limit],
    )  # fmt: skip


def _hang(name: str, title: str, mode: str, hosts: int) -> Case:
    return Case(
        name=f"hang-{name}", title=title, group=HANG, mode=mode, hosts=hosts, program="steps_job.py", event="hang",
        host=hosts - 1, arguments=(("hangs-in", "50"), ("on", f"algo-{hosts}")), after_s=LIMITS["hang"],
    )  # fmt: skip


def _stop(name: str, title: str, mode: str, hosts: int) -> Case:
    return Case(
        name=f"stop-{name}", title=title, group=STOP, mode=mode, hosts=hosts, event="stop",
        arguments=(("seconds", "3600"), ("saves", "yes")), limit_s=LIMITS["stop"],
    )  # fmt: skip


def _log(name: str, title: str, mode: str, hosts: int, ranks: int, lines: int, rounds: int | None = None) -> Case:
    return Case(
        name=f"log-{name}", title=title, group=LOG, mode=mode, hosts=hosts, ranks=ranks, program="prints.py",
        arguments=(("lines", str(lines)),), limit_s=LIMITS["12 hosts" if hosts == 12 else "success"], rounds=rounds,
    )  # fmt: skip


def _installs() -> Iterator[Case]:
    for hosts, cached, count in itertools.product((1, 2), (False, True), (1, 10, 110)):
        packages = "1 package" if count == 1 else f"{count} packages"
        title = f"{packages}, {'1 host' if hosts == 1 else f'{hosts} hosts'}{', warm pool' if cached else ''}"
        yield Case(
            name=f"packages-{count}-hosts-{hosts}{'-cached' if cached else ''}", mode="single", hosts=hosts,
            title=title, group=PACKAGES, packages=count, cached=cached, arguments=(("seconds", "0"),),
            limit_s=LIMITS["install"],
        )  # fmt: skip
    for event, title in ((ISOLATED, "no way out"), (SILENT, "an index that does not answer")):
        yield Case(
            name=f"packages-{event}", title=title, group=PACKAGES, mode="single", hosts=1, packages=1, event=event,
            arguments=(("seconds", "0"),), limit_s=LIMITS["install"], rounds=1,
        )  # fmt: skip


CASES = (
    _start("single-1", "single host", "single", 1),
    _start("plain-2", "plain script, 2 hosts", "single", 2),
    _start("ps-2", "parameter servers, 2 hosts", "ps", 2),
    _start("ps-4", "parameter servers, 4 hosts", "ps", 4),
    _start("mwms-2", "MultiWorkerMirrored, 2 hosts", "mwms", 2),
    _start("mpi-2x1", "MPI, 2 hosts x 1 rank", "mpi", 2, 1),
    _start("mpi-2x2", "MPI, 2 hosts x 2 ranks", "mpi", 2, 2),
    _start("mpi-4x1", "MPI, 4 hosts x 1 rank", "mpi", 4, 1),
    _start("mpi-8x1", "MPI, 8 hosts x 1 rank", "mpi", 8, 1),
    _fault("raise", "single-1", "single host: the script raises", "single", 1, 0),
    _fault("raise", "ps-2-chief", "PS, 2 hosts: the chief raises", "ps", 2, 0),
    _fault("raise", "ps-2-worker", "PS, 2 hosts: the worker raises", "ps", 2, 1),
    _fault("raise", "mwms-2-worker-0", "MWMS, 2 hosts: worker 0 raises", "mwms", 2, 0),
    _fault("raise", "mwms-2-worker-1", "MWMS, 2 hosts: worker 1 raises", "mwms", 2, 1),
    _fault("raise", "mpi-2-rank-0", "MPI, 2 hosts: rank 0 raises", "mpi", 2, 0),
    _fault("raise", "mpi-2-rank-1", "MPI, 2 hosts: rank 1 raises", "mpi", 2, 1),
    _fault("raise", "mpi-4-rank-3", "MPI, 4 hosts: rank 3 raises", "mpi", 4, 3),
    _fault("kill", "ps-2-chief", "PS, 2 hosts: the chief's host is killed", "ps", 2, 0),
    _fault("kill", "ps-2-worker", "PS, 2 hosts: the worker's host is killed", "ps", 2, 1),
    _fault("kill", "mwms-2-worker-0", "MWMS, 2 hosts: worker 0's host is killed", "mwms", 2, 0),
    _fault("kill", "mwms-2-worker-1", "MWMS, 2 hosts: worker 1's host is killed", "mwms", 2, 1),
    _fault("kill", "mpi-2-coordinator", "MPI, 2 hosts: the coordinator's host is killed", "mpi", 2, 0),
    _fault("kill", "mpi-2-worker", "MPI, 2 hosts: the other host is killed", "mpi", 2, 1),
    _fault("cut", "ps-2-chief", "PS, 2 hosts: the chief's network is cut", "ps", 2, 0),
    _fault("cut", "ps-2", "PS, 2 hosts: the worker's network is cut", "ps", 2, 1),
    _fault("cut", "mwms-2-worker-0", "MWMS, 2 hosts: worker 0's network is cut", "mwms", 2, 0),
    _fault("cut", "mwms-2", "MWMS, 2 hosts: worker 1's network is cut", "mwms", 2, 1),
    _fault("cut", "mpi-2-coordinator", "MPI, 2 hosts: the coordinator's network is cut", "mpi", 2, 0),
    _fault("cut", "mpi-2", "MPI, 2 hosts: the other host's network is cut", "mpi", 2, 1),
    _fault(INSTALL, "single-1", "single host: the install fails", "single", 1, 0),
    _fault(INSTALL, "ps-2-worker", "PS, 2 hosts: the install fails on the worker's host", "ps", 2, 1),
    _fault(INSTALL, "mwms-2-worker-1", "MWMS, 2 hosts: the install fails on worker 1's host", "mwms", 2, 1),
    _fault(INSTALL, "mpi-2", "MPI, 2 hosts: the install fails on the other host", "mpi", 2, 1),
    _hang("single-1", "single host: the script sleeps", "single", 1),
    _hang("mwms-2", "MultiWorkerMirrored, 2 hosts: worker 1 sleeps", "mwms", 2),
    _hang("mpi-2", "Horovod, 2 hosts: rank 1 sleeps", "mpi", 2),
    _stop("single-1", "single host: SIGTERM", "single", 1),
    _stop("ps-2", "PS, 2 hosts: SIGTERM to both", "ps", 2),
    _stop("mwms-2", "MWMS, 2 hosts: SIGTERM to both", "mwms", 2),
    _stop("mpi-2", "MPI, 2 hosts: SIGTERM to both", "mpi", 2),
    Case(
        name="real-ps-2", title="Estimator with parameter servers, 2 hosts", group=REAL, mode="ps", hosts=2,
        program="ps_job.py",
    ),
    Case(
        name="real-horovod-2", title="Keras with Horovod, 2 hosts x 1 rank", group=REAL, mode="mpi", hosts=2,
        program="horovod_job.py",
    ),
    Case(
        name="real-deepfm-2", title="DeepFM with ParameterServerStrategy, 2 hosts", group=REAL, mode="ps", hosts=2,
        program=DEEPFM_JOB, arguments=(WORKERS_SERVE, ("epochs", "1")),
    ),
    _log("single-1", "single host, 100,000 lines", "single", 1, 1, 100_000),
    _log("mpi-2x2", "MPI, 2 hosts x 2 ranks, 25,000 lines each", "mpi", 2, 2, 25_000),
    # Labels do not vary from round to round.
    _log("mpi-12x1", "MPI, 12 hosts x 1 rank, 500 lines each", "mpi", 12, 1, 500, rounds=1),
    *_installs(),
)  # fmt: skip
