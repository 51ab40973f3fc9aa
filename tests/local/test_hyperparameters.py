"""Test that hyperparameters reach the script byte for byte, as arguments and as SM_HP_*."""

import json
import os

import pytest

AWKWARD = {
    "quotes": """it's "quoted" 'twice' \\"thrice\\" """,
    "command": "$(touch /tmp/sagemaker-tf-entrypoint-was-run) `id` ; rm -rf $HOME && echo ${PATH} | cat > x & #",
    "glob": "* ? [a-z] {1,2} ~ !x %d %s \\ \\n \\0 ^",
    "lines": "line 1\nline 2\r\nline 3\rline 4\n",
    "tabs": "\ta\tb\v\f",
    "control": "\x01\x07\x1b[31mred\x1b[0m\x7f",
    "unicode": "é ß 😀 👩‍👩‍👧 中文 \u2028 \u00a0 \ufeff \U0010ffff",
    "right-to-left": "שלום ‮ عربى",
    "combining": "e\u0301 is not \u00e9",
    "empty": "",
    "dashes": "--not-an-option",
    "a_dash": "-",
    "spaces": "  leading and trailing  ",
    "equals": "a=b=c",
    "JSON-text": '{"a": [1, "x"]',
    "a number as text": "007",
    "long": "".join(chr(33 + n % 94) for n in range(2500)),
    "s": "short name",
}
IN_PYTHON = """
import json, os, sys
env = {key: os.fsencode(value).hex() for key, value in os.environ.items() if key.startswith("SM_HP_")}
told = {"argv": [os.fsencode(word).hex() for word in sys.argv[1:]], "env": env}
with open(os.path.join(os.environ["SM_OUTPUT_DATA_DIR"], f"told-{os.getpid()}.json"), "w") as file:
    json.dump(told, file)
"""
IN_SHELL = """
printf '%s\\0' "$@" > "$SM_OUTPUT_DATA_DIR/argv"
"""
LONGEST = 32 * os.sysconf("SC_PAGE_SIZE") - 1


def arguments() -> list[bytes]:
    """Return the arguments as sagemaker-training passes them: sorted by name, one dash before a name of one letter."""
    pairs = [("-" if len(name) == 1 else "--") + name for name in sorted(AWKWARD)]
    return [word.encode() for pair in zip(pairs, map(AWKWARD.get, sorted(AWKWARD)), strict=True) for word in pair]


@pytest.fixture
def awkward(hosts):
    """Run a script with all of the values; check that no shell executes any of them."""

    def run(count: int, program: str, code: str, **options):
        job = hosts(count, program, code=code, hyperparameters=wire(AWKWARD), **options)
        job.must_end(0)
        assert not os.path.lexists("/tmp/sagemaker-tf-entrypoint-was-run")
        return job

    return run


def wire(values: dict[str, object]) -> dict[str, str]:
    return {name: json.dumps(value) for name, value in values.items()}


def test_every_byte_reaches_a_shell_script(awkward):
    job = awkward(1, "train.sh", IN_SHELL)
    assert (job[1].base / "output/data/argv").read_bytes().split(b"\0")[:-1] == arguments()


def test_every_byte_reaches_ranks_as_argument_and_variable(awkward):
    """On two hosts, the values pass through a shell and ssh."""
    found = awkward(2, "train.py", IN_PYTHON, mode="mpi", each=2).json_of("told-*")
    assert len(found) == 4
    for told in found:
        assert [bytes.fromhex(word) for word in told["argv"]] == arguments()
        for name, value in AWKWARD.items():
            assert bytes.fromhex(told["env"][f"SM_HP_{name.upper()}"]).decode() == value


TOO_LONG = {
    # hyperparameters: what the line names
    "one byte": ({"text": "é" * (LONGEST // 2) + "xx"}, ['"text"', f"{LONGEST + 1} bytes", "file"]),
    "a list": ({"rows": ["x" * LONGEST]}, ['"rows"', str(LONGEST)]),
    "an option of mpirun": (
        {"sagemaker_mpi_enabled": True, "sagemaker_mpi_custom_mpi_options": "-x A=" + "x" * LONGEST},
        ["custom_mpi_options"],
    ),
    "all together": (
        {f"text{number}": "x" * 100_000 for number in range(60)},
        ["60 hyperparameters and the environment", "fewer or shorter", "file"],
    ),
}


@pytest.mark.parametrize("hyperparameters, named", TOO_LONG.values(), ids=TOO_LONG)
def test_too_long_argument_is_refused_before_any_process_starts(hosts, hyperparameters, named):
    job = hosts(1, code=IN_PYTHON, hyperparameters=wire(hyperparameters))
    line = job.must_end(78)
    assert job[1].failure == line and all(word in line for word in named), line
    assert "Traceback" not in job[1].log


def test_script_gets_an_argument_of_the_greatest_length(hosts):
    """The launcher masks long values at once. An earlier pattern for passwords in URLs took minutes for each."""
    values = {"text": "x" * LONGEST, "sagemaker_text": "https://me:" * 1_000_000}
    job = hosts(1, code=IN_PYTHON, hyperparameters=wire(values))
    job.must_end(0)
    (told,) = job.json_of("told-*")
    assert [bytes.fromhex(word).decode() for word in told["argv"]] == ["--text", "x" * LONGEST]


REFUSES = """
import sys
if "--lr" in sys.argv:
    sys.exit("Usage:\\n  train.py [--learning-rate=RATE]")
"""


def test_failure_text_shows_arguments_if_the_script_prints_only_its_usage(hosts):
    """Docopt prints only a usage. Secrets among the arguments are masked."""
    job = hosts(1, code=REFUSES, hyperparameters={"lr": "0.1", "api_key": "abc123xyz"})
    assert job.must_end(1) == (
        "algo-1 script (exit code 1): it printed its usage and ended: Usage: train.py [--learning-rate=RATE] "
        "(its arguments: --api_key '***' --lr 0.1)"
    )
