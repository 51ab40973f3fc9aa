"""Test faults of the launcher itself: the other hosts learn of them, and none waits in vain."""

import os

import pytest
from hosts import ROOT
from variants import variants

MWMS = {"sagemaker_multi_worker_mirrored_strategy_enabled": "true"}
# Breaks the launcher of one host at a given place, as a mistake of ours would.
SABOTAGE = """
import os, sys
if os.environ.get("HOSTNAME") == "{hostname}" and "from entrypoint.train" in " ".join(sys.orig_argv):
    import importlib
    module = importlib.import_module("entrypoint.{module}")
    before = module.{place}
    calls = []
    def broken(self, *words, **named):
        calls.append(words)
        if {when}:
            raise RuntimeError("a mistake of ours")
        return before(self, *words, **named)
    module.{place} = broken
"""
MISTAKES = {
    # module, place, when it goes wrong
    "reading the last output, once": ("launcher.host.logs", "Log.tail",
                                      "words[0].startswith('worker') and len(calls) < 3"),
    "deciding, once": ("launcher.policy.policy", "Policy._note", "type(words[0]).__name__ == 'Ended' and len(calls) > 3"
                       " and 1 not in calls and not calls.append(1)"),
    "deciding, always": ("launcher.policy.policy", "Policy._note",
                         "type(words[0]).__name__ == 'Ended' and words[0].name != 'prepare'"),
}  # fmt: skip


EACH = {f"{name}, {host}": (*mistake, host) for name, mistake in MISTAKES.items() for host in ("algo-1", "algo-2")}
FIRST = ("reading the last output, once, algo-2", "deciding, once, algo-1", "deciding, always, algo-2")


@pytest.mark.parametrize("module, place, when, host", variants(EACH, *FIRST))
def test_every_host_ends_and_none_with_0(hosts, tmp_path, module, place, when, host):
    hostname = f"ip-10-0-0-{int(host[-1]) - 1}.ec2.internal"
    (tmp_path / "sitecustomize.py").write_text(
        SABOTAGE.format(hostname=hostname, module=module, place=place, when=when)
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    job = hosts(2, "exits.py", hyperparameters={**MWMS, "code": "0"}, environment={"PYTHONPATH": path})
    codes = job.end()
    assert set(codes) <= {70, 69} and 70 in codes, codes
    assert any("a mistake of ours" in (text or "") for text in job.failures)
