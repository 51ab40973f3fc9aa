"""Read shell scripts: their commands, what joins these, and the Python programs that they start. Nothing is run."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

INTERPRETER = "an interpreter of the image, such as #!/bin/bash; or an image with that interpreter"  # a remedy
_ASKS = {"if", "elif", "while", "until"}
_BEFORE_A_COMMAND = {"exec", "time", "nohup", "env", "then", "do", "else", "{", "(", "!"}
_OPENS, _CLOSES = {"if", "for", "while", "until", "case", "select", "{"}, {"fi", "done", "esac", "}"}
_OPERATORS = "();<>|&\n"
_HERE_DOCUMENT = re.compile(r"^([^\n]*<<-?\s*['\"]?(\w+).*?)\n(?s:.*?)^\s*\2\s*$", re.M)
_PYTHON = re.compile(r"python(3(\.\d+)?)?$")
_STARTERS = {"exec", "time", "nohup", "env", "nice", "timeout", "stdbuf", "unbuffer"}
_EXPORT = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w*)=(?:\"([^\"\n]*)\"|'([^'\n]*)'|([^\s;&|]*))", re.M)
# What may start other programs than its words show.
_UNKNOWN = {"source", ".", "eval", "bash", "sh", "mpirun", "torchrun", "horovodrun", "xargs", "parallel"}
_HERE = re.compile(r"^(/opt/ml/code|\$\(dirname \S+\)|\$\{?SM_MODULE_DIR\}?|\$\{?PWD\}?)(/|$)")


class ShellCommand(NamedTuple):
    """Describe a simple command, without the assignments in front of it and what it redirects."""

    words: tuple[str, ...]
    line: int
    ends: str  # what follows: `;`, `&`, `&&`, `||`, `|`, or nothing, at the end of a line
    inside: bool  # in a function, a condition, a loop or parentheses

    @property
    def program(self) -> str | None:
        """Return the file that this command runs by Python; "" if that is unknown; None if it runs no Python."""
        words = [word for word in self.words if not re.match(r"[A-Za-z_]\w*=", word)]
        while words and (words[0] in _STARTERS or re.match(r"-\w|\d+[smh]?$", words[0])):
            words.pop(0)
        if words and words[0].endswith(".py"):
            return _below_code(words[0])
        if not words or not _PYTHON.match(PurePosixPath(words[0]).name):
            return None
        at = next((at for at, word in enumerate(words[1:], 1) if not re.match(r"-[bBdEiIOqsSuvx]+$", word)), None)
        if at is None or words[at] in ("-V", "--version") or words[at : at + 2] in (["-m", "pip"], ["-m", "venv"]):
            return None
        return _below_code(words[at]) if words[at].endswith(".py") else ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the words behind the program."""
        at = next((at for at, word in enumerate(self.words) if word.endswith(".py")), len(self.words))
        return self.words[at + 1 :]


def _below_code(path: str) -> str:
    path = _HERE.sub("", path)
    return "" if "$" in path or path.startswith("/") else str(PurePosixPath(path))


def without_comments(text: str) -> str:
    return re.sub(r"(^|\s)#.*", r"\1", text, flags=re.M)


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of a script's lines, joined with those that continue them, without here-documents."""
    text = _HERE_DOCUMENT.sub(lambda found: found[1] + "\n" * found[0].count("\n"), text)
    for found in re.finditer(r"^(?:.*\\\n)*.*$", text, re.M):
        yield text.count("\n", 0, found.start()) + 1, found[0].replace("\\\n", "")


def words_of_line(text: str) -> Iterator[str]:
    """Yield the words and operators of a line. Stop at quotes that end in another line."""
    lexer = shlex.shlex(
        re.sub(r"(?<=\s)\d(?=[<>])", " ", without_comments(text)), posix=True, punctuation_chars=_OPERATORS
    )
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t\r", "", True
    try:
        yield from lexer
    except ValueError:
        return


def first_words(text: str) -> Iterator[str]:
    """Yield the names of the commands of a line."""
    begins = True
    for word in words_of_line(text):
        if set(word) <= set(_OPERATORS):
            begins = not {"<", ">"} & set(word)
        elif begins and not (word in _BEFORE_A_COMMAND or re.match(r"\w+=", word)):
            yield Path(word).name
            begins = False


def commands(text: str) -> list[ShellCommand]:
    """Return a script's commands in their order."""
    found: list[ShellCommand] = []
    depth = parentheses = 0
    for number, line in logical_lines(text):
        words: list[str] = []
        redirects = False
        for word in [*words_of_line(line), "\n"]:
            if set(word) <= set(_OPERATORS):
                redirects = bool({"<", ">"} & set(word))
                if redirects:
                    continue
                ends = word.strip("()\n")
                if words:
                    found.append(ShellCommand(tuple(words), number, ends, depth + parentheses > 0))
                elif found and ends:
                    found[-1] = found[-1]._replace(ends=ends)
                parentheses, words = max(0, parentheses + word.count("(") - word.count(")")), []
            elif redirects:
                redirects = False
            elif not words and word in _OPENS | _CLOSES:
                depth = max(0, depth + (1 if word in _OPENS else -1))
                words += [word] if word in ("for", "case", "select") else []
            elif words or word not in (_BEFORE_A_COMMAND | _ASKS) - _STARTERS:
                words.append(word)
    return found


def is_strict(text: str) -> bool:
    """Return whether a script ends at the first command that fails."""
    return bool(re.search(r"^\s*set\s+(-\w+\s+)*-\w*e|^\s*set\b.*\berrexit\b|^#!.*\s-\w*e", text, re.M))


def exports(text: str) -> dict[str, str]:
    """Return the variables that a script sets."""
    return {found[1]: found[2] or found[3] or found[4] or "" for found in _EXPORT.finditer(text)}


def started(text: str) -> list[ShellCommand]:
    """Return the commands that start Python programs; none if the script may start others that it does not name."""
    found = commands(text)
    for each in found:
        name, *words = [word for word in each.words if word != "exec"] or [""]
        moves = name == "cd" and not _HERE.match(words[0] if words else "")
        if moves or name in _UNKNOWN or name.startswith("$") or name.endswith(".sh") or each.program == "":
            return []
    return [each for each in found if each.program]
