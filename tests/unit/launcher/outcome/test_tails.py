"""Test Tail, which keeps the part of a process's output that can explain its end."""

import pytest
from recorded import RECORDED, kept

from entrypoint.launcher.outcome.explain import explain
from entrypoint.launcher.outcome.outcome import LAST_BYTES, Exit

BEGIN = 'Traceback (most recent call last):\n  File "/opt/ml/code/train.py", line 7, in <module>\n    fit(d)\n'
SAID = "ValueError: Attempt to convert a value (PerReplica:{\n"
END = "}) with an unsupported type (<class 'PerReplica'>) to a Tensor.\n"
NUMBERS = "        [1.4317296, 1.7578462, 1.9654009, 1.2135609, 1.8406544, 1.2843541],\n"


@pytest.mark.parametrize("lines", [0, 10, 100, 300, 500, 5000])
@pytest.mark.parametrize("piece", [1, 7, 1 << 10])
def test_long_exception_message_is_shown_by_beginning_and_end(lines, piece):
    text = "epoch 1\n" * 2000 + BEGIN + SAID + NUMBERS * lines + END
    parts = text.splitlines(keepends=True)
    found = explain(Exit(code=1), kept(*("".join(parts[at : at + piece]) for at in range(0, len(parts), piece))))
    assert found.error == f"{SAID.strip()} ... {END.strip()}"
    assert found.details.splitlines()[:3] == BEGIN.splitlines()


def test_kept_output_is_bounded_and_repeats_no_line():
    text = BEGIN + SAID + "".join(f"{number}\n" for number in range(100_000)) + END
    assert len(kept(text)) < 2 * LAST_BYTES + 100
    for lines in (1000, 2000, 3000, 4000, 5000, 6000):
        text = BEGIN + SAID + "".join(f"{number}\n" for number in range(lines))
        numbers = [int(line) for line in kept(text).splitlines() if line.isdigit()]
        assert numbers == sorted(set(numbers)) and numbers[-1] == lines - 1
        assert len(text) > 2 * LAST_BYTES or kept(text) == text


def test_handled_exception_is_not_the_reason_for_the_end():
    later = "epoch " + "x" * 2000 + "\n"
    found = explain(Exit(code=1), kept(BEGIN, "KeyError: 'retried'\n", *[later] * 50, "no such channel\n"))
    assert found.error == "no such channel"
    found = explain(Exit(code=1), kept(BEGIN, SAID, NUMBERS, END, *[later] * 50, "no such channel\n"))
    assert found.error == "no such channel"


def test_output_before_a_long_exception_is_kept():
    """In a chain, this is the exception that was its cause; if memory runs out, it is the allocator's report."""
    cause = BEGIN + "KeyError: 'rows'\n\nThe above exception was the direct cause of the following exception:\n\n"
    found = explain(Exit(code=1), kept("epoch 1\n" * 5000, cause, BEGIN, SAID, NUMBERS * 500, END))
    assert found.error.endswith("(because of KeyError: 'rows')")


def test_traceback_in_a_box_is_kept():
    box = RECORDED["typer raises goodbye"].output
    found = explain(Exit(code=1), kept(box, *["tracker: val/metric_1 0.1\n"] * 700))
    assert found.error == "ValueError: bad batch 7"


def test_last_traceback_is_kept():
    first = BEGIN + "KeyError: 1\n"
    assert "KeyError" not in kept(first, NUMBERS * 1000, BEGIN, SAID, NUMBERS * 1000, END)
    assert kept(first + "\nand\n\n" + BEGIN + SAID + END) == first + "\nand\n\n" + BEGIN + SAID + END


def test_tail_keeps_an_unfinished_line():
    assert kept("epoch 1\n", unfinished="epoch") == "epoch 1\nepoch"
    assert kept(BEGIN, SAID, NUMBERS * 1000, unfinished=END.strip()).endswith(END.strip())
    assert len(kept("epoch 1\n", unfinished="x" * (2 * LAST_BYTES))) == LAST_BYTES
