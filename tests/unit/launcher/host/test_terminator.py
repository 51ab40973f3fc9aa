"""Test the terminator on a process that ignores SIGTERM, and its child."""

import os
import signal
import subprocess
from types import SimpleNamespace

from waiting import eventually

from entrypoint.launcher.host.process import Process
from entrypoint.launcher.host.terminator import Terminator
from entrypoint.launcher.policy.events import Survived


def test_surviving_child_is_reported_before_its_parents_end():
    """Between the two, the loop may handle other events."""
    script = subprocess.Popen(
        ["sh", "-c", "trap '' TERM; sleep 600 & echo up; wait"],
        start_new_session=True,
        stdout=subprocess.PIPE,
    )
    try:
        assert script.stdout and script.stdout.readline() == b"up\n"
        spec = SimpleNamespace(duty=SimpleNamespace(is_users=True), runs_program=False)
        processes = {"script": Process(name="script", pid=script.pid, group=script.pid)}
        happened: list = []
        endings = Terminator(processes, {"script": spec}, happened.append)
        endings.ask("script", grace=600)

        def left() -> bool:
            endings.look_soon()
            endings.press()
            return endings.left_others("script")

        eventually(left, within=60)
        endings.inspect("script")
        [survived] = happened
        assert isinstance(survived, Survived) and len(survived.left) == 2
        assert endings.left_others("script")
        endings.forget("script")
        assert not endings.left_others("script")
    finally:
        os.killpg(script.pid, signal.SIGKILL)
        script.wait()
        script.stdout.close()
