"""Start a job by hand, as a user does without a launcher: mpirun or horovodrun over ssh, or the script on each host.

The containers are of the toolkit's image, which has keys for ssh. The first host waits for the others' sshd and starts
the ranks. When these have ended, it ends the others over ssh. If it dies before, the others stay.
"""

import json
from collections.abc import Sequence

from benchmarks.side_by_side.cases import GLOO, HOROVODRUN, MPIRUN, PLAIN, Case

CODE = "/opt/ml/code"
PORT = 2222  # of a worker of MultiWorkerMirrored
STARTS = {
    # Horovod documents these options for mpirun; root takes the first.
    MPIRUN: "mpirun --allow-run-as-root -np {count} --host {slots} "
    "--bind-to none --map-by slot -x PATH --mca pml ob1 --mca btl ^openib",
    HOROVODRUN: "horovodrun -np {count} -H {slots}",
    GLOO: "horovodrun --gloo -np {count} -H {slots}",
}
FIRST = """
for host in {others}; do
    until (: < /dev/tcp/$host/22) 2> /dev/null; do sleep 0.1; done
done
cd {code}
{starts} "$@"
code=$?
for host in {others}; do
    ssh -o ConnectTimeout=10 $host "echo $code > /run/ended; kill \\$(cat /run/sshd.pid)" &
done
wait
exit $code
"""
OTHERS = "/usr/sbin/sshd -D; exit $(cat /run/ended || echo 1)"


def command(case: Case, side: str, hosts: Sequence[str], host: str) -> list[str]:
    """Return what `docker run` starts on this host; the hyperparameters are the script's arguments."""
    options = [word for name, value in case.arguments for word in (f"--{name}", value)]
    if side == PLAIN:
        return [*_tf_config(case, hosts, host), "python", f"{CODE}/{case.program}", *options]
    first, *others = hosts
    if host != first:
        return ["bash", "-c", OTHERS]
    slots = ",".join(f"{each}:{case.ranks}" for each in hosts)
    starts = STARTS[side].format(count=case.hosts * case.ranks, slots=slots)
    script = FIRST.format(others=" ".join(others), starts=starts, code=CODE)
    return ["bash", "-c", script, side, "python", case.program, *options]


def _tf_config(case: Case, hosts: Sequence[str], host: str) -> list[str]:
    """Return the words that set TF_CONFIG; none if the script needs none."""
    if case.mode != "mwms":
        return []
    cluster = {"worker": [f"{each}:{PORT}" for each in hosts]}
    task = {"type": "worker", "index": list(hosts).index(host)}
    return ["env", f"TF_CONFIG={json.dumps({'cluster': cluster, 'task': task})}"]
