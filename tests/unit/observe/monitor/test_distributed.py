"""Test the verdict on whether hosts train together, from made-up records of steps and exchanged bytes."""

import re

import pytest

from entrypoint.launcher.job.choices import Mode
from entrypoint.observe.monitor.distributed import Together, advice_on
from entrypoint.observe.monitor.trained_model import model_of
from entrypoint.observe.monitor.variable_traffic import STEPS
from entrypoint.record.lines import line_of

MB = 1_000_000


class Job:
    """Two or more hosts that train for some seconds, with a step each `step` seconds, and the verdict on them.

    `sent`: bytes that each host has sent to each other host at a second of the training and between steps; as
    many come back. `model`: the facts observed of the model, from the first step on. `before`: seconds of preparation;
    `tick`: seconds between two samples; `late`: seconds by which the second host's records lag behind.
    """

    def __init__(self, hosts=2, seconds=150, step=0.1, sent=lambda *_: 0, model=None, before=0, tick=2, **options):
        self.names = [f"algo-{number}" for number in range(1, hosts + 1)]
        self.together = Together(self.names, options.get("shared", False), unseen=options.get("blind", False))
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
        self.together.note(host, line_of([kind, now + 3600 * (now > self.options.get("clock_set", 1e9)), *values]))

    def go(self, seconds, lines):
        """Pass the lines of each host in each of these seconds to the verdict."""
        for now in range(1, seconds):
            for host in self.names:
                for kind, *values in lines(host, now):
                    self.note(host, now, kind, *values)
            self.look(now)
        return self

    def sample(self, host, now, training):
        training -= self.options.get("late", 0) * (host == "algo-2")
        if self.step and training > 0:
            before, after = int((training - self.tick) / self.step), int(training / self.step)
            if host in self.options.get("says", self.names):
                metrics = {"step": after, **({"loss": 1.0} if self.options.get("loss", True) else {})}
                self.note(host, now, "metric", "worker", metrics | self.options.get("metrics", lambda _: {})(after))
        else:
            before = after = 0
            self.note(host, now, "metric", "worker", {"step": 100 * now}) if training <= 0 else None
        if self.model and training > 0 and host in self.options.get("only", self.names):
            model = self.model(after) if callable(self.model) else self.model
            self.note(host, now, "model", "worker", model)
        sent = self.sent(training, before, after) if training > 0 else self.options.get("prepares", 0)
        cpu = self.options.get("cpu", 0.9) * self.tick
        counts = host in self.options.get("count", self.names)
        peers = {other: [sent, sent] for other in self.names if other != host and counts}
        for alone in self.options.get("alone", ()):
            peers = {} if host == alone else {other: both for other, both in peers.items() if other != alone}
        unseen = {"unseen": True} if self.options.get("unseen") else {}
        self.note(host, now, "sample", self.tick, unseen, {"worker": {"cpu": cpu}}, peers)

    @property
    def at_end(self):
        """Return the first verdict after a success: True for "trained alone"."""
        found = self.together.at_end()
        if found:
            self.said.append((None, *found))
        return bool(found)

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
    """Return a function that sends so many bytes in each step."""
    return lambda _, before, after: count * (after - before)


def every(steps, count, first=0):
    """Return a function that sends so many bytes once in so many steps."""
    return lambda _, before, after: count * ((after - first) // steps - (before - first) // steps)


def once(count):
    """Return a function that sends so many bytes in the first seconds."""
    return lambda second, *_: count if second <= 2 else 0


def both(*sent):
    return lambda *when: sum(one(*when) for one in sent)


def row(*said):
    """Return a row of a table: the verdicts, and the arguments of the `Job` that gets them."""
    return lambda **options: ([*said], options)


yes, no, unclear, silent = row("yes"), row("NO"), row("unclear"), row()


def seen(weights, dense=None, **more):
    return {"weights": weights, "dense": weights if dense is None else dense, **more}


def horovod(weights, gradients=0, asked=0, largest=0, **more):
    more = {"tensors": int(gradients > 0), **more}
    return seen(weights, horovod=1, gradients=gradients, asked=asked, largest=largest, **more)


MWMS = {"strategy": "CollectiveAllReduceStrategy", "workers": 2}
SERVERS = {"strategy": "ParameterServerStrategyV2", "workers": 2}
JAX = {"strategy": "DataParallel", "workers": 2}  # Keras 3 says it; plain JAX says nothing of a model
NUMBER = each(150)  # one number, or three, that gloo averages over two hosts, as measured
ON_SERVERS = each(300)  # a number that a worker adds to one of a parameter server
CHATTER = both(lambda *_: 60_000)  # Horovod's own messages, in two seconds

HONEST = {
    "MultiWorkerMirrored": yes(sent=each(100 * MB), model=seen(25 * MB, **MWMS)),
    "MultiWorkerMirrored on loopback, where only the end that opened a connection knows whose the other is": yes(
        count=["algo-1"], sent=each(4 * MB), model=seen(MB, **MWMS)),
    "MultiWorkerMirrored, bfloat16, eight hosts": yes(hosts=8, sent=each(6 * MB), model=seen(25 * MB, **MWMS)),
    "MultiWorkerMirrored, three weights": yes(sent=each(12), model=seen(3, **MWMS)),
    "MultiWorkerMirrored, steps not said": yes(step=0, sent=lambda *_: 80 * MB, model=seen(MB, **MWMS)),
    "MultiWorkerMirrored, a large embedding": yes(sent=each(300_000), model=seen(100 * MB, dense=10_000, **MWMS)),
    "MultiWorkerMirrored, an embedding alone": yes(sent=each(300_000), model=seen(100 * MB, dense=0, **MWMS)),
    "steps of half a minute": yes(seconds=1500, tick=10, step=30, sent=each(100 * MB), model=seen(25 * MB, **MWMS)),
    "a first step that compiles for ten minutes": yes(
        before=600, tick=10, sent=each(100 * MB), model=seen(25 * MB, **MWMS)),
    "parameter servers": yes(shared=True, sent=each(4 * MB), model=seen(MB, **SERVERS)),
    "parameter servers, three weights": yes(shared=True, sent=each(1300), model=seen(3, **SERVERS)),
    "parameter servers of TensorFlow 1, three weights, or the loss added": unclear(
        shared=True, sent=ON_SERVERS, model=seen(3)),
    "parameter servers, a job's steps, said by the chief": yes(
        hosts=16, shared=True, says=["algo-1"], sent=each(8 * MB / 16 / 15), model=seen(MB, **SERVERS)),
    "parameter servers, an embedding": yes(
        shared=True, sent=each(200_000), model=seen(100 * MB, dense=5000, **SERVERS)),
    "parameter servers, one worker beside nearly all weights": yes(
        shared=True, says=["algo-1"], sent=each(2800), model=seen(100 * MB, **{**SERVERS, "workers": 1})),
    "parameter servers of an Estimator": yes(shared=True, sent=each(4 * MB), model=seen(MB)),
    "parameter servers of an Estimator, sixteen hosts": yes(
        hosts=16, shared=True, sent=each(4 * MB / 16 / 15), model=seen(MB)),
    "parameter servers, one has none of the variables": silent(
        hosts=3, shared=True, says=["algo-1"], alone=["algo-3"], sent=each(4 * MB), cpu=0.01),
    "JAX, DataParallel": yes(sent=each(100 * MB), model=seen(25 * MB, **JAX)),
    "JAX, DataParallel, three weights": yes(sent=NUMBER, model=seen(3, **JAX)),
    "JAX, compiled with shardings, how many weights is not known": unclear(sent=each(100 * MB)),
    "JAX, compiled with shardings, three weights, or the loss averaged": unclear(sent=NUMBER),
    "Horovod": yes(sent=each(100 * MB), model=horovod(25 * MB, 25 * MB, 25 * MB, MB)),
    "Horovod, three weights": yes(sent=CHATTER, model=horovod(3, 3, 4, 3)),
    "Horovod, fp16, gradients of eight batches": yes(
        sent=both(CHATTER, each(50 * MB / 8)), model=horovod(25 * MB, 25 * MB, 25 * MB, MB)),
    "Horovod, steps not said": yes(step=0, sent=lambda *_: 40 * MB, model=horovod(MB, MB, MB, MB)),
    "Horovod, gradients averaged by hand": yes(sent=both(CHATTER, each(4 * MB)), model=horovod(MB, 0, MB, MB)),
    "Horovod, half of the gradients averaged by hand": yes(
        sent=both(CHATTER, each(400_000)), model=horovod(MB, 0, MB / 2, MB / 2)),
    "Horovod, an embedding alone": yes(sent=both(CHATTER, each(5000)), model=horovod(MB, dense=0, tensors=1)),
    "Horovod, three weights averaged by hand": unclear(sent=CHATTER, model=horovod(3, 0, 3, 3)),
    "Horovod for numbers, gradients by mpi4py": unclear(sent=both(CHATTER, each(4 * MB)), model=horovod(MB, 0, 1, 1)),
    "Horovod, a thousandth of the gradients": unclear(
        sent=both(CHATTER, each(80_000)), model=horovod(10 * MB, 0, 20_000, 1000)),
    "Horovod, weights averaged every 200 steps": yes(
        sent=both(CHATTER, every(200, 8 * MB)), model=lambda step: horovod(MB, 0, MB, MB, reduced=MB * (step // 200))),
    "weights averaged every 200 steps over sockets": yes(sent=every(200, 4 * MB), model=seen(MB)),
    "weights averaged every 200 steps, how many is not known": unclear(sent=every(200, 4 * MB)),
    "the same, a step in a millisecond": unclear(step=0.001, sent=every(200, 4 * MB), model=seen(MB)),
    "weights averaged after each epoch of 900 steps": yes(
        seconds=400, sent=every(900, 4 * MB), model=seen(MB),
        metrics=lambda step: {"epoch": 1 + step // 900, "epochs": 10}),
    "a thousandth of the gradients over sockets": unclear(
        seconds=8000, tick=20, sent=each(8 * MB / 1000), model=seen(MB)),
    "three weights over sockets, how many is not known": unclear(sent=each(12)),
    "three weights over sockets": unclear(sent=each(12), model=seen(3)),
    "a tokenizer that says steps": yes(before=120, sent=each(100 * MB), model=seen(25 * MB, **MWMS)),
    "a tokenizer that says steps for minutes, and no loss": silent(seconds=600, tick=10, loss=False),
    "the kernel lists no connections, or the address of a host is not known yet": unclear(unseen=True),
    "an hour of preparation that says nothing else": unclear(step=0, seconds=0, before=3600, tick=20),
    "the clock is set forward": yes(clock_set=10, sent=each(3000), model=seen(400, **MWMS), step=0.1),
}  # fmt: skip
DISHONEST = {
    "nothing is exchanged": no(),
    "nothing is exchanged, three weights": no(model=seen(3)),
    "nothing is exchanged, weights are trained without a loss": no(seconds=600, tick=10, loss=False, model=seen(MB)),
    "nothing is exchanged, the only epoch": no(metrics=lambda _: {"epoch": 1, "epochs": 1}),
    "TF_CONFIG overwritten": no(model=seen(MB, strategy="CollectiveAllReduceStrategy", workers=1)),
    "one of three": no(hosts=3, alone=["algo-3"], sent=each(4 * MB), model=seen(MB, **MWMS)),
    "nothing is exchanged, among ranks of one machine, which meet in its memory: told at the end": silent(
        seconds=300, blind=True, model=seen(MB)),
    "slow steps": no(seconds=8000, tick=20, step=30),
    "steps not said": no(seconds=8000, tick=20, step=0, model=seen(MB)),
    "parameter servers that nobody asks": no(shared=True, model=seen(MB)),
    "parameter servers that nobody asks, weights fetched every 200 steps": unclear(
        shared=True, sent=every(200, 4 * MB), model=seen(MB)),
    "parameter servers that nobody asks, and sockets": unclear(shared=True, sent=each(50), model=seen(MB)),
    "parameter servers, weights of its own, the loss added every 500 steps": no(
        shared=True, sent=every(500, 300), model=seen(3)),
    "JAX, the loss averaged": no(sent=NUMBER, model=seen(25 * MB)),
    "JAX, the loss averaged, DataParallel named": no(sent=NUMBER, model=seen(25 * MB, **JAX)),
    "JAX, the loss averaged, three weights": unclear(sent=NUMBER, model=seen(3)),
    "Horovod without its tape, the loss averaged": no(sent=each(3120 / 2), model=horovod(100_000, 0, 1, 1)),
    "Horovod without its tape, and 50 metrics": no(sent=CHATTER, model=horovod(25 * MB, 0, 50, 1)),
    "Horovod without its tape, weights broadcast": no(
        sent=both(CHATTER, once(100 * MB)), model=horovod(25 * MB, 0, 1, 1)),
    "Horovod without its tape, weights sent every 200 steps": no(
        sent=both(CHATTER, every(200, 8 * MB)), model=horovod(MB, 0, 1, 1)),
    "Horovod of one process, weights averaged": no(
        model=lambda step: horovod(MB, 0, MB, MB, reduced=MB * (step // 200))),
    "Horovod without its tape, a small model": unclear(sent=CHATTER, model=horovod(1000, 0, 1, 1)),
    "50 bytes a step over two sockets": no(sent=each(50), model=seen(100_000)),
    "the same, how many weights is not known": unclear(sent=each(50), seconds=3000, tick=10),
    "the same, of few weights": unclear(sent=each(50), model=seen(1000), seconds=3000, tick=10),
    "weights broadcast at the first step": no(sent=once(20 * MB), model=seen(5 * MB)),
    "weights broadcast, how many is not known": no(sent=once(20 * MB)),
    "weights broadcast slowly": row("unclear", "NO")(
        seconds=500, sent=lambda second, *_: 2 * MB if second < 20 else 0, model=seen(5 * MB)),
    "data exchanged before": no(before=60, prepares=10 * MB, model=seen(MB)),
}  # fmt: skip


@pytest.mark.parametrize("said, job", [*HONEST.values(), *DISHONEST.values()], ids=[*HONEST, *DISHONEST])
def test_verdict_separates_distributed_from_separate_training(said, job):
    job = Job(**job)
    assert job.verdicts == said, job.said
    assert (job.ended is not None) is ("NO" in said)


# --- at the end of a job that has succeeded, where there was no verdict before ---

APART = {"made": 2, "made_at": "train.py:31"}  # a strategy was made, and the model outside of its scope
FAST = {"seconds": 4, "step": 0.001}  # 3,000 steps and more in seconds
FEW = {"seconds": 120, "step": 0.4}  # 300 steps
HEARTBEATS = lambda second, *_: 300 * (second % 10 == 0)  # noqa: E731
ONCE = both(once(20 * MB), each(0))
AT_END = {
    "the model outside of the scope, fast steps": no(**FAST, model=seen(MB, **APART)),
    "the model outside of the scope, few steps": no(**FEW, model=seen(MB, **APART)),
    "the model outside of the scope, six steps": no(seconds=4, step=0.5, model=seen(MB, **APART)),
    "the model outside of the scope, weights sent once": no(**FEW, sent=ONCE, model=seen(5 * MB, **APART)),
    "the model outside of the scope, the loss averaged": no(**FEW, sent=NUMBER, model=seen(5 * MB, **APART)),
    "the model outside of the scope, many steps, heartbeats": no(
        seconds=18, step=0.006, sent=HEARTBEATS, model=seen(1474, **APART)),
    "the model outside of the scope, heartbeats": no(
        **FEW, sent=both(once(6000), HEARTBEATS), model=seen(1474, **APART)),
    "the model outside of the scope, three weights, heartbeats": no(
        **FEW, sent=both(once(24), HEARTBEATS), model=seen(3, **APART)),
    "the model outside of the scope, on EFA": no(**FEW, blind=True, model=seen(MB, **APART)),
    "the model outside of the scope, short connections": no(**FEW, unseen=True, model=seen(MB, **APART)),
    "the model outside of the scope, as one host says": no(**FAST, only=["algo-1"], model=seen(MB, **APART)),
    "a coordinator's model outside of the scope": no(
        **FAST, shared=True, says=["algo-1"], model=seen(MB, **APART), only=["algo-1"]),
    "no strategy, fast steps": no(seconds=8, step=0.002, model=seen(MB)),
    "no strategy, few steps": no(**FEW, model=seen(MB)),
    "no strategy, weights sent once": no(**FEW, sent=ONCE, model=seen(5 * MB)),
    "TF_CONFIG overwritten": no(**FEW, model=seen(MB, strategy="CollectiveAllReduceStrategy", workers=1, made=1)),
    "a strategy of each host's own GPUs": no(**FEW, model=seen(MB, strategy="MirroredStrategy")),
    "Horovod that is asked for nothing": no(**FEW, sent=CHATTER, model=horovod(25 * MB)),
    "Horovod that averages the loss": no(**FEW, sent=CHATTER, model=horovod(25 * MB, asked=1, largest=1)),
    "Horovod, weights broadcast": no(**FEW, sent=both(CHATTER, ONCE), model=horovod(5 * MB, asked=1, largest=1)),
    "nothing is known but the loss": no(**FEW),
    "nothing is known but the loss, weights sent once": no(**FEW, sent=ONCE),
    "weights sent for six of 120 seconds": no(
        **FEW, sent=lambda second, *_: 3 * MB if second <= 6 else 0, model=seen(5 * MB)),
    "one of three": no(**FEW, hosts=3, alone=["algo-3"], sent=each(4 * MB)),
    # Nothing is proven of these.
    "a short job of which only the loss is known": silent(**FAST),
    "a short job that is read as one": silent(seconds=2, step=0.001),
    "mpi4py": silent(**FEW, model=seen(MB, others=1), sent=lambda second, *_: 8 * MB * (second % 50 == 0)),
    "mpi4py in shared memory, fast": silent(**FAST, model=seen(MB, others=1)),
    "weights averaged once, at the end": silent(
        **FEW, sent=lambda second, *_: 8 * MB * (second >= 118), model=seen(MB)),
    "weights averaged twice": silent(**FEW, sent=lambda second, *_: 8 * MB * (second in (40, 100)), model=seen(MB)),
    "weights averaged after each of two epochs, outside of the strategy": silent(
        **FEW, sent=every(150, 4 * MB), model=seen(MB, **APART)),
    "the same, a small model, and a long evaluation": silent(
        **FEW, sent=both(HEARTBEATS, lambda second, *_: 6000 * (second in (30, 60))), says=[],
        model=lambda step: seen(1474, steps=min(step, 150), **APART)),
    "the same, in seconds": silent(**FAST, sent=every(2000, 4 * MB), model=seen(MB, **APART)),
    "an optimizer of three weights outside, gradients in strategy.run": silent(
        seconds=18, sent=each(MB), model=seen(3, **APART)),
    "a step of a small model after the training in the strategy": silent(**FAST, model=seen(MB, **MWMS, made=2)),
    "gradients of eight batches": silent(**FEW, sent=every(8, 8 * MB), model=seen(MB, **MWMS, made=2)),
    "variables on parameter servers, without a strategy": silent(
        **FAST, shared=True, model=seen(MB, strategy="ParameterServer")),
    "a coordinator, and workers that only serve": silent(
        **FAST, shared=True, only=["algo-1"], says=["algo-1"],
        model=seen(MB, **{**SERVERS, "workers": 1}, made=2)),
    "only one of two hosts trains": silent(**FAST, only=["algo-1"], says=["algo-1"], model=seen(MB)),
    "Horovod that averages the loss, traffic not seen": no(**FAST, blind=True, model=horovod(MB, asked=1, largest=1)),
    "Horovod's elastic state, traffic not seen": silent(**FAST, blind=True, model=horovod(MB, MB, MB, MB)),
    "a short job of which only the loss is known, traffic not seen": silent(**FAST, blind=True),
    "Horovod's elastic state": silent(**FAST, sent=CHATTER, model=horovod(MB, MB, MB, MB)),
    "Horovod, of which not all is seen": silent(**FEW, sent=CHATTER, model=seen(MB, horovod=2)),
    "Horovod, few syncs of the weights": silent(**FAST, sent=CHATTER, model=horovod(MB, 0, MB, MB, reduced=MB)),
    "JAX in a loop": silent(**FAST, model=seen(MB, others=1), sent=NUMBER),
    "the kernel did not show all": silent(**FEW, model=seen(MB), unseen=True),
}  # fmt: skip


@pytest.mark.parametrize("said, job", AT_END.values(), ids=AT_END)
def test_ended_job_is_judged_separate_only_with_proof(said, job):
    job = Job(**job)
    assert "NO" not in job.verdicts and job.at_end is bool(said), job.said


@pytest.mark.parametrize("seconds", [6, 14, 30])
@pytest.mark.parametrize("name", [name for name in HONEST if "averaged every" not in name and "each epoch" not in name])
def test_short_distributed_job_is_not_judged_separate(name, seconds):
    job = Job(**{**HONEST[name][1], "seconds": seconds})
    assert not job.at_end, job.said


def test_advice_names_the_line_of_the_script():
    job = Job(**AT_END["the model outside of the scope, few steps"][1])
    assert job.at_end
    assert job.words == (
        "distributed: NO: every host trains alone (a strategy of 2 workers was made, and gradients are applied outside "
        "of it, in 295 steps)"
    )
    told = advice_on(Mode.MWMS, job.together.model)
    assert told.startswith("train.py:31 makes the model outside of strategy.scope()")
    assert "train.py:9 applies gradients outside of the strategy" in advice_on(
        Mode.PS, model_of({"made": 2, "trained_at": "train.py:9"})
    )
    assert "hvd.DistributedGradientTape" in advice_on(Mode.MPI, model_of({"trained_at": "train.py:9"}))


def test_verdict_of_separate_training_is_withdrawn_if_hosts_exchange_later():
    """The job's first exchange came late, so its hosts were reported as training alone. The job does not end."""
    late = Job(seconds=400, sent=lambda second, *_: 80 * MB if second > 80 else 0, model=seen(MB, **MWMS))
    assert late.verdicts == ["NO", "yes"] and late.ended is None
    assert late.words == "distributed: yes after all: 2 hosts exchange 8 MB a step for 1 million weights"


SAID = {
    "yes: 3 hosts exchange 12 MB a step for 1 million weights": yes(hosts=3, sent=each(2 * MB), model=seen(MB)),
    "yes: 2 hosts exchange 80 MB a second for 1 million weights": HONEST["MultiWorkerMirrored, steps not said"],
    "NO: algo-3 trains alone (exchanged nothing with other hosts in 500 steps)": DISHONEST["one of three"],
    "NO: every host trains alone (exchanged 52 kB, and no gradients of 100,000 weights, with other hosts in 500 steps)":
        no(seconds=52, sent=each(50), model=seen(100_000)),
    "NO: every host trains alone (Horovod was asked to reduce 1 number, and no gradients of 100,000 weights, in 500 "
    "steps)": DISHONEST["Horovod without its tape, the loss averaged"],
    "NO: every host trains alone (exchanged nothing with other hosts in 500 steps)": no(late=6),
    "NO: every host trains alone (Horovod was asked to reduce 1 number, and no gradients of 200,000 weights, in 500 "
    "steps)": no(late=6, sent=CHATTER, model=horovod(200_000, asked=1, largest=1)),
    "unclear: 2 hosts exchange 24.8 B a step, as the gradients of 3 weights would be; how many are trained is not "
    "known": HONEST["three weights over sockets, how many is not known"],
}  # fmt: skip


@pytest.mark.parametrize("words, row", SAID.items())
def test_verdict_states_its_figures(words, row):
    assert Job(**row[1]).words == f"distributed: {words}"


def test_bytes_per_step_are_right_though_steps_are_reported_late():
    """programs/on_path/ reports the steps of Keras' `fit` at growing intervals."""
    told = [0, 2.5, 5.6, 9.5, 14.4, 20.5, 28.1, 37.6, 49.5, 64.4]

    def model(step):
        return seen(10 * MB, steps=max([10 * at for at in told if 10 * at <= step], default=0), **JAX)

    job = Job(says=[], sent=each(40 * MB), model=model)
    exchanged = float(re.search(r"exchange ([\d.]+) MB a step", job.words)[1])
    assert exchanged == pytest.approx(80, rel=0.25)


def step(number):
    return ["metric", "worker", {"step": number, "loss": 1.0}]


def used(host=None):
    return ["sample", 1.0, host or {}, {"worker": {"cpu": 0.9}}, {}]


def test_very_short_connections_count_as_exchanges():
    """Weights are averaged every 200 steps, each time over a new connection that only one end notices."""

    def lines(host, now):
        return step(10 * now), used({"unseen": True} if now % 20 == 0 and host == "algo-1" else {})

    brief = Job(seconds=0).go(400, lines)
    assert brief.verdicts in ([], ["unclear"]) and brief.ended is None


@pytest.mark.parametrize("ahead, told", [(STEPS + 5, False), (2 * STEPS + 100, True)])
def test_verdict_waits_for_records_of_the_slower_host(ahead, told):
    job = Job(seconds=0)
    job.look = lambda _: None
    job.go(61, lambda host, now: [step(now / 60 * (ahead if host == "algo-1" else 1)), used()])
    assert bool(job.together.look()) is told


def test_verdict_waits_for_a_host_that_has_not_started():
    job = Job(hosts=1, seconds=0)
    job.together = Together(["algo-1", "algo-2"])
    job.note("algo-1", 0, "process", "worker", {"pid": 1})
    assert job.go(1000, lambda _, now: [step(now), used()]).said == []


def test_new_attempt_resets_counts_of_steps_and_bytes():
    job = Job(seconds=48)
    for host in job.names:
        job.note(host, 50, "process", "worker", {"pid": 2})
        job.note(host, 51, *step(480))
        job.note(host, 70, "sample", 19.0, {}, {}, {})
        job.note(host, 70, *step(520))
    job.look(70)
    assert job.said == []
