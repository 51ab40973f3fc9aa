"""Make the cases in which a script of the user's does something."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from outcomes.case import (
    ALL,
    COORDINATOR,
    END,
    FOLLOWER,
    PROCESS,
    SCRIPT_EVERYWHERE,
    STUBBORN,
    Case,
    Own,
    Way,
    host_of,
    places,
)


@dataclass(frozen=True, kw_only=True)
class Deed:
    """What a script does, and how a job ends in which one does it."""

    event: str
    do: str
    code: int
    error: str = ""
    how: str = ""

    @property
    def text(self) -> str:
        how = self.how or f"exit code {self.code}"
        return "" if not self.code else f"{{who}} ({how})" + (f": {self.error}" if self.error else "")


OWN = "the labels of part 7 are missing"
LOSS = "ValueError: the loss is not a number"
DATA = "no data in the channel"

RAISES = Deed(event="script raises", do="raises", code=1, error=LOSS)
EXITS = Deed(event="sys.exit(3)", do="exits", code=3, error=DATA)
KILLED = Deed(event="script is killed", do="kills_itself", code=137, how="killed by SIGKILL")
SEGFAULT = Deed(event="segmentation fault", do="segfaults", code=139, how="killed by SIGSEGV")
MEMORY = Deed(event="MemoryError", do="runs_out_of_memory", code=1, error="MemoryError")
LEAVES = Deed(event="os._exit(3)", do="leaves_at_once", code=3, error=DATA)
WORDS = Deed(event="sys.exit('words')", do="exits_with_words", code=1, error=DATA)
NEGATIVE = Deed(event="sys.exit(-1)", do="exits_with_255", code=255, error=DATA)
TERMINATED = Deed(event="script sends itself SIGTERM", do="terminates_itself", code=143, how="killed by SIGTERM")
ABORTS = Deed(event="abort()", do="aborts", code=134, how="killed by SIGABRT")
IMPORTS = Deed(
    event="import of what is not there",
    do="imports_what_is_not_there",
    code=1,
    error="ModuleNotFoundError: No module named 'no_such_package'",
)
CALLS = Deed(
    event="a command it runs fails",
    do="raises_in_a_call",
    code=1,
    error="subprocess.CalledProcessError: Command '['false']' returned non-zero exit status 1.",
)
ORPHANS = Deed(event="leaves orphans that hold its stdout, ends well", do="orphans", code=0)
ORPHANS_RAISES = Deed(event="leaves orphans, raises", do="orphans_and_raises", code=1, error=LOSS)
ONE_LINE = Deed(event="prints {size} MB without end of line, ends well", do="floods_without_end_of_line", code=0)
ONE_LINE_RAISES = Deed(
    event="prints {size} MB without end of line, raises", do="floods_without_end_of_line_and_raises", code=1, error=LOSS
)
LINES = Deed(event="prints {size} MB of lines, ends well", do="floods_with_lines", code=0)
LINES_RAISES = Deed(event="prints {size} MB of lines, raises", do="floods_with_lines_and_raises", code=1, error=LOSS)
CLOSES = Deed(event="closes stdout and stderr, ends well", do="closes_its_output", code=0)
CLOSES_RAISES = Deed(
    event="closes stdout and stderr, raises",
    do="closes_its_output_and_raises",
    code=1,
    error="closing stdout and stderr",
)
NO_TEXT = Deed(event="prints what is no UTF-8, ends well", do="prints_no_text", code=0)
NO_TEXT_EXITS = Deed(
    event="prints what is no UTF-8, sys.exit(3)", do="prints_no_text_and_exits", code=3, error="no data in caf\ufffd"
)
OWN_WORDS = Deed(event="writes its own failure file, ends well", do="writes_its_own_failure", code=0)
OWN_WORDS_EXITS = Deed(
    event="writes its own failure file, sys.exit(3)", do="writes_its_own_failure_and_exits", code=3, error=OWN
)
EARLY = Deed(event="ends well long before the others", do="ends", code=0)


def deed(way: Way, what: Deed, where: str, when: str, *, hosts: int = 3, megabytes: int = 1, **more: str) -> Case:
    """Return a case in which a script does something, and the others wait for ever (or, if it ends well, a moment)."""
    others = {"others": "lasts"} if what.code == 0 else {}
    sizes = {"megabytes": str(megabytes)} if megabytes > 1 else {}
    return Case(
        way=way,
        event=what.event.format(size=megabytes),
        where=where,
        when=when,
        does={"do": what.do, "on": host_of(where), "when": when, **others, **sizes, **more},
        hosts=1 if way is Way.SINGLE else hosts,
        code=what.code,
        text=what.text,
        bound=PROCESS if what.code else END,
    )


def deeds() -> Iterator[Case]:
    # While all run: on the coordinator and on a follower.
    for way in ALL:
        for where in places(way):
            for what in (RAISES, EXITS, KILLED):
                yield deed(way, what, where, "run", hosts=2 if where == COORDINATOR else 3)
        for what in (SEGFAULT, MEMORY, LEAVES):
            yield deed(way, what, places(way)[-1], "run")
    for what in (IMPORTS, CALLS, WORDS, NEGATIVE, TERMINATED, ABORTS):
        yield deed(Way.SINGLE, what, COORDINATOR, "run")
    for way in (Way.MWMS, Way.MPI):
        yield deed(way, TERMINATED, FOLLOWER, "run")
    # At the start, before the others have come to it, and at the end, when all others have ended well.
    for way in ALL:
        for where in places(way):
            yield deed(way, RAISES, where, "start", hosts=2)
            if way in SCRIPT_EVERYWHERE:
                yield deed(way, RAISES, where, "end", hosts=2)
    for way in (Way.PS, Way.MWMS, Way.MPI):
        yield deed(way, KILLED, FOLLOWER, "end", hosts=2)
    # What ends well, however oddly, is a success.
    for way in (Way.SINGLE, Way.MWMS, Way.MPI):
        for what in (ORPHANS, CLOSES, NO_TEXT, ORPHANS_RAISES, CLOSES_RAISES, NO_TEXT_EXITS):
            yield deed(way, what, places(way)[-1], "run", hosts=2)
    for way in (Way.SCRIPTS, Way.PS, Way.PS_SERVER):
        yield deed(way, ORPHANS, places(way)[-1], "run", hosts=2)
    yield deed(Way.PS, CLOSES, COORDINATOR, "run", hosts=2)
    for way in SCRIPT_EVERYWHERE:
        yield deed(way, EARLY, COORDINATOR, "run", hosts=2)
    for way in (Way.MWMS, Way.MPI):
        yield deed(way, EARLY, FOLLOWER, "start")
    for way, where in ((Way.SINGLE, COORDINATOR), (Way.MWMS, FOLLOWER)):
        for what in (OWN_WORDS, OWN_WORDS_EXITS):
            # The failure file that the script wrote stays.
            own = Own(exits=(str(what.code),), text=OWN, timed=True, words=f"`{OWN}`")
            yield replace(deed(way, what, where, "run", hosts=2), hit={host_of(where): own})
    # Floods. Each of the large ones is as much work as ten other cases.
    yield deed(Way.SINGLE, ONE_LINE, COORDINATOR, "run", megabytes=100)
    yield deed(Way.SINGLE, LINES, COORDINATOR, "run", megabytes=100)
    for way in (Way.MWMS, Way.MPI):
        yield deed(way, LINES_RAISES, FOLLOWER, "run", hosts=2, megabytes=10)
    for way in (Way.PS, Way.MWMS):
        yield deed(way, ONE_LINE_RAISES, COORDINATOR, "run", hosts=2, megabytes=10)


def failures_under_stubborn_others() -> Iterator[Case]:
    for way in SCRIPT_EVERYWHERE:
        where = COORDINATOR if way is Way.PS else FOLLOWER
        case = deed(way, RAISES, where, "run", hosts=2, sigterm="ignores")
        yield replace(case, event="script raises; the others ignore SIGTERM", bound=STUBBORN)


# --- restarts ---

KILLED_ONCE = Deed(event="script is killed once, with ENTRYPOINT_RESTARTS=1", do="kills_itself_once", code=0)


def restarts() -> Iterator[Case]:
    """Yield cases with ENTRYPOINT_RESTARTS: what looks transient is tried again, an exception is not."""
    again = {"RESTARTS": "1", "RESTART_BACKOFF": "0.5"}
    for way, where in ((Way.MWMS, FOLLOWER), (Way.MPI, FOLLOWER), (Way.PS, COORDINATOR)):
        yield replace(deed(way, KILLED_ONCE, where, "run", hosts=2), settings=again)
    case = deed(Way.MWMS, KILLED, FOLLOWER, "run", hosts=2)
    yield replace(case, event="script is killed each time, with ENTRYPOINT_RESTARTS=1", settings=again)
    case = deed(Way.MPI, RAISES, FOLLOWER, "run", hosts=2)
    yield replace(case, event="script raises, with ENTRYPOINT_RESTARTS=1", settings=again)


# --- disks ---

WRITES_MODEL = Deed(event="script writes its model", do="writes_model", code=1)
FULL, READONLY = "OSError: [Errno 28] No space left on device", "OSError: [Errno 30] Read-only file system"


NO_FILE = Own(exits=("1",), text="", timed=True, words="no failure file; its log has the text")


def disks() -> Iterator[Case]:
    for way, where in ((Way.SINGLE, COORDINATOR), (Way.MWMS, FOLLOWER), (Way.MPI, FOLLOWER)):
        hosts, host = 1 if way is Way.SINGLE else 2, host_of(where)
        for action, state, error in (("fill", "full", FULL), ("readonly", "read-only", READONLY)):
            output, model = f"{action} {host}:output", f"{action} {host}:model"
            case = deed(way, RAISES, where, "run", hosts=hosts)
            yield replace(
                case,
                event=f"/opt/ml/output is {state}, script raises",
                faults=(output,),
                hit={host: NO_FILE},
                says=f"cannot be written ...{case.text}",
            )
            case = deed(way, WRITES_MODEL, where, "run", hosts=hosts)
            yield replace(
                case,
                event=f"/opt/ml/model is {state}, script writes to it",
                faults=(model,),
                text=f"{{who}} (exit code 1): {error}...",
            )
            if way is not Way.MPI:
                case = deed(way, EARLY, where, "run", hosts=hosts)
                yield replace(case, event=f"/opt/ml/output is {state}, script ends well", faults=(output,))
