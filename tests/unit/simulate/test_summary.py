"""Test the first lines of a local run's summary."""

from html import escape
from pathlib import Path
from types import SimpleNamespace

import pytest

from entrypoint.base.terminal import shown
from entrypoint.launcher.outcome.outcome import Exit
from entrypoint.simulate.run import exit_code, summary

APART = (
    "error: apart: the hosts trained apart since 4 s after the start; train.py:31 makes the model outside of the scope"
)
IDLE = "warning: idle: hosts are idle for 17 %; share data and steps evenly"


def folder(root: Path, *verdicts: str) -> SimpleNamespace:
    """Return the folder of a host whose report has these verdicts."""
    paths = {name: root / name for name in ("report", "summary", "failure", "log", "model")}
    paths["report"].write_text("".join(f'<meta name="verdict" content="{escape(each)}">\n' for each in verdicts))
    return SimpleNamespace(host="algo-1", **paths)


def test_separate_training_is_reported_first_in_red(tmp_path: Path) -> None:
    folders, exits = [folder(tmp_path, APART, IDLE)], {"algo-1": Exit(code=0)}
    lines = summary(folders, exits).split("\n")
    assert lines[1] == f"error: {APART.removeprefix('error: apart: ')}" and f"report: {IDLE}" in lines
    assert "\n".join(lines).count("trained apart") == 1 and exit_code(folders, exits) == 0
    assert shown(lines[1], {"FORCE_COLOR": "1"}, 0).startswith("\x1b[31merror\x1b[0m: the hosts trained apart")


def test_other_verdicts_are_printed_below_the_table(tmp_path: Path) -> None:
    lines = summary([folder(tmp_path, IDLE)], {"algo-1": Exit(code=0)}).split("\n")
    assert lines[1].startswith("host ") and f"report: {IDLE}" in lines


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        ("KeyError: 'SM_CHANNEL_TRAINING'", "try: --channel training=FOLDER"),
        ("ModuleNotFoundError: No module named 'horovod'", "try: --engine docker, whose image has horovod;"),
        (
            "ImportError: No module named 'jax.numpy'",
            "try: --engine docker, with an image of `./build.sh --tensorflow 2.21`",
        ),
        ("ValueError: bad batch", ""),
    ],
)
def test_missing_parts_of_this_machine_are_named_below_the_cause(tmp_path: Path, error: str, remedy: str) -> None:
    host = folder(tmp_path)
    host.failure.write_text(error)
    first, second, *_ = summary([host], {"algo-1": Exit(code=1)}).split("\n")[1:]
    assert first.endswith(error) and second.startswith(remedy)
    assert remedy or not second
