"""Make the cases whose event is an action of a user's script."""

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
    case,
    host_of,
    places,
)


@dataclass(frozen=True)
class Deed:
    """An action of a script, and the end of the job."""

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
NO_MODULE = "ModuleNotFoundError: No module named 'no_such_package'"
NO_SUCCESS = "subprocess.CalledProcessError: Command '['false']' returned non-zero exit status 1."

RAISES = Deed("script raises", "raises", 1, LOSS)
EXITS = Deed("sys.exit(3)", "exits", 3, DATA)
KILLED = Deed("script is killed", "kills_itself", 137, how="killed by SIGKILL")
SEGFAULT = Deed("segmentation fault", "segfaults", 139, how="killed by SIGSEGV")
MEMORY = Deed("MemoryError", "runs_out_of_memory", 1, "MemoryError")
LEAVES = Deed("os._exit(3)", "leaves_at_once", 3, DATA)
WORDS = Deed("sys.exit('words')", "exits_with_words", 1, DATA)
NEGATIVE = Deed("sys.exit(-1)", "exits_with_255", 255, DATA)
TERMINATED = Deed("script sends itself SIGTERM", "terminates_itself", 143, how="killed by SIGTERM")
ABORTS = Deed("abort()", "aborts", 134, how="killed by SIGABRT")
IMPORTS = Deed("import of a missing package", "imports_what_is_not_there", 1, NO_MODULE)
CALLS = Deed("a command that it runs fails, and it raises", "raises_in_a_call", 1, NO_SUCCESS)
ORPHANS = Deed("leaves orphans that hold its stdout, ends well", "orphans", 0)
ORPHANS_RAISES = Deed("leaves orphans, raises", "orphans_and_raises", 1, LOSS)
ONE_LINE = Deed("prints {size} MB without end of line, ends well", "floods_without_end_of_line", 0)
ONE_LINE_RAISES = Deed("prints {size} MB without end of line, raises", "floods_without_end_of_line_and_raises", 1, LOSS)
LINES = Deed("prints {size} MB of lines, ends well", "floods_with_lines", 0)
LINES_RAISES = Deed("prints {size} MB of lines, raises", "floods_with_lines_and_raises", 1, LOSS)
CLOSES = Deed("closes stdout and stderr, ends well", "closes_its_output", 0)
CLOSES_RAISES = Deed("closes stdout and stderr, raises", "closes_its_output_and_raises", 1, "closing stdout and stderr")
NO_TEXT = Deed("prints bytes that are not UTF-8, ends well", "prints_no_text", 0)
NO_TEXT_EXITS = Deed(
    "prints bytes that are not UTF-8, sys.exit(3)", "prints_no_text_and_exits", 3, "no data in caf\ufffd"
)
OWN_WORDS = Deed("writes its own failure file, ends well", "writes_its_own_failure", 0)
OWN_WORDS_EXITS = Deed("writes its own failure file, sys.exit(3)", "writes_its_own_failure_and_exits", 3, OWN)
EARLY = Deed("ends well long before the others", "ends", 0)


def deed(way: Way, what: Deed, where: str, when: str, *, hosts: int = 3, megabytes: int = 1, **more: str) -> Case:
    """Return a case of one script's action; the others wait for ever, or for a moment if the action is a success."""
    others = {"others": "lasts"} if what.code == 0 else {}
    sizes = {"megabytes": str(megabytes)} if megabytes > 1 else {}
    return case(
        way, what.event.format(size=megabytes), where, when,
        does={"do": what.do, "on": host_of(where), "when": when, **others, **sizes, **more},
        hosts=1 if way is Way.SINGLE else hosts, code=what.code, text=what.text, bound=PROCESS if what.code else END,
    )  # fmt: skip


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
        raised = deed(way, RAISES, where, "run", hosts=2, sigterm="ignores")
        yield replace(raised, event="script raises; the others ignore SIGTERM", bound=STUBBORN)


# --- restarts ---

KILLED_ONCE = Deed("script is killed once, with ENTRYPOINT_RESTARTS=1", "kills_itself_once", 0)


def restarts() -> Iterator[Case]:
    """Yield cases with ENTRYPOINT_RESTARTS: transient failures lead to a restart, an exception does not."""
    again = {"RESTARTS": "1", "RESTART_BACKOFF": "0.5"}
    for way, where in ((Way.MWMS, FOLLOWER), (Way.MPI, FOLLOWER), (Way.PS, COORDINATOR)):
        yield replace(deed(way, KILLED_ONCE, where, "run", hosts=2), settings=again)
    each_time = replace(KILLED, event="script is killed each time, with ENTRYPOINT_RESTARTS=1")
    yield replace(deed(Way.MWMS, each_time, FOLLOWER, "run", hosts=2), settings=again)
    raises = replace(RAISES, event="script raises, with ENTRYPOINT_RESTARTS=1")
    yield replace(deed(Way.MPI, raises, FOLLOWER, "run", hosts=2), settings=again)


# --- disks ---

WRITES_MODEL = Deed("script writes its model", "writes_model", 1)
FULL, READONLY = "OSError: [Errno 28] No space left on device", "OSError: [Errno 30] Read-only file system"
NO_FILE = Own(exits=("1",), text="", timed=True, words="no failure file; its log has the text")


def disks() -> Iterator[Case]:
    for way, where in ((Way.SINGLE, COORDINATOR), (Way.MWMS, FOLLOWER), (Way.MPI, FOLLOWER)):
        host = host_of(where)
        for action, state, error in (("fill", "full", FULL), ("readonly", "read-only", READONLY)):
            output, model = (f"{action} {host}:output",), (f"{action} {host}:model",)
            raises = replace(RAISES, event=f"/opt/ml/output is {state}, script raises")
            raised = deed(way, raises, where, "run", hosts=2)
            yield replace(raised, faults=output, hit={host: NO_FILE}, says=f"cannot be written ...{raised.text}")
            writes = replace(WRITES_MODEL, event=f"/opt/ml/model is {state}, script writes to it")
            written = deed(way, writes, where, "run", hosts=2)
            yield replace(written, faults=model, text=f"{{who}} (exit code 1): {error}...")
            if way is not Way.MPI:
                ends = replace(EARLY, event=f"/opt/ml/output is {state}, script ends well")
                yield replace(deed(way, ends, where, "run", hosts=2), faults=output)
