"""Make the cases with external events: hosts that are lost, return or never start; killed processes; SIGTERM."""

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
    case,
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
RESTART = {"RESTARTS": "1", "RESTART_BACKOFF": "0.5"}
STAYS = "stays paused until it is killed"
LOSS = "ValueError: the loss is not a number"
NO_SAY = Own(exits=("SIGKILL",), words="was killed")
FROZEN = Own(exits=("SIGKILL",), words=STAYS)
LATE = Own(exits=("69",), words="69 when it resumes")
ITSELF = "algo-... (lost: no report for ...): no other host reports either; {host} itself may be cut off"
OTHER = "algo-1 (lost: no report for ...)"
CUT = {
    COORDINATOR: Own(exits=("69",), text=ITSELF, timed=True, words="69; its text says that it may itself be cut off"),
    FOLLOWER: Own(exits=("69",), text=OTHER, timed=True, words="69; its text names the coordinator"),
}
BOTH = ((Way.MWMS, COORDINATOR), (Way.MWMS, FOLLOWER))
A_RANK = (Way.MPI, FOLLOWER)


def lost(way: Way, event: str, where: str, when: str, fault: str, own: Own, text: str = LOST) -> Case:
    """Return a case with a host that is gone, for good or for too long. The others name it."""
    host = host_of(where)
    does = {"do": "waits", "on": host, "when": when}
    return case(way, event, where, when, fault, does=does, hosts=3, code=69, text=text, bound=HOST, hit={host: own})


def hosts_that_go() -> Iterator[Case]:
    everywhere = [(way, where) for way in SEVERAL for where in (COORDINATOR, FOLLOWER)]
    most = [*everywhere[4:], (Way.SCRIPTS, COORDINATOR), (Way.PS, FOLLOWER)]
    for way, where in everywhere:
        yield lost(way, "host is killed", where, "run", f"kill {{host}} {HERE}", NO_SAY, KILLED)
    for way, where in most:
        yield lost(way, "host is paused for ever", where, "run", f"pause {{host}} {HERE}", FROZEN)
        yield lost(way, "host is cut off for ever", where, "run", f"cut {{host}} {HERE}", CUT[where])
    # Back after 9 s, to a job that is over.
    for way, where in (*BOTH, A_RANK):
        yield lost(way, "host is paused for 9 s", where, "run", f"pause {{host}} {HERE} for 9", LATE)
    # The other scripts have ended well, this host's has not.
    for way, where in ((Way.MWMS, COORDINATOR), A_RANK, (Way.PS, FOLLOWER)):
        yield lost(way, "host is killed", where, "end", "kill {host} when 'acts at'", NO_SAY, KILLED)
    yield lost(Way.MWMS, "host is cut off for ever", FOLLOWER, "end", "cut {host} when 'acts at'", CUT[FOLLOWER])


def goes_on(way: Way, event: str, where: str, when: str, fault: str, seconds: str = "0", **settings: str) -> Case:
    """Return a case with a host that is silent for less than the peer timeout, which changes nothing."""
    does = {"do": "lasts", "seconds": seconds}
    return case(way, event, where, when, fault, does=does, code=0, bound=END, settings=settings)


def hosts_that_come_back() -> Iterator[Case]:
    for way, where in (*BOTH, A_RANK, (Way.PS, FOLLOWER)):
        yield goes_on(way, "host is paused for 2 s", where, "run", f"pause {{host}} {HERE} for 2", "3", **PATIENT)
    for way, where in (*BOTH, (Way.MPI, COORDINATOR), A_RANK, (Way.PS, FOLLOWER), (Way.SCRIPTS, FOLLOWER)):
        yield goes_on(way, "host is cut off for 3 s", where, "run", f"cut {{host}} {HERE} for 3", "4", **PATIENT)
    for way, where in (*BOTH, A_RANK, (Way.PS, COORDINATOR)):
        yield goes_on(way, "host's name no longer resolves", where, "run", f"hide {{host}} {HERE}", "3")
    for way, where in (*BOTH, A_RANK):
        yield goes_on(way, "host comes 3 s late", where, "start", "late {host} for 3")
        yield goes_on(way, "host's name does not resolve for 4 s", where, "start", "hide {host} for 4")


def absent(way: Way, event: str, where: str, fault: str, text: str, own: Own) -> Case:
    """Return a case with a host that does not start in time."""
    never = {"code": 68, "bound": START, "settings": SHORT_START, "does": {"do": "lasts"}}
    return case(way, event, where, "start", fault, text=text, hit={host_of(where): own}, **never)


def hosts_that_never_come() -> Iterator[Case]:
    own = Own(exits=("68",), text="algo-... (did not appear within 6 s): ...", words="68")
    nameless = replace(own, text=None)
    for way, where in (*BOTH, A_RANK):
        yield absent(way, "host dies as it starts", where, "kill {host}", NO_ANSWER, NO_SAY)
        if way is Way.MWMS:
            yield absent(way, "host comes after the start timeout", where, "late {host} for 9", NO_ANSWER, own)
            yield absent(way, "host's name never resolves", where, "hide {host} for 60", NO_NAME, nameless)


# --- processes that are not the user's ---


def lose(way: Way, event: str, where: str, when: str, fault: str, text: str, code: int = 137) -> Case:
    """Return a case with a process of the launcher that dies while scripts run."""
    return case(way, event, where, when, fault, does={"do": "waits"}, code=code, text=text, bound=PROCESS)


def processes_that_die() -> Iterator[Case]:
    event, by_kill = "parameter server is killed", "(ended too early, killed by SIGKILL)"
    for way in (Way.PS, Way.PS_SERVER):
        for where, index in ((COORDINATOR, 0), (FOLLOWER, 1)):
            event, kill, text = (
                "parameter server is killed",
                f"kill {{host}}:ps/{index}",
                f"{{host}} ps/{index} {by_kill}",
            )
            if way is Way.PS or where == FOLLOWER:
                yield lose(way, event, where, "run", f"{kill} {HERE}", text)
            if way is Way.PS_SERVER or where == FOLLOWER:
                yield lose(way, event, where, "start", f"{kill} when 'ps/{index} started'", text)
    stopped = "{host} ps/1 (ended too early, killed by SIGTERM)"
    yield lose(Way.PS, "parameter server is sent SIGTERM", FOLLOWER, "run", f"stop {{host}}:ps/1 {HERE}", stopped, 143)
    event, kill = "worker server is killed", "kill {host}:worker/0"
    yield goes_on(
        Way.PS_SERVER, f"{event}, with ENTRYPOINT_RESTARTS=1", FOLLOWER, "run", f"{kill} {HERE}", "2", **RESTART
    )
    for when, moment in (("run", HERE), ("start", "when 'worker/0 started'")):
        yield lose(Way.PS_SERVER, event, FOLLOWER, when, f"{kill} {moment}", f"{{host}} worker/0 {by_kill}")
    for where in (COORDINATOR, FOLLOWER):
        for when, moment in (("run", HERE), ("start", "when 'sshd started'")):
            fault = f"kill {{host}}:sshd {moment}"
            yield lose(Way.MPI, "ssh daemon is killed", where, when, fault, f"{{host}} sshd {by_kill}")
    for when, moment in (("run", HERE), ("start", "when 'mpirun started'")):
        fault, text = f"kill algo-1:mpirun {moment}", "algo-1 mpirun (killed by SIGKILL)"
        yield lose(Way.MPI, "mpirun is killed", COORDINATOR, when, fault, text)
    kill, text = f"kill {{host}}:orted {HERE}", "{host} orted (ended too early): Open MPI's daemon on this host ..."
    yield lose(Way.MPI, "Open MPI's daemon is killed", FOLLOWER, "run", kill, text, 1)
    for way in (Way.SINGLE, Way.SCRIPTS, Way.MWMS, Way.MPI):
        where = FOLLOWER if way in SEVERAL else COORDINATOR
        text = "{host} prepare (killed by SIGKILL)"
        yield replace(lose(way, "prepare step is killed", where, "start", "kill {host}:prepare", text), files=HELD)
    text = "algo-... prepare (exit code 65): requirements.txt in ... cannot be installed: ERROR: ..."
    missing = {"requirements.txt": "./no-such-folder\n"}
    for way in (Way.SINGLE, Way.PS, Way.MPI):
        yield case(
            way, "requirements cannot be installed", EVERYWHERE, "start", files=missing, code=65, bound=START,
            settings={"START_TIMEOUT": "60"}, text=text,
        )  # fmt: skip


# --- SIGTERM ---


def stop(way: Way, event: str, where: str, fault: str, sigterm: str, code: int, bound: Bound, **more: Any) -> Case:
    does = {"do": "waits", **({"sigterm": sigterm} if sigterm else {})}
    settings = {"STOP_GRACE": f"{STOP_GRACE:g}"} if bound is STUBBORN_STOP else {}
    return case(way, event, where, "run", fault, does=does, settings=settings, code=code, bound=bound, **more)


def stops() -> Iterator[Case]:
    for way in ALL:
        for event, sigterm, code, bound, hosts in (
            ("SIGTERM; scripts save and end well", "saves", 0, STOP, 3),
            ("SIGTERM; scripts do not handle it", "", 143, STOP, 2),
            ("SIGTERM; scripts raise", "fails", 143, STOP, 2),
            ("SIGTERM; scripts ignore it", "ignores", 143, STUBBORN_STOP, 2),
        ):
            if sigterm != "fails" or way in (Way.SINGLE, Way.MWMS, Way.MPI):
                several = 1 if way is Way.SINGLE else hosts
                yield stop(way, event, EVERYWHERE, f"stop all {HERE}", sigterm, code, bound, hosts=several)
    this = "SIGTERM to HOST only; scripts"
    for way, where in ((Way.MWMS, COORDINATOR), (Way.PS, FOLLOWER), A_RANK):
        yield stop(way, f"{this} save and end well", where, f"stop {{host}} {HERE}", "saves", 0, STOP)
    for way in (Way.SCRIPTS, Way.PS_SERVER):
        yield stop(way, f"{this} do not handle it", FOLLOWER, f"stop {{host}} {HERE}", "", 143, STOP)
    for way in (Way.SINGLE, Way.MWMS, Way.MPI):
        # While requirements are installed; at a set time a quick machine's scripts would be up, save, and end well.
        now = "stop all when 'Using Python'"
        early = stop(way, "SIGTERM before scripts run", EVERYWHERE, now, "saves", 143, STOP)
        yield replace(early, when="start", files=HELD)
    # One script is left; the others have ended well.
    for way in (Way.MWMS, Way.MPI):
        late = stop(way, "SIGTERM; scripts save and end well", FOLLOWER, "stop all when 'acts at'", "saves", 0, STOP)
        yield replace(late, when="end", does={**late.does, "on": "algo-2", "when": "end"})


# --- output that nobody reads ---


def output_that_nobody_reads() -> Iterator[Case]:
    """Yield cases without a reader of a host's output. At the end, only that host waits for its reader."""
    words = "the same, up to 20 s later (5 s if the job is stopped)"
    own = Own(exits=("1",), text=f"... (exit code 1): {LOSS}", words=words)
    well = Own(exits=("0",), text="", words=words)
    for way, where in ((Way.SCRIPTS, FOLLOWER), (Way.PS, COORDINATOR), (Way.MWMS, FOLLOWER), A_RANK):
        host, other = ("algo-2", "algo-1") if where == FOLLOWER else ("algo-1", "algo-2")
        stall, raises = "stall {host} for 60", {"code": 1, "bound": PROCESS, "hit": {host: own}}
        does = {"do": "floods_with_lines_and_raises", "on": host, "when": "run", "megabytes": "2"}
        yield case(
            way, "nobody reads its output; script prints 2 MB, raises", where, "run", stall, does=does,
            text=f"{{who}} (exit code 1): {LOSS}", **raises,
        )  # fmt: skip
        does = {"do": "raises", "on": other, "when": "run", "others": "floods_and_waits", "megabytes": "10"}
        yield case(
            way, "nobody reads its output; script prints 10 MB, another host's raises", where, "run", stall, does=does,
            text=f"{other} ... (exit code 1): {LOSS}", **raises,
        )  # fmt: skip
        does = {"do": "floods_and_waits", "megabytes": "10", "sigterm": "saves"}
        yield case(
            way, "nobody reads its output; scripts print 10 MB; SIGTERM; they save and end well", where, "run", stall,
            f"stop all {HERE}", does=does, code=0, bound=STOP, hit={host: well},
        )  # fmt: skip


# --- processes that end neither by themselves nor by SIGKILL, and a stop beside a failure ---


def work_outside_the_process_group() -> Iterator[Case]:
    event, fault = "SIGTERM; work outside the process group saves", "stop all when 'all work apart'"
    for way in (Way.SINGLE, Way.MWMS, Way.PS, Way.MPI):
        stopped = stop(way, event, EVERYWHERE, fault, "saves", 143, STOP)
        yield replace(stopped, does={**stopped.does, "do": "works_in_a_session_of_its_own"}, says="] saved")


def what_cannot_be_killed() -> Iterator[Case]:
    settings = {"KILL_TIMEOUT": f"{KILL_TIMEOUT:g}"}
    asks = {"do": "asks_a_disk_that_does_not_answer", "on": "algo-2", "when": "run"}
    again = "script survives SIGKILL; another is killed, with ENTRYPOINT_RESTARTS=1"
    for way in (Way.SCRIPTS, Way.MWMS, Way.PS, Way.MPI):
        yield case(
            way, "script survives SIGKILL; another raises", FOLLOWER, "run", disk=True, settings=settings, code=1,
            does={**asks, "others": "raises_when_it_hangs"}, bound=STUCK,
            text=f"algo-1 {script_of(way, 'algo-1')} (exit code 1): {LOSS}",
            says="survives SIGKILL for 1 s and is left behind: pid ...state D (uninterruptible sleep), waits in ",
        )  # fmt: skip
        # Open MPI kills its ranks itself: what is left may be no rank any more, but what one has started.
        stuck = "{host} ...(survives SIGKILL" if way is Way.MPI else "{who} (survives SIGKILL"
        yield case(
            way, again, FOLLOWER, "run", disk=True, settings={**settings, **RESTART}, code=71,
            does={**asks, "others": "kills_itself_when_it_hangs"}, bound=STUCK_ATTEMPT,
            text=f"{stuck}, so the job cannot restart): still running 1 s after SIGKILL: pid ...",
        )  # fmt: skip


def mpirun_that_does_not_end() -> Iterator[Case]:
    yield case(
        Way.MPI, "mpirun does not end when all ranks have", COORDINATOR, "end", code=0, bound=MPIRUN,
        does={"do": "stops_mpirun", "on": "algo-1", "when": "end"},
        says="mpirun still runs 10 s after all ranks ended with code 0: it is killed",
    )  # fmt: skip


def stops_that_cross_a_failure() -> Iterator[Case]:
    """Yield cases with a frozen host, so that the job's end is undecided when SIGTERM comes."""
    paused = Own(exits=("SIGKILL", "1"), words=STAYS)
    for way in (Way.SCRIPTS, Way.MWMS):
        yield case(
            way, "script raises while algo-3 is paused, then SIGTERM", FOLLOWER, "run", f"pause algo-3 {HERE}",
            "stop all when 'ended: exit code 1'", hosts=3, code=1, text=f"{{who}} (exit code 1): {LOSS}", bound=HOST,
            does={"do": "raises_later", "on": "algo-2", "when": "run", "sigterm": "saves"}, hit={"algo-3": paused},
        )  # fmt: skip


# --- a host that has too little ---


def hosts_that_have_too_little() -> Iterator[Case]:
    for way, where in ((Way.SCRIPTS, FOLLOWER), (Way.PS, COORDINATOR), (Way.MWMS, FOLLOWER), (Way.MPI, COORDINATOR)):
        for event, few, words in (
            ("HOST allows 2 processes", "pids=2", "this host allows 2 processes and threads"),
            ("HOST allows 10 open files", "files=10", "this host allows 10 open files"),
        ):
            text = f"{{host}} (fault of the launcher): ...{words}..."
            yield case(way, event, where, "start", does={"do": "waits"}, few=few, code=70, text=text, bound=SHORTAGE)
    for way, where in ((Way.SINGLE, COORDINATOR), (Way.MWMS, FOLLOWER), A_RANK):
        yield case(
            way, "script takes more memory than HOST has", where, "run", few=f"memory={300 << 20}", code=137,
            does={"do": "eats_memory", "on": host_of(where), "when": "run"}, bound=PROCESS,
            text="{who} (killed by SIGKILL, out of memory): ...",
        )  # fmt: skip
