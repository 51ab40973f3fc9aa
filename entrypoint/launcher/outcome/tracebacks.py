"""Find Python tracebacks in the output of a process. Pure.

A traceback may lack its head, since only the last output is kept. Lines of other threads may stand between its lines.
Exceptions come in chains and groups, and their messages may have several lines, or contain tracebacks.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from entrypoint.base.python310 import StrEnum
from entrypoint.base.values import Value
from entrypoint.launcher.outcome.symptoms import reads_like_symptom

MARKED_LINES = 40  # lines of a message in which its reason may be marked as such
MORE_LINES = 6  # lines after an exception's line that may belong to its message
_CLOSING = {"(": ")", "[": "]", "{": "}"}

_HEADER = re.compile(r"^(?P<prefix>.*?)(Exception Group )?Traceback \(most recent call last\):$")
UNCAUGHT = "Uncaught "  # stands before the header where the first frames are left out
_FRAME = re.compile(r'^  File ".*", line \d+(, in (?P<function>.+))?$')
LIBRARY = re.compile(r"/(site|dist)-packages/|/lib/python3\.\d+/|^<(frozen|string|__array_function__)")  # a file
_UNREADABLE = re.compile(r'^  File ".*", line \d+$')  # the place of a SyntaxError, which has no header of its own
# The line that ends a traceback: a class name, usually with a message. Names of exceptions are surer than other names.
_NAMED = re.compile(r"^(?P<name>(?:[A-Za-z_]\w*\.)*(?P<last>[A-Za-z_]\w*))(?:: ?(?P<message>.*))?$")
_SURE = re.compile(
    r"([eE]rror|Exception|Interrupt|Exit|Warning|Group|Iteration|[tT]imeout|Failure|Failed|Abort|Aborted)$"
)
_LINKS = {
    "During handling of the above exception, another exception occurred:": "context",
    "The above exception was the direct cause of the following exception:": "cause",
}
_BEGINNING_CHARS = 250  # characters of a long message that are shown before its end
_GUTTER = re.compile(r"^ *[|+](?: |$)|^ *\+-")
_MEMBER = re.compile(r"^ *\+-[+-]-+ (\d+|\.\.\.) -+$")
_GROUP_END = re.compile(r"^ *\+-{20,}$")
# Exceptions that Python reports without ending.
_IGNORED = re.compile(
    r"^(Exception ignored (in|on|while)\b|--- Logging error ---|Error in atexit|Error in sys\.excepthook)"
)
# An uncaught exception is printed from the first line of a program, a thread or a process on.
_OUTERMOST = re.compile(
    r', in <module>$|^  File "<frozen runpy>|/(threading|multiprocessing/process)\.py", line \d+, in _bootstrap'
    r"|, in _process_worker$"
)
_OF_PROGRAM = re.compile(r', in <module>$|^  File "<frozen runpy>')
# In TensorFlow's messages: what stands around the words.
_OF_TENSORFLOW = re.compile(r"^\{\{function_node .*?\}\} ?|,? ?\[Op:\w+\]( name: ?)?$")
_IN_USER_CODE = "in user code:"  # AutoGraph: frames follow, and then the exception
# Messages, or their first lines, that only announce: the reason stands in a later line. "": the message begins there.
_ANNOUNCES = re.compile(
    r"""(
      in\ user\ code: | Graph\ execution\ error: | <stack\ traces\ unavailable> | Detected\ at\ node\ .*
    | \d+\ root\ error\(s\)\ found\.                      # TensorFlow
    | Exception\ encountered\ when\ calling\ .*\.          # Keras
    | IMPORTANT:\ PLEASE\ READ\ .* | Importing\ the\ numpy\ C-extensions\ failed\..*     # NumPy
    | Failed\ in\ \w+\ mode\ pipeline\ \(step:\ .*\)       # Numba
    | An\ error\ occurred\ while\ calling\ \S+            # Py4J
    )?""",
    re.VERBOSE,
)
_PRINTED = re.compile(r"Graph execution error:$|in user code:$")
# Lines of a message that are not its reason. A line of code follows a line with a file.
_NO_REASON = re.compile(
    r'File "|Detected at node|Node: |\d+ root error|[~^]+$|<stack traces unavailable>|\[\['
    r"|(Call a|A)rguments received by|\d+ (successful operations|derived errors)"
)
_MARK = re.compile(r"^(Original error was|Root cause|Caused by|Original exception was): +(?=\S)")  # the reason follows
_ROOT_ERROR = re.compile(r"^\(\d+\) [A-Za-z_]+( [a-z]+)*: *")  # "(0) INVALID_ARGUMENT: ", "(0) Invalid argument: "
_COUNTED = re.compile(r"^\d+ validation errors? for ")  # of pydantic
_MADE = re.compile(r"^Original stack trace for '")
# Lines without meaning here: log lines of TensorFlow and absl, what gRPC adds to a message, rules.
NOISE = re.compile(
    r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWE] |^[IWE]\d{4} \d\d:\d\d:\d\d|^:\{\"created\""
    r"|^Additional GRPC error information|^The error could be from a previous operation|^[\W_]*$"
)


class Link(StrEnum):
    """Name how an exception is linked to the one that was printed before it."""

    NONE = ""
    CONTEXT = "context"  # it was raised while that one was handled
    CAUSE = "cause"  # it was raised because of that one
    MEMBER = "member"  # it belongs to a group


class Raised(Value):
    """Describe one exception in a traceback. `first` and `last` are indexes of the output's lines."""

    name: str  # with its module: "json.decoder.JSONDecodeError"
    message: str
    lines: tuple[str, ...]  # the traceback and the message
    first: int
    last: int
    link: Link = Link.NONE
    outermost: bool = True  # it left the program, the thread or the process
    of_program: bool = False  # it left the program: the traceback begins at the program's first line
    ignored: bool = False

    @property
    def shows_users_code(self) -> bool:
        return any(_FRAME.match(line) and not LIBRARY.search(line.split('"')[1]) for line in self.lines)

    @property
    def line(self) -> str:
        return f"{self.name}: {self.message}" if self.message else self.name


def tracebacks(lines: Sequence[str]) -> list[tuple[Raised, ...]]:
    """Return the chains of exceptions in the order of the output. The last one of a chain left the program."""
    lines = _plain(lines)
    first = next((number for number, line in enumerate(lines) if _HEADER.match(line) or _FRAME.match(line)), None)
    heads = [number for number in range(len(lines)) if _is_head(lines, number, number == first)]
    chains: list[list[Raised]] = []
    for head, until in pairwise([*heads, len(lines)]):
        if raised := _raised(lines, head, until):
            if raised.link is Link.NONE or not chains:
                chains.append([])
            chains[-1].append(raised)
    return [tuple(chain) for chain in chains]


def _plain(lines: Sequence[str]) -> list[str]:
    """Return the lines without prefixes of ranks (`[rank0]: Traceback ...`) and gutters of exception groups."""
    prefixes = {
        found["prefix"]
        for line, after in pairwise(lines)
        if (found := _HEADER.match(line)) and found["prefix"].strip() and after.startswith(found["prefix"] + "  ")
    }
    plain, in_group = [], False
    for line in lines:
        line = next((line.removeprefix(prefix) for prefix in prefixes if line.startswith(prefix)), line)
        in_group = in_group or line.lstrip().startswith("+ Exception Group Traceback (")
        ends = in_group and bool(_GROUP_END.match(line))
        if in_group and not _MEMBER.match(line):
            line = "" if ends else re.sub(r"^ *[|+] ?", "", line)
        plain.append(line)
        # A group inside of another ends with the same rule, indented.
        in_group = in_group and not (ends and len(lines) > len(plain) and not _GUTTER.match(lines[len(plain)]))
    return plain


def _is_head(lines: list[str], number: int, first: bool) -> bool:
    """Return whether a traceback begins at a line. `first`: no part of a traceback stands before this line."""
    line = lines[number]
    if _HEADER.match(line) or _MEMBER.match(line):
        return True
    if not _FRAME.match(line):
        return False
    if _UNREADABLE.match(line):  # a SyntaxError of the program itself; that of an import follows frames
        before = lines[max(0, number - 3) : number]
        return not (before and before[-1].startswith("    ")) and not any(map(_HEADER.match, before))
    return first  # its head is missing


def _raised(lines: list[str], head: int, until: int) -> Raised | None:
    """Return the exception of the traceback that begins at `head` and ends before `until`."""
    at = _line_of_exception(lines, head, until)
    if at is None:
        return None
    named = _NAMED.match(lines[at])
    assert named is not None
    last = at
    while last + 1 < until and _continues(lines[last + 1]):
        last += 1
    name, message, end = _in_one_line(named["name"], named["message"] or "", lines, at, until)
    while last < end < until - 1 and _continues(lines[end + 1]):
        end += 1
    last = max(last, end)
    message = message.removeprefix(f"{name}: ")
    if closing := _closing(named["message"] or "", lines, last, until):
        last, rest = closing
        message = f"{message[:_BEGINNING_CHARS]} ... {rest}"
    last = _end_of_graph(lines, last, until)
    if named["last"] in ("SyntaxError", "IndentationError", "TabError"):
        place = [line.strip() for line in lines[head:at] if _UNREADABLE.match(line)]
        message += f" ({place[-1]})" if place else ""
    # More lines of the message may look like anything.
    end = next(
        (n for n in range(last + 1, min(last + 1 + MORE_LINES, until)) if lines[n].strip() in _LINKS),
        last + 1 + MORE_LINES,
    )
    end = min(max(end, last + 1), until)
    before = [line for line in lines[max(0, head - 4) : head] if line.strip()]
    frames = [line for line in lines[head:at] if _FRAME.match(line)]
    of_program = bool(frames) and _is_of_program(lines, head, frames[0])
    link = Link.MEMBER if any(map(_MEMBER.match, lines[max(0, head - 1) : head + 1])) else Link.NONE
    return Raised(
        name=name,
        message=message,
        lines=tuple(line for line in lines[head:end] if not (NOISE.match(line) or _MEMBER.match(line))),
        first=head,
        last=last,
        link=Link(_LINKS.get(before[-1].strip(), link)) if before else link,
        outermost=of_program or not frames or not _HEADER.match(lines[head]) or bool(_OUTERMOST.search(frames[0])),
        of_program=of_program,
        ignored=bool(before and _IGNORED.match(before[-1])),
    )


def _is_of_program(lines: list[str], head: int, frame: str) -> bool:
    """Return whether a traceback with this first frame shows an exception that nobody caught."""
    header = _HEADER.match(lines[head])
    if not header or not lines[head + 1]:  # Loguru, which leaves that line empty, begins each at the program's first
        return False
    return header["prefix"] == UNCAUGHT or bool(_OF_PROGRAM.search(frame))


def _line_of_exception(lines: list[str], head: int, until: int) -> int | None:
    """Return the index of the exception's line after the last frame: the first sure one, else a likely one."""
    if _MEMBER.match(lines[head]):  # without a traceback
        return head + 1 if head + 1 < until and _NAMED.match(lines[head + 1]) else None
    framed, maybe = False, None
    for number in range(head, until):
        line = lines[number]
        if _FRAME.match(line):
            framed, maybe = True, None
        elif framed and not line.startswith(" ") and not NOISE.match(line) and (named := _NAMED.match(line)):
            if _SURE.search(named["last"]):
                return number
            if maybe is None and ("." in named["name"] or named["last"][0].isupper()):
                maybe = number
    return maybe


def _continues(line: str) -> bool:
    """Return whether a line after an exception's line belongs to its message, judged by its form."""
    return line[:1] in ("", " ", "\t") or line.startswith(("Detected at node", "Node: ")) or bool(NOISE.match(line))


def _closing(message: str, lines: list[str], last: int, until: int) -> tuple[int, str] | None:
    """Return (index, rest) of the line that closes the brackets opened in a message's first line, or None.

    `Attempt to convert a value (PerReplica:{`, hundreds of lines of numbers, `}) with an unsupported type (...)`.
    """
    still_open: list[str] = []
    _close(message, still_open)
    if not still_open:
        return None
    closing = "".join(reversed(still_open))
    for number in range(until - 1, last, -1):
        if lines[number].lstrip().startswith(closing):
            return number, lines[number].strip()
    for number in range(last + 1, min(last + MARKED_LINES, until)):
        if rest := _close(lines[number], still_open):
            return number, rest
    return None


def _close(text: str, still_open: list[str]) -> str:
    """Note which brackets a text opens and closes. Return the text behind the last bracket that it closes."""
    for at, character in enumerate(text):
        if character in _CLOSING:
            still_open.append(_CLOSING[character])
        elif still_open and character == still_open[-1]:
            still_open.pop()
            if not still_open and text[at + 1 :].strip():
                return text[at:]
    return ""


def _in_one_line(name: str, message: str, lines: list[str], at: int, until: int) -> tuple[str, str, int]:
    """Return an exception's name, its message in one line, and that line's index: it may be 30 lines below `at`.

    A reason may announce another, and may be an exception of the user's code, which TensorFlow reports as its own.
    """
    last, wrapped = at, name.startswith("tensorflow.")
    message = _OF_TENSORFLOW.sub("", message).strip()
    for _ in range(4):
        announces = _ANNOUNCES.fullmatch(message) and (message or lines[at].rstrip().endswith((":", "}}")))
        if not announces and not message.endswith(":") and not _COUNTED.search(message):
            break
        number = _reason_below(message, lines, last + 1, until)
        if number is None:
            break
        last = number
        reason = (
            _OF_TENSORFLOW.sub("", _MARK.sub("", _ROOT_ERROR.sub("", lines[number].strip()))).strip().removeprefix(": ")
        )
        if _COUNTED.search(message):  # the field, and what is wrong with it
            message, reason = f"{message}:", f"{reason.rstrip(':')}:"
        if reason.endswith(":") and number + 1 < until and _is_reason("", lines[number + 1]):
            reason = f"{reason} {lines[number + 1].strip()}"  # NOT_FOUND: From /job:ps/replica:0/task:1:
            last += 1
        elif reason.startswith("status = ") and number + 1 < until and "details = " in lines[number + 1]:
            reason = f"{reason}, {lines[number + 1].strip()}"  # of gRPC
            last += 1
        if not announces:
            message = f"{message} {reason}"
            break
        message, wrapped = reason, True
        if (named := _NAMED.match(message)) and _SURE.search(named["last"]):
            name, message = named["name"], named["message"] or ""
    named = _NAMED.match(message)
    if wrapped and named and named["message"] and _SURE.search(named["last"]):
        name, message = named["name"], named["message"]
    return name, message, last


def announced(lines: Sequence[str]) -> str:
    """Return the reason in an error text of TensorFlow that the program has printed itself; "" without one."""
    at = next((number for number in range(len(lines) - 1, -1, -1) if _PRINTED.search(lines[number])), None)
    return "" if at is None else _in_one_line("", _PRINTED.findall(lines[at])[-1], [*lines], at, len(lines))[1]


def _reason_below(message: str, lines: list[str], start: int, until: int) -> int | None:
    """Return the index of the line with the reason that a message's first line announces."""
    marked = (n for n in range(start, min(start + MARKED_LINES, until)) if _MARK.match(lines[n].strip()))
    if (number := next(marked, None)) is not None:
        return number
    found: list[int] = []
    of_file = False
    for number in range(start, until):
        is_code = of_file and lines[number].startswith(" ")
        of_file = lines[number].lstrip().startswith('File "')
        if is_code or not _is_reason(message, lines[number]):
            continue
        text = lines[number].strip()
        if not _ROOT_ERROR.match(text):
            return found[0] if found else number
        if not reads_like_symptom("", text):
            return number
        found.append(number)
    return found[0] if found else None


def _end_of_graph(lines: list[str], last: int, until: int) -> int:
    """Return the index of a message's last line: with a graph, TensorFlow adds the operation's origin."""
    place = next((number for number in range(last + 1, until) if _MADE.match(lines[number])), None)
    if place is None:
        return last
    while place + 1 < until and _FRAME.match(lines[place + 1]):
        place += 1
    return place


def _is_reason(message: str, line: str) -> bool:
    """Return whether a line of a message is the reason that its first line only announces."""
    text = line.strip()
    if message == _IN_USER_CODE:
        named = _NAMED.match(text)
        return bool(named and re.match(r" {4}\S", line) and (named["message"] or _SURE.search(named["last"])))
    return bool(text) and not NOISE.match(text) and not _NO_REASON.match(text)
