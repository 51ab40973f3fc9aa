"""Plan Horovod and other MPI programs: the coordinator runs mpirun over an ssh daemon of the job's own.

On every host mpirun starts our small program `rank`. It asks the host's own supervisor for the command and the
environment. So no value of the coordinator's and no secret travels by command line or ssh, and each host logs and
watches its own ranks. `plan/ssh.py` writes the files for ssh.
"""

import re

from entrypoint.launcher.job.cluster import Host
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.job.open_mpi import DAEMONS, PRRTE
from entrypoint.launcher.plan import ssh
from entrypoint.launcher.plan.distributions import common
from entrypoint.launcher.plan.plan import ALL_HOSTS, ATTEMPT, Duty, Need, Plan, ProcessSpec, Ready, Restart, Role

# Options of mpirun that mean the same: a user's option replaces ours.
_SYNONYMS = {
    "-np": "np", "--np": "np", "-n": "np", "--n": "np", "-c": "np",
    "-host": "host", "--host": "host", "-H": "host", "-hostfile": "host", "--hostfile": "host",
    "-machinefile": "host", "--machinefile": "host",
    "-map-by": "map-by", "--map-by": "map-by", "--map-to": "map-by",
    "-bind-to": "bind-to", "--bind-to": "bind-to",
    "-wdir": "wdir", "--wdir": "wdir", "-wd": "wdir", "--wd": "wdir",
}  # fmt: skip
# Options of Python for programs that need no package: Python starts in half the time.
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
        options = ["apart"]  # PRRTE kills its processes 0.25 s after SIGTERM, too soon for a checkpoint
        env.append(("TMPDIR", str(job.paths.run)))  # a folder that a killed mpirun has left in /tmp would be in the way
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
    places = [(host, local) for host in hosts for local in range(slots)]  # as mpirun does by slot: host after host
    rows += [_rank(job, host, rank, local) for rank, (host, local) in enumerate(places[:total])]
    title = f"MPI: {common.count(total, 'rank')} {common.where(job, f', {slots} on each')}"
    return common.whole(job, title, rows, daemon=DAEMONS[job.open_mpi])


def _ssh_rows(job: Job, host: Host) -> list[ProcessSpec]:
    """Return the host's key and its ssh daemon; on the coordinator also the client key that the other hosts accept."""
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
        # mpi4py's runner calls MPI_Abort when the script raises; without it the other ranks would wait for ever.
        program=common.program(job, options=("-m", "mpi4py")),
        env=(("NCCL_SOCKET_IFNAME", interface),) if interface else (),
        cwd=job.paths.code,
        needs=(Need(host=job.cluster.coordinator.name, process="mpirun"),),
    )


def _mpirun(job: Job) -> tuple[list[str], int]:
    """Return (command of mpirun, number of ranks), with our options and then the user's."""
    hosts, slots = job.cluster.training, job.processes_per_host
    users = _user_options(job.mpi_options)
    total = len(hosts) * slots
    for option in users:
        if _key(option) == "np" and len(option) == 2 and re.fullmatch("[0-9]{1,9}", option[1]):
            total = int(option[1])
    ours = [
        ["--allow-run-as-root"],
        ["-np", str(total)],
        # A single host need not know its own name.
        ["--host", ",".join(f"{host.name if len(hosts) > 1 else 'localhost'}:{slots}" for host in hosts)],
        ["--map-by", "slot"],
        ["--bind-to", "none"],
        # Marks a rank of an attempt that is over, should it still start.
        ["-x", ATTEMPT],
        *(_of_prrte(job) if job.open_mpi == PRRTE else _of_orte(job)),
    ]
    if len(hosts) > 1:
        # Keeps Open MPI's daemon in its ssh session, so that the host's supervisor sees it start and end.
        ours += [["--leave-session-attached"]]
        # A rank goes where its program runs by itself. Without this, the daemons look for mpirun's own folder, which
        # exists on no other host, and then for the user's home; if there is none, they wait without a message.
        ours += [["--wdir", "/"]]
        if job.cluster.interface:
            ours += [["--mca", "btl_tcp_if_include", job.cluster.interface]]
    taken = {_key(option) for option in users}
    kept = [option for option in ours if _key(option) not in taken]
    return ["mpirun", *[word for option in [*kept, *users] for word in option]], total


def _of_orte(job: Job) -> list[list[str]]:
    """Return the options for Open MPI up to version 4."""
    hosts, settings = job.cluster.training, job.settings
    options = [
        ["--mca", "orte_abort_on_non_zero_status", "1"],
        # Open MPI kills a rank 1 s after SIGTERM, too soon for a checkpoint. The launcher kills instead.
        ["--mca", "odls_base_sigkill_timeout", str(int(settings.stop_grace) + 1)],
        ["--mca", "pml", "ob1"],
        # Simulated hosts share one machine, and would meet in the same shared memory.
        ["--mca", "btl", "tcp,self" if settings.port_stride and len(hosts) > 1 else "^openib"],
        # The single-copy mechanisms need ptrace rights, which containers do not have.
        ["--mca", "btl_vader_single_copy_mechanism", "none"],
    ]
    if len(hosts) > 1:
        options += [["--mca", "plm_rsh_agent", ssh.client(job.paths)], ["--mca", "plm_rsh_no_tree_spawn", "1"]]
        if job.cluster.interface:
            options += [["--mca", "oob_tcp_if_include", job.cluster.interface]]
        if settings.port_stride:
            # Hosts simulated on one machine may all look local to Open MPI, by the addresses of their names: compare
            # names only. If a host begins to look local after the daemons were started, mpirun does not find it again,
            # and reports that all nodes "are already filled".
            options += [["--mca", "if_base_do_not_resolve", "1"]]
    return options


def _of_prrte(job: Job) -> list[list[str]]:
    """Return the options for Open MPI from version 5 on, which ends a job by itself when a rank has failed."""
    hosts = job.cluster.training
    options = [["--mca", "pml", "ob1"], ["--mca", "smsc", "^cma"]]
    if job.settings.port_stride and len(hosts) > 1:
        # Simulated hosts share one machine and would meet in the same shared memory, where `han` waits for ever.
        options += [["--mca", "btl", "tcp,self"], ["--mca", "coll", "^han"]]
    if len(hosts) > 1:
        options += [["--prtemca", "plm_ssh_agent", ssh.client(job.paths)], ["--prtemca", "plm_ssh_no_tree_spawn", "1"]]
        if job.cluster.interface not in (None, "lo"):  # PRRTE takes no loopback where there is another interface
            options += [["--prtemca", "prte_if_include", job.cluster.interface]]
    return options


def _user_options(words: tuple[str, ...]) -> list[list[str]]:
    """Return the user's options as lists of an option and its values."""
    options: list[list[str]] = []
    for word in words:
        if options and (not word.startswith("-") or (options[-1][0] in _MCA and len(options[-1]) < 3)):
            options[-1].append(word)
        else:
            options.append([word])
    return [_nccl_debug(option) for option in options]


def _nccl_debug(option: list[str]) -> list[str]:
    """Replace `--NCCL_DEBUG X`, which is no option of mpirun: AWS's toolkit exports the variable instead."""
    name, _, value = option[0].partition("=")
    value = value or "".join(option[1:2])
    return ["-x", f"NCCL_DEBUG={value}"] if name == "--NCCL_DEBUG" and value else option


def _key(option: list[str]) -> str:
    """Return the name of the setting that an option changes. Of two options with one name, only one may be passed."""
    if option[0] in _MCA and len(option) > 1:
        return f"mca {option[1]}"
    if option[0] == "-x" and len(option) > 1:
        return f"-x {option[1].partition('=')[0]}"
    return _SYNONYMS.get(option[0], option[0].lstrip("-"))
