"""Recognise lines that programs print because another one has failed, or at every end. Pure.

A symptom is no proof: a first error may be a ConnectionError, too, for example to a database. A cause that reads like a
symptom waits for a better one, and is reported if none comes.

Experiment trackers print a last line, the interpreter reports what it could not clean up, and Open MPI reports what
happened to the other ranks. None of these lines is the reason of the end.
"""

import re
import signal
from collections.abc import Iterator, Sequence
from typing import NamedTuple

# Exceptions about the other end of a connection, or about a signal. Class names only, without modules.
_CLASSES = r"""
      ConnectionResetError|BrokenPipeError|ConnectionAbortedError|ConnectionRefusedError|ConnectionError
    | RemoteDisconnected|IncompleteRead|IncompleteReadError|ConnectionClosed\w*|ProtocolError|SSLEOFError
    | TimeoutError|ConnectTimeout(Error)?|ReadTimeout(Error)?|NewConnectionError|MaxRetryError|URLError
    | EndpointConnectionError|gaierror|EOFError
    | UnavailableError|AbortedError|CancelledError|DeadlineExceededError|\w*(Unavailable|Preempt)\w*     # TensorFlow
    | HorovodInternalError|HostsUpdatedInterrupt
    | DistBackendError|DistNetworkError|DistStoreError                                                    # PyTorch
    | KeyboardInterrupt
"""
_NAMES = re.compile(rf"({_CLASSES}|timeout)", re.VERBOSE)
_NAMES_IN_TEXT = re.compile(rf"\b({_CLASSES})\b", re.VERBOSE)
# The program's own: input() without a terminal, a compressed file that was cut.
_OWN = re.compile(r"EOF when reading a line|before the end-of-stream marker was reached")

_TEXTS = re.compile(
    r"""
      \[Errno\ (32|101|103|104|107|110|111|112|113)\] | \(os\ error\ (32|104|111)\)
    | [Cc]onnection\ (was\ )?(reset|closed|refused|aborted|lost|timed\ out) | [Bb]roken\ pipe
    | [Ss]ocket\ (closed|timeout)
    | No\ route\ to\ host | Network\ is\ unreachable | Transport\ endpoint\ is\ not\ connected
    | Name\ or\ service\ not\ known | Temporary\ failure\ in\ name\ resolution
    | readv\ failed | recvmsg: | sendmsg: | RST_STREAM | GOAWAY
    | StatusCode\.(UNAVAILABLE|CANCELLED|DEADLINE_EXCEEDED|ABORTED)
    # TensorFlow: collectives, sessions, the coordination service
    | Collective\ ops\ is\ aborted\ by | failed\ to\ connect\ to\ all\ addresses | Failed\ to\ connect\ to\ remote
    | Session\ has\ been\ (closed|aborted) | [Hh]eartbeat\ timeout | [Cc]oordination\ (service|agent)
    | Cluster\ check\ alive\ failed | [Pp]reempt(ed|ion) | [Pp]eer\ (is\ )?(down|gone|lost|closed)
    # Horovod, gloo, NCCL
    | Horovod\ has\ been\ shut\ down | remote\ process\ exited | connectFullMesh\ failed
    | NCCL\ (error|failure).*(unhandled\ system\ error|remote|internal\ error) | ncclRemoteError|ncclSystemError
    | NCCL\ communicator\ was\ aborted | Timed\ out\ (waiting|initializing) | Watchdog\ caught\ collective
    # jax
    | JAX\ distributed\ service\ detected\ fatal\ errors | Gloo\ context\ initialization\ failed
    | [Bb]arrier\ (has\ failed|timed\ out)
    # Open MPI
    | MPI_ERR_(PROC_FAILED|PROC_ABORTED|REVOKED|UNREACH|CONN) | MPI_ABORT\ was\ invoked | lost\ communication
    | (mpirun|prterun)\ (noticed|detected)\ that | Primary\ job\s+terminated
    | peer\ process\ has\ unexpectedly\ disconnected
    | A\ (process|daemon)\ has\ (exited|failed|died|terminated)
    """,
    re.VERBOSE,
)

# A connection that was open and broke off: the other end is gone. One that never opened may be the first failure.
_BROKE_OFF = re.compile(
    r"EOFError|ConnectionReset|BrokenPipe|ConnectionAborted|RemoteDisconnected|IncompleteRead|[Rr]eset by peer"
    r"|[Bb]roken pipe|[Ss]ocket closed|[Cc]losed by peer|Collective ops is aborted|Horovod has been shut down"
)

# Lines that are logged as no error.
MILD = re.compile(
    r"\b(INFO|DEBUG|WARNING|WARN|NOTICE)\b|\w*Warning: |: [IW] [\w/.]+:\d+\] |^[IW]\d{4} .*\] "
    r"|\[(info|debug|warning) *\]"
)

# What a framework prints when it knows that another process of the job has ended: that one's own end shows why.
_PEER_ENDED = re.compile(
    r"Horovod has been shut down|HorovodInternalError|Collective ops is aborted by|[Hh]eartbeat timeout"
    r"|[Cc]oordination (service|agent)|remote process exited|gloo/transport|[Pp]eer process has unexpectedly"
    r"|JAX distributed service detected|Gloo context initialization failed|MPI_ERR_PROC_(FAILED|ABORTED)"
)
THEN = " (then "  # in an error: between what was printed first and the symptom that came of it
_OUT_OF_STEP = re.compile(r"Collective instance \d+ expected type")  # of TensorFlow: workers run different operations
_STATUS = re.compile(r"\b(UnavailableError|AbortedError|CancelledError|StatusCode\.(UNAVAILABLE|CANCELLED|ABORTED))\b")

# Signals that other processes send: the sender knows the reason. SIGPIPE: the reader of a pipe is gone.
SENT = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE}
LONGEST_BANNER_LINES = 60  # lines

_GOODBYE = re.compile(
    # the last lines of experiment trackers
    r"^(wandb|COMET [A-Z]+|swanlab|trackio): |^wandb:$|^\[neptune\] |^neptune:|^ClearML |^ ?\[sentry\] [A-Z]+: "
    r"|^(\S+ )?(View run|View experiment) .*\bat: http"
    # the interpreter, PyTorch
    r"|^sys:\d+: \w*Warning: |/resource_tracker\.py:\d+: UserWarning: |^\[?W\d+.*destroy_process_group\(\)"
    # a hint that follows every error, and summaries of messages
    r"|^Set the environment variable HYDRA_FULL_ERROR=1 |^Pass --help(short|full) "
    r"|^\d+ total process(es)? failed to start$"
    r"|^\[[^\]]*\] (\d+ more process(es)? ha(s|ve) sent help message|Set MCA parameter \"orte_base_help)"
)
_RULE = re.compile(r"^-{60,}$")


def reads_like_symptom(name: str, message: str) -> bool:
    """Return whether an exception is of a kind that programs raise when another program fails. `name` may be ""."""
    if _OWN.search(message) or out_of_step(message):
        return False
    by_name = _NAMES.fullmatch(name.rpartition(".")[2]) if name else _NAMES_IN_TEXT.search(message)
    return bool(by_name or _TEXTS.search(message))


def peer_ended(error: str, details: str = "") -> bool:
    """Return whether a framework's error, or the text below it, reports that another process of the job has ended."""
    below = [line for line in details.splitlines() if not MILD.search(line)]
    return bool(_PEER_ENDED.search("\n".join([error.partition(THEN)[0], *below])))


def out_of_step(error: str) -> bool:
    """Return whether a framework's error reports that processes of the job run different operations."""
    return bool(_OUT_OF_STEP.search(error))


def lost_contact(error: str) -> bool:
    """Return whether an error shows that contact with another process was lost, for whatever reason."""
    first = error.partition(THEN)[0]
    return bool(_BROKE_OFF.search(first) or peer_ended(first) or _STATUS.search(first))


class Banner(NamedTuple):
    """Hold a message of Open MPI, with the two rules around it."""

    first: int
    last: int
    words: str  # its first paragraph
    is_symptom: bool  # it reports how one rank's end has ended others


def without_goodbyes(lines: Sequence[str]) -> list[str]:
    """Return the lines, with "" in place of each line that only reports an end."""
    kept, belongs = list(lines), False
    for number, line in enumerate(lines):
        # An indented line belongs to the one before it.
        belongs = bool(_GOODBYE.search(line)) or (belongs and line[:1] in (" ", "\t"))
        if belongs:
            kept[number] = ""
    for banner in banners(lines):
        if banner.is_symptom:
            kept[banner.first : banner.last + 1] = [""] * (banner.last + 1 - banner.first)
    return kept


def banners(lines: Sequence[str]) -> Iterator[Banner]:
    """Yield Open MPI's banners in their order."""
    first: int | None = None
    for number, line in enumerate(lines):
        if not _RULE.match(line):
            continue
        inside = lines[first + 1 : number] if first is not None else []
        if first is None or not any(inside) or len(inside) > LONGEST_BANNER_LINES:
            first = number
            continue
        text = " ".join(line.strip() for line in inside)
        yield Banner(first, number, _paragraph(inside), reads_like_symptom("", text))
        first = None


def _paragraph(lines: Sequence[str]) -> str:
    sentence: list[str] = []
    for line in lines:
        if not line and sentence and not sentence[-1].endswith(":"):
            break
        sentence += [line.strip()] if line else []
    return " ".join(sentence)
