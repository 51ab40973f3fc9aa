"""Horovod and other MPI programs: the coordinator runs mpirun, over an ssh daemon of the job's own.

mpirun starts our small `rank` program on every host; that asks the host's own supervisor for the command
and the environment, so no value of the coordinator's and no secret travels by command line or ssh, and each
host logs and watches its own ranks. Files for ssh are written by `entrypoint.launcher.plan.ssh`.
"""

import re

from entrypoint.launcher.job.cluster import Host
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.job.open_mpi import DAEMONS, PRRTE
from entrypoint.launcher.plan import ssh
from entrypoint.launcher.plan.distributions import common
from entrypoint.launcher.plan.plan import ALL_HOSTS, ATTEMPT, Duty, Need, Plan, ProcessSpec, Ready, Restart, Role

# Options of mpirun that mean the same, so that a user's choice replaces ours.
_SYNONYMS = {
    "-np": "np", "--np": "np", "-n": "np", "--n": "np", "-c": "np",
    "-host": "host", "--host": "host", "-H": "host", "-hostfile": "host", "--hostfile": "host",
    "-machinefile": "host", "--machinefile": "host",
    "-map-by": "map-by", "--map-by": "map-by", "--map-to": "map-by",
    "-bind-to": "bind-to", "--bind-to": "bind-to",
    "-wdir": "wdir", "--wdir": "wdir", "-wd": "wdir", "--wd": "wdir",
}  # fmt: skip
# Options of Python for programs that need no package: it starts in half the time.
STANDARD_LIBRARY = ("-I", "-S")
_MCA = {f"{dashes}{name}" for dashes in ("-", "--") for name in ("mca", "gmca", "omca", "gomca", "prtemca", "pmixmca")}


def plan(job: Job) -> Plan:
    hosts, slots = job.cluster.training, job.processes_per_host
    several = len(hosts) > 1
    rows = [row for host in hosts for row in _ssh_rows(job, host)] if several else []
    command, total = _mpirun(job)
    needs = [*common.rendezvous(job.cluster)]
    if several:
        everywhere = len(hosts) == len(job.cluster.hosts)
        needs += [Need(host=name, process="sshd") for name in ([ALL_HOSTS] if everywhere else [h.name for h in hosts])]
    options, env = list[str](), [(ssh.RANKS_SOCKET, str(job.paths.ranks))]
    if job.open_mpi == PRRTE:
        options = ["apart"]  # PRRTE kills what it has started 0.25 s after SIGTERM, too soon for a checkpoint
        env.append(("TMPDIR", str(job.paths.run)))  # a folder that a killed mpirun left in /tmp would be in the way
    rows.append(
        ProcessSpec(
            host=hosts[0].name,
            name="mpirun",
            role=Role.LAUNCHER,
            duty=Duty.LAUNCHER,
            task=f"{total} ranks" if total != len(hosts) * slots else f"{total} ranks, {slots} on each host",
            argv=(*command, *common.child("rank", options=STANDARD_LIBRARY), *options),
            env=tuple(env),
            cwd=job.paths.run,
            needs=tuple(needs),
        )
    )
    rows += [_rank(job, host, rank, local) for rank, host, local in _placement(hosts, slots, total)]
    title = f"MPI: {common.count(total, 'rank')} {common.where(job, f', {slots} on each')}"
    return common.whole(job, title, rows, daemon=DAEMONS[job.open_mpi])


def _ssh_rows(job: Job, host: Host) -> list[ProcessSpec]:
    """Return the host's key and its ssh daemon; on the coordinator also the key that it shows to the others."""
    coordinator, port = job.cluster.coordinator, host.port(job.settings.ssh_port)
    sshd = ProcessSpec(
        host=host.name,
        name="sshd",
        role=Role.SSHD,
        duty=Duty.SERVER,
        argv=ssh.daemon(job.paths),
        ports=(port,),
        needs=(Need(host=host.name, process="host-key"), Need(host=coordinator.name, process="client-key")),
        ready=Ready.LISTENING,
        restart=Restart.KEEP,
    )
    of_client = [_key_row(job, host, "client", "authorized_keys")] if host is coordinator else []
    return [_key_row(job, host, "host", "known_hosts"), *of_client, sshd]


def _key_row(job: Job, host: Host, whose: str, known_as: str) -> ProcessSpec:
    return ProcessSpec(
        host=host.name,
        name=f"{whose}-key",
        role=Role.KEY,
        duty=Duty.STEP,
        argv=ssh.make_key(job.paths, f"{whose}_key"),
        ready=Ready.ENDED,
        restart=Restart.KEEP,
        key_name=known_as,
        public_key_file=job.paths.ssh / f"{whose}_key.pub",
    )


def _rank(job: Job, host: Host, rank: int, local: int) -> ProcessSpec:
    interface = job.cluster.interface
    return ProcessSpec(
        host=host.name,
        name=f"rank {rank}",
        role=Role.RANK,
        duty=Duty.RANK,
        task=f"local rank {local}",
        # mpi4py's runner calls MPI_Abort when the script raises; without it the other ranks wait for ever.
        program=common.program(job, options=("-m", "mpi4py")),
        env=(("NCCL_SOCKET_IFNAME", interface),) if interface else (),
        cwd=job.paths.code,
        needs=(Need(host=job.cluster.coordinator.name, process="mpirun"),),
    )


def _mpirun(job: Job) -> tuple[list[str], int]:
    """mpirun with our options, then the user's; (command, number of ranks)."""
    hosts, slots = job.cluster.training, job.processes_per_host
    users = _user_options(job.mpi_options)
    total = len(hosts) * slots
    for option in users:
        if _key(option) == "np" and len(option) == 2 and re.fullmatch("[0-9]{1,9}", option[1]):
            total = int(option[1])
    ours = [
        ["--allow-run-as-root"],
        ["-np", str(total)],
        # Alone, the host need not know its own name.
        ["--host", ",".join(f"{host.name if len(hosts) > 1 else 'localhost'}:{slots}" for host in hosts)],
        ["--map-by", "slot"],
        ["--bind-to", "none"],
        # So that a rank of an attempt that is over, should it still come up, is known as such.
        ["-x", ATTEMPT],
        *(_of_prrte(job) if job.open_mpi == PRRTE else _of_orte(job)),
    ]
    if len(hosts) > 1:
        # Keeps Open MPI's daemon in its ssh session, where the host's supervisor sees it come and go.
        ours += [["--leave-session-attached"]]
        # A rank goes where its program runs by itself. Left alone, the daemons look for mpirun's own folder, which is
        # nowhere else, take the user's home instead, and wait without a word where there is none.
        ours += [["--wdir", "/"]]
        if job.cluster.interface:
            ours += [["--mca", "btl_tcp_if_include", job.cluster.interface]]
    taken = {_key(option) for option in users}
    kept = [option for option in ours if _key(option) not in taken]
    return ["mpirun", *[word for option in [*kept, *users] for word in option]], total


def _of_orte(job: Job) -> list[list[str]]:
    """Return the options of Open MPI up to version 4."""
    hosts, settings = job.cluster.training, job.settings
    options = [
        ["--mca", "orte_abort_on_non_zero_status", "1"],
        # Between SIGTERM and SIGKILL Open MPI gives a rank 1 s, too short for a checkpoint. We do the killing.
        ["--mca", "odls_base_sigkill_timeout", str(int(settings.stop_grace) + 1)],
        ["--mca", "pml", "ob1"],
        # Hosts that are simulated on one machine would meet in the same shared memory.
        ["--mca", "btl", "tcp,self" if settings.port_stride and len(hosts) > 1 else "^openib"],
        # The single-copy ways need ptrace rights that containers do not have.
        ["--mca", "btl_vader_single_copy_mechanism", "none"],
    ]
    if len(hosts) > 1:
        options += [["--mca", "plm_rsh_agent", ssh.client(job.paths)], ["--mca", "plm_rsh_no_tree_spawn", "1"]]
        if job.cluster.interface:
            options += [["--mca", "oob_tcp_if_include", job.cluster.interface]]
        if settings.port_stride:
            # Hosts that are simulated on one machine may all look local to Open MPI, by the addresses of their names:
            # compare names only. If one looks local after the daemons were started, and not before, mpirun finds none
            # again, and says that all nodes "are already filled".
            options += [["--mca", "if_base_do_not_resolve", "1"]]
    return options


def _of_prrte(job: Job) -> list[list[str]]:
    """Return the same for Open MPI from version 5 on. It ends a job of which a rank has failed without being asked."""
    hosts = job.cluster.training
    options = [["--mca", "pml", "ob1"], ["--mca", "smsc", "^cma"]]
    if job.settings.port_stride and len(hosts) > 1:
        # Hosts that are simulated on one machine would meet in the same shared memory; `han` waits there for ever.
        options += [["--mca", "btl", "tcp,self"], ["--mca", "coll", "^han"]]
    if len(hosts) > 1:
        options += [["--prtemca", "plm_ssh_agent", ssh.client(job.paths)], ["--prtemca", "plm_ssh_no_tree_spawn", "1"]]
        if job.cluster.interface not in (None, "lo"):  # PRRTE takes no loopback where there is anything else
            options += [["--prtemca", "prte_if_include", job.cluster.interface]]
    return options


def _user_options(words: tuple[str, ...]) -> list[list[str]]:
    """Return the user's options as lists of an option and its values.

    `--NCCL_DEBUG X` is not mpirun's: AWS's toolkit takes it and exports the variable, so we do.
    """
    options: list[list[str]] = []
    for word in words:
        if word.startswith("-") and not (options and options[-1][0] in _MCA and len(options[-1]) < 3):
            options.append([word])
        elif options:
            options[-1].append(word)
        else:
            options.append([word])
    return [_nccl_debug(option) for option in options]


def _nccl_debug(option: list[str]) -> list[str]:
    name, _, value = option[0].partition("=")
    value = value or "".join(option[1:2])
    return ["-x", f"NCCL_DEBUG={value}"] if name == "--NCCL_DEBUG" and value else option


def _key(option: list[str]) -> str:
    """Return what an option sets; two options with one key exclude one another."""
    if option[0] in _MCA and len(option) > 1:
        return f"mca {option[1]}"
    if option[0] == "-x" and len(option) > 1:
        return f"-x {option[1].partition('=')[0]}"
    return _SYNONYMS.get(option[0], option[0].lstrip("-"))


def _placement(hosts: tuple[Host, ...], slots: int, total: int) -> list[tuple[int, Host, int]]:
    """(rank, host, local rank) as mpirun places them by slot: a host's slots are filled before the next host's."""
    places = [(host, local) for host in hosts for local in range(slots)]
    return [(rank, *places[rank]) for rank in range(min(total, len(places)))]
