"""Make the cases in which something happens from outside: hosts go, come back, never come; processes die; SIGTERM."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from outcomes.case import (
    ALL,
    COORDINATOR,
    END,
    EVERYWHERE,
    FOLLOWER,
    HOST,
    KILL_TIMEOUT,
    MPIRUN,
    PROCESS,
    SEVERAL,
    SHORTAGE,
    START,
    START_TIMEOUT,
    STOP,
    STOP_GRACE,
    STUBBORN_STOP,
    STUCK,
    STUCK_ATTEMPT,
    Bound,
    Case,
    Own,
    Way,
    host_of,
    script_of,
)

PATIENT = {"PEER_TIMEOUT": "60"}  # for hosts that a busy machine may bring back later than asked
HERE = "when 'all are here'"  # the line that scripts write when all of them run
LOST = "{host} (lost: no report for ...)"
KILLED = "{host} (lost: ...)"  # known by its closed connection, or by one that it does not accept
ABSENT = f"{{host}} (did not appear within {START_TIMEOUT:g} s): "
NO_ANSWER = ABSENT + "it is at ..., port ...: Connection refused..."
NO_NAME = ABSENT + "its name does not resolve: ..."
# Requirements whose installation takes for ever: the build backend is in the code itself, and waits.
HELD = {
    "requirements.txt": ".\n",
    "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "held"\nbackend-path = ["."]\n',
    "held.py": "import time\n\ntime.sleep(600)\n",
}
SHORT_START = {"START_TIMEOUT": f"{START_TIMEOUT:g}"}
SHORT_STOP = {"STOP_GRACE": f"{STOP_GRACE:g}"}
RESTART = {"RESTARTS": "1", "RESTART_BACKOFF": "0.5"}
STAYS = "stays paused until it is killed"
NO_SAY = Own(exits=("SIGKILL",), words="was killed")
FROZEN = Own(exits=("SIGKILL",), words=STAYS)
LATE = Own(exits=("69",), words="69 when it resumes")
CUT = {
    COORDINATOR: Own(
        exits=("69",),
        timed=True,
        words="69; its text says that it may itself be cut off",
        text="algo-... (lost: no report for ...): no other host reports either; {host} itself may be cut off",
    ),
    FOLLOWER: Own(
        exits=("69",), text="algo-1 (lost: no report for ...)", timed=True, words="69; its text names the coordinator"
    ),
}


def lost(way: Way, event: str, where: str, when: str, *faults: str, own: Own, text: str = LOST, **more: Any) -> Case:
    """Return a case in which the whole host is gone, for good or too long: the others name it."""
    host = host_of(where)
    return Case(
        way=way, event=event, where=where, when=when, faults=tuple(fault.format(host=host) for fault in faults),
        does={"do": "waits", "on": host, "when": when}, hosts=3, code=69, text=text, bound=HOST, hit={host: own},
        **more,
    )  # fmt: skip


def hosts_that_go() -> Iterator[Case]:
    everywhere = [(way, where) for way in SEVERAL for where in (COORDINATOR, FOLLOWER)]
    most = [*everywhere[4:], (Way.SCRIPTS, COORDINATOR), (Way.PS, FOLLOWER)]
    for way, where in everywhere:
        yield lost(way, "host is killed", where, "run", f"kill {{host}} {HERE}", own=NO_SAY, text=KILLED)
    for way, where in most:
        yield lost(way, "host is paused for ever", where, "run", f"pause {{host}} {HERE}", own=FROZEN)
        yield lost(way, "host is cut off for ever", where, "run", f"cut {{host}} {HERE}", own=CUT[where])
    # Back after 9 s, to a job that is over.
    for way, where in ((Way.MWMS, COORDINATOR), (Way.MWMS, FOLLOWER), (Way.MPI, FOLLOWER)):
        yield lost(way, "host is paused for 9 s", where, "run", f"pause {{host}} {HERE} for 9", own=LATE)
    # The other scripts have ended well, this host's has not.
    for way, where in ((Way.MWMS, COORDINATOR), (Way.MPI, FOLLOWER), (Way.PS, FOLLOWER)):
        yield lost(way, "host is killed", where, "end", "kill {host} when 'acts at'", own=NO_SAY, text=KILLED)
    yield lost(Way.MWMS, "host is cut off for ever", FOLLOWER, "end", "cut {host} when 'acts at'", own=CUT[FOLLOWER])


def hosts_that_come_back() -> Iterator[Case]:
    """Yield cases in which a host is away for less than the peer timeout, which changes nothing."""
    mirrored = [(Way.MWMS, COORDINATOR), (Way.MWMS, FOLLOWER)]
    for way, where in (*mirrored, (Way.MPI, FOLLOWER), (Way.PS, FOLLOWER)):
        fault = f"pause {host_of(where)} {HERE} for 2"
        yield goes_on(way, "host is paused for 2 s", where, "run", fault, seconds="3", settings=PATIENT)
    for way, where in (
        *mirrored,
        (Way.MPI, COORDINATOR),
        (Way.MPI, FOLLOWER),
        (Way.PS, FOLLOWER),
        (Way.SCRIPTS, FOLLOWER),
    ):
        fault = f"cut {host_of(where)} {HERE} for 3"
        yield goes_on(way, "host is cut off for 3 s", where, "run", fault, seconds="4", settings=PATIENT)
    for way, where in (*mirrored, (Way.MPI, FOLLOWER), (Way.PS, COORDINATOR)):
        fault = f"hide {host_of(where)} {HERE}"
        yield goes_on(way, "host's name does not resolve any more", where, "run", fault, seconds="3")
    for way, where in (*mirrored, (Way.MPI, FOLLOWER)):
        yield goes_on(way, "host comes 3 s late", where, "start", f"late {host_of(where)} for 3")
        fault = f"hide {host_of(where)} for 4"
        yield goes_on(way, "host's name does not resolve for 4 s", where, "start", fault)


def goes_on(
    way: Way,
    event: str,
    where: str,
    when: str,
    *faults: str,
    seconds: str = "0",
    settings: dict[str, str] | None = None,
) -> Case:
    return Case(
        way=way, event=event, where=where, when=when, does={"do": "lasts", "seconds": seconds}, faults=faults, hosts=2,
        code=0, bound=END, settings=settings or {},
    )  # fmt: skip


def hosts_that_never_come() -> Iterator[Case]:
    for way, where in ((Way.MWMS, COORDINATOR), (Way.MWMS, FOLLOWER), (Way.MPI, FOLLOWER)):
        host = host_of(where)
        common = {"way": way, "where": where, "when": "start", "hosts": 2, "code": 68, "bound": START,
                  "settings": SHORT_START, "does": {"do": "lasts"}}  # fmt: skip
        kill = (f"kill {host}",)
        yield Case(event="host dies as it starts", faults=kill, text=NO_ANSWER, hit={host: NO_SAY}, **common)
        if way is not Way.MWMS:
            continue
        own = Own(exits=("68",), text="algo-... (did not appear within 6 s): ...", words="68")
        yield Case(
            event="host comes after the start timeout",
            faults=(f"late {host} for 9",),
            text=NO_ANSWER,
            hit={host: own},
            **common,
        )
        yield Case(
            event="host's name never resolves",
            faults=(f"hide {host} for 60",),
            text=NO_NAME,
            hit={host: Own(exits=("68",), words="68")},
            **common,
        )


# --- processes that are not the user's ---


def lose(
    way: Way, event: str, where: str, when: str, fault: str, text: str, code: int = 137, *, bound: Bound = PROCESS
) -> Case:
    """Return a case in which a process of the launcher dies while scripts run."""
    return Case(
        way=way, event=event, where=where, when=when, faults=(fault.format(host=host_of(where)),),
        does={"do": "waits"}, hosts=2, code=code, text=text, bound=bound,
    )  # fmt: skip


def processes_that_die() -> Iterator[Case]:
    for way in (Way.PS, Way.PS_SERVER):
        for where, index in ((COORDINATOR, 0), (FOLLOWER, 1)):
            text = f"{{host}} ps/{index} (ended too early, killed by SIGKILL)"
            kill = f"kill {{host}}:ps/{index}"
            if way is Way.PS or where == FOLLOWER:
                yield lose(way, "parameter server is killed", where, "run", f"{kill} {HERE}", text)
            if way is Way.PS_SERVER or where == FOLLOWER:
                yield lose(way, "parameter server is killed", where, "start", f"{kill} when 'ps/{index} started'", text)
    yield lose(
        Way.PS, "parameter server is sent SIGTERM", FOLLOWER, "run", f"stop {{host}}:ps/1 {HERE}",
        "{host} ps/1 (ended too early, killed by SIGTERM)", 143,
    )  # fmt: skip
    kill = f"kill algo-2:worker/0 {HERE}"
    event = "worker server is killed, with ENTRYPOINT_RESTARTS=1"
    case = goes_on(Way.PS_SERVER, event, FOLLOWER, "run", kill, seconds="2")
    yield replace(case, settings=RESTART)
    text = "{host} worker/0 (ended too early, killed by SIGKILL)"
    yield lose(Way.PS_SERVER, "worker server is killed", FOLLOWER, "run", f"kill {{host}}:worker/0 {HERE}", text)
    kill = "kill {host}:worker/0 when 'worker/0 started'"
    yield lose(Way.PS_SERVER, "worker server is killed", FOLLOWER, "start", kill, text)
    for where in (COORDINATOR, FOLLOWER):
        text = "{host} sshd (ended too early, killed by SIGKILL)"
        yield lose(Way.MPI, "ssh daemon is killed", where, "run", f"kill {{host}}:sshd {HERE}", text)
        yield lose(Way.MPI, "ssh daemon is killed", where, "start", "kill {host}:sshd when 'sshd started'", text)
    text = "algo-1 mpirun (killed by SIGKILL)"
    yield lose(Way.MPI, "mpirun is killed", COORDINATOR, "run", f"kill algo-1:mpirun {HERE}", text)
    yield lose(Way.MPI, "mpirun is killed", COORDINATOR, "start", "kill algo-1:mpirun when 'mpirun started'", text)
    kill, text = f"kill {{host}}:orted {HERE}", "{host} orted (ended too early): Open MPI's daemon on this host ..."
    yield lose(Way.MPI, "Open MPI's daemon is killed", FOLLOWER, "run", kill, text, 1)
    for way in (Way.SINGLE, Way.SCRIPTS, Way.MWMS, Way.MPI):
        where = FOLLOWER if way in SEVERAL else COORDINATOR
        text = "{host} prepare (killed by SIGKILL)"
        case = lose(way, "prepare step is killed", where, "start", "kill {host}:prepare", text)
        yield replace(case, hosts=2 if way in SEVERAL else 1, files=HELD)
    missing = {"requirements.txt": "./no-such-folder\n"}
    for way in (Way.SINGLE, Way.PS, Way.MPI):
        yield Case(
            way=way, event="requirements cannot be installed", where=EVERYWHERE, when="start", files=missing,
            hosts=1 if way is Way.SINGLE else 2, code=65, bound=START, settings={"START_TIMEOUT": "60"},
            text="algo-... prepare (exit code 65): requirements.txt in ... cannot be installed: ERROR: ...",
        )  # fmt: skip


# --- SIGTERM ---


def stops() -> Iterator[Case]:
    for way in ALL:
        one = way is Way.SINGLE
        for event, sigterm, code, bound, hosts in (
            ("SIGTERM; scripts save and end well", "saves", 0, STOP, 3),
            ("SIGTERM; scripts do nothing about it", "", 143, STOP, 2),
            ("SIGTERM; scripts raise", "fails", 143, STOP, 2),
            ("SIGTERM; scripts ignore it", "ignores", 143, STUBBORN_STOP, 2),
        ):
            if sigterm != "fails" or way in (Way.SINGLE, Way.MWMS, Way.MPI):
                yield stop(way, event, EVERYWHERE, f"stop all {HERE}", sigterm, code, bound, hosts=1 if one else hosts)
    for way, where in ((Way.MWMS, COORDINATOR), (Way.PS, FOLLOWER), (Way.MPI, FOLLOWER)):
        event = "SIGTERM to this host only; scripts save and end well"
        yield stop(way, event, where, f"stop {host_of(where)} {HERE}", "saves", 0, STOP)
    for way, where in ((Way.SCRIPTS, FOLLOWER), (Way.PS_SERVER, FOLLOWER)):
        event = "SIGTERM to this host only; scripts do nothing about it"
        yield stop(way, event, where, f"stop {host_of(where)} {HERE}", "", 143, STOP)
    for way in (Way.SINGLE, Way.MWMS, Way.MPI):
        hosts = 1 if way is Way.SINGLE else 2
        # While requirements are installed; at a set time a quick machine's scripts would be up, save, and end well.
        now = "stop all when 'Using Python'"
        case = stop(way, "SIGTERM before scripts run", EVERYWHERE, now, "saves", 143, STOP, hosts=hosts)
        yield replace(case, when="start", files=HELD)
    # One script is left; the others have ended well.
    for way in (Way.MWMS, Way.MPI):
        case = stop(way, "SIGTERM; scripts save and end well", FOLLOWER, "stop all when 'acts at'", "saves", 0, STOP)
        yield replace(case, when="end", does={**case.does, "on": "algo-2", "when": "end"})


def stop(
    way: Way, event: str, where: str, fault: str, sigterm: str, code: int, bound: Bound, *, hosts: int = 2
) -> Case:
    does = {"do": "waits", **({"sigterm": sigterm} if sigterm else {})}
    settings = SHORT_STOP if bound is STUBBORN_STOP else {}
    return Case(
        way=way, event=event, where=where, when="run", faults=(fault,), does=does, settings=settings, hosts=hosts,
        code=code, bound=bound,
    )  # fmt: skip


# --- output that nobody reads ---


def output_that_nobody_reads() -> Iterator[Case]:
    """Yield cases in which a host's output is not read: only that host waits for its reader, at the end."""
    words = "the same, up to 20 s later (5 s if the job is stopped)"
    for way, where in ((Way.SCRIPTS, FOLLOWER), (Way.PS, COORDINATOR), (Way.MWMS, FOLLOWER), (Way.MPI, FOLLOWER)):
        host, loss = host_of(where), "ValueError: the loss is not a number"
        unread = {"way": way, "where": where, "when": "run", "hosts": 2}
        stall, other = f"stall {host} for 60", "algo-1" if host == "algo-2" else "algo-2"
        raises = {
            "code": 1,
            "text": f"{{who}} (exit code 1): {loss}",
            "bound": PROCESS,
            "hit": {host: Own(exits=("1",), text=f"... (exit code 1): {loss}", words=words)},
        }
        yield Case(
            event="nobody reads its output; script prints 2 MB, raises",
            faults=(stall,),
            does={"do": "floods_with_lines_and_raises", "on": host, "when": "run", "megabytes": "2"},
            **unread,
            **raises,
        )
        raises["text"] = f"{other} ... (exit code 1): {loss}"
        yield Case(
            event="nobody reads its output; script prints 10 MB, another host's raises",
            faults=(stall,),
            does={"do": "raises", "on": other, "when": "run", "others": "floods_and_waits", "megabytes": "10"},
            **unread,
            **raises,
        )
        yield Case(
            event="nobody reads its output; scripts print 10 MB; SIGTERM; they save and end well",
            faults=(stall, f"stop all {HERE}"),
            does={"do": "floods_and_waits", "megabytes": "10", "sigterm": "saves"},
            code=0,
            bound=STOP,
            hit={host: Own(exits=("0",), text="", words=words)},
            **unread,
        )


# --- processes that end neither by themselves nor by SIGKILL, and a stop beside a failure ---


def work_outside_the_process_group() -> Iterator[Case]:
    for way in (Way.SINGLE, Way.MWMS, Way.PS, Way.MPI):
        case = stop(
            way,
            "SIGTERM; work outside the process group saves",
            EVERYWHERE,
            "stop all when 'all work apart'",
            "saves",
            143,
            STOP,
        )
        does = {**case.does, "do": "works_in_a_session_of_its_own"}
        yield replace(case, does=does, hosts=1 if way is Way.SINGLE else 2, says="] saved")


def what_cannot_be_killed() -> Iterator[Case]:
    settings = {"KILL_TIMEOUT": f"{KILL_TIMEOUT:g}"}
    for way in (Way.SCRIPTS, Way.MWMS, Way.PS, Way.MPI):
        asks = {"do": "asks_a_disk_that_does_not_answer", "on": "algo-2", "when": "run"}
        other = f"algo-1 {script_of(way, 'algo-1')}"
        # Open MPI kills its ranks itself: what is left may be no rank any more, but what one has started.
        stuck = "{host} ...(survives SIGKILL" if way is Way.MPI else "{who} (survives SIGKILL"
        common: dict[str, Any] = {"way": way, "where": FOLLOWER, "when": "run", "hosts": 2, "disk": True}
        yield Case(
            **common, event="script cannot be killed, another raises", does={**asks, "others": "raises_when_it_hangs"},
            settings=settings, code=1, text=f"{other} (exit code 1): ValueError: the loss is not a number", bound=STUCK,
            says="survives SIGKILL for 1 s and is left behind: pid ...state D (uninterruptible sleep), waits in ",
        )  # fmt: skip
        yield Case(
            **common,
            event="script cannot be killed, another is and the job was to be tried again",
            does={**asks, "others": "kills_itself_when_it_hangs"},
            settings={**settings, **RESTART},
            code=71,
            text=f"{stuck}, so the job cannot restart): still running 1 s after SIGKILL: pid ...",
            bound=STUCK_ATTEMPT,
        )


def mpirun_that_does_not_end() -> Iterator[Case]:
    yield Case(
        way=Way.MPI, event="mpirun does not end though all ranks have", where=COORDINATOR, when="end", hosts=2,
        does={"do": "stops_mpirun", "on": "algo-1", "when": "end"}, code=0, bound=MPIRUN,
        says="mpirun still runs 10 s after all ranks ended with code 0: it is killed",
    )  # fmt: skip


def stops_that_cross_a_failure() -> Iterator[Case]:
    """Yield cases in which one host stands still, so that nothing is decided when SIGTERM comes."""
    paused = Own(exits=("SIGKILL", "1"), words=STAYS)
    for way in (Way.SCRIPTS, Way.MWMS):
        yield Case(
            way=way, event="script raises while algo-3 is paused, then SIGTERM", where=FOLLOWER, when="run",
            does={"do": "raises_later", "on": "algo-2", "when": "run", "sigterm": "saves"},
            faults=(f"pause algo-3 {HERE}", "stop all when 'ended: exit code 1'"), hosts=3, code=1,
            text="{who} (exit code 1): ValueError: the loss is not a number", bound=HOST, hit={"algo-3": paused},
        )  # fmt: skip


# --- a host that has too little ---


def hosts_that_have_too_little() -> Iterator[Case]:
    for way, where in ((Way.SCRIPTS, FOLLOWER), (Way.PS, COORDINATOR), (Way.MWMS, FOLLOWER), (Way.MPI, COORDINATOR)):
        for event, few, words in (
            ("its host allows 2 processes", "pids=2", "this host allows 2 processes and threads"),
            ("its host allows 10 open files", "files=10", "this host allows 10 open files"),
        ):
            yield Case(
                way=way, event=event, where=where, when="start", does={"do": "waits"}, few=few, hosts=2, code=70,
                text=f"{{host}} (fault of the launcher): ...{words}...", bound=SHORTAGE,
            )  # fmt: skip
    for way, where in ((Way.SINGLE, COORDINATOR), (Way.MWMS, FOLLOWER), (Way.MPI, FOLLOWER)):
        yield Case(
            way=way, event="script takes more memory than its host has", where=where, when="run",
            does={"do": "eats_memory", "on": host_of(where), "when": "run"}, few=f"memory={300 << 20}",
            hosts=1 if way is Way.SINGLE else 2, code=137, text="{who} (killed by SIGKILL, out of memory): ...",
            bound=PROCESS,
        )  # fmt: skip
