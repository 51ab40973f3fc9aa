"""Judge the balance of parameter servers, and the network."""

from collections.abc import Iterator

from entrypoint.base.wording import percent, size
from entrypoint.observe.report.job import JobRecord
from entrypoint.observe.report.rules.premises import trained_long, well_judged, went_well
from entrypoint.observe.report.rules.resources import busy_cpus
from entrypoint.observe.report.rules.verdict import Verdict

LEAST_CPU, LEAST_BYTES = 2.0, 10e6  # CPU seconds and bytes of all servers, below which nothing is judged
LEAST_BYTES_A_SECOND = 100e6  # bytes a second
PLATEAU = 0.8  # share of the peak, above which the traffic counts as limited


def ps_unbalanced(job: JobRecord, threshold: float) -> Iterator[Verdict]:
    """Compare parameter servers by CPU time, and by bytes those on hosts without training."""
    servers = [(host, process) for host in job.hosts for process in host.processes.values() if process.role == "ps"]
    if len(servers) < 2 or not (went_well(job) and trained_long(job)):
        return
    worked, moved = {}, {}
    for host, process in servers:
        worked[host.name, process.name] = host.columns.total(("process", process.name, "cpu"))
        if not host.trainers:
            moved[host.name, process.name] = sum(map(sum, host.exchanged.values()))
    for amounts, least, words in (
        (worked, LEAST_CPU, lambda amount: f"uses {amount:.3g} CPU-seconds"),
        (moved, LEAST_BYTES, lambda amount: f"exchanges {size(amount)}"),
    ):
        total = sum(amounts.values())
        if total < least or len(amounts) < 2:
            continue
        mean = total / len(amounts)
        (name, server), most = max(amounts.items(), key=lambda item: item[1])
        if most >= threshold * mean and most > mean:
            yield Verdict(
                rule="ps_unbalanced", host=name, process=server, weight=most / mean / max(threshold, 0.1),
                text=f"{words(most)}, {most / mean:.1f} times the average of {len(amounts)} parameter servers",
                advice="divide large variables (variable_partitioner=tf.distribute.experimental.partitioners."
                "MinSizePartitioner()), or use fewer parameter servers",
            )  # fmt: skip


def network(job: JobRecord, threshold: float) -> Iterator[Verdict]:
    """Find hosts whose traffic stays near its peak, which is then the network's limit, while nothing else is busy."""
    for host, start, end in well_judged(job):
        columns = host.columns
        for way in ("received", "sent"):
            rates = columns.between(columns.per_second(("net", way)), start, end)
            peak = max(rates, default=0.0)
            if len(rates) < 10 or peak < LEAST_BYTES_A_SECOND:
                continue
            share = sum(rate >= PLATEAU * peak for rate in rates) / len(rates)
            seconds = columns.observed(start, end)
            gpus = [columns.total(key, start, end) / seconds for key in columns.amounts if key[0] == "gpu" and seconds]
            busy = max([busy_cpus(host, start, end), sum(gpus) / len(gpus) if gpus else 0.0])
            if share >= threshold and busy < 0.5:
                yield Verdict(
                    rule="network", host=host.name, weight=share / max(threshold, 0.01),
                    text=f"{size(peak)} a second are {way} for {percent(share)} of the training, while CPUs and GPUs "
                    f"are {percent(busy)} busy: the network seems to be the limit",
                    advice="send less (fp16 compression, larger batches, fewer exchanges), or take instances with a "
                    "faster network; one large host instead of several needs no network",
                )  # fmt: skip
                break
