"""Test that a program in a fork of the launcher runs as it would run in a Python process of its own."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

LOOKS = """
import json, os, signal, sys

print(json.dumps({
    "path": sys.path, "input": sys.stdin.read(), "env": dict(os.environ), "cwd": os.getcwd(), "main": __name__,
    "alone": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()], "file": __file__,
    "fds": [fd for fd in range(3, 200) if os.path.exists(f"/proc/self/fd/{fd}")],
    "handlers": [str(signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)],
    "wakes": signal.set_wakeup_fd(-1),
    "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
}), flush=True)
print("last words", end="")
"""
STARTS = """
import os, signal, sys

sys.path.insert(0, os.environ["FRONT"])
from entrypoint.launcher.host.fork import fork
from entrypoint.launcher.host.logs import Log
from entrypoint.launcher.host.process import spawn
from entrypoint.launcher.plan.plan import Duty, ProcessSpec, Role

signal.signal(signal.SIGTERM, lambda *_: None)
signal.signal(signal.SIGCHLD, lambda *_: None)
woken, wakes = os.pipe()
os.set_blocking(wakes, False)
signal.set_wakeup_fd(wakes)
held = os.open(os.devnull, os.O_RDONLY)
os.set_inheritable(held, True)
log, way, folder = Log("algo-1", prefix=False), *sys.argv[1:]
spec = ProcessSpec(host="algo-1", name="prepare", role=Role.PREPARE, duty=Duty.STEP, stdin="told", argv=(
    sys.executable, *(("-P",) if sys.version_info >= (3, 11) else ()), folder
))
env = {**os.environ, "MORE": "1"}
env.pop("FRONT")
process = fork(spec, env, log) if way == "fork" else spawn(spec, spec.argv, env, log)
assert process.group == process.pid
_, status = os.waitpid(process.pid, 0)
log.drain()
log.flush_unfinished()
log.finish()
os._exit(os.waitstatus_to_exitcode(status))
"""


@pytest.fixture
def run(tmp_path):
    program = tmp_path / "program"
    program.mkdir()

    def run(way: str, source: str, **environment: str) -> subprocess.CompletedProcess:
        (program / "__main__.py").write_text(source)
        package = str(Path(__file__).resolve().parents[4])
        environment = {"PATH": os.environ["PATH"], "FRONT": package, "PYTHONDONTWRITEBYTECODE": "1", **environment}
        command = [sys.executable, "-c", STARTS, way, str(program)]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=240)

    return run


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has the folder of the program in front, too")
@pytest.mark.parametrize(
    "named", ["", "{0}/lib", "{0}/lib:there/../lib:{0}", ":{0}/lib"], ids=["nothing", "one", "some", "here"]
)
def test_forked_program_has_same_surroundings_as_spawned_program(run, tmp_path, named):
    (tmp_path / "lib").mkdir()
    (tmp_path / "there").mkdir()
    environment = {"PYTHONPATH": named.format(tmp_path)} if named else {}
    found = {}
    for way in ("fork", "spawn"):
        done = run(way, LOOKS, **environment)
        assert done.returncode == 0, done.stderr
        first, last = done.stdout.splitlines()
        assert last == "last words"
        found[way] = json.loads(first)
    assert found["fork"]["alone"] == [True, True] and found["fork"]["input"] == "told"
    assert found["fork"] == found["spawn"]


@pytest.mark.parametrize(
    "source, code", [("import sys; sys.exit(65)", 65), ("raise SystemExit('why')", 1), ("1 / 0", 1), ("", 0)]
)
def test_forked_program_ends_with_the_usual_exit_code(run, source, code):
    done = run("fork", source)
    assert done.returncode == code
    assert ("ZeroDivisionError" in done.stdout) == (source == "1 / 0")


def test_forked_program_can_be_terminated(run):
    done = run("fork", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    assert done.returncode == 256 - signal.SIGTERM
