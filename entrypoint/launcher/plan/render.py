"""Render the plan as text for people and as a value for programs. Secrets are masked: plans get pasted into tickets."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from entrypoint.base.secret_names import is_secret
from entrypoint.base.secrets import MASK, NONE
from entrypoint.launcher.job.channels import Channels, matrix, matrix_lines, reads
from entrypoint.launcher.job.choices import WorkerEnd
from entrypoint.launcher.plan.plan import NO_GPU, Duty, Plan, ProcessSpec, Role

FEW_HOSTS = 4  # larger jobs get a summary by role
LONGEST_LINE_CHARS = 160  # characters, in a summary

Here = Callable[[ProcessSpec], Mapping[str, str]]
"""The environment that makes a process's part of this machine's CPUs and GPUs."""


def render(plan: Plan, only_host: str | None = None, here: Here | None = None, whole: bool = True) -> str:
    """Render the plan as text: a block for each process; or, for many hosts and not `whole`, for each role."""
    lines = [plan.title, *(f"note: {note}" for note in plan.notes)]
    if rows := matrix(plan.channels, plan.readers):
        lines += ["", "channels", *matrix_lines(rows)]
    if not whole and only_host is None and len(plan.hosts) > FEW_HOSTS:
        return "\n".join([*lines, *_summary(plan, here)])
    for rank, host in enumerate(plan.hosts):
        if only_host not in (None, host):
            continue
        lines += ["", f"host {host}, rank {rank}" + (" (coordinator)" if rank == 0 else "")]
        for spec in plan.on(host):
            lines += _block(spec, plan.channels, here)
    return "\n".join(lines)


def as_json(plan: Plan, only_host: str | None = None, here: Here | None = None) -> dict[str, Any]:
    """Return the plan as a value for programs, with the content of `render`."""
    ranks = {host: rank for rank, host in enumerate(plan.hosts)}
    return {
        "title": plan.title,
        "notes": list(plan.notes),
        "hosts": [host for host in plan.hosts if only_host in (None, host)],
        "channels": matrix(plan.channels, plan.readers),
        "processes": [
            {
                "host": spec.host,
                "rank": ranks[spec.host],
                "name": spec.name,
                "role": str(spec.role),
                "task": spec.task,
                "decides": spec.decides,
                "command": _masked(spec.argv),
                "env": spec.environment(()),
                "env_if": list(spec.env_if or ()),
                "env_defaults": dict(spec.env_defaults),
                "shards": plan.channels.shards(spec.reader) if spec.reads else {},
                "cpu_share": spec.cpu_share,
                "gpu_share": list(spec.gpu_share or ()),
                **({"env_here": dict(here(spec))} if here else {}),
                "ports": list(spec.ports),
                "needs": [str(need) for need in spec.needs],
            }
            for spec in plan.processes
            if only_host in (None, spec.host)
        ],
    }


def _summary(plan: Plan, here: Here | None) -> list[str]:
    """Render one block per role, whatever the number of hosts."""
    kinds: dict[tuple[Role, str, bool], list[ProcessSpec]] = {}
    for spec in plan.processes:
        kinds.setdefault((spec.role, spec.name.rstrip("0123456789"), spec.decides), []).append(spec)
    lines = ["", f"{len(plan.hosts)} hosts in rank order, {_ends(plan.hosts)}; {plan.hosts[0]} is the coordinator"]
    for specs in kinds.values():
        count = f"{len(specs)} x " if len(specs) > 1 else ""
        names, where = _ends([spec.name for spec in specs]), _hosts_of(specs, plan.hosts)
        lines += ["", f"{count}{specs[0].role}: {names}, on {where}{_remarks(specs[0])}"]
        lines += _merged([_block(spec, plan.channels, here)[1:] for spec in specs])
    return [*lines, "", "--all prints every process"]


def _merged(blocks: Sequence[Sequence[str]]) -> list[str]:
    """Merge the blocks of one role's processes. For lines that differ, show the first line and the number of lines."""
    counts = Counter(line for block in blocks for line in block)
    kinds: dict[str, list[str]] = {}
    for line, count in counts.items():
        name = line.partition("=")[0] if line.startswith("    env ") else line[:14]
        kinds.setdefault(line if count == len(blocks) else name, []).append(line)
    merged = []
    for found in kinds.values():
        line = found[0] if len(found[0]) <= LONGEST_LINE_CHARS else f"{found[0][:LONGEST_LINE_CHARS]} ..."
        differ = f"   (the first of {len(found)} that differ)" if len(found) > 1 else ""
        some = f"   (of {counts[found[0]]})" if len(found) == 1 and counts[found[0]] < len(blocks) else ""
        merged.append(line + differ + some)
    return merged


def _hosts_of(specs: Sequence[ProcessSpec], hosts: Sequence[str]) -> str:
    """Name the hosts of these processes briefly."""
    counts = Counter(spec.host for spec in specs)  # in rank order
    found, others, (least, most) = list(counts), set(hosts) - set(counts), (min(counts.values()), max(counts.values()))
    each = "" if most == 1 else f", {most} on each" if least == most else f", {least} to {most} on each"
    if not others:
        return f"all {len(hosts)} hosts{each}"
    if len(others) == 1 < len(found):
        return f"all hosts but {others.pop()}{each}"
    return (found[0] if len(found) == 1 else f"{len(found)} hosts, {_ends(found)}") + each


def _ends(names: Sequence[str]) -> str:
    """Name the first and the last of these names."""
    return names[0] if names[0] == names[-1] else f"{names[0]} to {names[-1]}"


def _masked(argv: tuple[str, ...]) -> list[str]:
    """Return the words with `***` in place of secrets: `--api_key VALUE` and `NAME_SECRET=VALUE`."""
    words: list[str] = []
    for word in argv:
        name, equals, _ = word.partition("=")
        if words and words[-1].startswith("-") and is_secret(words[-1]):
            word = MASK
        elif equals and is_secret(name):
            word = f"{name}={MASK}"
        words.append(word)
    return words


def _block(spec: ProcessSpec, channels: Channels, here: Here | None) -> list[str]:
    lines = [f"  {spec.name:<12} {spec.role}" + (f", {spec.task}" if spec.task else "") + _remarks(spec)]
    lines.append("    command   " + command_line(spec.argv))
    lines += [f"    env       {key}={_quote(value)}" for key, value in spec.environment(()).items()]
    lines += [f"    default   {key}={_quote(value)}" for key, value in spec.env_defaults]
    if spec.env_if:
        lines.append(f"    if {spec.env_if[0]}, {spec.env_if[2]} replaces {spec.env_if[1]} in TF_CONFIG")
    if spec.ends is WorkerEnd.AUTO:
        lines.append("    its end does not decide if it only serves")
    if spec.runs_program:
        lines.append("    env       SM_* of this host, as sagemaker-training sets them")
    lines += _data(spec, channels)
    lines += _part(spec, here(spec) if here else {})
    if spec.ports:
        lines.append("    ports     " + ", ".join(map(str, spec.ports)))
    lines += [f"    waits for {need}" for need in spec.needs]
    return lines


def _remarks(spec: ProcessSpec) -> str:
    decides = "   its end decides" if spec.decides else ""
    return decides + ("   started by mpirun" if spec.duty is Duty.RANK else "")


def _part(spec: ProcessSpec, env: Mapping[str, str]) -> list[str]:
    """Return the process's part of the host. If numbers are known, they are this machine's."""
    shares = [f"1 of {spec.cpu_share} parts of the host's CPUs"] if spec.cpu_share > 1 else []
    if spec.gpu_share == NO_GPU:
        shares.append("none of its GPUs")
    elif spec.gpu_share:
        shares.append(f"part {spec.gpu_share[0] + 1} of {spec.gpu_share[1]} of its GPUs")
    numbers = [f"{key}={_quote(value)}" for key, value in env.items()]
    if not (shares or numbers):
        return []
    here = f"; here {' '.join(numbers)}" if numbers else ""
    return ["    part      " + ", ".join(shares or ["all of the host's CPUs"]) + here]


def _data(spec: ProcessSpec, channels: Channels) -> list[str]:
    """Describe the channels and shards that the process reads. Shards are numbered from 0."""
    if not (spec.reads and channels.all):
        return []
    lines = ["    reads     " + reads(channels.shards(spec.reader))]
    if spec.reader_if:
        lines.append(f"    if {spec.reader_if[0]}, it reads {reads(channels.shards(spec.reader_if[1]))}")
    return lines


def command_line(argv: tuple[str, ...]) -> str:
    """Return a command as one would type it, secrets masked."""
    return " ".join(command_words(argv))


def command_words(argv: tuple[str, ...]) -> list[str]:
    """Return the words of a command as one would type them, secrets masked."""
    return [_quote(NONE.mask(word)) for word in _masked(argv)]


def _quote(word: str) -> str:
    """Return a word as a shell needs it, with line breaks made visible."""
    if word and all(c.isalnum() or c in "@%+=:,./-_" for c in word):
        return word
    return "'" + word.replace("\n", "\\n").replace("\r", "\\r").replace("'", "'\\''") + "'"
