"""Test that the other hosts are informed of a fault of the launcher itself, and none waits for a timeout."""

import os

import pytest
from hosts import ROOT

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
    # module, place, when it goes wrong, on which host
    "reading the last output, once": (
        "launcher.host.logs", "Log.tail", "words[0].startswith('worker') and len(calls) < 3", 2
    ),
    "deciding, once": (
        "launcher.policy.policy", "Policy._note",
        "type(words[0]).__name__ == 'Ended' and len(calls) > 3 and 1 not in calls and not calls.append(1)", 1,
    ),
    "deciding, always": (
        "launcher.policy.policy", "Policy._note",
        "type(words[0]).__name__ == 'Ended' and words[0].name != 'prepare'", 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("module, place, when, host", MISTAKES.values(), ids=MISTAKES)
def test_bug_in_the_launcher_ends_every_host_with_an_error(hosts, tmp_path, module, place, when, host):
    hostname = f"ip-10-0-0-{host - 1}.ec2.internal"
    text = SABOTAGE.format(hostname=hostname, module=module, place=place, when=when)
    (tmp_path / "sitecustomize.py").write_text(text)
    path = {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    job = hosts(2, "exits.py", mode="mwms", hyperparameters={"code": "0"}, environment=path)
    codes = job.end()
    assert set(codes) <= {70, 69} and 70 in codes, codes
    assert any("a mistake of ours" in (text or "") for text in job.failures)
