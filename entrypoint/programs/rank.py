"""Run one rank: mpirun starts this program in place of the user's.

It sends the supervisor of its host the rank's number. It gets back the command, this host's environment, and the ends
of two pipes for stdout and stderr; it runs the command and reports how that ended. So each rank has the environment of
its own host, and its lines never pass through mpirun.

With the argument `apart`, all of that happens in a session of its own, which Open MPI's signals do not reach; the
process that Open MPI knows only waits for the end.
"""

# The C parts of the modules signal and socket, with the same functions. Those modules import enum, and json imports re:
# this process stays as long as its rank, and with them it would hold 1.5 MB more.
import _signal as signal
import _socket as socket
import errno
import marshal
import os
import select
import sys

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SHORTAGES = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # processes, files or memory


def send(connection: socket.socket, values: dict[str, int]) -> None:
    """Send numbers to the supervisor as a line of JSON."""
    pairs = ", ".join(f'"{name}": {value}' for name, value in values.items())
    connection.sendall(f"{{{pairs}}}\n".encode())


def receive(connection: socket.socket) -> tuple[dict, list[int]]:
    """Return the supervisor's answer: a byte with the pipe ends, and an object of marshal. Raise EOFError if cut off.

    The supervisor of this host starts the same Python.
    """
    _, ancillary, _, _ = connection.recvmsg(1, socket.CMSG_LEN(8))
    with open(connection.fileno(), "rb", closefd=False) as answer:
        order = marshal.load(answer)
    return order, memoryview(ancillary[0][2]).cast("i").tolist()


def added_by_mpirun(parent: int) -> dict[str, str]:
    """Return mpirun's own variables, and those that the user passed with -x.

    The rest of our environment is that of mpirun or, on other hosts, of an ssh session, and not the job's.
    """
    try:
        with open(f"/proc/{parent}/environ", "rb") as file:
            inherited = set(file.read().split(b"\0"))
    except OSError:
        inherited = set()
    added = {key: value for key, value in os.environ.items() if os.fsencode(f"{key}={value}") not in inherited}
    added.pop("ENTRYPOINT_RANKS", None)
    return added


def outlives(pid: int, parent: int) -> bool:
    """Wait until the first of two processes ends. Return whether `pid`, a child of ours, is still running."""
    try:
        child, poll = os.pidfd_open(pid), select.poll()
        poll.register(child, select.POLLIN)
        poll.register(os.pidfd_open(parent), select.POLLIN)
        return child not in [fd for fd, _ in poll.poll()]
    except OSError:  # the kernel is old, or the parent is gone already
        return False


def stand_for(pid: int, parent: int) -> int:
    """Stand in for a rank that runs apart: end as the rank does, or when our parent ends."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # the supervisor ends ranks
    return 70 if outlives(pid, parent) else end_as(os.waitpid(pid, 0)[1])


def end_as(status: int) -> int:
    """Return the exit code of a wait status, or die of the same signal."""
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL) if os.WTERMSIG(status) != signal.SIGKILL else None
        os.kill(os.getpid(), os.WTERMSIG(status))
    return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 70


def code_for(error: OSError) -> int:
    """Return the exit code of a rank that cannot be started: 70 if its host lacks something, else 127."""
    return 70 if error.errno in SHORTAGES else 127


def main() -> int:
    parent, is_apart = os.getppid(), sys.argv[1:] == ["apart"]
    if is_apart:
        try:
            pid = os.fork()
        except OSError as error:
            print(f"rank {os.environ['OMPI_COMM_WORLD_RANK']} cannot be started: {error}", file=sys.stderr)
            return code_for(error)
        if pid:
            return stand_for(pid, parent)
        os.setsid()
    me = {
        "rank": int(os.environ["OMPI_COMM_WORLD_RANK"]),
        "local_rank": int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"]),
        "size": int(os.environ["OMPI_COMM_WORLD_SIZE"]),
        "local_size": int(os.environ["OMPI_COMM_WORLD_LOCAL_SIZE"]),
        "attempt": int(os.environ.get("ENTRYPOINT_RESTART_COUNT") or 0),
        "pid": os.getpid(),
        "cpus": len(os.sched_getaffinity(0)),  # mpirun may have bound us to some
    }
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.environ["ENTRYPOINT_RANKS"])
    send(connection, me)
    order, (out, err) = receive(connection)
    if "refused" in order:
        print(f"rank {me['rank']}: {order['refused']}", file=sys.stderr)
        return 70
    environment = {**order["env"], **added_by_mpirun(parent)}
    # The program handles signals for this rank's group; this process only waits. No signal may get lost in between.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        pid = os.fork()
    except OSError as error:
        os.write(err, f"{order['argv'][0]} cannot be started: {error}\n".encode())
        code = code_for(error)
        send(connection, {"wait_status": code << 8})
        return code
    if pid == 0:
        code = 127
        try:
            for number in (*SIGNALS, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            os.dup2(out, 1)
            os.dup2(err, 2)
            os.chdir(order["cwd"])
            os.execvpe(order["argv"][0], order["argv"], environment)
        except OSError as error:
            os.write(err, f"{order['argv'][0]} cannot be run: {error}\n".encode())
            code = code_for(error)
        finally:
            os._exit(code)
    if signal.SIGTERM in signal.sigpending():  # it came before the program was there
        os.kill(pid, signal.SIGTERM)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    os.close(out)
    os.close(err)
    if is_apart:  # Open MPI also waits for the end of our output
        with open(os.devnull, "r+b") as nothing:
            for fd in range(3):
                os.dup2(nothing.fileno(), fd)
    try:
        if outlives(pid, parent):  # report it, since other hosts may not notice that mpirun's part here is gone
            send(connection, {"orphaned": 1})
    except OSError:
        pass  # the supervisor is gone; so below
    status = os.waitpid(pid, 0)[1]
    try:
        send(connection, {"wait_status": status})
        connection.recv(1)  # the supervisor has noted the end, so it knows before mpirun does
    except OSError:
        pass  # mpirun still sees the end
    return end_as(status)


if __name__ == "__main__":
    sys.exit(main())
