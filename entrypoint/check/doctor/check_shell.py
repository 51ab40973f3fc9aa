"""Check a program that is a shell script: the interpreter of its first line, and Windows line endings."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Finding, Place, note, warning

# Interpreters that Debian's base system and our image have, and their paths in the image.
_ON_PATH = ("awk", "bash", "dash", "perl", "python", "python3", "sed", "sh")
_THERE = {*(f"{folder}/{name}" for folder in ("/bin", "/usr/bin") for name in (*_ON_PATH, "env") if name != "python")}
_OURS = {"/opt/venv/bin/python", "/opt/venv/bin/python3"}


def of_shell(case: Case) -> Iterator[Finding]:
    """Yield what keeps a shell script from starting, on our image or only on AWS's."""
    main = case.code.main
    if main.path.suffix != ".sh":
        return
    lines = main.path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    place = Place(file=main.shown, line=1)
    if lines[0].endswith(b"\r"):
        yield note(
            "line-ends",
            "line ends of Windows: our launcher removes them, AWS's images cannot start such a script",
            "line ends of Linux: `dos2unix`, or `*.sh text eol=lf` in .gitattributes",
            place=place,
        )
    line = lines[0].decode("utf-8", "replace").strip()
    if asked := _missing(line):
        yield warning(
            "interpreter-missing",
            f"its first line, {line[:100]!r}, asks for {asked}, which our image lacks: "
            "without it in yours, the job ends before it starts",
            "#!/bin/bash, or an image with that interpreter",
            place=place,
        )


def _missing(line: str) -> str:
    """Return the interpreter that a first line names and our image lacks; "" if the image has it."""
    if not line.startswith("#!"):
        return ""  # /bin/sh runs it
    words = line[2:].split()
    if not words:
        return "nothing"
    if PurePosixPath(words[0]).name == "env" and words[0] in _THERE:
        names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        asked = names[0] if names else "nothing"
        return "" if asked in (*_ON_PATH, *_THERE, *_OURS) else asked
    relative = not words[0].startswith("/") and ":" not in words[0]
    return "" if words[0] in _THERE | _OURS or relative else words[0]
