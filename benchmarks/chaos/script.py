"""Act as the program of jobs from benchmarks/chaos, and write a journal that the launcher never reads.

CHAOS_FOLDER has `scripts.json`, the actions of each process, and receives a journal of each process and attempt: lines
`TIME WHAT WORDS`. The program prints numbered lines, `HOST PROCESS ATTEMPT NUMBER`.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time


def name():
    if "OMPI_COMM_WORLD_RANK" in os.environ:
        return f"rank {os.environ['OMPI_COMM_WORLD_RANK']}"
    if "JAX_PROCESS_ID" in os.environ:
        return f"worker/{os.environ['JAX_PROCESS_ID']}"
    if "TF_CONFIG" in os.environ:
        task = json.loads(os.environ["TF_CONFIG"])["task"]
        return f"{task['type']}/{task['index']}"
    return "script"


HOST, PROCESS, ATTEMPT = os.environ["SM_CURRENT_HOST"], name(), os.environ["ENTRYPOINT_RESTART_COUNT"]
FOLDER = os.environ["CHAOS_FOLDER"]
with open(f"{FOLDER}/scripts.json") as file:
    script = json.load(file)[f"{HOST} {PROCESS}"]
journal = os.open(
    f"{FOLDER}/{HOST},{PROCESS.replace('/', '=')},{ATTEMPT},{time.time_ns()}.journal",
    os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    0o644,
)
number = 0
writing = False


def note(what, *words):
    os.write(journal, " ".join([f"{time.time():.4f}", what, *map(str, words)]).encode() + b"\n")


def line():
    global number
    number += 1
    return f"chaos {HOST} {PROCESS} {ATTEMPT} {number - 1} step {number - 1} ".ljust(199, ".") + "\n"


def say(text):
    global writing
    data, writing = memoryview(text.encode()), True
    while data:
        data = data[os.write(1, data) :]
    writing = False


def work(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if script["needs"]:
            take_part()
        say("".join(line() for _ in range(1 + script["flood"])))
        note("lines", number)
        time.sleep(max(0.0, min(0.1, until - time.monotonic())))


def take_part():
    """Fail like a collective if the process that this one needs has ended by itself."""
    host, _, process = script["needs"].partition(" ")
    begin = f"{host},{process.replace('/', '=')},{ATTEMPT},"
    for entry in [entry for entry in os.scandir(FOLDER) if entry.name.startswith(begin)]:
        with open(entry) as file:
            text = file.read()
        if text.endswith(" exits 0\n") and " sigterm" not in text:
            note("misses", script["needs"])
            raise RuntimeError(
                "Horovod has been shut down. This was caused by an exception on one of the ranks"
                if PROCESS.startswith("rank")
                else "Collective ops is aborted by: Connection reset by peer"
            )


def break_pool():
    """Raise BrokenProcessPool, like a program with a child that the kernel killed for memory."""
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(1) as pool:
        pool.submit(os.kill, 0, 0).result()  # it has started
        pool.submit(kill_self).result()


def kill_self():
    os.kill(os.getpid(), signal.SIGKILL)


def forge():
    """Send a launcher's report that blames another host, with the token from the environment."""
    cause = {"host": script["blames"], "process": "", "what": "exit code 42", "error": "forged", "code": 42}
    cause |= {"details": "", "confidence": "high", "restartable": False, "exit": None}
    report = {"protocol": script["protocol"], "host": HOST, "cause": cause, "done": True}
    body = json.dumps(report)
    head = [
        "POST /report HTTP/1.1",
        "Host: control",
        f"Content-Length: {len(body)}",
        "Content-Type: application/json",
        f"X-Entrypoint-Token: {os.environ.get('ENTRYPOINT_TOKEN', '')}",
    ]
    try:
        with socket.create_connection(("algo-1", script["port"]), 5) as connection:
            connection.sendall("\r\n".join([*head, "", body]).encode())
            note("forges", connection.recv(12).decode("ascii", "replace"))
    except OSError as error:
        note("forges", error.errno)


def save():
    time.sleep(script["saving"])
    path = f"{os.environ['SM_MODEL_DIR']}/saved-{PROCESS.replace('/', '-')}"
    with open(path, "w") as file:
        file.write("weights")


def on_sigterm(*_):
    note("sigterm")
    if not writing:  # in the middle of a line, and nobody may read it
        say("hears SIGTERM\n")
    if script["sigterm"] == "saves":
        save()
        note("saved")
        raise SystemExit(0)
    if script["sigterm"] == "fails":
        raise ValueError("told to stop")


def story():
    if script["sigterm"]:
        signal.signal(signal.SIGTERM, on_sigterm)
    note("starts")
    if script["orphans"]:
        for session in (False, True):
            subprocess.Popen(["sleep", "300"], start_new_session=session)
    work(script["seconds"])
    do = script["do"] if int(ATTEMPT) < script["times"] else "ends"
    if do == "pool":
        break_pool()
    if do == "forges":
        forge()
        work(script["seconds"])
    if do == "raises":
        raise ValueError("the loss is not a number")
    if do == "exits":
        raise SystemExit(script["code"])
    if do in ("killed", "segfaults"):
        sent = signal.SIGKILL if do == "killed" else signal.SIGSEGV
        note("kills", sent.value)
        os.kill(os.getpid(), sent)
    if do == "model":
        with open(f"{os.environ['SM_MODEL_DIR']}/model-{PROCESS.replace('/', '-')}", "wb") as file:
            file.write(bytes(1 << 16))


try:
    story()
except SystemExit as end:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what is noted now is what happens
    note("exits", end.code)
    raise
except BaseException as error:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note("raises", type(error).__name__)
    raise
signal.signal(signal.SIGTERM, signal.SIG_IGN)
note("exits", 0)
sys.exit(0)
