"""Test help for newcomers at a terminal: suggestions after wrong words, short help, completion, colours, width."""

import contextlib
import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders import PROGRAM, names, resources, write_config, write_files

from entrypoint import __version__
from entrypoint.base.terminal import shown, wrapped
from entrypoint.cli import help, main
from entrypoint.launcher.job.settings import FOR_USERS
from entrypoint.simulate import local_channels
from entrypoint.simulate.fault import Action
from entrypoint.simulate.run import ENGINES

ROOT = Path(__file__).resolve().parents[2]
LONG = 120.0  # seconds; says when to give up, not how fast anything is
LOCAL = ["local", "train.py"]

WRONG = {
    "nothing": ([], 2, "required: COMMAND; `entrypoint --help` lists all"),
    "no program": (["local"], 2, "required: PROGRAM; `entrypoint local --help` lists all"),
    "command": (["lokal"], 2, "did you mean local? `entrypoint --help` lists all"),
    "no command": (["train.py", "--hosts", "2"], 2, "did you mean `entrypoint local train.py`? `entrypoint --help`"),
    "option": ([*LOCAL, "--hots", "2"], 2, "--hots 2; did you mean --hosts? `entrypoint local --help` lists all"),
    "option with =": (["plan", "--jsn=1"], 2, "did you mean --json? `entrypoint plan --help` lists all"),
    "nothing near": ([*LOCAL, "--xyzzy"], 2, "unrecognized arguments: --xyzzy; `entrypoint local --help` lists all"),
    "engine": ([*LOCAL, "--engine", "dokcer"], 2, "did you mean docker? `entrypoint local --help` lists all"),
    "another case": ([*LOCAL, "--input-mode", "PIPE"], 2, "did you mean Pipe? `entrypoint local --help` lists all"),
    "topic": (["help", "falts"], 2, "did you mean faults? `entrypoint help --help` lists all"),
    "mode": ([*LOCAL, "--mode", "hrovod"], 78, "wanted one of auto, single, ps, mwms, mpi.*; did you mean horovod?"),
    "nearly a field's word": ([*LOCAL, "--mode", "Parameter-Sever"], 78, "; did you mean parameter_server?\n"),
    "fault": ([*LOCAL, "--fault", "kil algo-1"], 78, "; did you mean kill? (.*; see `entrypoint help faults`)"),
    "clause": ([*LOCAL, "--fault", "kill algo-1 wen x"], 78, "; did you mean when? (.*see `entrypoint help faults`)"),
    "host": ([*LOCAL, "--fault", "kill algo1"], 78, "; did you mean algo-1? (.*see `entrypoint help faults`)"),
    "all": ([*LOCAL, "--fault", "kill al"], 78, "; did you mean all? (.*see `entrypoint help faults`)"),
    "folder": ([*LOCAL, "--fault", "fill algo-1:modle"], 78, "; did you mean model? (.*see `entrypoint help faults`)"),
    "channel's option": (
        [*LOCAL, "--channel", "a=.,mod=Pipe"], 78, "see `entrypoint help channels`); did you mean mode?"
    ),
    "channel's value": ([*LOCAL, "--channel", "a=.,mode=pipe"], 78, "wanted one of File, .*; did you mean Pipe?"),
    "hyperparameter": (
        ["plan", "--hosts", "1", "--hyperparameters", "sagemaker_entrypoint_restart=1"], 78,
        "unknown hyperparameter.*did you mean sagemaker_entrypoint_restarts? `entrypoint settings` lists all",
    ),
    "no job": (["plan"], 78, "there is no job in"),
    "no folder": (["plan", "--config", "/nowhere"], 78, "no resourceconfig.json"),
    "no JSON": (["plan", "--config", "bad"], 78, "bad/resourceconfig.json is not JSON "),
    "two jobs": (["plan", "--config", "/nowhere", "--hosts", "2"], 78, "wanted one of them"),
    "half a job": (["plan", "--mode", "ps"], 78, "wanted --hosts N"),
    "no such host": (["plan", "--hosts", "2", "--host", "algo-3"], 78, "wanted one of algo-1, algo-2"),
    "no hosts": (["plan", "--hosts", "0"], 78, "wanted a whole number from 1"),
    "no ranks": (
        ["plan", "--hosts", "2", "--mode", "mpi", "--processes-per-host", "0"], 78, "wanted a whole number from 1"
    ),
    "no use": (["plan", "--hosts", "2", "--processes-per-host", "2"], 78, "is for --mode ps, mwms, mpi and jax"),
    "no pair": (["plan", "--hosts", "2", "--hyperparameters", "lr"], 78, "wanted name=value"),
    "a group of nobody": (["plan", "--group", "a=0"], 78, "wanted NAME=COUNT"),
    "a group without a number": (["plan", "--group", "a=ml.c5.large"], 78, "wanted NAME=COUNT"),
    "a group twice": (["plan", "--group", "a=1", "--group", "a=2"], 78, "names a group twice"),
    "two numbers of hosts": (["plan", "--group", "a=1", "--hosts", "2"], 78, "wanted one of them"),
    "many hosts in groups": (
        ["plan", "--group", "a=900", "--group", "b=101"], 78, "wanted a whole number from 1 to 1000"
    ),
}  # fmt: skip


@pytest.mark.parametrize("words, wanted, said", WRONG.values(), ids=WRONG)
def test_error_of_a_wrong_argument_names_valid_or_nearest_words(capsys, tmp_path, monkeypatch, words, wanted, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path))
    write_files(tmp_path, {"train.py": "", "bad/resourceconfig.json": "{"})
    try:
        code: object = main.run(words, {})
    except SystemExit as ended:
        code = ended.code
    out, err = capsys.readouterr()
    assert (code, out) == (wanted, "")
    assert "usage: entrypoint" in err if code == 2 else err.startswith("error: ") and err.count("\n") == 1
    assert re.search(re.escape(said).replace(r"\.\*", ".*"), err)


def test_misspelled_variable_error_names_the_nearest_setting(capsys):
    assert main.run(["plan", "--hosts", "1"], {"ENTRYPOINT_RESTART": "1"}) == 0
    assert "ignored; did you mean ENTRYPOINT_RESTARTS? `entrypoint settings` lists all\n" in capsys.readouterr().out
    assert main.run(["plan", "--hosts", "1"], {"ENTRYPOINT_LOG_PREFIX": "stream"}) == 78
    assert "did you mean streams?" in capsys.readouterr().err


# --- help ---


def help_of(capsys, *words: str) -> str:
    try:
        assert main.run([*words]) == 0
    except SystemExit as ended:
        assert ended.code == 0
    return str(capsys.readouterr().out)


def examples(capsys, name: str) -> list[list[str]]:
    """Return, for each example in a command's help, the words after `entrypoint`, without comments."""
    text = help_of(capsys, *filter(None, [name]), "--help").partition("\nexample")[2].partition("\n\n")[0]
    found = [shlex.split(line, comments=True) for line in text.splitlines() if "entrypoint " in line]
    return [words[words.index("entrypoint") + 1 :] for words in found]


@pytest.mark.parametrize("name", ["", *main.COMMANDS])
def test_help_of_each_command_has_an_example_that_parses(name, capsys):
    found = examples(capsys, name)
    assert found
    for words in found:
        assert not name or words[0] == name
        if "--help" not in words:
            main.parser(words[0]).parse_args(words[: [*words, "|"].index("|")])


@pytest.mark.parametrize("name", ["", "plan", "local", "settings"])
def test_examples_in_help_run_successfully(name, capsys, tmp_path, monkeypatch):
    """Examples that start hosts only print their plan here; tests/local/test_cli_local.py runs one."""
    write_config(tmp_path, resources(names(2)), PROGRAM)
    write_files(tmp_path, {"train.py": "", "data/rows.csv": ""})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("entrypoint.simulate.local_python.missing", lambda *_: [])
    for words in examples(capsys, name):
        if "--help" not in words and "docker" not in words:
            assert main.run([*words, "--plan"] if words[0] == "local" else words[: [*words, "|"].index("|")], {}) == 0
            out, err = capsys.readouterr()
            assert out and not err, words


def test_version_option_prints_the_version(capsys):
    assert __version__ in help_of(capsys, "--version")


SCREENS = {
    ("--help",): 24,
    **{(name, "--help"): 40 for name in main.COMMANDS},
    **{("help", name): 24 for name in help.TOPICS},
}


@pytest.mark.parametrize("words, most", SCREENS.items(), ids=map(" ".join, SCREENS))
def test_help_fits_on_a_screen(capsys, monkeypatch, words, most):
    monkeypatch.setenv("COLUMNS", "80")
    lines = help_of(capsys, *words).splitlines()
    assert 5 < len(lines) <= most
    assert [line for line in lines if len(line) > 80] == []


def test_help_topics_list_every_word(capsys):
    wanted = {
        "channels": [f"{option}=" for option in local_channels._OPTIONS],
        "engines": ENGINES,
        "faults": Action,
        "modes": ["single", "ps", "mwms", "mpi", "jax", "auto", "parameter_server", "multi_worker_mirrored", "horovod"],
        "settings": map(str.upper, FOR_USERS),
    }
    for topic, words in wanted.items():
        text = help_of(capsys, "help", topic)
        assert [word for word in words if not re.search(rf"\b{word}", text)] == []
    assert set(help.TOPICS) == {*wanted, "completion"}
    overview = help_of(capsys, "--help")
    assert [word for word in (*help.TOPICS, *main.COMMANDS) if word not in overview] == []


def test_help_command_equals_help_option(capsys):
    assert help_of(capsys, "help", "local") == help_of(capsys, "local", "--help")
    assert help_of(capsys, "help") == help_of(capsys, "--help")


# --- completion ---


def completions(line: str, folder: Path) -> list[str]:
    """Return the completions of a line. Request them as a shell does: by environment variables and descriptor 8."""
    pytest.importorskip("argcomplete")
    breaks = " \t\n\"'><=;|&(:"
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n"}
    environment = {**os.environ, **asked, "_ARGCOMPLETE_COMP_WORDBREAKS": breaks, "PYTHONPATH": python_path()}
    command = ["bash", "-c", 'exec "$0" -m entrypoint 8>&1 9>&2 1>/dev/null', sys.executable]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=LONG)
    assert done.stderr == ""
    return [word.strip() for word in done.stdout.split("\n")]


def python_path() -> str:
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


ASKED = {
    "entrypoint re": ["rehearse", "replay", "report"],
    "entrypoint local --proc": ["--processes-per-host"],
    "entrypoint local train.py --mode m": ["mwms", "mpi"],
    "entrypoint local train.py --engine ": ["process", "netns", "docker"],
    "entrypoint local --hosts 2 --fault k": [r"kill\ algo-1", r"kill\ algo-2", r"kill\ all"],
    "entrypoint local --fault 'fill ": ["fill algo-1:output", "fill algo-1:model"],
    "entrypoint local --env ENTRYPOINT_PRIC": ["ENTRYPOINT_PRICE="],
    "entrypoint local t": ["train.py"],
    "entrypoint local train.py --channel rows=da": ["data/"],
    "entrypoint replay out/": ["out/train-ps/"],
    "entrypoint plan --hosts 2 --host a": ["algo-1", "algo-2"],
    "entrypoint plan --hosts ": [""],
    "entrypoint help f": ["faults"],
}


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
@pytest.mark.parametrize("line, wanted", ASKED.items(), ids=ASKED)
def test_shell_gets_completions(line, wanted, tmp_path):
    (tmp_path / "train.py").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "out/train-ps").mkdir(parents=True)
    found = completions(line, tmp_path)
    assert sorted(found) == sorted(wanted)


def test_shell_gets_no_completions_without_argcomplete(tmp_path):
    code = "import sys; sys.modules['argcomplete'] = None; from entrypoint.cli.main import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "_ARGCOMPLETE": "1", "COMP_LINE": "entrypoint re"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=LONG)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_tab_key_completes_words_in_bash(tmp_path):
    """The shell runs the line from `entrypoint help completion`."""
    pytest.importorskip("argcomplete")
    modules = {
        "entrypoint": "entrypoint.cli.main",
        "register-python-argcomplete": "argcomplete.scripts.register_python_argcomplete",
    }
    for name, module in modules.items():
        (tmp_path / name).write_text(f"#!{sys.executable}\nfrom {module} import main\nmain()\n")
        (tmp_path / name).chmod(0o755)
    (line,) = {line.strip() for line in help.TOPICS["completion"].splitlines() if "eval" in line}
    pid, fd = pty.fork()
    if not pid:
        path = f"{tmp_path}:{os.environ['PATH']}"
        os.execvpe("bash", ["bash", "--norc", "-i"], {"PATH": path, "PYTHONPATH": python_path(), "TERM": "dumb"})
    try:
        for typed, answer in [
            (f"{line}; echo re''ady\n", "ready"),
            ("entrypoint loc\t", "local "),
            ("--eng\t", "--engine "),
        ]:
            os.write(fd, typed.encode())
            seen, until = "", time.monotonic() + LONG
            while answer not in seen and time.monotonic() < until:
                if select.select([fd], [], [], 1)[0]:
                    seen += os.read(fd, 9999).decode()
            assert answer in seen
    finally:
        os.close(fd)
        os.waitpid(pid, 0)


# --- colour and width ---

RED = "\x1b[31merror\x1b[0m"


@pytest.mark.parametrize(
    "environment, width, wanted",
    [
        ({}, 80, True),
        ({}, 0, False),
        ({"NO_COLOR": "1"}, 80, False),
        ({"NO_COLOR": ""}, 80, True),
        ({"TERM": "dumb"}, 80, False),
        ({"FORCE_COLOR": "1"}, 0, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, 80, False),
    ],
)
def test_colours_need_a_terminal_or_a_variable(environment, width, wanted):
    assert shown("error: no", environment, width) == (f"{RED}: no" if wanted else "error: no")


def test_words_of_findings_and_outcomes_are_coloured():
    lines = {
        "failed: algo-2 (exit code 1)": 31, "no-go: 1 error, 0 warnings": 31, "go: 0 errors, 1 warning": 32,
        "train.py:3: warning [loss] x": 33, "my job.py: note [loss] x": 36, "report: error: loss: nan": 31,
        "fine    data  read": 32, "entrypoint local: error: no": 31, "errors": 0, "    note: x": 0, "goes on": 0,
    }  # fmt: skip
    found = {line: re.findall(r"\x1b\[([1-9]\d)m", shown(line, {"FORCE_COLOR": "1"}, 0)) for line in lines}
    assert found == {line: [str(colour)] if colour else [] for line, colour in lines.items()}


@pytest.mark.parametrize(
    "words", [["plan", "--hosts", "0"], ["rehearse", "no.py"], ["doctor", "no.py"], ["local", "no.py"]]
)
def test_error_is_coloured_on_request(words, capsys):
    main.run(words, {"FORCE_COLOR": "1"})
    assert capsys.readouterr().err.startswith(RED)
    main.run(words, {})
    assert capsys.readouterr().err.startswith("error: ")


def test_findings_of_doctor_are_coloured_and_its_json_is_not(capsys, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import tensorflow as tf\nwith tf.Session() as s: pass\n")
    main.run(["doctor", str(script)], {"FORCE_COLOR": "1"})
    assert re.search(r"train\.py:2: \x1b\[3[136]m(error|warning|note)\x1b\[0m \[", capsys.readouterr().out)
    main.run(["doctor", str(script), "--json"], {"FORCE_COLOR": "1"})
    assert "\x1b" not in capsys.readouterr().out


def test_lines_break_between_words_at_the_terminals_width():
    path = "/a/" + "long/" * 30
    text = shown(f"error: {'word ' * 40}\n    put: {'word ' * 40}\n\n{path}", {"NO_COLOR": "1"}, 80)
    *lines, last = text.split("\n")
    assert max(map(len, lines)) <= 80 and last == path
    assert lines[1].startswith("    word") and {line[:9] for line in lines[4:6]} == {"        w"}
    assert shown("word " * 40, {}, 0) == "word " * 40


@pytest.mark.parametrize(
    "words", [["help"], *(["help", word] for word in [*help.TOPICS, *main.COMMANDS])], ids=" ".join
)
def test_help_fits_a_narrow_terminal(words, capsys, monkeypatch):
    """Lines of commands stay whole, to be copied; what cannot be broken may be longer."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    with contextlib.suppress(SystemExit):
        main.run(words, {})
    out = capsys.readouterr().out
    long = [
        line
        for line in out.splitlines()
        if len(line) > 60 and not re.match(" {2,}(entrypoint|docker|pip|eval|--)", line)
    ]
    assert out and not long


def test_second_column_goes_on_below_itself():
    assert wrapped("  plan   prints the processes of a job", 30).splitlines() == [
        "  plan   prints the processes", "         of a job",
    ]  # fmt: skip
