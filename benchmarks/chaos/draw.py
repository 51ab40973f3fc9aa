"""Draw cases from a seed: the kind of job, the actions of its scripts, and faults with their times."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.chaos.case import MODES, Case, Fault, Script

ENDS = ("hears SIGTERM", "job failed", "stopping")  # what hosts and scripts print while a job ends
OTHERS = ("attempt 1", "job succeeded", "started, pid")  # may never be printed
SERVANTS = {  # what the launcher runs beside the user's programs, by mode
    "single": (),
    "mwms": (),
    "jax": (),
    "ps": ("ps/{rank}",),
    "ps server": ("ps/{rank}",),
    "mpi": ("sshd", "orted", "mpirun"),
}
KINDS = {  # kind of fault: how often, of a hundred
    "kill": 16, "kill process": 16, "stop": 8, "stop all": 12, "stop process": 4, "pause": 9, "pause process": 4,
    "cut": 10, "late": 5, "hide": 4, "slow": 6, "stall": 10, "fill": 3, "readonly": 3, "pids": 3, "freeze": 4,
    "hangup": 5,
}  # fmt: skip
NAMESPACES = ("cut", "hide", "slow", "fill", "readonly", "pids", "freeze", "hangup")  # these take root
BETWEEN = ("cut", "hide", "slow", "late", "hangup")  # these take two hosts
ENDING = ("kill", "kill process", "stop", "stop all", "stop process")  # of kinds, those that a job may end of


def draw(seed: int, number: int, *, netns: bool, mpi: bool = True, least: int = 0, only: str = "") -> Case:
    """Return case `number` of a seed, always the same, with at least `least` faults. `only`: the mode.

    Most faults happen when a script writes its n-th line, so that they fall into the job even on slow machines.
    """
    dice = random.Random(f"{seed}/{number}")
    mode = dice.choice([mode for mode in MODES if mpi or mode != "mpi"])
    mode = only or mode
    hosts = dice.choices(range(1, 7), [3, 5, 5, 3, 1, 1])[0]
    case = Case(
        name=f"{seed}/{number}/{least}" if least else f"{seed}/{number}",
        mode=mode,
        hosts=hosts,
        each=dice.choice([1, 1, 2]) if mode in ("mwms", "mpi", "jax") and hosts < 4 else 1,
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
    if dice.random() < 0.12:
        case = _relation(dice, case)
    missing = dice.choice([count for count in (0, 1, 2, 2, 3, 3, 4) if count >= least]) - len(case.faults)
    return replace(case, faults=(*case.faults, *_faults(dice, case, missing)))


def _scene(dice: random.Random, case: Case) -> Case:
    """Return combined faults and scripts that once broke the launcher, or similar ones."""
    host, (other, process) = dice.choice(case.names), dice.choice(case.processes)
    first, second = (_step(n) for n in sorted(dice.choices(range(1, 16), k=2)))
    stop = Fault(kind="stop", host="all", when=second)
    fails = Fault(kind="kill", host=other, process=process, when=dice.choice([first, second]))
    scenes: list[tuple[Fault, ...]] = [(stop,), (fails, stop)]
    if len(case.names) > 1:
        scenes += [(Fault(kind="pause", host=host, lasts=9.0, when=_step(1)), fails, stop)]
    ends = dice.choice([fails, replace(stop, when="", at=5.0)])
    floods = (Fault(kind="stall", host=other, lasts=25.0, when=_step(1)), ends)
    scenes += [floods, floods]
    if case.netns:
        frozen = dice.choice(case.processes)
        freeze = Fault(kind="freeze", host=frozen[0], process=frozen[1], at=0.3, lasts=8.0)
        scenes += [(freeze, dice.choice([fails, stop]))]
    if case.netns and case.hosts > 1:
        slow = Fault(kind="slow", host=host, lasts=10.0)
        scenes += [(slow, Fault(kind="cut", host=host, when=_step(3), lasts=2.5))]
    faults = dice.choice(scenes)
    change: dict[str, Any] = {"sigterm": "saves", "seconds": 3.0, **({"flood": 500} if faults is floods else {})}
    scripts = {who: replace(script, **change) for who, script in case.scripts.items()}
    return replace(case, scripts=scripts, faults=faults, wrap=dice.choice([case.wrap, "timeout", "setsid"]))


def _relation(dice: random.Random, case: Case) -> Case:
    """Return scripts that end unevenly, break a pool, forge a report, or fail before another attempt succeeds."""
    (host, process), scripts = dice.choice(case.processes), dict(case.scripts)
    one = f"{host} {process}"
    kinds = ["pool", "again"]
    kinds += ["uneven", "uneven"] if case.mode in ("mwms", "mpi", "jax") and len(case.processes) > 1 else []
    kinds += ["forges"] if case.netns and case.hosts > 1 else []
    seconds = round(dice.uniform(0.3, 1.5), 1)
    match dice.choice(kinds):
        case "uneven":  # the one that all others need ends with 0 before them
            scripts = {who: replace(script, needs=one, seconds=seconds + 1.5) for who, script in scripts.items()}
            scripts[one] = replace(scripts[one], needs="", seconds=seconds, do="ends")
        case "pool":
            scripts[one] = replace(scripts[one], seconds=seconds, do="pool")
        case "again":
            scripts = {who: replace(script, do="ends") for who, script in scripts.items()}
            scripts[one] = replace(scripts[one], seconds=seconds, do="killed", times=1)
            case = replace(case, settings={**case.settings, "RESTARTS": 1.0}, wrap="")
        case "forges":
            scripts[one] = replace(scripts[one], seconds=seconds, do="forges")
            case = replace(case, token="of the launchers")
    return replace(case, scripts=scripts)


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
    several = case.hosts > 1
    kinds = [k for k in KINDS if (case.netns or k not in NAMESPACES) and (several or k not in BETWEEN)]
    drawn = dice.choices(kinds, [KINDS[kind] for kind in kinds], k=max(0, count))
    if "hangup" in drawn:  # a host that is cut off meanwhile is rightly lost
        drawn = ["pause" if kind == "cut" else kind for kind in drawn]
    if any(fault.kind == "cut" for fault in case.faults):
        drawn = ["stall" if kind == "hangup" else kind for kind in drawn]
    if not several or dice.random() < 0.8:  # a fault after the job's end meets nobody
        drawn.sort(key=lambda kind: (kind in ENDING, kind == "kill"))
    bad = [script.seconds for script in case.scripts.values() if script.do not in ("ends", "model")]
    life = min(bad, default=max(script.seconds for script in case.scripts.values()))
    step = dice.randint(1, max(1, int(5 * life)))
    writers = {where for where, _ in case.processes}
    found: list[Fault] = []
    for kind in drawn:
        ends = any(fault.kind in ("kill", "stop") for fault in found)
        killed = {fault.host for fault in (*case.faults, *found) if fault.kind == "kill" and not fault.process}
        host = dice.choice([name for name in case.names if name not in killed] or case.names)
        early = not ends and dice.random() < (0.04 if kind in ENDING else 0.12)
        moment = {"at": round(dice.uniform(0.1, 2.0), 2)} if early else _moment(dice, step, ends)
        found.append(_fault(dice, case, kind, host, moment))
        # Mostly near the one before: faults that overlap break launchers. A held-up script writes nothing for a while.
        silent = kind.split()[0] in ("pause", "stall", "freeze") and len(writers) == 1
        step += 0 if silent else dice.choice([0, 0, 0, 1] if ends or kind in ENDING else [0, 1, 2, 4])
    return tuple(found)


def _moment(dice: random.Random, step: int, ends: bool) -> dict[str, Any]:
    """Return the moment of a fault: mostly a script's step, otherwise during the end of the job."""
    if dice.random() < (0.7 if ends else 0.97):
        return {"when": _step(step)}
    return {"when": dice.choice(ENDS if ends else OTHERS)}


def _step(number: int) -> str:
    """Return the line that a script writes at a step, ten of them in a second."""
    return f"step {number} ."


def _fault(dice: random.Random, case: Case, kind: str, host: str, moment: dict[str, Any]) -> Fault:
    patience, start = case.setting("PEER_TIMEOUT"), case.setting("START_TIMEOUT")
    brief, long = round(dice.uniform(0.3, 2.5), 1), round(dice.uniform(patience, patience + 5), 1)
    away: Callable[[], float | None] = lambda: dice.choices([brief, long, None], [3, 2, 1])[0]  # noqa: E731
    match kind:
        case "kill" | "stop":
            return Fault(kind=kind, host=host, **moment)
        case "stop all":
            return Fault(kind="stop", host="all", **moment)
        case "kill process" | "stop process":
            process = _process(dice, case, host)
            moment = {"at": round(dice.uniform(0, 1), 2)} if process == "prepare" else moment
            return Fault(kind=kind.split()[0], host=host, process=process, **moment)
        case "pause process":
            host, process = dice.choice(case.processes)
            return Fault(kind="pause", host=host, process=process, lasts=brief, **moment)
        case "freeze":
            host, process = dice.choice(case.processes)
            at = round(dice.uniform(0.05, 0.4), 2)
            return Fault(kind=kind, host=host, process=process, at=at, lasts=dice.choice([2.0, 8.0]))
        case "hangup":
            return Fault(kind=kind, host=host, at=round(dice.uniform(0.1, 3), 1), lasts=dice.choice([0.0, 1.0, 3.0]))
        case "pause" | "cut":
            return Fault(kind=kind, host=host, lasts=away(), **moment)
        case "hide" if dice.random() < 0.5:  # its name vanishes meanwhile
            return Fault(kind=kind, host=host, lasts=away(), **moment)
        case "late" | "hide":
            lasts = start + 4 if dice.random() < 0.1 else brief
            return Fault(kind=kind, host=host, lasts=lasts)
        case "slow":
            return Fault(kind=kind, host=host, at=dice.choice([0.0, 0.0, 1.0]), lasts=dice.choice([2.0, 10.0]))
        case "stall":
            return Fault(kind=kind, host=host, lasts=dice.choice([1.0, 4.0, 15.0]), **moment)
        case "fill" | "readonly":
            return Fault(kind=kind, host=host, process=dice.choice(["output", "model"]), **moment)
    return Fault(kind="pids", host=host, **({"when": "started"} if dice.random() < 0.7 else {"at": 1.0}))


def _process(dice: random.Random, case: Case, host: str) -> str:
    own = [process for where, process in case.processes if where == host]
    rank = case.names.index(host)
    servants = [name.format(rank=rank) for name in SERVANTS[case.mode] if name != "mpirun" or rank == 0]
    if dice.random() < 0.05:
        return "prepare"  # before the scripts, which then never start
    return dice.choice([*own, *own, *own, *servants])
