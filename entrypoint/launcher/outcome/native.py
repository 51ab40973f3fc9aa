"""Find the messages of C libraries, interpreters and Open MPI before a crash; explain errors without a reason. Pure."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from entrypoint.base.errors import clip
from entrypoint.base.remedies import REMEDIES
from entrypoint.launcher.outcome.symptoms import MILD, THEN, reads_like_symptom

LAST_LINES = 10  # last lines that are shown if nothing better is known
BESIDE_LINES = 3  # last lines before a crash that may be about it, whatever they say
NEAR_LINES = 30  # lines that may follow what ended a program
DETAILS_LINES = 20  # lines
STACK_LINES = 10  # lines of a stack of C functions
# Printed after an abort() or by a crash whose reason the program may have printed before.
_VAGUE = re.compile(
    r"^Fatal Python error: (Aborted|Segmentation fault|Bus error|Illegal instruction|Floating point exception)"
    r"|^terminate called (without an active exception|recursively)"
    r"|.*\] Unexpected Event status: \d+$"  # of TensorFlow: work on a GPU has failed
)
SEVERE = re.compile(r"\b(ERROR|CRITICAL|FATAL|SEVERE)\b|: [EF] [\w/.]+:\d+\] |^[EF]\d{4} .*\] ")
_COMPLAINS = re.compile(
    r"\b(cannot|can ?not|could not|couldn't|can't|unable to|failed to|invalid|corrupt\w*|no space left"
    r"|permission denied|no such file|not found|out of memory|undefined symbol|mismatch|unsupported|exceeds"
    r"|too (small|large|many))\b|^(\S+: )?(E|error|fatal|fatal error): ",
    re.IGNORECASE,
)
_OF_TRACEBACK = re.compile(r"^\s|^[\w.]*[a-z](Error|Exception)\b")
# TensorFlow logs these as errors at each start, where there is no GPU or where there is one.
_ALWAYS = re.compile(
    r"Unable to register cu\w+ factory|failed call to cuInit|[Cc]ould not find (cuda|TensorRT)|TF-TRT|NUMA node"
    r"|computation placer already registered|[Cc]annot dlopen|dynamic library|kernel driver does not appear"
)

FATAL = re.compile(
    r"^Fatal Python error: |^terminate called |^libc\+\+abi: |^(free|malloc\w*|realloc|munmap_chunk|\w+_shutdown)\(\): "
    r"|^double free or corruption|^Fatal glibc error: |^Inconsistency detected by ld\.so: |^LLVM ERROR: "
    r"|MKL FATAL ERROR: |^==\d+==ERROR: \w+Sanitizer: "
    r"|^corrupted (size|double)|^\*\*\* (stack smashing|buffer overflow|bit out of range|Error in) "
    r"|: Assertion [`'].*[`'] failed"
    r"|^thread '.*' panicked at |^(panic|fatal error|runtime error): |: F [\w/.]+:\d+\] |^F\d{4} .*\] "
    r"|^# A fatal error has been detected by the Java |^(OpenBLAS|OMP): Error|^Check failed"
    r"|^\[libprotobuf FATAL |^Timeout \(\d+:\d\d:\d\d(\.\d+)?\)!$"
)
# The interpreter is already ending: the reason stands before this.
_AT_EXIT = re.compile(r"^Fatal Python error: .*(at interpreter shutdown|finaliz)|^Python runtime state: finalizing")
_STACK = re.compile(r'^  File ".*", line \d+ in |^(Current t|T)hread 0x\w+|^  <no Python frame>|^  \.\.\.$|^$')
_FRAME_OF_MODULE = re.compile(r'^  File ".*", line \d+ in <module>$')
_MPI_ERROR = re.compile(r"^(?:\[[^\]]*\] )?\*\*\* (An error occurred in |MPI_ERR_)(.*)")
_HANDLER = re.compile(r"\*\*\* Process received signal \*\*\*")  # of Open MPI, before a stack of C functions

# What is printed by a program one of whose children was killed; a child that writes to a pipe just leaves its end.
_LOST_CHILD = re.compile(
    r"BrokenProcessPool|TerminatedWorkerError|KilledWorker|DataLoader worker \(pid.*(killed by|exited unexpectedly)"
    r"|SIGKILL|\b[Kk]illed by signal:? (9|Killed)|\bsignal:? 9\b|^(.*: line \d+: +\d+ )?Killed\b"
    r"|: Killed signal terminated program"
    r"|[Ee]xit ?(code|status):?[ =]?(-9|137)\b|'ForkAwareLocal' object has no"
    r'|/multiprocessing/(connection|managers|pool)\.py", line \d+, in \w+\n(.*\n){0,4}\w*(EOF|Connection|Pipe)\w*Error',
    re.MULTILINE,
)

ILLEGAL = "Illegal instruction"
REPORT_LINES = 300  # last lines in which an allocator's report of the exhausted memory is looked for
GIB = 1 << 30

_MEANINGS = (
    (
        re.compile(r"nccl.*\binvalid usage\b|ncclInvalidUsage|Duplicate GPU detected", re.IGNORECASE),
        "NCCL reports this if two ranks use one GPU; wanted ENTRYPOINT_PROCESSES_PER_HOST of at most a host's GPUs; "
        f"and in the script: {REMEDIES['hvd-no-pin']}",
    ),
    (
        re.compile(r"Trying to access resource \S+( \(defined @ .*\))? located in device "),
        "XLA cannot use variables of another device: with parameter servers, give Keras's optimizer jit_compile=False",
    ),
    (
        re.compile(r"has detected an attempt to run as root"),
        "a script that calls it as root gives it --allow-run-as-root, or sets OMPI_ALLOW_RUN_AS_ROOT=1 and "
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
    ),
    (
        re.compile(r"All nodes which are allocated for this job are already filled"),
        "mpirun reports this, too, if a host's name began to resolve to this machine during the start: check name "
        "resolution on this host",
    ),
    (
        re.compile(rf"^(Fatal Python error: |.*: line \d+: +\d+ )?{ILLEGAL}|compiled to use \S+ instructions, but"),
        "this CPU, or the emulator in its place, lacks an instruction that the program was built with. TensorFlow for "
        "amd64 needs AVX; for an ARM machine, ./build.sh --platform linux/arm64",
    ),
)
_EXHAUSTED = re.compile(r"ResourceExhausted|RESOURCE_EXHAUSTED|CUDA_ERROR_OUT_OF_MEMORY|OOM when allocating")
_GPU = re.compile(r"device:GPU:(\d+)|\bGPU_(\d+)_bfc\b")
_ON_GPU = re.compile(r"failed to allocate|[Oo]ut of memory|OOM when allocating|ran out of memory")
_ASKED = re.compile(r"trying to allocate ([\d.]+ ?[KMGT]?i?B?)\b|\bBin for ([\d.]+[KMGT]?i?B) was ")
_USED = {"limit": re.compile(r"^Limit: +(\S+)"), "used": re.compile(r"^InUse: +(\S+)")}


class Reason(NamedTuple):
    """Hold the line with the error, more lines about it, and whether it may be a symptom of something else."""

    error: str
    details: str
    is_symptom: bool = False
    end: int | None = None  # index behind its last line, if other output follows

    def then(self, error: str) -> str:
        """Return the error, followed by the symptom that it led to."""
        return f"{clip(self.error, 250)}{THEN}{clip(error, 100)})"


def has_words(line: str) -> bool:
    return any(map(str.isalnum, line))


def last_lines(lines: Sequence[str]) -> str:
    return "\n".join([line for line in lines if has_words(line)][-LAST_LINES:])


def fatal(lines: Sequence[str], after: int | None = None) -> Reason | None:
    """Return the last error of a C library, an interpreter or an assertion. `after`: lines that may follow it."""
    found = [number for number, line in enumerate(lines) if FATAL.search(line)]
    if not found:
        return None
    start = found[-1]
    if after is not None and sum(not _STACK.match(line) for line in lines[start + 1 :]) > after:
        return None
    while _VAGUE.match(lines[start]) and found[:-1] and start - found[-2] <= STACK_LINES:
        found.pop()
        start = found[-1]
    details = "\n".join(line for line in lines[start : start + DETAILS_LINES] if line.strip())
    if _VAGUE.match(lines[start]) and (said := complaint(lines[:start])):
        return Reason(said.strip(), details)
    error = lines[start].strip()
    follows = [line.strip() for line in lines[start + 1 : start + 2]]
    if follows and (error.endswith(":") or follows[0].startswith("what():")):
        error = f"{error} {follows[0]}"
    return Reason(error, details, reads_like_symptom("", error))


def complaint(lines: Sequence[str]) -> str:
    """Return the last line before a crash that reports an error of the program itself; "" without such a line.

    A line without a level, such as "no checkpoint was found", only counts directly before the crash.
    """
    printed = [line for line in lines if line]
    for number, line in enumerate(reversed(printed[-NEAR_LINES:])):
        complains = number < BESIDE_LINES and _COMPLAINS.search(line) and not MILD.search(line)
        if (is_severe(line) or complains) and not (_ALWAYS.search(line) or _OF_TRACEBACK.search(line)):
            return "" if reads_like_symptom("", line) else line
    return ""


def is_severe(line: str) -> bool:
    """Return whether a program has logged a line as an error; lines that TensorFlow logs at each start do not count."""
    return bool(SEVERE.search(line)) and not _ALWAYS.search(line)


def lost_child(output: str) -> bool:
    """Return whether a program ended because one of its child processes was killed."""
    return bool(_LOST_CHILD.search(output))


def still_worked(lines: Sequence[str]) -> bool:
    """Return whether Python functions were still running when the program crashed; else the interpreter was exiting."""
    start = next((n for n in range(len(lines) - 1, -1, -1) if lines[n].startswith("Fatal Python error: ")), None)
    if start is None or any(_AT_EXIT.match(line) for line in lines[start : start + 5]):
        return False
    # A module's own frame is gone when the interpreter cleans up.
    return any(_FRAME_OF_MODULE.match(line) for line in lines[start:])


def mpi_error(lines: Sequence[str]) -> Reason | None:
    """Find the error that Open MPI prints before it aborts.

    Its lines are `*** An error occurred in MPI_Recv` and then `*** MPI_ERR_...`.
    """
    found = [(match[1], match[2]) for line in lines if (match := _MPI_ERROR.match(line))]
    where = next((text for kind, text in reversed(found) if kind.startswith("An")), "")
    what = next((kind + text for kind, text in reversed(found) if kind.startswith("MPI")), "")
    if not where or not what:
        return None
    error = f"{where}: {what}"
    return Reason(error, last_lines(lines), any(reads_like_symptom("", line) for line in [error, *lines[-40:]]))


def of_handler(lines: Sequence[str]) -> Reason | None:
    """Return the first lines of the stack that Open MPI's signal handler prints."""
    start = next((n for n in range(len(lines) - 1, -1, -1) if _HANDLER.search(lines[n])), None)
    return None if start is None else Reason("", "\n".join(lines[start : start + STACK_LINES]))


def meaning(error: str, lines: Sequence[str]) -> str:
    """Return what an error means, or "" if its own text is clear. `lines`: the last output."""
    if _EXHAUSTED.search(error):
        return _exhausted(lines[-REPORT_LINES:])
    return next((words for pattern, words in _MEANINGS if pattern.search(error)), "")


def _exhausted(lines: Sequence[str]) -> str:
    """Return which GPU's memory is exhausted, as the allocator reports it; "" if no GPU's is."""
    on_gpus = [found for line in lines if _ON_GPU.search(line) and (found := _GPU.search(line))]
    if not on_gpus:
        return ""
    number = next(filter(None, on_gpus[-1].groups()))
    asked = [next(filter(None, match.groups())) for line in lines if (match := _ASKED.search(line))]
    sizes = {
        name: _size(values[-1])
        for name, pattern in _USED.items()
        if (values := [match[1] for line in lines if (match := pattern.search(line))])
    }
    words = [f"{_size(asked[-1])} asked for"] if asked else []
    if len(sizes) == len(_USED):
        words.append(f"{sizes['used']} of {sizes['limit']} in use")
    return f"out of memory on GPU {number}" + (f": {', '.join(words)}" if words else "")


def _size(text: str) -> str:
    """Return a size as text; some allocators report plain bytes."""
    text = text.removesuffix("bytes").strip()
    return f"{int(text) / GIB:.2f}GiB" if text.isdecimal() else text
