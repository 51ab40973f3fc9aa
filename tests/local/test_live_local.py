"""Test a job's live page: on the coordinator's control port, by `entrypoint local --watch`, and `entrypoint top`."""

import json
import re
import urllib.error
import urllib.request

import pytest
from hosts import LONG, entrypoint
from waiting import eventually

STEPS = """
import os, pathlib, time
stop = pathlib.Path(os.environ["TEST_FOLDER"], "stop")
for step in range(100_000):
    print(f"step={step} max_steps=100000 loss={1 / (1 + step):.5f} by {os.environ['SM_CURRENT_HOST']}", flush=True)
    if stop.exists():
        break
    time.sleep(0.05)
"""
TOKEN = "a-token-of-the-test"


def ask(job, path: str, host: int = 1, headers: dict[str, str] | None = None) -> tuple[int, str, bytes]:
    port = job.control_port + (host - 1) * job.stride
    request = urllib.request.Request(f"http://{job.addresses[f'algo-{host}']}:{port}{path}", headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=LONG) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read()


def top(*words: str, token: str = "", code: int = 0) -> str:
    done = entrypoint("top", *words, "--once", COLUMNS="220", ENTRYPOINT_TOKEN=token)
    assert done.returncode == code, done
    return done.stdout


def test_the_coordinator_shows_all_hosts_while_they_run(hosts):
    job = hosts(2, code=STEPS, TOKEN=TOKEN)
    job.says(r"step=5 ", host=2)
    code, kind, page = ask(job, "/")
    assert (code, kind) == (200, "text/html; charset=utf-8") and b"algo" not in page, "it says nothing of the job"
    assert ask(job, "/live")[0] == 401, "what it shows takes the token"
    headers = {"X-Entrypoint-Token": TOKEN}

    def state() -> dict:
        code, kind, body = ask(job, "/live", headers=headers)
        assert (code, kind) == (200, "application/json")
        return json.loads(body)

    def script(name: str) -> dict:
        by_name = {host["name"]: host for host in state().get("hosts", ())}
        processes = by_name.get(name, {}).get("processes", ())
        return next((process for process in processes if process["name"] == "script"), {})

    for host in ("algo-1", "algo-2"):
        eventually(lambda host=host: script(host).get("memory", 0) > 0, within=LONG)
        eventually(lambda host=host: any(f"by {host}" in line for line in script(host).get("lines", ())), within=LONG)
        eventually(lambda host=host: (script(host).get("rate") or 0) > 0, within=LONG)
    shown = state()
    assert shown["outcome"] is None and 0 < shown["progress"]["done"] < 1 and shown["progress"]["left"] > 0
    assert shown["progress"]["metrics"]["loss"] < 1
    assert any("script started" in text for _, _, text in shown["said"])
    assert TOKEN not in json.dumps(shown)
    where = f"http://{job.addresses['algo-1']}:{job.control_port}"
    drawn = top(where, token=TOKEN)
    assert "algo-2" in drawn and "max_steps=100000" in drawn and "running" in drawn
    assert "401" in top(where, code=78)
    assert ask(job, "/live", headers={**headers, "Host": "elsewhere.example"})[0] == 403
    refused = ask(job, "/live", host=2, headers=headers)
    assert refused[0] == 404 and b"its coordinator, algo-1" in refused[2]
    (job.folder / "stop").touch()
    job.must_end(0)


def test_live_page_without_a_monitor_is_absent(hosts):
    job = hosts(1, code=STEPS, MONITOR="false")

    def answer() -> bytes:
        try:
            return ask(job, "/live")[2]
        except urllib.error.URLError:  # a lone host opens its control port a while after its script has started
            return b""

    eventually(lambda: b"ENTRYPOINT_MONITOR is false" in answer(), within=LONG)
    (job.folder / "stop").touch()
    job.must_end(0)


def test_option_watch_serves_the_page_until_a_browser_showed_the_end(local, tmp_path):
    run = local(STEPS, "--watch", count=2, env={"TEST_FOLDER": str(tmp_path)})
    address = eventually(lambda: re.search(r"live page: (http://localhost:\d+/)", run.terminal), within=LONG)[1]

    def state() -> dict:
        with urllib.request.urlopen(f"{address}live", timeout=LONG) as answer:
            return json.load(answer)

    with urllib.request.urlopen(address, timeout=LONG) as answer:
        assert b"<title>" in answer.read()
    eventually(lambda: len(state().get("hosts", ())) == 2 and state()["progress"]["metrics"], within=LONG)
    assert "algo-2" in top(str(run.output))
    (tmp_path / "stop").touch()
    shown = eventually(lambda: state()["outcome"], within=LONG)
    assert shown["kind"] == "succeeded"
    run.must_end(0)


@pytest.mark.parametrize("port", ["70000", "-1"])
def test_invalid_port_of_the_live_page_is_refused(local, port):
    run = local("tells.py", f"--watch={port}")
    run.must_end(78)
    assert "wanted a port" in run.terminal


def test_entrypoint_top_reports_a_missing_job(tmp_path):
    assert "is not a folder" in top(str(tmp_path / "none"), code=78)
    assert "no live page of a job" in top("http://127.0.0.1:9", code=78)
