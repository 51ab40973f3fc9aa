"""Test root causes in jobs whose processes communicate, so that symptoms appear, sometimes before the cause.

Each fault has a known truth: the host, the process and the cause that the failure text must name, on every host that
is left. Hosts have networks of their own (engine netns). The outcome table has programs that do not communicate.
"""

from dataclasses import dataclass

import pytest
from hosts import LISTENS

RAISES = "exit code 1): ValueError: the loss of number {} is not a number"
REFUSED = "exit code 1): ConnectionRefusedError: [Errno 111] Connection refused"


@dataclass(frozen=True)
class Fault:
    """A fault, the job that it happens to, and the cause that must be reported."""

    mode: str
    hosts: int
    each: int  # processes on a host
    shape: str  # in which they talk
    manner: str  # what the others do when they notice
    truth: str  # how the failure texts begin
    does: str = ""  # options of the program
    outside: str = ""  # as `--fault` has it
    gone: str = ""  # a host that can tell nobody


FAULTS = {
    "closes before it raises": Fault(
        "mwms", 3, 1, "ring", "raises", f"algo-3 worker/2 ({RAISES.format(2)}", "deed=closes_first by=2"
    ),
    "an error that reads like a symptom": Fault(
        "mpi", 4, 1, "ring", "wraps", f"algo-4 rank 3 ({REFUSED}", "deed=misses_a_service by=3"
    ),
    # A star that is broken waits; only these two end.
    "two fail, one after the other": Fault(
        "single", 3, 1, "star", "waits", f"algo-2 script ({RAISES.format(1)}", "deed=raises by=1 then=2 gap=0.05"
    ),
    "a rank raises in a collective": Fault(
        "mpi", 3, 1, "mpi", "says", f"algo-3 rank 2 ({RAISES.format(2)}", "deed=raises by=2"
    ),
    "one of two processes aborts": Fault(
        "ps", 3, 2, "star", "says", "algo-2 worker/1 (killed by SIGABRT)", "deed=aborts by=2"
    ),
    "killed from outside": Fault(
        "ps", 4, 1, "star", "logs", "algo-1 chief/0 (killed by SIGKILL)", outside="kill algo-1:chief/0"
    ),
    "host cut off": Fault("ps", 3, 1, "ring", "wraps", "algo-2 (lost: ", outside="cut algo-2", gone="algo-2"),
    "ssh daemon killed": Fault(
        "mpi", 3, 2, "star", "wraps", "algo-2 sshd (ended too early, killed by SIGKILL)", outside="kill algo-2:sshd"
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_failure_text_names_the_first_fault(local, netns, fault):
    words = [] if fault.mode == "single" else ["--processes-per-host", str(fault.each)]
    words += ["--hyperparameters", f"shape={fault.shape}", f"manner={fault.manner}", *fault.does.split()]
    outside = [f"{fault.outside} when 'all talk'"] if fault.outside else []
    run = local(
        "talks.py", *words, count=fault.hosts, mode=fault.mode, engine=netns, faults=outside,
        env={"ENTRYPOINT_PS_CHIEF_FIRST": "never"}, **(LISTENS if fault.mode == "ps" else {}),
    )  # fmt: skip
    assert run.end() != 0
    left = [number for number in range(1, fault.hosts + 1) if f"algo-{number}" != fault.gone]
    (named,) = {(run.ml(number) / "output/failure").read_text().partition("\n")[0] for number in left}
    assert named.startswith(fault.truth)
    assert "fault never happened" not in run.terminal
