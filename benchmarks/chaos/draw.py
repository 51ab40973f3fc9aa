"""From a seed to cases: what kind of job, what its scripts do, what goes wrong and when."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.chaos.case import MODES, Case, Fault, Script

STEPS = tuple(f"step {number} ." for number in (1, 3, 8, 15))  # of a script, one each tenth of a second
WHEN = ("started, pid", "hears SIGTERM", "job failed", "job succeeded", "stopping", "attempt 1")
SERVANTS = {  # what the launcher runs beside the user's programs, by mode
    "single": ("prepare",),
    "mwms": ("prepare",),
    "ps": ("prepare", "ps/{rank}"),
    "ps server": ("prepare", "ps/{rank}"),
    "mpi": ("prepare", "sshd", "orted", "mpirun"),
}
KINDS = {  # kind of fault: how often, of a hundred
    "kill": 16, "kill process": 16, "stop": 8, "stop all": 12, "stop process": 4, "pause": 9, "pause process": 4,
    "cut": 10, "late": 5, "hide": 4, "slow": 6, "stall": 10, "fill": 3, "readonly": 3, "pids": 3, "freeze": 4,
}  # fmt: skip
NAMESPACES = ("cut", "hide", "slow", "fill", "readonly", "pids", "freeze")  # these take root


def draw(seed: int, number: int, *, netns: bool, mpi: bool = True, least: int = 0) -> Case:
    """Case `number` of a seed, with at least so many faults: the same whenever it is asked for."""
    dice = random.Random(f"{seed}/{number}")
    mode = dice.choice([mode for mode in MODES if mpi or mode != "mpi"])
    hosts = dice.choices(range(1, 7), [3, 5, 5, 3, 1, 1])[0]
    case = Case(
        name=f"{seed}/{number}",
        mode=mode,
        hosts=hosts,
        each=dice.choice([1, 1, 2]) if mode in ("mwms", "mpi") and hosts < 4 else 1,
        netns=netns,
        wrap=dice.choices(["", "sh", "timeout", "setsid"], [9, 1, 1, 1])[0],
        settings={
            "STOP_GRACE": dice.choice([2.0, 4.0]),
            "RESTARTS": float(dice.choices([0, 1, 2], [7, 2, 1])[0]),
            "PEER_TIMEOUT": dice.choice([4.0, 5.0]),
        },
        seconds=round(dice.uniform(1, 4), 1),
    )
    scripts = {f"{host} {process}": _script(dice, case) for host, process in case.processes}
    case = replace(case, scripts=scripts)
    if dice.random() < 0.25:
        case = _scene(dice, case)
    missing = max(least, dice.choice([0, 1, 2, 2, 3, 4])) - len(case.faults)
    return replace(case, faults=(*case.faults, *_faults(dice, case, missing)))


def _scene(dice: random.Random, case: Case) -> Case:
    """Faults and scripts that meet: those that once broke a launcher, and their kin."""
    host, (other, process) = dice.choice(case.names), dice.choice(case.processes)
    stop = Fault(kind="stop", host="all", when=dice.choice(STEPS))
    fails = Fault(kind="kill", host=other, process=process, when=dice.choice(STEPS))
    scenes: list[tuple[Fault, ...]] = [(stop,), (fails, stop)]
    if len(case.names) > 1:
        scenes += [(Fault(kind="pause", host=host, lasts=9.0, when=STEPS[0]), fails, stop)]
    ends = dice.choice([fails, replace(stop, when="", at=5.0)])
    floods = (Fault(kind="stall", host=host, lasts=25.0, when=STEPS[0]), ends)
    scenes += [floods, floods]
    if case.netns:
        frozen = dice.choice(case.processes)
        scenes += [
            (Fault(kind="freeze", host=frozen[0], process=frozen[1], at=1.0, lasts=8.0), dice.choice([fails, stop])),
            (Fault(kind="slow", host=host, lasts=10.0), Fault(kind="cut", host=host, when=STEPS[1], lasts=2.5)),
        ]
    faults = dice.choice(scenes)
    change: dict[str, Any] = {"sigterm": "saves", "seconds": 3.0, **({"flood": 500} if faults is floods else {})}
    scripts = {who: replace(script, **change) for who, script in case.scripts.items()}
    return replace(case, scripts=scripts, faults=faults, wrap=dice.choice([case.wrap, "timeout", "setsid"]))


def _script(dice: random.Random, case: Case) -> Script:
    bad = dice.random() < 0.5 / len(case.processes)
    return Script(
        seconds=round(dice.uniform(0.3, 3), 1) if bad or dice.random() < 0.2 else case.seconds,
        do=dice.choice(["raises", "exits", "killed", "killed", "segfaults"]) if bad else dice.choice(["ends", "model"]),
        code=dice.choice([1, 3, 75, 255]),
        times=dice.choice([1, 99]),
        sigterm=dice.choices(["", "saves", "ignores", "fails"], [2, 6, 1, 1])[0],
        saving=dice.choice([0.1, 0.3, 0.7]),
        flood=dice.choice([0, 0, 0, 50, 500]),
        orphans=dice.random() < 0.1,
    )


def _faults(dice: random.Random, case: Case, count: int) -> tuple[Fault, ...]:
    kinds = [kind for kind in KINDS if case.netns or kind not in NAMESPACES]
    found: list[Fault] = []
    at = 0.0
    for _ in range(count):
        # Near the one before, half of the time: what crosses is what breaks.
        near = bool(found) and dice.random() < 0.5
        at = round(max(0.1, at + dice.uniform(-0.5, 1.0)), 2) if near else round(dice.uniform(0.3, case.seconds + 3), 2)
        kind = dice.choices(kinds, [KINDS[kind] for kind in kinds])[0]
        found.append(_fault(dice, case, kind, at, found))
    return tuple(found)


def _fault(dice: random.Random, case: Case, kind: str, at: float, before: Sequence[Fault]) -> Fault:
    host = dice.choice(case.names)
    chosen = dice.random()
    moment = {"when": dice.choice(STEPS if chosen < 0.6 else WHEN)} if chosen < 0.7 else {"at": at}
    patience, start = case.setting("PEER_TIMEOUT"), case.setting("START_TIMEOUT")
    brief, long = round(dice.uniform(0.3, 2.5), 1), round(dice.uniform(patience, patience + 5), 1)
    away: Callable[[], float | None] = lambda: dice.choices([brief, long, None], [3, 2, 1])[0]  # noqa: E731
    match kind:
        case "kill" | "stop":
            return Fault(kind=kind, host=host, **moment)
        case "stop all":
            return Fault(kind="stop", host="all", **moment)
        case "kill process" | "stop process":
            return Fault(kind=kind.split()[0], host=host, process=_process(dice, case, host), **moment)
        case "pause process":
            host, process = dice.choice(case.processes)
            return Fault(kind="pause", host=host, process=process, lasts=brief, **moment)
        case "freeze":
            host, process = dice.choice(case.processes)
            return Fault(kind=kind, host=host, process=process, at=max(1.0, at), lasts=dice.choice([2.0, 8.0]))
        case "pause" | "cut":
            return Fault(kind=kind, host=host, lasts=away(), **moment)
        case "hide" if dice.random() < 0.5:  # its name vanishes meanwhile
            moment |= {"at": max(0.1, at)} if "at" in moment else {}
            return Fault(kind=kind, host=host, lasts=away(), **moment)
        case "late" | "hide":
            lasts = start + 4 if dice.random() < 0.1 else brief
            return Fault(kind=kind, host=host, lasts=lasts)
        case "slow":
            return Fault(kind=kind, host=host, at=moment.get("at", 0.0), lasts=dice.choice([2.0, 10.0]))
        case "stall":
            return Fault(kind=kind, host=host, lasts=dice.choice([1.0, 4.0, 15.0]), **moment)
        case "fill" | "readonly":
            return Fault(kind=kind, host=host, process=dice.choice(["output", "model"]), **moment)
    return Fault(kind="pids", host=host, at=moment.get("at", 1.0))


def _process(dice: random.Random, case: Case, host: str) -> str:
    own = [process for where, process in case.processes if where == host]
    servants = [name.format(rank=case.names.index(host)) for name in SERVANTS[case.mode]]
    return dice.choice([*own, *own, *own, *own, *servants])
