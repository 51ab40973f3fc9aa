"""Compute short texts, such as versions, that must be equal on all hosts. The prepare step adds code and versions."""

from entrypoint import __version__
from entrypoint.base.errors import clip
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.job.settings import SETTINGS
from entrypoint.launcher.plan.plan import ANY, Plan

try:
    from _blake2 import blake2b  # hashlib's own; hashlib would load OpenSSL, too: 10 ms for which all hosts would wait
except ImportError:
    from hashlib import blake2b


def fingerprint(job: Job, plan: Plan) -> dict[str, str]:
    """Return {thing: version or digest}. The places of a host's files are left out."""
    rows = repr(
        [(s.host, s.name, s.duty, s.argv, s.env, s.env_defaults, s.ports, s.needs, s.restart) for s in plan.processes]
    )
    rows += repr(sorted({spec.cluster for spec in plan.processes}))
    for path, name in ((job.paths.code, "CODE"), (job.paths.run, "RUN"), (job.paths.base, "BASE")):
        rows = rows.replace(str(path), name)
    # Settings of one host's machine may differ. Tokens are compared when hosts call one another, not here.
    shared = [name for name, setting in SETTINGS.items() if not setting.machine and not setting.secret]
    return {
        **({"Open MPI's daemon": plan.daemon} if plan.daemon else {}),
        "the launcher": __version__,
        "the plan": f"{plan.title!r} ({_digest(rows)})",
        "the set of settings": _digest(repr([(name, getattr(job.settings, name)) for name in shared])),
        "the set of channels": _channels(job, plan),
    }


def _channels(job: Job, plan: Plan) -> str:
    """Return a digest of the channels, which hosts that train share; other hosts may lack them."""
    if not any(spec.reader for spec in plan.on(job.cluster.me.name)):
        return ANY
    names = clip(", ".join(channel.name for channel in job.channels.all))
    return f"[{names}] ({_digest(repr(job.channels.all))})"


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
