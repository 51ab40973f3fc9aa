"""Test the first line of a failure, for endings as people see them.

first_lines.txt holds each: a line with its name, how the process ended and whether another one's end comes before it;
the wanted line (" ..." stands for more); the last output. TensorFlow 2.14, JAX 0.10 and CPython 3.11 printed most of
it, in programs of some lines, without the frames of libraries and log lines below errors. Texts of what is not at hand
here are in the form of its sources.
"""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from entrypoint.launcher.outcome.explain import explain
from entrypoint.launcher.outcome.outcome import Exit, Tail


class Ending(NamedTuple):
    exit: Exit
    confidence: str
    wanted: str
    output: str


def endings() -> dict[str, Ending]:
    found = {}
    text = Path(__file__).with_name("first_lines.txt").read_text()
    for part in re.split(r"^=== ", text, flags=re.MULTILINE)[1:]:
        head, wanted, output = part.split("\n", 2)
        name, how, confidence = head.split(" | ")
        number = int(how.split()[-1])
        exit = Exit(code=128 + number, signal=number) if how.startswith("signal") else Exit(code=number)
        assert name not in found
        found[name] = Ending(exit, confidence, wanted.removeprefix("> ").removesuffix(" ..."), output)
    return found


ENDINGS = endings()


@pytest.mark.parametrize("name", ENDINGS)
def test_the_first_line_is_the_reason(name):
    exit, confidence, wanted, output = ENDINGS[name]
    tail = Tail()
    tail.add(output.encode())
    found = explain(exit, tail.whole().decode())
    assert found.error.startswith(wanted) and bool(found.error) == bool(wanted), found.error
    assert found.confidence == confidence


@pytest.mark.parametrize("name", [name for name, ending in ENDINGS.items() if "Traceback" in ending.output])
def test_the_details_name_the_users_line(name):
    ending = ENDINGS[name]
    details = explain(ending.exit, ending.output).details
    assert "/opt/ml/code/train.py" in details or "/opt/ml/code/train.py" not in ending.output, details


def test_no_line_only_announces():
    for name, ending in ENDINGS.items():
        found = explain(ending.exit, ending.output).error
        empty = ("stack traces unavailable", "Graph execution error", "in user code", "root error", "Detected at node")
        assert not any(words in found for words in empty), (name, found)
