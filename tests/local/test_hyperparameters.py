"""Test that hyperparameters reach the script byte for byte in every mode, as arguments and as SM_HP_*."""

import json
import os
import shutil
from pathlib import Path

import pytest
from hosts import LISTENS
from variants import variants

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
SCRIPTS = {
    "train.py": """
import json, os, sys
env = {key: os.fsencode(value).hex() for key, value in os.environ.items() if key.startswith("SM_HP_")}
told = {"argv": [os.fsencode(word).hex() for word in sys.argv[1:]], "env": env}
with open(os.path.join(os.environ["SM_OUTPUT_DATA_DIR"], f"told-{os.getpid()}.json"), "w") as file:
    json.dump(told, file)
""",
    "train.sh": """
printf '%s\\0' "$@" > "$SM_OUTPUT_DATA_DIR/argv-$$"
""",
}
PS, MWMS, MPI = (f"sagemaker_{name}_enabled" for name in ("parameter_server", "multi_worker_mirrored_strategy", "mpi"))
WAYS = {
    # hosts, hyperparameters of the mode, environment, processes that run the script
    "single": (1, {}, {}, 1),
    "single, 3 hosts": (3, {}, {}, 3),
    "ps": (2, {PS: "true"}, LISTENS, 2),
    "ps, servers": (2, {PS: "true", "sagemaker_entrypoint_ps_workers": "server"}, LISTENS, 1),
    "mwms": (2, {MWMS: "true"}, {"ENTRYPOINT_PROCESSES_PER_HOST": "2"}, 4),
    "mpi": (1, {MPI: "true", "sagemaker_mpi_num_of_processes_per_host": "2"}, {}, 2),
    "mpi, 2 hosts": (2, {MPI: "true", "sagemaker_mpi_num_of_processes_per_host": "2"}, {}, 4),
}


def arguments() -> list[bytes]:
    """Return the arguments as sagemaker-training passes them: sorted by name, one dash before a name of one letter."""
    pairs = [("-" if len(name) == 1 else "--") + name for name in sorted(AWKWARD)]
    return [word.encode() for pair in zip(pairs, map(AWKWARD.get, sorted(AWKWARD)), strict=True) for word in pair]


EACH = {f"{way}, {program}": (*how, program) for way, how in WAYS.items() for program in SCRIPTS}
FIRST = ("single, train.sh", "mpi, 2 hosts, train.py")


@pytest.mark.parametrize("count, mode, environment, processes, program", variants(EACH, *FIRST))
def test_every_byte_arrives(hosts, count, mode, environment, processes, program):
    if MPI in mode:
        pytest.importorskip("mpi4py")
        if not (shutil.which("mpirun") and Path("/usr/sbin/sshd").exists()):
            pytest.skip("needs Open MPI and an ssh daemon")
    wire = {name: json.dumps(value) for name, value in AWKWARD.items()}
    job = hosts(
        count, program, code={program: SCRIPTS[program]}, hyperparameters={**wire, **mode}, environment=environment
    )
    assert job.end() == [0] * count
    folders = [host.base / "output/data" for host in job.hosts.values()]
    if program.endswith(".sh"):
        told = [path.read_bytes().split(b"\0")[:-1] for folder in folders for path in folder.glob("argv-*")]
    else:
        texts = [json.loads(path.read_text()) for folder in folders for path in folder.glob("told-*")]
        told = [[bytes.fromhex(word) for word in each["argv"]] for each in texts]
        for each in texts:
            values = {key: bytes.fromhex(value).decode() for key, value in each["env"].items()}
            for name, value in AWKWARD.items():
                assert values[f"SM_HP_{name.upper()}"] == value
    assert len(told) == processes
    for words in told:
        assert words == arguments()
    assert not os.path.lexists("/tmp/sagemaker-tf-entrypoint-was-run")


def test_a_hundred_of_2500_characters_arrive(hosts):
    values = {f"name{number:02}": chr(0x4E00 + number) * 2500 for number in range(80)}
    job = hosts(
        1,
        "train.py",
        code={"train.py": SCRIPTS["train.py"]},
        hyperparameters={name: json.dumps(value) for name, value in values.items()},
    )
    assert job.end() == [0]
    (path,) = (job[1].base / "output/data").glob("told-*")
    words = [bytes.fromhex(word).decode() for word in json.loads(path.read_text())["argv"]]
    assert dict(zip(words[::2], words[1::2], strict=True)) == {f"--{name}": value for name, value in values.items()}


IMPOSSIBLE = {
    "NUL": ({"x": json.dumps("a\0b")}, '"x"'),
    "half a pair": ({"x": '"\\ud83d"'}, '"x"'),
    "NUL in a name": ({"x\0y": "1"}, "x\\u0000y"),
    "NUL in an option of mpirun": ({"sagemaker_mpi_custom_mpi_options": json.dumps("-x A=\0")}, "custom_mpi_options"),
    "NUL in the program": ({"sagemaker_program": json.dumps("train\0.py")}, "program"),
}


@pytest.mark.parametrize("hyperparameters, named", variants(IMPOSSIBLE, "NUL", "NUL in an option of mpirun"))
def test_what_no_program_can_be_given_is_said_in_one_line(hosts, hyperparameters, named):
    job = hosts(2, "train.py", code={"train.py": SCRIPTS["train.py"]}, hyperparameters=hyperparameters)
    assert job.end() == [78, 78]
    for failure in job.failures:
        (line,) = failure.splitlines()
        assert named in line and "NUL characters and halves of surrogate pairs" in line
    assert "Traceback" not in job[1].log + job[2].log


LONGEST = 32 * os.sysconf("SC_PAGE_SIZE") - 1
TOO_LONG = {
    # hyperparameters: what the line names
    "one of 200 KB": ({"text": json.dumps("x" * 200_000)}, ['"text"', "200000 bytes", str(LONGEST), "file"]),
    "one byte": ({"text": json.dumps("é" * (LONGEST // 2) + "xx")}, ['"text"', f"{LONGEST + 1} bytes"]),
    "a list": ({"rows": json.dumps(["x" * LONGEST])}, ['"rows"', str(LONGEST)]),
    "an option of mpirun": (
        {MPI: "true", "sagemaker_mpi_custom_mpi_options": json.dumps("-x A=" + "x" * LONGEST)},
        ["custom_mpi_options"],
    ),
    "all together": (
        {f"text{number}": json.dumps("x" * 100_000) for number in range(60)},
        ["60 hyperparameters and the environment", "fewer or shorter", "file"],
    ),
}


@pytest.mark.parametrize("hyperparameters, named", variants(TOO_LONG, "one byte", "all together"))
def test_what_is_too_long_to_be_an_argument_is_said_before_anything_starts(hosts, hyperparameters, named):
    job = hosts(1, "train.py", code={"train.py": SCRIPTS["train.py"]}, hyperparameters=hyperparameters)
    assert job.end() == [78]
    (line,) = job[1].failure.splitlines()
    assert all(word in line for word in named), line
    assert "Traceback" not in job[1].log


def test_the_longest_argument_arrives_and_one_that_is_none_may_be_longer(hosts):
    """Masking takes no time: each of these took minutes with the former pattern for passwords in URLs."""
    longest = "x" * LONGEST
    job = hosts(
        1,
        "train.py",
        code={"train.py": SCRIPTS["train.py"]},
        hyperparameters={"text": json.dumps(longest), "sagemaker_text": json.dumps("https://me:" * 1_000_000)},
    )
    assert job.end() == [0]
    (path,) = (job[1].base / "output/data").glob("told-*")
    assert [bytes.fromhex(word).decode() for word in json.loads(path.read_text())["argv"]] == ["--text", longest]


REFUSES = """
import sys
if "--lr" in sys.argv:
    sys.exit("Usage:\\n  train.py [--learning-rate=RATE]")
"""


def test_a_program_that_refuses_its_arguments_with_its_usage_only(hosts):
    """Docopt prints nothing else. Secrets among the arguments are masked."""
    job = hosts(1, "train.py", code={"train.py": REFUSES}, hyperparameters={"lr": "0.1", "api_key": "abc123xyz"})
    assert job.end() == [1]
    assert job.failures[0].splitlines()[0] == (
        "algo-1 script (exit code 1): it printed its usage and ended: Usage: train.py [--learning-rate=RATE] "
        "(its arguments: --api_key '***' --lr 0.1)"
    )
