"""Do one thing (--do) on one host (--on), at the start, while all run, or after all others have ended (--when).

The program of the outcome table, docs/outcomes.md. --of: how many programs take part. They synchronise in
the folder TEST_MEETING, which hosts on one machine share. Without it, they sleep for a second instead.
"""

import argparse
import contextlib
import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HOST = os.environ["SM_CURRENT_HOST"]
ME = HOST + os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", "")
LONG = 600.0


def say(*words):
    print(*words, flush=True)


def now():
    return f"{time.time():.4f}"  # hosts on one machine share its clock


# --- what can be done ---


def raises():
    raise ValueError("the loss is not a number")


def raises_in_a_call():
    subprocess.run(["false"], check=True)


def imports_what_is_not_there():
    import no_such_package  # noqa: F401


def exits():
    say("no data in the channel")
    sys.exit(3)


def exits_with_255():
    say("no data in the channel")
    sys.exit(-1)


def exits_with_words():
    sys.exit("no data in the channel")


def leaves_at_once():
    say("no data in the channel")
    os._exit(3)


def kills_itself():
    os.kill(os.getpid(), signal.SIGKILL)


def kills_itself_once():
    if os.environ["ENTRYPOINT_RESTART_COUNT"] == "0":
        kills_itself()


def terminates_itself():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(LONG)


def segfaults():
    ctypes.string_at(0)


def aborts():
    os.abort()


def runs_out_of_memory():
    bytearray(1 << 62)


def eats_memory():
    kept = []
    while True:
        kept.append(b"x" * (1 << 24))


def orphans():
    """Leave one orphan in this process group and one in its own session. Both keep stdout open."""
    for session in (False, True):
        subprocess.Popen(["sleep", str(LONG)], start_new_session=session)


def orphans_and_raises():
    orphans()
    raises()


def floods_without_end_of_line():
    block = b"." * (1 << 20)
    for _ in range(args.megabytes):
        os.write(1, block)
    say("\nacts at", now())  # the event is the end


def floods_without_end_of_line_and_raises():
    floods_without_end_of_line()
    raises()


def floods_with_lines():
    block = b"step 1234 loss 0.5678 accuracy 0.9012 learning rate 0.003 examples per second 4567\n" * 12_000
    for _ in range(args.megabytes):
        view = memoryview(block)
        while view:
            view = view[os.write(1, view) :]
    say("acts at", now())


def floods_with_lines_and_raises():
    floods_with_lines()
    raises()


def floods_and_waits():
    floods_with_lines()
    waits()


def closes_its_output():
    say("closing stdout and stderr")
    os.close(1)
    os.close(2)
    time.sleep(0.1)
    sys.exit()


def closes_its_output_and_raises():
    with contextlib.suppress(SystemExit):
        closes_its_output()
    raises()


def prints_no_text():
    os.write(1, b"\xff\xfe\x00 caf\xe9\r\n\x1b[31m\n")


def prints_no_text_and_exits():
    prints_no_text()
    os.write(2, b"no data in caf\xe9\n")
    sys.exit(3)


def writes_its_own_failure():
    Path(os.environ["SM_OUTPUT_DIR"], "failure").write_text("the labels of part 7 are missing")


def writes_its_own_failure_and_exits():
    writes_its_own_failure()
    exits()


def writes_model():
    Path(os.environ["SM_MODEL_DIR"], "weights").write_bytes(bytes(1 << 20))


def writes_output():
    Path(os.environ["SM_OUTPUT_DATA_DIR"], "metrics").write_bytes(bytes(1 << 20))


def lasts():
    time.sleep(args.seconds)


def waits():
    time.sleep(LONG)


def ends():
    pass


def works_in_a_session_of_its_own():
    """Work in a child in a new session. SIGTERM to the process group ends this process and does not reach the child."""
    handler = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, handler)
        os.setsid()
        meet("apart", args.of)
        say("all work apart")
        waits()
    os.waitpid(child, 0)


def asks_a_disk_that_does_not_answer():
    """Wait for a silent disk, if TEST_MEETING has one. SIGKILL cannot end a process that waits for it."""
    folder = Path(os.environ.get("TEST_MEETING", "nowhere"))
    (folder / "disk" / "file").exists()
    waits()


def when_it_hangs():
    """Wait until the silent disk has received the request of another process (tests/silent_disk.py)."""
    folder = Path(os.environ.get("TEST_MEETING", "nowhere"))
    while folder.is_dir() and not list(folder.glob("disk-has-*")):
        time.sleep(0.05)
    say("acts at", now())


def raises_when_it_hangs():
    when_it_hangs()
    raises()


def kills_itself_when_it_hangs():
    when_it_hangs()
    kills_itself()


def stops_mpirun():
    """Send SIGSTOP to mpirun, the grandparent of this process."""
    stat = Path(f"/proc/{os.getppid()}/stat").read_text()
    os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGSTOP)


def raises_later():
    time.sleep(1.5)
    say("acts at", now())
    raises()


# --- what SIGTERM does ---


def saves(*_):
    say("hears SIGTERM at", now())
    time.sleep(0.5)
    Path(os.environ["SM_MODEL_DIR"], f"saved-{ME}").write_text("weights")
    say("saved")
    leave()
    sys.exit(0)


def fails(*_):
    say("hears SIGTERM at", now())
    raise ValueError("the loss is not a number")


def ignores(*_):
    say("hears SIGTERM at", now())


# --- the story ---


def meet(what, count):
    """Wait until the given number of programs have reached this point."""
    if "TEST_MEETING" not in os.environ:
        time.sleep(1)
        return
    folder = Path(os.environ["TEST_MEETING"])
    (folder / f"{what}-{ME}").touch()
    while len(list(folder.glob(f"{what}-*"))) < count:
        time.sleep(0.02)


def leave():
    say("leaves at", now())


def go():
    """Hold a lock that the kernel releases at the end of this process, so that waiting processes notice the end."""
    if "TEST_MEETING" in os.environ:
        folder = Path(os.environ["TEST_MEETING"])
        fcntl.flock(os.open(folder / f"{ME} goes", os.O_CREAT | os.O_WRONLY), fcntl.LOCK_EX)
        (folder / f"{ME} goes").rename(folder / f"left-{ME}")


def outlast_the_others():
    meet("left", args.of)
    for path in Path(os.environ.get("TEST_MEETING", "nowhere")).glob("left-*"):
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH)
    time.sleep(0.3)  # and their launchers know of it


def act():
    say("acts at", now())
    globals()[args.do]()
    leave()


parser = argparse.ArgumentParser()
parser.add_argument("--do", default="ends")
parser.add_argument("--on", default=HOST, help="a host; default: every host")
parser.add_argument("--when", choices=["start", "run", "end"], default="run")
parser.add_argument("--of", type=int, default=1)
parser.add_argument("--others", default="waits", help="what the others do meanwhile")
parser.add_argument("--sigterm", choices=["saves", "fails", "ignores"], help="default: nothing special")
parser.add_argument("--megabytes", type=int, default=1)
parser.add_argument("--seconds", type=float, default=1)
args = parser.parse_args()
acts = args.on == HOST

if args.sigterm:
    signal.signal(signal.SIGTERM, globals()[args.sigterm])
if acts and args.when == "start":
    meet("there", 1)  # the others need not wait
    act()
    sys.exit()
meet("there", args.of)
say("all are here")
if acts and args.when == "end":
    outlast_the_others()
if acts:
    act()
elif args.when == "end":
    leave()
    go()
else:
    globals()[args.others]()
    leave()
