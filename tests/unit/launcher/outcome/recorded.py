"""Read the recorded endings: outputs of programs, each with the failure text that is wanted for it.

The first line of each has three fields: its name; how the process ended (an exit code, `signal N`, or `mpirun` for
mpirun's own end); and the confidence that this failure came first. The line after `> ` is the wanted first line of the
failure text, in which " ..." stands for more. Lines after `>> ` are texts that the details must contain. The output
follows, in which `~50 TEXT` stands for fifty lines of this text.
"""

import re
from pathlib import Path
from typing import NamedTuple

from entrypoint.launcher.outcome.explain import Explanation, explain, explain_mpirun
from entrypoint.launcher.outcome.outcome import Exit, Tail

FILES = ("frameworks", "libraries", "first_lines", "texts")


class Recorded(NamedTuple):
    file: str
    exit: Exit | None  # None: of mpirun
    confidence: str
    wanted: str
    within: list[str]
    output: str

    def explained(self) -> Explanation:
        """Return the launcher's explanation of the part of the output that it keeps."""
        return explain(self.exit, kept(self.output)) if self.exit else explain_mpirun(kept(self.output))


def killed(number: int) -> Exit:
    return Exit(code=128 + number, signal=number)


def kept(*texts: str, unfinished: str = "") -> str:
    """Return the text that the launcher keeps of an output that comes in these parts."""
    tail = Tail()
    for text in texts:
        tail.add(text.encode())
    return tail.whole(unfinished.encode()).decode("utf-8", "replace")


def recorded() -> dict[str, Recorded]:
    found: dict[str, Recorded] = {}
    for file in FILES:
        text = (Path(__file__).with_name("endings") / f"{file}.txt").read_text()
        for part in re.split(r"^=== ", text, flags=re.MULTILINE)[1:]:
            head, wanted, rest = part.split("\n", 2)
            name, how, confidence = head.split(" | ")
            within = []
            while rest.startswith(">> "):
                line, _, rest = rest.partition("\n")
                within.append(line.removeprefix(">> "))
            output = re.sub(r"^~(\d+) (.*\n)", lambda line: int(line[1]) * line[2], rest, flags=re.MULTILINE)
            assert name not in found, f"{name} is recorded twice"
            found[name] = Recorded(file, _exit(how), confidence, wanted.removeprefix("> "), within, output)
    return found


def _exit(how: str) -> Exit | None:
    if how == "mpirun":
        return None
    number = int(how.removeprefix("signal "))
    return killed(number) if how.startswith("signal") else Exit(code=number)


RECORDED = recorded()
