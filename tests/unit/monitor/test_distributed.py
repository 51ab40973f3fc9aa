"""Which jobs train together, by what their hosts were seen to train and to exchange. Records are made up."""

import pytest

from entrypoint.monitor.distributed import Together
from entrypoint.monitor.exchanged import STEPS

MB = 1_000_000


class Job:
    """Two hosts (or more) that train for some seconds, a step in `step` seconds, and what is said of them.

    `sent`: bytes that each host has sent to each other at a second of the training and from one step to another, as
    many as come back. `model`: what is seen of the model, from the first step on. `before`: seconds of preparation;
    `tick`: between two samples.
    """

    def __init__(self, hosts=2, seconds=150, step=0.1, sent=lambda *_: 0, model=None, before=0, tick=2, **options):
        self.names = [f"algo-{number}" for number in range(1, hosts + 1)]
        self.together = Together(self.names, options.get("shared", False))
        self.said, self.ended = [], None
        self.tick = tick
        self.step, self.sent, self.model, self.before, self.options = step, sent, model, before, options
        for host in self.names:
            self.note(host, 0, "process", "worker", {"pid": 1})
        for now in range(tick, before + seconds + 1, tick):
            for host in self.names:
                self.sample(host, now, now - before)
            self.look(now)

    def note(self, host, now, kind, *values):
        self.together.note(host, now + 3600 * (now > self.options.get("clock_set", 1e9)), kind, *values)

    def sample(self, host, now, training):
        if self.step and training > 0:
            before, after = int((training - self.tick) / self.step), int(training / self.step)
            if host in self.options.get("says", self.names):
                metrics = {"step": after, **({"loss": 1.0} if self.options.get("loss", True) else {})}
                self.note(host, now, "metric", "worker", metrics | self.options.get("metrics", lambda _: {})(after))
        else:
            before = after = 0
            self.note(host, now, "metric", "worker", {"step": 100 * now}) if training <= 0 else None
        if self.model and training > 0:
            model = self.model(after) if callable(self.model) else self.model
            self.note(host, now, "model", "worker", model)
        sent = self.sent(training, before, after) if training > 0 else self.options.get("prepares", 0)
        cpu = self.options.get("cpu", 0.9) * self.tick
        peers = {other: [sent, sent] for other in self.names if other != host}
        for alone in self.options.get("alone", ()):
            peers = {} if host == alone else {other: both for other, both in peers.items() if other != alone}
        self.note(host, now, "sample", self.tick, {}, {"worker": {"cpu": cpu}}, peers)

    def look(self, now):
        if found := self.together.look():
            self.said.append((now, *found))
        if self.together.is_proven and self.ended is None:
            self.ended = now

    @property
    def verdicts(self):
        return [{True: "yes", False: "NO", None: "unclear"}[together] for _, together, _ in self.said]

    @property
    def words(self):
        return self.said[-1][2]


def each(count):
    """So many bytes in each step."""
    return lambda _, before, after: count * (after - before)


def every(steps, count, first=0):
    """So many bytes once in so many steps."""
    return lambda _, before, after: count * ((after - first) // steps - (before - first) // steps)


def once(count):
    """So many bytes in the first seconds."""
    return lambda second, *_: count if second <= 2 else 0


def both(*sent):
    return lambda *when: sum(one(*when) for one in sent)


def seen(weights, dense=None, **more):
    return {"weights": weights, "dense": weights if dense is None else dense, **more}


def horovod(weights, gradients=0, asked=0, largest=0, **more):
    return seen(weights, horovod=1, gradients=gradients, asked=asked, largest=largest, **more)


MWMS = {"strategy": "CollectiveAllReduceStrategy", "workers": 2}
SERVERS = {"strategy": "ParameterServerStrategyV2", "workers": 2}
CHATTER = both(lambda *_: 60_000)  # Horovod's own messages, in two seconds

HONEST = {
    "MultiWorkerMirrored": (["yes"], {"sent": each(100 * MB), "model": seen(25 * MB, **MWMS)}),
    "MultiWorkerMirrored, bfloat16, eight hosts": (
        ["yes"], {"hosts": 8, "sent": each(6 * MB), "model": seen(25 * MB, **MWMS)}),
    "MultiWorkerMirrored, three weights": (["yes"], {"sent": each(12), "model": seen(3, **MWMS)}),
    "MultiWorkerMirrored, steps not said": (
        ["yes"], {"step": 0, "sent": lambda *_: 80 * MB, "model": seen(MB, **MWMS)}),
    "MultiWorkerMirrored, a large embedding": (
        ["yes"], {"sent": each(300_000), "model": seen(100 * MB, dense=10_000, **MWMS)}),
    "MultiWorkerMirrored, an embedding alone": (
        ["yes"], {"sent": each(300_000), "model": seen(100 * MB, dense=0, **MWMS)}),
    "steps of half a minute": (
        ["yes"], {"seconds": 1500, "tick": 10, "step": 30, "sent": each(100 * MB), "model": seen(25 * MB, **MWMS)}),
    "a first step that compiles for ten minutes": (
        ["yes"], {"before": 600, "tick": 10, "sent": each(100 * MB), "model": seen(25 * MB, **MWMS)}),
    "parameter servers": (["yes"], {"shared": True, "sent": each(4 * MB), "model": seen(MB, **SERVERS)}),
    "parameter servers, a job's steps, said by the chief": (
        ["yes"], {"hosts": 16, "shared": True, "says": ["algo-1"], "sent": each(8 * MB / 16 / 15),
                  "model": seen(MB, **SERVERS)}),
    "parameter servers, an embedding": (
        ["yes"], {"shared": True, "sent": each(200_000), "model": seen(100 * MB, dense=5000, **SERVERS)}),
    "parameter servers of an Estimator": (["yes"], {"shared": True, "sent": each(4 * MB), "model": seen(MB)}),
    "parameter servers, one has none of the variables": (
        [], {"hosts": 3, "shared": True, "says": ["algo-1"], "alone": ["algo-3"], "sent": each(4 * MB), "cpu": 0.01}),
    "Horovod": (["yes"], {"sent": each(100 * MB), "model": horovod(25 * MB, 25 * MB, 25 * MB, MB)}),
    "Horovod, three weights": (["yes"], {"sent": CHATTER, "model": horovod(3, 3, 4, 3)}),
    "Horovod, fp16, gradients of eight batches": (
        ["yes"], {"sent": both(CHATTER, each(50 * MB / 8)), "model": horovod(25 * MB, 25 * MB, 25 * MB, MB)}),
    "Horovod, steps not said": (
        ["yes"], {"step": 0, "sent": lambda *_: 40 * MB, "model": horovod(MB, MB, MB, MB)}),
    "Horovod, gradients averaged by hand": (
        ["yes"], {"sent": both(CHATTER, each(4 * MB)), "model": horovod(MB, 0, MB, MB)}),
    "Horovod, three weights averaged by hand": (["unclear"], {"sent": CHATTER, "model": horovod(3, 0, 3, 3)}),
    "Horovod for numbers, gradients by mpi4py": (
        ["unclear"], {"sent": both(CHATTER, each(4 * MB)), "model": horovod(MB, 0, 1, 1)}),
    "Horovod, a thousandth of the gradients": (
        ["unclear"], {"sent": both(CHATTER, each(80_000)), "model": horovod(10 * MB, 0, 20_000, 1000)}),
    "Horovod, weights averaged every 200 steps": (
        ["yes"], {"sent": both(CHATTER, every(200, 8 * MB)),
                  "model": lambda step: horovod(MB, 0, MB, MB, reduced=MB * (step // 200))}),
    "weights averaged every 200 steps over sockets": (["yes"], {"sent": every(200, 4 * MB), "model": seen(MB)}),
    "weights averaged every 200 steps, how many is not known": (
        ["unclear"], {"sent": every(200, 4 * MB)}),
    "the same, a step in a millisecond": (
        ["unclear"], {"step": 0.001, "sent": every(200, 4 * MB), "model": seen(MB)}),
    "weights averaged after each epoch of 900 steps": (
        ["yes"], {"seconds": 400, "sent": every(900, 4 * MB), "model": seen(MB),
                  "metrics": lambda step: {"epoch": 1 + step // 900, "epochs": 10}}),
    "a thousandth of the gradients over sockets": (
        ["unclear"], {"seconds": 8000, "tick": 20, "sent": each(8 * MB / 1000), "model": seen(MB)}),
    "three weights over sockets, how many is not known": (["unclear"], {"sent": each(12)}),
    "three weights over sockets": (["unclear"], {"sent": each(12), "model": seen(3)}),
    "a tokenizer that says steps": (["yes"], {"before": 120, "sent": each(100 * MB), "model": seen(25 * MB, **MWMS)}),
    "an hour of preparation that says nothing else": (["unclear"], {"step": 0, "seconds": 0, "before": 3600, "tick": 20}),
    "the clock is set forward": (
        ["yes"], {"clock_set": 10, "sent": each(3000), "model": seen(400, **MWMS), "step": 0.1}),
}  # fmt: skip
DISHONEST = {
    "nothing is exchanged": (["NO"], {}),
    "nothing is exchanged, three weights": (["NO"], {"model": seen(3)}),
    "TF_CONFIG overwritten": (["NO"], {"model": seen(MB, strategy="CollectiveAllReduceStrategy", workers=1)}),
    "one of three": (["NO"], {"hosts": 3, "alone": ["algo-3"], "sent": each(4 * MB), "model": seen(MB, **MWMS)}),
    "slow steps": (["NO"], {"seconds": 8000, "tick": 20, "step": 30}),
    "steps not said": (["NO"], {"seconds": 8000, "tick": 20, "step": 0, "model": seen(MB)}),
    "Horovod without its tape, the loss averaged": (
        ["NO"], {"sent": each(3120 / 2), "model": horovod(100_000, 0, 1, 1)}),
    "Horovod without its tape, and 50 metrics": (["NO"], {"sent": CHATTER, "model": horovod(25 * MB, 0, 50, 1)}),
    "Horovod without its tape, weights broadcast": (
        ["NO"], {"sent": both(CHATTER, once(100 * MB)), "model": horovod(25 * MB, 0, 1, 1)}),
    "Horovod without its tape, a small model": (["unclear"], {"sent": CHATTER, "model": horovod(1000, 0, 1, 1)}),
    "50 bytes a step over two sockets": (["NO"], {"sent": each(50), "model": seen(100_000)}),
    "the same, how many weights is not known": (["unclear"], {"sent": each(50), "seconds": 3000, "tick": 10}),
    "the same, of few weights": (["unclear"], {"sent": each(50), "model": seen(1000), "seconds": 3000, "tick": 10}),
    "weights broadcast at the first step": (["NO"], {"sent": once(20 * MB), "model": seen(5 * MB)}),
    "weights broadcast, how many is not known": (["NO"], {"sent": once(20 * MB)}),
    "weights broadcast slowly": (
        ["unclear", "NO"],
        {"seconds": 500, "sent": lambda second, *_: 2 * MB if second < 20 else 0, "model": seen(5 * MB)}),
    "data exchanged before": (["NO"], {"before": 60, "prepares": 10 * MB, "model": seen(MB)}),
}  # fmt: skip


@pytest.mark.parametrize("said, job", HONEST.values(), ids=HONEST)
def test_an_honest_job_is_never_called_otherwise(said, job):
    job = Job(**job)
    assert job.verdicts == said, job.said
    assert job.ended is None


@pytest.mark.parametrize("said, job", DISHONEST.values(), ids=DISHONEST)
def test_a_job_whose_hosts_train_alone_is_never_called_distributed(said, job):
    job = Job(**job)
    assert job.verdicts == said, job.said
    assert (job.ended is not None) is ("NO" in said)
