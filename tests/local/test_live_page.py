"""Test the live page in a browser: a job that runs, one of many hosts, one that failed, and hostile texts."""

import json
import re
import threading
import time
from html import unescape
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from browser import browser_in

from entrypoint.observe.live.serve import PAGE, ROUTES, STATE, Looks, application
from entrypoint.observe.live.view import View
from entrypoint.record.lines import line_of

HOSTILE = "</script><img src=x onerror=\"document.title='taken'\">"


class Silent(WSGIRequestHandler):
    def log_message(self, *words) -> None:
        pass


@pytest.fixture
def shown(tmp_path, no_leftovers):
    """Return what the browser shows of a job's state."""
    browser = browser_in(tmp_path)
    with make_server("127.0.0.1", 0, application(tmp_path, Looks()), handler_class=Silent) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()

        def show(state: dict, **options):
            (tmp_path / STATE).write_text(json.dumps(state))
            return browser.open(f"http://127.0.0.1:{server.server_port}/", **options)

        yield show
        server.shutdown()
        thread.join()


def job_of(count: int, **more: list) -> View:
    """Make the view of a job. `more` maps a process to further lines of its host."""
    made, names, now = View(), [f"algo-{number + 1}" for number in range(count)], time.time()
    about = {"version": 1, "hosts": names, "coordinator": "algo-1", "mode": "mpi", "cpus": 4, "memory_limit": 1000}
    for number, name in enumerate(names):
        rank = f"rank {number}"
        used = {
            "cpu": [1.0, 1.0, 0, 0, 0],
            "memory": [9, 9, 500],
            "net": [0, 0],
            "disk": [0, 0],
            "gpus": [[0.3, 1, 4, 90]],
        }
        lines = [
            ["host", now - 4000, {**about, "job": "resnet-17"}], ["process", now - 3990, rank, {"role": "rank"}],
            ["sample", now, 1.0, used, {rank: {"cpu": 1.0, "memory": 7}}, {}],
            ["metric", now, rank, {"step": 30.0, "max_steps": 100.0, "loss": 0.25}], ["said", now, f"{rank} started"],
            ["lines", now, rank, [f"a line of {rank}"]], *more.get(name.replace("-", "_"), ()),
        ]  # fmt: skip
        for line in lines:
            made.note(name, line_of(line))
    return made


def words_of(dom: str) -> str:
    """Return the text of the page."""
    body = re.sub(r"<(script|style).*?</\1>", "", dom, flags=re.DOTALL)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", body)))


def test_live_page_shows_progress_of_a_running_job(shown):
    page = shown(job_of(2).state(time.time()))
    words = words_of(page.dom)
    assert page.complaints == [] and "<title>resnet-17</title>" in page.dom
    for part in ("running", "1 h 06 min", "Done 30 %", "GPUs busy 30 %", "loss 0.25", "50 % of 4", "a line of rank 1"):
        assert part in words
    assert "<details" not in page.dom and not re.search(r"\b(null|undefined|NaN)\b", words)


def test_live_page_lists_training_processes_first_and_draws_the_loss(shown):
    noise, now = (
        "2026-11-29 21:30:00.123456: I tensorflow/core/util/port.cc:113] oneDNN custom operations are on.",
        time.time(),
    )
    ours = [["process", now, name, {"role": role}] for name, role in (("key", "key"), ("sshd", "sshd"))]
    ours += [["process", now, "ps/0", {"role": "ps"}], ["ended", now, "ps/0", "killed by SIGTERM"]]
    falls = [["metric", now + at, "rank 0", {"step": 30.0 + at, "loss": 1 / (1 + at)}] for at in range(9)]
    page = shown(job_of(1, algo_1=[*ours, *falls, ["lines", now, "rank 0", [noise]]]).state(now))
    names = re.findall(r'<span class="name">([^<]*)<', page.dom)
    assert names == ["rank 0", "key", "sshd", "ps/0"]
    assert re.search(r'<details class="ours"><summary[^>]*>and key, sshd, ps/0<', page.dom)
    assert re.search(rf'<span class="dim">{re.escape(noise)}<', page.dom)
    assert "loss of rank 0 on algo-1 over 8 s, between 0.1111 and 1" in words_of(page.dom) and page.complaints == []


def test_live_page_opens_and_lists_hosts_with_problems_first(shown):
    still = [["still", time.time(), {"rank 6": [90.0, 0.0]}]]
    page = shown(job_of(12, algo_7=still).state(time.time()))
    assert page.complaints == []
    assert re.findall(r'<details[^>]* data-host="([^"]*)"', page.dom)[:2] == ["algo-7", "algo-1"]
    assert len(re.findall(r"<details[^>]* open", page.dom)) == 1
    assert "no sign of progress" in words_of(page.dom) and "Hosts with a problem 1 of 12" in words_of(page.dom)


def test_live_page_fits_a_telephone(tmp_path, no_leftovers):
    named = [
        "metric",
        time.time(),
        "rank 0",
        {"validation/top_5_categorical_accuracy_of_the_second_head_of_the_model": 0.5},
    ]
    state = json.dumps(job_of(1, algo_1=[named]).state(time.time()))
    answer = f"<script>fetch = async () => ({{ ok: true, json: async () => ({state}) }})</script>"
    page = answer + ROUTES[PAGE].body(tmp_path).decode()
    assert browser_in(tmp_path).width_in(page, 390, ".card, .process *") == 390


def test_a_failed_job_shows_its_cause_first(shown):
    cause = {"host": "algo-1", "process": "rank 0", "what": "exit code 1", "error": f"ValueError: {HOSTILE}",
             "details": f"Traceback ...\n{HOSTILE}"}  # fmt: skip
    ends = [["outcome", time.time(), {"kind": "failed", "exit_code": 1, "cause": cause, "there": []}]]
    page = shown(job_of(2, algo_1=ends).state(time.time()))
    top = words_of(page.dom).partition("Hosts")[0]
    assert "failed, exit code 1" in top and "rank 0 on algo-1: exit code 1" in top and f"ValueError: {HOSTILE}" in top
    assert f"Traceback Traceback ... {HOSTILE}" in top and "<details open" not in page.dom
    assert "<title>resnet-17</title>" in page.dom and page.complaints == []


def test_live_page_names_a_lost_host_and_no_use_of_hosts_that_have_ended(shown):
    cause = {"host": "algo-9", "process": "", "what": "lost: does not answer", "error": "", "details": ""}
    ends = [["outcome", time.time(), {"kind": "failed", "exit_code": 69, "cause": cause, "there": []}]]
    page = shown(job_of(12, algo_1=ends).state(time.time()))
    words = words_of(page.dom)
    assert " algo-9: lost: does not answer" in words and "on algo-9" not in words
    assert '<b>algo-1</b><span class="number soft">ended</span>' in page.dom


def test_successful_job_with_hosts_that_train_alone_is_not_green(shown):
    told = {"words": "every host trains alone", "advice": f"train.py:31 makes the model outside {HOSTILE}"}
    ends = [
        ["distributed", time.time(), False, told],
        ["outcome", time.time(), {"kind": "succeeded", "exit_code": 0, "cause": None, "there": []}],
    ]
    page = shown(job_of(2, algo_1=ends).state(time.time()))
    top = words_of(page.dom).partition("Progress")[0]
    assert "The hosts do not train together every host trains alone: train.py:31 makes the model outside" in top
    assert "succeeded, trained apart" in top
    assert HOSTILE in top and 'class="badge bad"' in page.dom and 'class="badge good"' not in page.dom
    assert page.complaints == []
